"""Codex as an agent, through `codex exec --json`.

Modules, in reading order:

- `adapter`: the command line, Codex's home in the execution directory, and the login
- `stream`: one line of `codex exec --json`, parsed; pure
"""
