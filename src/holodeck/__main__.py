"""`python -m holodeck` is the `holodeck` command."""

from holodeck.cli.main import main

main()
