"""`python -m holodeck` is the `holodeck` command.

With `-m`, Python puts the current folder first on the import path: a `click.py` in a stranger's folder would be
imported in place of the installed one. So that entry is removed before anything else is imported. It stays if the
package itself was imported from the current folder, as in a folder with all packages of an application.
"""

# Both are part of the interpreter, so that they are not looked up in the current folder.
import os
import sys

_folder = os.path.realpath(os.curdir)
# Python adds no entry with `-P`, `-I` or PYTHONSAFEPATH.
if (
    not sys.flags.safe_path
    and os.path.realpath(sys.path[0]) == _folder
    and os.path.dirname(os.path.dirname(os.path.realpath(__file__))) != _folder  # noqa: PTH120 - pathlib is not built in
):
    del sys.path[0]

from holodeck.cli.entry import main  # noqa: E402

main()
