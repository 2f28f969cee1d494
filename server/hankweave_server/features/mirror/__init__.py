"""The mirror: an execution is kept in a git remote too, and goes on elsewhere from there.

- `lease`: who owns an execution, and until when; decisions only
- `remote`: the one ref of the remote that holds execution and lease
- `contents`: the commit that the ref names, and all that it leads to
- `record`: what a machine knows of the mirror of an execution
- `source`: reads what the mirror gets
- `pushing`: keeps the mirror and the lease up to date
- `observer`: takes the lease before a server records anything
- `run_options`: the options of `run`
- `restore`: makes an execution of what was fetched
- `resume_source`: `hankweave resume URL`: takes the lease when that is safe, and restores
- `server_part`: the commands `mirror.*`, and what clients hear of a mirror
- `command`: `hankweave mirror`, with and without a server
"""
