"""`hankweave map`.

Modules, in reading order:

- `command`: what a command is given, and its course
- `view`: the output: lines, JSON lines, or a table above a progress bar
"""
