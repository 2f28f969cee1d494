"""Listener, client connections, roles and the traffic log.

The package turns frames into calls of the `ServerApi` it is given, and events into frames. It knows
nothing about the ledger, commands or execution. Its invariant: no client, however slow, silent or
malicious, delays another client or makes the daemon hold more memory for it than one bounded
outbox. `web/` holds the page.

Modules, in reading order:

- `server_api`: the callables through which the transport reaches the rest of the server
- `connection`: one client: its handshake, then its commands, one at a time and in order
- `frames`: replies, events and long messages in fragments, encoded
- `idempotency`: repeated command ids, answered with the first answer
- `outbox`: the send queue of one client: backpressure, eviction, streaming
- `hub`: events to all live clients, in journal order
- `client_session`: the reader, sender and handshake deadline of each socket
- `sockets`: client sockets and the listening socket
- `listener`: the port: accepting, limits, shutdown in bounded time
- `auth`: tokens and roles
- `exposure`: where the port is open, and the page's address; no network without token and TLS
- `http`: HTTP before the upgrade: access checks, the files of the page, health and metrics
- `traffic_log`: websocket.log, without secrets
"""
