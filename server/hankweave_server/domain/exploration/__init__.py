"""Explorations: several attempts from one checkpoint, and which of them is the best.

Modules, in reading order:

- `attempts`: the hank and the plan of an attempt
- `explorations`: what runs next of an exploration, and what its parent records of it
"""
