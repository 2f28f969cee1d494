"""`hankweave attach` and `hankweave open`.

Modules, in reading order:

- `command`: the commands and their options
- `session`: a connection and the state that follows from its events; lines for a pipe
- `steps`: the steps as rows, with loops folded; pure
- `transcript`: the events of a step, a page at a time, folded into blocks; and the search in them
- `drawing`: blocks as renderables; pure
- `block_view`: the widget that shows blocks
- `requests`: what a person can ask of the server, and what came of it
- `dialogs`: questions: of permission, before a rollback, which checkpoint
- `control`: the keys that ask the server for something, each with its question
- `step_pane`: the selected step: its transcript or its changes, and the search
- `screen`: the application: its parts, keys and tasks
"""
