"""A folder for each feature, which everything else works without; `installed` lists them.

A feature may have the modules below, for the places at which features join in. All others are its
own. `commands.json` lists its commands of the terminal (`tools/codegen/command_index`). The folder
`web` is its part of the page (`transport.http`).

    server_part         handles commands in a server, works in the background    app
    file_answers        handles commands without a server                        local.reader
    failed_check        says more about a check that has failed                  execution.codon.run
    observer            hears of every event of a server                         daemon.observers
    unfinished          finishes what a crash has interrupted, before a start    daemon, local.fsck
    listing             groups the executions of a user                          local.catalog
    removal             removes more than executions                             cli.cleanup
    run_options         adds options to `run`                            cli.shared.run_settings
    resume_source       resumes executions that are elsewhere            cli.sessions
    rollback_targets    knows targets besides checkpoints and codons             cli.rollback

The features:

- `answers/`: who wrote a line, where a text came from, which call broke a command
- `architect/`: Architect's checkpoints in the user's repository, and its pipelines
- `exploration/`: attempts from one checkpoint, each an execution of its own
- `map/`: a hank on many inputs
- `mcp/`: tools for agents
- `mirror/`: the execution in a git remote too, from which it goes on elsewhere
- `notifications/`: webhooks, mail, chat and push services
- `redaction/`: removes a secret from the past of an execution
- `reports/`: what became of an execution, on one page
- `tracing/`: traces and metrics for a collector of OpenTelemetry
"""
