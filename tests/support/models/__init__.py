"""A scripted model endpoint on loopback, for real agents.

A test lists the model's actions in `turns`, the `script` hands one turn to each request of an
agent, one module per provider implements its protocol, and `endpoint` serves them all and records
the requests. No code here depends on an agent: the tool for an action is chosen from the tools that
the agent offers (`offered`).
"""
