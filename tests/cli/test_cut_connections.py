"""Claims about commands whose connection is cut before the reply arrives."""

from __future__ import annotations

import os
from pathlib import Path
from socket import create_server

import anyio.to_thread
import msgspec
import pytest

from hankweave_client import link
from hankweave_client.client import Client
from hankweave_client.reconnect import Backoff
from hankweave_protocol.commands import CodonNext, Command
from hankweave_protocol.ids import CodonId
from hankweave_protocol.replies import CodonChosen
from hankweave_server.api.caller import Caller, CommandAnswer
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.local import server_session
from support.small_server import SmallRest, SmallServer, small_server


class Cutting:
    """A server that executes a command, then cuts all connections before it can send the reply."""

    def __init__(self) -> None:
        self.server: SmallServer | None = None
        self.carried_out = 0
        self.stays_away = False

    async def __call__(self, command: Command, caller: Caller) -> CommandAnswer:
        assert self.server is not None
        self.carried_out += 1
        for socket in list(self.server.listener._sockets):
            socket.transport.abort()

        if self.stays_away:
            (self.server.settings.controller_token.parent / "runtime.lock").unlink()

        return CommandAnswer(CodonChosen(codon_id=CodonId(str(self.carried_out))))


def write_lock(folder: Path, port: int) -> None:
    """Say where the server is, as a real one does."""
    lock = {
        "pid": os.getpid(),
        "runId": None,
        "startTime": "2026-01-01T00:00:00.000Z",
        "lastHeartbeat": "2026-01-01T00:00:00.000Z",
        "port": port,
    }
    (folder / ".hankweave" / "runtime.lock").write_bytes(msgspec.json.encode(lock))


async def next_codon(client: Client) -> object:
    return await client.send(CodonNext())


async def test_a_command_is_sent_again_under_its_id_and_done_once(tmp_path: Path) -> None:
    """The connection is cut between the work and the reply; no failure is reported."""
    cutting = Cutting()
    async with small_server(tmp_path, SmallRest(cutting)) as server:
        cutting.server = server
        write_lock(tmp_path, server.listener.port)
        done = await anyio.to_thread.run_sync(server_session.at_server, tmp_path, next_codon)

    assert done == CodonChosen(codon_id=CodonId("1"))
    assert cutting.carried_out == 1


async def test_where_the_server_stays_away_the_outcome_is_called_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code is 69; no text claims a failure, and the hint says where to look."""
    monkeypatch.setattr(server_session, "_RECONNECT", Backoff(first=0.001, attempts=3))
    cutting = Cutting()
    cutting.stays_away = True
    async with small_server(tmp_path, SmallRest(cutting)) as server:
        cutting.server = server
        write_lock(tmp_path, server.listener.port)
        with pytest.raises(Stop) as stop:
            await anyio.to_thread.run_sync(server_session.at_server, tmp_path, next_codon)

    assert stop.value.exit_code is ExitCode.UNAVAILABLE
    assert "lost before it answered" in stop.value.message
    assert f"may have been executed; `hankweave log -e {tmp_path}` shows" in (stop.value.hint or "")


async def test_a_server_that_does_not_answer_is_reported_with_the_reason_and_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of a suspended server says how long the command waited; the log is on the disk."""
    monkeypatch.setattr(link, "OPEN_SECONDS", 0)
    (tmp_path / ".hankweave").mkdir()
    with create_server(("127.0.0.1", 0)) as mute:
        write_lock(tmp_path, mute.getsockname()[1])
        with pytest.raises(Stop) as stop:
            await anyio.to_thread.run_sync(server_session.at_server, tmp_path, next_codon)

    assert stop.value.exit_code is ExitCode.UNAVAILABLE
    assert "did not answer within 0 seconds" in stop.value.message
    assert f"`hankweave log -e {tmp_path}`" in (stop.value.hint or "")
