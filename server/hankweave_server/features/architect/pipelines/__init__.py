"""Architect pipelines on the command line.

Modules, in reading order:

- `command`: `pipeline`
- `run`: a pipeline while it runs: messages, summary, exit code
- `report`: the report, as JSON, Markdown or a pull request comment
- `history`: `history`: list the checkpoints of steps, as Architect does
- `steps`: Architect's steps, from a shadow repository or the workspace's own git
"""
