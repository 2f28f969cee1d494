"""Observers of a codon's events: each asks a model about what it saw and writes down the answer.

`watch.py` is the front. What always holds: a sentinel never delays the codon's own events, never
sees events of sentinels, never loses a trigger without saying so, and executes nothing that its
configuration or an event contains. Imports `domain`, `hanks`, `workspace` and what lies below.
"""
