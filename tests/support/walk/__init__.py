"""A random walk: an agent, a person, another program, clients, faults and kills on one execution.

- `acts`: what may happen, as data; a seed draws the rounds of a walk
- `model`: what must be on disk or in a checkpoint after it; pure
- `world`: everything outside of the server: the person's editor, a program that logs, the faults
- `driver`: performs the acts on a real server, and compares it with the model
- `shrink`: finds a small script that still goes wrong
"""
