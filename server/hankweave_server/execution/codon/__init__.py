"""One codon, from its rig to its last checkpoint.

In reading order: `run` (the lifecycle), `record` (its states in the ledger), `setup` (rig and
checks), `agent_turn` (the conversations), `event_recorder` and `file_changes` (events),
`permissions`, `limits` and `sentinels` (what runs beside the agent), `environment` (what agents and
commands are given).
"""
