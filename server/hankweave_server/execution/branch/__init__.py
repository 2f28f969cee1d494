"""New executions from a checkpoint of another one.

Modules, in reading order:

- `branch`: a new execution, made completely or not at all
- `location`: where a branch may lie, and how it gets its final name
"""
