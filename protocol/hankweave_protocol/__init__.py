"""The types of Hankweave's wire format and files.

Pure values: no I/O, no clock, no asyncio. msgspec is the only dependency, so that a client can use
this package without the server. `protocol/README.md` and docs/reference describe it; tests check
their examples.

Modules, in reading order:

- `shapes`: the base classes of all values; typed unions and their registry
- `ids`, `instants`, `errors`, `hints`: ids and names, timestamps, error codes, hints of refusals
- `hank`, `sentinels`: hank.json and the configuration of sentinels
- `records`: lock, metadata, checkpoints, reports, intents
- `state`, `transitions`: state.json, and the changes that it is the fold of
- `events`: the events of the journal and the wire
- `executions`: the list of a user's executions
- `replies`, `commands`: commands with their replies, and the handshake
- `codec`: encoding and decoding
- `reference`, `reference_shapes`: events as clients of Hankweave 0.12 receive them
- `schema`: JSON Schemas generated from these types
"""

PROTOCOL_VERSION = 1
"""The `protocolVersion` of a client that wants replies, snapshots and events Hankweave lacks."""
