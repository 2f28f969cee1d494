"""Rollbacks: plan them, perform them, report them, and finish them after a crash.

In reading order: `rollback` (the protocol), `planner` (checks and preview), `user_edits` (what a
rollback would take from people), `events` (what clients are told).
"""
