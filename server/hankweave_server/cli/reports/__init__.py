"""Reports, for people and for programs.

Modules, in reading order:

- `document`: a document of tables and facts, as Markdown and as a web page
- `command`: `report`: what became of an execution
- `log`: `log`: the journal as lines, and the graph of checkpoints
"""
