"""The handlers of the commands that clients send.

In reading order: `dispatch` (from a command to its handler), then one module per command family:
`control`, `rollback`, `history`, `inspect`, `checkpoint_list`, `maintenance`. `lookup` resolves the
shas and paths that commands contain.
"""
