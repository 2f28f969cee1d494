"""Agents that speak the Agent Client Protocol, through a bridge process.

Modules, in reading order:

- `adapter`: the adapter, and what is known of single ACP agents
- `bridge`: the program between server and agent: ACP on one side, stream-json on the other
- `dialogue`: the order of requests from initialize to the end of a turn, and what answers mean
- `events`: session updates, joined to the messages and tool calls that Claude Code would print
- `json_lines`: the JSON lines on both sides of the bridge, bounded and cleaned
- `conversations`: the conversation of a session in one file, wherever the agent keeps it
"""
