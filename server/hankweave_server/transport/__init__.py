"""Listener, client connections, roles and the traffic log.

The package turns frames into calls of the `Doors` it is given, and events into frames. It knows
nothing about the ledger, commands or execution. Its invariant: no client, however slow, silent or
malicious, delays another client or makes the daemon hold more memory for it than one bounded
outbox.

Reading order: `server_api` (the interface to the rest of the server), `outbox`, `sockets`,
`frames`, `hub`, `connection`, `idempotency`, `client_session`, `auth`, `http`, `listener`,
`traffic_log`. `web/` holds the page.
"""
