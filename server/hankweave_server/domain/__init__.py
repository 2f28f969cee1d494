"""Pure decisions: no await, no clock, no I/O. Facts are arguments, results are values or refusals.

Modules, in reading order:

- `lifecycle`: the states of a codon, the moves between them, and the verdict on its end
- `plan`: the execution plan: codons in order, loops unrolled one iteration at a time
- `execution_thread`: the line of codons that leads to the present, and where an execution stands
- `reducer`: the state as the fold of the journal
- `targets`: the checkpoint that a rollback means, and where work continues
- `path_merge`: a three-way merge path by path, and its conflicts
- `undo`: the undo and redo stacks, and people's edits that a rollback meets
- `effects/`: what tool calls and commands may have done outside the work tree
- `reuse/`: when a codon may take over the result of an earlier one
- `timelines`: all lines of work of an execution, abandoned ones included
- `failures`: kinds of failures, and whether a retry can help
- `limits`: limits of providers that pass by themselves, and when they end
- `conditions`: expressions over a pipeline's variables
- `variables`: `{{name}}` in texts
- `permissions`: what an agent may do; deny wins
- `permission_patterns`: which tool calls a pattern means
- `confinement`: what a codon's agent can reach, and errors that a refusal causes
- `model_routes`: which agent runs a model
- `model_names`: names of models that are misspelt or not listed
- `budget/`: what a codon may use, has used, and is likely to use
- `attempts`: the hank and the plan of an attempt of an exploration
- `costs`: costs per codon, sentinel, run and execution; prices of models
- `retention`: which checkpoints may be pruned
- `checkpoints/`: what a checkpoint is called
- `inheritance`: what a branch takes over from its execution
- `validation`: errors and warnings about a state at a start
- `liveness`: whether the server that a runtime.lock names is alive
- `step_results`: results of a pipeline's steps
- `event_filter`: the events of a journal that a query means
"""
