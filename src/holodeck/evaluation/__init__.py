"""Test cases of an agent: each is run, its answer is measured, and the verdict says what was found."""
