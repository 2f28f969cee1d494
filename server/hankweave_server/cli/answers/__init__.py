"""Commands that answer questions about the past, one module for each.

Modules, in reading order:

- `blame`: `blame`: who has written each line of a file
- `why`: `why`: the story behind a line, or behind a step
- `changes`: `changes`: the changes of one file
- `pickaxe`: `pickaxe`: the calls at which a text came or went
- `bisect`: `bisect`: the first checkpoint at which a command fails
"""
