"""The async client of a Hankweave server: sends commands, receives events, reconnects.

It depends only on `hankweave_protocol` and on the files that a server leaves for its clients.
Reading order: `client`, `calls` (a method for each command), `link` (one connection),
`reconnect`, `discovery`, `errors`; `log_reader` reads websocket.log.
"""
