"""The vocabulary of Hankweave: what stands in its files and on its wire.

Pure values: no I/O, no clock, no asyncio; msgspec is the only dependency, so that a client can use
this package without the server. `protocol/README.md` is the reference, and its examples are tests.
"""

PROTOCOL_VERSION = 1
"""What a client sends as `protocolVersion` to get replies, snapshots and our own events."""
