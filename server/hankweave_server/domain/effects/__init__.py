"""Effects outside the work tree, which no rollback takes back; its preview and report list them.

The decisions are conservative: what may have had such an effect is listed, and the text says "may".
What a command does beyond what its words say is not known here; reports say so once.

Modules, in reading order:

- `tools`: the tools of agents, by name: what each does, and where its input names files
- `calls`: tool calls, by name and input
- `commands`: command lines of agents, rigs and checks
- `recorded`: the events of a journal that tell of effects
"""
