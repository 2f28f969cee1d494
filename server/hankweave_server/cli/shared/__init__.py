"""Code that several commands share.

Modules, in reading order:

- `invocation`: Hankweave's command line (options, no commands), translated into ours
- `run_settings`: options, variables and files, resolved into the settings of one run
- `hank_loading`: the hank that a command line names: found, loaded, checked
- `serving`: a server of this process: hank, execution directory, question at Ctrl-C
- `starter_files`: the files of examples, and writing them
- `completions`: codons, checkpoints and runs for shell completion, and options that take them
"""
