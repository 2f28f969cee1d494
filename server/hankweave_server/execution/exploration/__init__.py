"""Several attempts from one checkpoint, each an execution of its own; the best is adopted.

Modules, in reading order:

- `explorer`: make attempts, run them, take over their results
- `adoption`: go to the result of an attempt, or merge it into the present files
- `judge`: ask a model which result is the best
- `child`: the server of an attempt, a process of its own
- `score_output`: a program that runs the score command, and shortens what it prints
"""
