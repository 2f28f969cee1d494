"""Executions on this machine: list them, read one, serve one for a single command.

Reading changes nothing.

Modules, in reading order:

- `executions`: which execution directory a command line means
- `project_history`: whose history a project has: the decision, and what it is made from
- `project_state`: the state of a project put in its place, identified and marked
- `targeting`: which execution a command means if it names none, and what needs consent
- `living`: whether a server runs in an execution
- `register`: where the executions of a user are
- `short_ids`: ids of executions that can be typed
- `page_address`: the address of the web page, with its token
- `catalog`: what the files of an execution tell, for lists
- `journals`: the journal of an execution, opened without changing it
- `reader`: answers from the server if one runs, else from its files
- `eta`: how long a plan still takes, from the files of earlier executions, too
- `hints`: hints in the words of the terminal
- `server_session`: a session with a server, for one piece of work
- `detached_server`: a server that outlives the program that starts it
- `ephemeral_server`: a server that runs only for one command
- `takeover`: what a new owner of an execution directory checks, ends and opens
- `removal`: an execution removed permanently
- `fsck`: the store checked or repaired without a server
- `progress`: progress of long work, in words
"""
