"""The live view of a server on a terminal: `run` and `attach`.

Modules, in reading order:

- `model`: the state and recent events, folded into the values that are drawn
- `frame`: a view, drawn for a terminal of a given width
- `view`: the thread that draws, at most five times a second
- `keyboard`: single keys as they are pressed, without echo
- `keys`: what a key means in each state; pure
- `actions`: wishes of the person at the keys, turned into commands
- `session`: one session on a terminal: lines below the table, connection
- `reporters`: output of `run`: lines, JSON or a live terminal
"""
