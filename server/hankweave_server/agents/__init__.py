"""Agents as subprocesses: start them, read their output, stop them.

An agent is one program that works on one codon. A keeper process adopts every orphan of the
agent's process tree, so the tree ends with the agent, the codon or the server, whichever ends
first. The agent's output is kept in its log and passed to `execution` as `AgentSignal`s. Output
of agents is never trusted. The package knows neither the ledger nor checkpoints.

Modules, in reading order:

- `base`: tasks, signals, limits and ends of agents; the interface of every adapter
- `session`: one agent at work: processes, pipes, log and time limits
- `process/`: processes, the keeper, pipes and cleanup
- `stream_json`: one line of Claude's stream-json or plain text, parsed; and the answers to it
- `agent_log`: the agent's log: one JSON object per line, readable by its owner only
- `claude`: Claude Code
- `codex/`: Codex
- `acp/`: agents that speak the Agent Client Protocol (Gemini CLI, OpenCode, Pi and others)
- `scripted/`: the scripted agent of the demo and the tests
- `fence`: what confines an agent or a command
- `registry`: which agent runs a codon; any command as an agent
- `hook_server`: the socket on which an agent's hooks wait before a tool call
- `hook_client`: the hook command itself, started by the agent before every tool call
- `inventory`: which known agents are installed here: program, version, login
- `preflight`: the check before a start that every codon's agent can run here, and what it is
"""
