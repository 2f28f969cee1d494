"""`hankweave mcp`: tools for agents. Only this package imports the MCP SDK.

Modules, in reading order:

- `command`: the command
- `server`: the tools, as agents read them, on stdin and stdout
- `lines`: the answers about lines of files
- `daemon`: a session with the execution's server, for each call
"""
