"""The MCP registry: a public list of servers, asked over HTTP or read from a snapshot.

`client` gets pages and single servers, `server_record` parses them, and `server_entry` turns one into an entry of our
files. What a registry says is untrusted text: names and versions have a strict form, and no text becomes a reference to
a variable of the user.
"""
