"""The life of a server: take over the directory, recover, serve, end.

Modules, in reading order:

- `daemon`: the order of it all, on one exit stack
- `startup`: from the opened execution until it can be served
- `observers`: what hears of every event, besides clients
- `shutdown`: requests to stop, signals, and the end by force
"""
