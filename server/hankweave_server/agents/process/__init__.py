"""Run agent processes: start, read, signal and clean up.

Reading order: `keeper` (the process between the server and an agent), `child` (the server's side of
it), `process_table` (/proc and control groups), `leftovers` (records, and killing what survived an
earlier server), `environment`, `stdio`, `program` (one agent, put together), `subprocess_task` (a
command that is not an agent), `own_program` (a module of this package as a program).
"""
