"""One hank on many inputs: an execution for each, with a shared budget (`hankweave map`).

A *map* is a directory with a journal, the executions of its inputs, and their results. An *item* is
one input: a file, a folder or a row. Each item is an execution like any other, served by a process
that outlives the supervisor. The supervisor decides from its journal and from the files of the
executions, so one that is killed is continued by the next.

Modules, in reading order:

- `plan`: the records of a map, their fold, and what runs next; pure
- `directory`: the directory of a map: its paths, its lock, its journal
- `inputs`: the inputs of a command line: names, contents, variables
- `executor`: where servers run: the interface, and the executor of this machine
- `remote/`: the executor of a cluster
- `results`: what an execution's files say of an item, and the tables of all items
- `supervisor`: run a map
- `listing`: maps among the executions of a user
- `removal`: remove a map with all of its executions
- `view`: the output of `map`
- `command`: `map`
"""
