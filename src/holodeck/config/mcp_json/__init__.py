"""Lists of MCP servers in files of other programs, such as `mcp.json`, read into the models of our own files.

`loader` reads a file and has each entry found (`find_servers`), translated key by key (`translate`) and validated like
a server of our own. `command_line` does the same for a URL or a command line in place of a file.
"""
