"""Reuse: a codon takes over the result of an earlier one instead of running.

Modules, in reading order:

- `key`: what a result depends on, and what differs
- `decision`: whether a codon may take over a result, and which
"""
