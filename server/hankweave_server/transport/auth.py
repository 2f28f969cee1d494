"""Access control: two tokens and their roles, new at each start, and the role of agents.

The role comes from the token, never from what the client claims. The token files let
users who can read the execution directory connect. A crash leaves the files behind, but no server
accepts those tokens any more, and the next start overwrites them.

Agents have no token. Each gets a Unix socket of its own while its codon runs, and every connection
on it has the role `AGENT`.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import assert_never

from hankweave_protocol.replies import Mode
from hankweave_server.fsutil import make_private_directory, replace

TOKEN_BYTES = 32  # 256 bits: guessing is hopeless, so failures need no counting.


class Role(Enum):
    """The role that a token grants."""

    VIEWER = "viewer"
    CONTROLLER = "controller"
    AGENT = "agent"
    """Only the commands that the hank's `agentTools` allow; no events, no history."""

    def grants(self, wanted: Mode) -> Mode:
        """Return the mode for a client: the requested one, limited by the role."""
        match self:
            case Role.VIEWER:
                return "readonly"
            case Role.CONTROLLER | Role.AGENT:
                return wanted
            case _:
                assert_never(self)


@dataclass(frozen=True, slots=True)
class Keyring:
    """The two tokens of one server start."""

    controller: str
    viewer: str

    @classmethod
    def new(cls) -> Keyring:
        return cls(secrets.token_hex(TOKEN_BYTES), secrets.token_hex(TOKEN_BYTES))

    def role_of(self, token: str) -> Role | None:
        """Return the role of a token, comparing in constant time."""
        given = token.encode("utf-8", "replace")
        is_controller = hmac.compare_digest(given, self.controller.encode())
        is_viewer = hmac.compare_digest(given, self.viewer.encode())
        if is_controller:
            return Role.CONTROLLER

        return Role.VIEWER if is_viewer else None


@dataclass(frozen=True, slots=True)
class Admitted:
    """The request had a valid token, or none is needed."""

    role: Role


@dataclass(frozen=True, slots=True)
class Undecided:
    """The request had no token; the handshake must bring one."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The request had an invalid token."""


Admission = Admitted | Undecided | Rejected


class Gate:
    """The access check of requests; without a keyring (`--no-token`) loopback is trusted."""

    def __init__(self, keyring: Keyring | None) -> None:
        self._keyring = keyring

    def admit(self, authorizations: list[str], query_tokens: list[str], peer: str) -> Admission:
        """Decide about a request by its Authorization headers and `token` parameters."""
        if self._keyring is None:
            return Admitted(Role.CONTROLLER) if is_loopback(peer) else Rejected()

        tokens = [_bearer(header) for header in authorizations] + list(query_tokens)
        if not tokens:
            return Undecided()

        roles = {None if token is None else self._keyring.role_of(token) for token in tokens}
        role = roles.pop()
        # A wrong token among right ones, or two roles at once, is not an honest request.
        return Rejected() if role is None or roles else Admitted(role)

    def role_for(self, token: str | None, admitted: Role | None) -> Role | None:
        """Return the role for a handshake: of its token if it has one, else of the request.

        On an agent's socket a token changes nothing, so a stolen one is useless there.
        """
        if self._keyring is None or token is None or admitted is Role.AGENT:
            return admitted

        return self._keyring.role_of(token)


@contextlib.contextmanager
def issued_tokens(controller: Path, viewer: Path) -> Iterator[Keyring]:
    """Write new token files, readable by the owner alone; remove them on exit.

    Each file holds the bare token and a newline.
    """
    keyring = Keyring.new()
    make_private_directory(controller.parent)
    replace(controller, f"{keyring.controller}\n".encode())
    replace(viewer, f"{keyring.viewer}\n".encode())
    try:
        yield keyring
    finally:
        withdraw_tokens(controller, viewer)


def withdraw_tokens(*paths: Path) -> None:
    """Remove token files, including those a crashed server left behind."""
    for path in paths:
        path.unlink(missing_ok=True)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _bearer(header: str) -> str | None:
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None
