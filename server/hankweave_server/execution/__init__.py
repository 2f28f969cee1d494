"""Drive an execution: run its plan, roll it back, recover it, branch it and maintain it.

In reading order: `context` (what all of these are given), `checkpointer`, `runs`, `runner` (the
plan), `codon/` (one step of it), `post_codon` and `archive` (what follows a success), `rollback/`,
`resume`, `recovery` (server start), `branch/`, `maintenance/`, `event_log`, `exit_policy`,
`session_files`.
"""
