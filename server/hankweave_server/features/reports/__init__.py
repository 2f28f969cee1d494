"""Reports of what became of an execution, for people and for programs.

Modules, in reading order:

- `rows`: the rows of a report
- `summary`: what the events of an execution add up to
- `report`: a report, from a summary and the state
- `command`: `report`
"""
