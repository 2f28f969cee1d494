"""Codex as an agent, through `codex exec --json`.

Modules, in reading order:

- `adapter`: the command line, Codex's home in the execution directory, and the login
- `stream`: one line of `codex exec --json`, parsed; pure
- `rollout`: the file in which Codex keeps a thread: tokens, and what a resumed thread needs
"""
