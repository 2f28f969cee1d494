"""Sockets, clients, roles and the traffic log.

The room turns frames into calls of the `Doors` it is handed and events into frames, and knows
nothing of ledger, commands or execution. Its invariant: no client, however slow, silent or
malicious, delays another one or grows the daemon's memory beyond its own bounded outbox.
"""
