"""Measures of a run: each compares an answer, or the calls and costs of a run, with what a test case expects."""
