"""websocket.log: every frame, in seed 001's format, without secrets, of a bounded size."""

from __future__ import annotations

from pathlib import Path

import anyio
import msgspec
import pytest

from hankweave_client.log_reader import WebSocketLogReader
from hankweave_protocol.events import Info
from hankweave_server.clock import SystemClock
from hankweave_server.transport.traffic_log import KEPT_FILES, TrafficLog, redact
from support.small_server import SmallRest, small_server

SECRETS = {
    "a key": (b'{"token":"hunter2hunter2"}', b"hunter2"),
    "a key with an escape": (b'{"password": "hunt\\"er2"}', b"er2"),
    "a compound key": (b'{"ANTHROPIC_API_KEY":"hunter2"}', b"hunter2"),
    "a key in a string": (b'{"r":"{\\"client_secret\\": \\"hunter2\\"}"}', b"hunter2"),
    "an environment": (b'{"r":"GITHUB_TOKEN=hunter2 x"}', b"hunter2"),
    "a url": (b'{"r":"ws://h/ws?token=hunter2&x=1"}', b"hunter2"),
    "a header": (b'{"r":"Authorization: Bearer hunter2hunter2"}', b"hunter2"),
    "openai and anthropic": (b'{"r":"sk-ant-api03-abcdefghijkl"}', b"abcdefghijkl"),
    "github": (b'{"r":"ghp_' + b"a1" * 18 + b'"}', b"a1a1"),
    "github, fine grained": (b'{"r":"github_pat_' + b"a1" * 18 + b'"}', b"a1a1"),
    "aws": (b'{"r":"id AKIAIOSFODNN7EXAMPLE"}', b"IOSFODNN7"),
    "pem": (
        b'{"r":"-----BEGIN RSA PRIVATE KEY-----\\nMIIhunter2\\n-----END RSA PRIVATE KEY-----"}',
        b"hunter2",
    ),
    "pem cut off": (b'{"r":"-----BEGIN PRIVATE KEY-----\\nMIIhunter2"}', b"hunter2"),
}


@pytest.mark.parametrize("what", SECRETS)
def test_secrets_are_taken_out_and_json_stays_json(what: str) -> None:
    """Each kind of secret is replaced, and the frame can still be decoded."""
    frame, secret = SECRETS[what]
    redacted = redact(frame)
    assert secret not in redacted
    assert b"[redacted" in redacted
    assert msgspec.json.decode(redacted).keys() == msgspec.json.decode(frame).keys()


def test_what_is_no_secret_stays_as_it_is() -> None:
    """Token counts, prose and paths are unchanged."""
    frame = (
        b'{"type":"token.usage","data":{"inputTokens":12,"outputTokens":3,"text":"the secret of '
        b'good prose","path":"src/token.py","note":"task-oriented, basic idea"}}'
    )
    assert redact(frame) == frame


async def test_every_frame_is_a_record_in_the_seeds_shape(tmp_path: Path) -> None:
    """Both directions are logged with sizes; a broadcast to two clients is one line; no tokens."""
    async with small_server(tmp_path) as server:
        async with server.raw(mode="readonly") as one, server.raw(mode="readonly") as two:
            await one.send({"id": "1", "type": "ping"})
            await one.send("{\n broken")
            assert (await one.receive())["type"] == "error"
            await one.send(
                '{"id":"2",\n"type":"ping", "data":{"token":"' + server.controller + '"}}'
            )
            await one.send({"id": "3", "type": "pingg"})
            await one.receive()
            server.rest.publish(Info(message=f"token {server.controller}"))
            await two.receive()

        token, path = server.controller, server.settings.traffic_log

    assert path.stat().st_mode & 0o777 == 0o600
    assert token not in path.read_text()
    lines = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    assert all(line.keys() == {"loggedAt", "direction", "message", "metadata"} for line in lines)
    reader = WebSocketLogReader(path)
    reader.read_log_sync()
    assert reader.skipped_lines == 0
    assert len(reader.filter_by_message_type("info")) == 1
    assert len(reader.filter_by_message_type("handshake")) == 2
    assert [entry.message["id"] for entry in reader.get_client_commands()] == ["1", "2"]
    broken = [line for line in lines if line["metadata"].get("error") == "not JSON"]
    assert [line["message"] for line in broken] == ["{\n broken"]
    assert broken[0]["metadata"]["size"] == len("{\n broken")


async def test_the_size_is_the_one_before_redaction(tmp_path: Path) -> None:
    """metadata.size counts the bytes on the wire."""
    frame = b'{"type":"x","token":"' + b"a" * 500 + b'"}'
    path = tmp_path / "websocket.log"
    await written(TrafficLog(path, SystemClock(), report=fail), [frame])
    (entry,) = WebSocketLogReader(path).read_log_sync()
    assert entry.size == len(frame)
    assert entry.message["token"] == "[redacted]"


async def test_the_log_is_rotated_by_size_and_bounded_in_number(tmp_path: Path) -> None:
    """Files are renamed, lines stay whole, and the oldest files are removed."""
    path = tmp_path / "websocket.log"
    frame = b'{"type":"x","n":"' + b"a" * 900 + b'"}'
    for _ in range(12):
        await written(TrafficLog(path, SystemClock(), rotate_at=1_000, report=fail), [frame])

    rotated = sorted(tmp_path.iterdir())
    assert len(rotated) == KEPT_FILES - 1
    for file in rotated:
        assert len(WebSocketLogReader(file).read_log_sync()) == 1


async def test_a_log_that_cannot_be_written_is_reported_and_the_server_continues(
    tmp_path: Path,
) -> None:
    """The report gets the OSError; the server continues."""
    (tmp_path / "file").write_text("in the way")
    errors: list[OSError] = []
    log = TrafficLog(tmp_path / "file" / "websocket.log", SystemClock(), report=errors.append)
    await written(log, [b"{}"])
    assert len(errors) == 1


async def written(log: TrafficLog, frames: list[bytes]) -> None:
    """Record frames and close the log."""
    for frame in frames:
        log.record("out", frame)

    async with anyio.create_task_group() as group:
        group.start_soon(log.run)
        await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()


def fail(error: OSError) -> None:
    raise AssertionError(error)


async def test_what_was_recorded_last_is_written_at_the_end(tmp_path: Path) -> None:
    """Closing the listener flushes: the goodbye of a connection is in the log."""
    rest = SmallRest()
    async with small_server(tmp_path, rest) as server, server.raw(mode="readonly"):
        rest.publish(Info(message="the last word"))
        path = server.settings.traffic_log

    assert "the last word" in path.read_text()
