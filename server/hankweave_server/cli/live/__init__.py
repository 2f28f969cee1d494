"""The live view of a server on a terminal: `run` and `attach`.

Modules, in reading order:

- `model`: the state and recent events, folded into the values that are drawn
- `keys`: what a key means in each state; pure
- `frame`: a view and the lines below it, drawn for a terminal of a given width
- `view`: the thread that draws, at most five times a second
- `keyboard`: single keys as they are pressed, without echo
- `session`: one session on a terminal or in a pipe: connection, state, requests of keys
- `reporters`: output of `run`: lines, JSON or a live terminal
"""
