"""Executions on this machine: list them, read one offline, serve one for a single command.

Reading order: `catalog` (facts about an execution from its files), `executions` (which directory a
run uses, and its metadata), `targeting` (which execution a command means), `reader` (answers
without a server), `server_session` (one piece of work with a server), `ephemeral_server`,
`progress`.
"""
