"""Tokens and roles, without a socket."""

from __future__ import annotations

import pytest

from hankweave_server.transport.auth import Admitted, Gate, Keyring, Rejected, Role, TokenPending

PEER = "127.0.0.1"


@pytest.fixture
def keyring() -> Keyring:
    return Keyring.new()


def test_only_a_whole_token_has_a_role(keyring: Keyring) -> None:
    """No part of a token, nothing longer, and not the empty one."""
    assert keyring.role_of(keyring.controller) is Role.CONTROLLER
    assert keyring.role_of(keyring.viewer) is Role.VIEWER
    for token in (keyring.controller, keyring.viewer):
        for wrong in ("", token[:1], token[:-1], token[1:], f"{token}0", token.upper() + "\u00e9"):
            assert keyring.role_of(wrong) is None


def test_a_request_has_one_role_or_none(keyring: Keyring) -> None:
    """Two tokens of one role are one; of two roles, or with a wrong one, they are refused."""
    gate = Gate(keyring)
    mine = f"Bearer {keyring.controller}"
    assert gate.admit([], [], PEER) == TokenPending()
    assert gate.admit([mine], [keyring.controller], PEER) == Admitted(Role.CONTROLLER)
    assert gate.admit([mine], [keyring.viewer], PEER) == Rejected()
    assert gate.admit([mine, "Bearer wrong"], [], PEER) == Rejected()


def test_a_token_changes_nothing_on_the_socket_of_an_agent(keyring: Keyring) -> None:
    """An agent that has read the token file remains an agent."""
    gate = Gate(keyring)
    assert gate.role_for(keyring.controller, Role.AGENT) is Role.AGENT
    assert gate.role_for(keyring.controller, Role.VIEWER) is Role.CONTROLLER
    assert gate.role_for(None, Role.VIEWER) is Role.VIEWER
    assert gate.role_for("wrong", Role.CONTROLLER) is None


def test_a_viewer_reads_whatever_it_asks_for() -> None:
    assert Role.VIEWER.grants("readandwrite") == "readonly"
    assert Role.CONTROLLER.grants("readandwrite") == "readandwrite"
    assert Role.CONTROLLER.grants("readonly") == "readonly"
