"""Executions on this machine: list them, read one, serve one for a single command."""
