"""Agents as subprocesses: started, read, stopped, never trusted.

An agent is one program driven for one codon. Its tree of processes hangs below a keeper
(`keeper.py`) that the kernel hands every orphan of the tree to, so the tree ends with the agent,
with the codon or with the daemon, whichever is first. What the agent prints is kept raw in its log
and told to the runner as `AgentSignal`s. This room knows neither ledger nor checkpoints; it may
import row 0, the domain and the protocol (DESIGN 3).
"""
