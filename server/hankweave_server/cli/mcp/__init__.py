"""What agents can ask for through `hankweave mcp`; only this package imports the SDK of MCP."""
