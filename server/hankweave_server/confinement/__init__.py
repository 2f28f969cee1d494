"""Confine agents, rig commands and checks with what the kernel offers without privileges.

A `Policy` says what a process may reach, a `Level` how that is enforced, and a `Fence` is both. The
keeper's child applies a fence to itself between fork and exec; it and all that it starts cannot
undo it. Nothing runs unconfined because a part of its fence failed: the start fails.

Modules, in reading order:

- `policy`: what a process may reach, by default and by the hank's lists; pure
- `probe`: the strongest level that works on this machine, and the plan of a fence
- `fence`: a plan applied to this process, in the order that its parts need
- `namespaces`: a mount namespace, in which everything is read-only or hidden but some folders
- `landlock`: rules for paths and TCP ports
- `seccomp`: the filter of system calls
- `own_program`: a module of this package as a separate program
- `bwrap`: the command line of bubblewrap, where that alone may mount
- `kernel`: system calls that Python does not have
"""
