"""`hankweave status`.

Modules, in reading order:

- `changes`: what has changed on the disk since the step began, or since the last checkpoint
- `standing`: the facts that are shown, and how the execution stands in a word; pure
- `steps`: the steps as lines, few of those that are done and of those ahead; pure
- `summary`: all lines: heading, steps, changed files, what to do next; pure
- `command`: the command, which asks a server or reads the files; the details of `-v`
"""
