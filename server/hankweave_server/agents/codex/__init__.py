"""Codex as an agent, through `codex exec --json`."""
