"""Remove a secret from the past of an execution: from checkpoints, the journal, and all else.

Modules, in reading order:

- `redaction`: find and remove it, and finish what a crash interrupted
- `unfinished`: finish it before a start
- `command`: `redact`
"""
