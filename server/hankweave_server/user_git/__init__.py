"""Checkpoints as commits in a person's own repository (seed 003), without the git program.

What always holds: no hook runs, nothing is signed, and nothing outside the workspace's folder is
touched; work that is not committed is in a safety commit before a rollback changes a file; an
intent is durable before the first change, so that a crash is finished by the next call. `pygit2`
is used in `repository.py` alone; index, attributes, line ends and configuration are read here,
because libgit2 knows neither split indexes nor names that are no text.
"""
