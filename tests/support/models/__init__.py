"""A scripted model endpoint on loopback, for agents that are real.

A test says what the model is to do in `turns`, the `script` hands one turn to each request of an
agent, one module per provider speaks its dialect, and `endpoint` serves them all and writes down
what the model was shown. Nothing here knows an agent: which tool an act needs is read from the
tools that the agent offers (`offered`).
"""
