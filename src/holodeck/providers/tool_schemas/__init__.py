"""Tool schemas as each provider accepts them, and the arguments of calls restored to the original schema."""
