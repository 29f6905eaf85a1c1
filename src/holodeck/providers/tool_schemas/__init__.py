"""Adapts tool schemas to what each provider accepts, and restores the arguments of calls to the original schema."""
