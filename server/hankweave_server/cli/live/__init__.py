"""The live view of `run` on a terminal.

Modules, in reading order:

- `model`: the state and recent events, folded into the values that are drawn
- `frame`: the view drawn for a terminal of a given width, by a thread of its own
- `reporters`: output of `run`: lines, JSON or a live terminal; and its keys
"""
