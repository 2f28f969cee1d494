"""Output of commands: text, tables, graphs, progress and errors.

- `text`: terminal detection, units, local times
- `errors`: messages and hints on stderr
- `run_lines`, `server_lines`: the log of a run as lines, and the thread that writes them
- `progress_bar`: progress of long operations on stderr
- `pictures`: diffs, checkpoints, past moments and runs
- `log_graph`: `hankweave log --graph`
"""
