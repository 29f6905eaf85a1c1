"""`holodeck test`: run the test cases of agents, and report why one failed."""
