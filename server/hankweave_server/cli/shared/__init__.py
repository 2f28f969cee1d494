"""Code that several commands share.

- `invocation`: translates the command line of the original Hankweave
- `hank_loading`: finds, loads and checks a hank
- `run_settings`: resolves the settings of a run
- `step_targets`: finds the checkpoint that `rollback --to-step` and `--to-commit` name
- `completions`: completes codons, checkpoints and runs in a shell
"""
