"""Checks of validated files that read more than the file: what is on this machine, and what test cases need."""
