"""The scripted agent, for the demo and for tests.

Modules, in reading order:

- `adapter`: an agent that follows its script, the same every time
- `player`: the program that plays the script and prints what Claude Code would
"""
