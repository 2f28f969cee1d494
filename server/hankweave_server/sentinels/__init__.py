"""Observers of a codon's events: each asks a model about what it saw and records the answer.

A sentinel never delays the codon's own events, never sees events of sentinels, never loses a
trigger without reporting it, and executes nothing that an event contains. JavaScript of a
configuration runs in a separate process without access to files or the network.

Modules, in reading order:

- `engine`: all sentinels of one codon: load, observe, drain, unload
- `config`: from a codon's entry to a sentinel that can start, or to all its faults
- `preflight`: the sentinels of a hank that could not be loaded here, before a run starts
- `triggers`: the events, or sequences of events, that make a sentinel fire
- `strategies`: when firings become a call; the bounded backlog
- `sentinel`: one sentinel at work: triggers become calls, one at a time
- `context`: what sentinels get from the codon, and what a model is asked
- `structured`: answers as JSON: schemas and checks
- `templates/`: prompts in Eta or jinja; schemas in zod
- `providers/`: models that sentinels ask
- `conversation`: the messages of a conversational sentinel
- `outputs`: the answers of a sentinel, on the disk
- `failures`: how a call can fail, and why a sentinel ends
"""
