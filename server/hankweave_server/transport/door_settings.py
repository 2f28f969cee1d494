"""Where the port is open, for whom, and how much of it there is."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from hankweave_server.errors import ExitCode, Stop
from hankweave_server.settings import LOOPBACK
from hankweave_server.transport.auth import is_loopback
from hankweave_server.transport.outbox import OutboxLimits


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """Where and for whom the port is open."""

    controller_token: Path
    viewer_token: Path
    traffic_log: Path
    host: str = LOOPBACK
    port: int = 0
    """0: any free port."""
    no_token: bool = False
    """True: whoever can reach loopback on this machine is a controller."""
    tls: ssl.SSLContext | None = None
    names: tuple[str, ...] = ()
    """Further host names to be spoken to under, beside loopback's."""
    origins: tuple[str, ...] = ()
    """Further origins whose pages may connect."""
    max_connections: int = 1_100
    handshake_seconds: float = 10.0
    grace_seconds: float = 2.0
    """How long clients may take to say goodbye when the server stops."""
    outbox: OutboxLimits = field(default_factory=OutboxLimits)


def refuse_open_doors(settings: ListenerSettings) -> None:
    """Raises Stop where the network could come in: off loopback only with TLS and tokens."""
    if is_loopback(settings.host):
        return

    if settings.tls is None or settings.no_token:
        raise Stop(
            f"Listening on {settings.host} needs TLS and tokens.",
            ExitCode.CONFIGURATION,
            hint="Listen on 127.0.0.1, or give a certificate.",
        )
