"""Clients that send commands, for tests without a transport."""

from __future__ import annotations

from dataclasses import replace

from hankweave_protocol.ids import ClientId, CommandId
from hankweave_server.api.caller import Caller, Request

CONTROLLER = Caller(client_id=ClientId("client-1"), mode="readandwrite", wants_replies=True)
VIEWER = replace(CONTROLLER, mode="readonly")
A_REQUEST = Request(CommandId("command-1"), CONTROLLER)
