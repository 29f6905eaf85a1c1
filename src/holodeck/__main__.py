"""`python -m holodeck` is the `holodeck` command."""

from holodeck.cli.entry import main

main()
