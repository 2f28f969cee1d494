"""Access control: two tokens and their roles, where a server was before, and the role of agents.

The role comes from the token, never from what the client claims. The token files let
users who can read the execution directory connect, while a server runs; a crash leaves them behind,
and the next start overwrites them.

A server keeps its port and its tokens in `server.address`, and the next one of the same execution
uses them again. So an address that is bookmarked, shared or open in a browser survives a restart.
Whoever wants other tokens asks for them at a start; those are durable before a client can use one,
so no power cut brings the former ones back.

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
from typing import Annotated, assert_never

import msgspec

from hankweave_protocol.replies import Mode
from hankweave_server.fsutil import make_private_directory, replace, replace_durably

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


_Token = Annotated[str, msgspec.Meta(pattern=rf"\A[0-9a-f]{{{2 * TOKEN_BYTES}}}\Z")]


class Keyring(msgspec.Struct, frozen=True):
    """The two tokens of a server."""

    controller: _Token
    viewer: _Token

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
class TokenPending:
    """The request had no token; the handshake must bring one."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The request had an invalid token."""


Admission = Admitted | TokenPending | Rejected


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
            return TokenPending()

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


class KeptAddress(msgspec.Struct, frozen=True):
    """server.address: what a server leaves for the next one of the same execution."""

    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0
    """0: there was no server yet."""
    tokens: Keyring | None = None
    """None: no server has needed any yet."""

    def keep(self, path: Path) -> None:
        """Write it, readable by the owner alone; when this returns, it survives a power cut."""
        make_private_directory(path.parent)
        replace_durably(path, msgspec.json.encode(self) + b"\n")


def kept_address(path: Path) -> KeptAddress:
    """Read server.address; without a good one, the server is the first."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=KeptAddress)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return KeptAddress()


@contextlib.contextmanager
def issued_tokens(keyring: Keyring, controller: Path, viewer: Path) -> Iterator[None]:
    """Write token files, readable by the owner alone; remove them on exit.

    Each file holds the bare token and a newline.
    """
    make_private_directory(controller.parent)
    replace(controller, f"{keyring.controller}\n".encode())
    replace(viewer, f"{keyring.viewer}\n".encode())
    try:
        yield
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
