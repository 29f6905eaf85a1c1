"""The commands of `holodeck mcp` that edit server entries: in files of ours, and in those of other programs."""
