"""Decisions about checkpoints alone.

Modules, in reading order:

- `titles`: what a checkpoint is called, everywhere by the same name
"""
