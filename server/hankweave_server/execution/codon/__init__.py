"""One codon, from its rig to its last checkpoint.

Modules, in reading order:

- `run`: the lifecycle: the steps of a codon, interruption and pausing
- `record`: its record in the ledger: states, checkpoints, and its three ends
- `setup`: rig and checks
- `reuse`: the inputs of a codon, and the takeover of an earlier result
- `agent_turn`: prompts, sessions and extensions: the agent's conversations
- `waits`: waits for the end of a provider's limit, and how a conversation goes on after one
- `event_recorder`: the agent's signals, turned into events, costs and checkpoints
- `costs`: tokens and USD, by message and by conversation
- `authorship`: which changes are an agent's, and which a person's; pure
- `file_changes`: changed files, and their events
- `permissions`: permission requests, answered by lists, a client or a timeout
- `limits`: budget limits, and agents that are refused every tool
- `sentinels`: the codon's sentinels, connected to the ledger
- `confinement`: the fence of agents and commands, and reports of what it refuses
- `environment`: the environment of agents and commands: tool server and data
"""
