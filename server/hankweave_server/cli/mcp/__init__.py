"""`hankweave mcp`: checkpoint tools for agents; only this package imports the MCP SDK.

- `command`: the command
- `server`: the tools and their answers
- `daemon`: the connection to the server of the execution
"""
