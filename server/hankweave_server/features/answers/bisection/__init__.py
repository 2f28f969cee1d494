"""Find the first checkpoint at which a command fails; nothing of the execution is changed.

Modules, in reading order:

- `search`: which checkpoints to try, and what the results mean
- `trials`: runs of the command, each in a throw-away work tree of its own
- `cleanup`: a program that removes a folder when the process that made it has ended
- `bisector`: searches within a server, for a client or for a check that has failed
- `command`: `bisect`
"""
