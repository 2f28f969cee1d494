"""`hankweave why`: say why something in an execution is as it is.

Modules:

- `command`: the command; the form of its argument decides what is asked
"""
