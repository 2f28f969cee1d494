"""Run agent processes: start, read, signal and clean up.

Modules, in reading order:

- `keeper`: the process between the server and one agent, which ends all that the agent started
- `child`: the server's side of it: start, signal and end an agent's processes
- `process_table`: processes from /proc, and a control group for each agent
- `peers`: connections of confined agents, recognized by their control groups
- `leftovers`: records of agents on disk, and how survivors of an earlier server are killed
- `environment`: the environment of an agent: an allow list and the codon's `env`
- `stdio`: the pipes of an agent, without blocking calls and in bounded memory
- `program`: one program run as an agent, put together from the above
- `subprocess_task`: a command that is not an agent (rigs, checks), below a keeper as well
"""
