"""Measurements: each compares us with something else in the same run, and prints a table."""
