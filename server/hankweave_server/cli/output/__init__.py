"""The output of commands: text, tables, diffs, progress and errors.

Modules, in reading order:

- `text`: streams: terminal or pipe; error messages and hints; sizes and times as text
- `pictures`: trees, tables and diffs: coloured on a terminal, plain in a pipe
- `document`: a document of tables and facts, as Markdown and as a web page
- `rollback_report`: what a rollback did, or would do
- `log_graph`: `log --graph`: the tree of runs
- `progress_bar`: progress of long work
- `event_lines`: what terminals say about an event; the lines of `run`, `attach` and `log`
- `server_lines`: a thread that prints, so that a slow reader cannot delay the server
"""
