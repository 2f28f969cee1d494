"""Decisions about checkpoints alone.

Modules, in reading order:

- `records`: checkpoints that the journal names, and runs rebuilt from commits
- `titles`: what a checkpoint is called, everywhere by the same name
"""
