"""Run agents as subprocesses: start, read and stop them, without trusting them.

An agent is one program that works on one codon. Its process tree hangs below a keeper
(`process/keeper.py`), to which the kernel gives every orphan of the tree, so the tree ends with the
agent, the codon or the server, whichever comes first. What the agent prints is kept raw in its log
and delivered to the codon runner as `AgentSignal`s. This package knows neither the ledger nor
checkpoints.

Reading order: `base` (the types), `session` (one running agent), `stream_json` and `agent_log` (its
output), `process/`, then the agents themselves: `claude`, `codex/`, `acp/`, `scripted/`, and
`registry`, which chooses one. `hook_server` and `hook_client` serve agents whose hooks are
programs. `inventory`, `preflight` and `self_test` check what is installed and whether it works.
"""
