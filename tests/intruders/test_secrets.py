"""Where secrets must not be (SECURITY.md, "Secrets"), and who may read the files.

Which forms the traffic log redacts is in `tests/server/transport/test_traffic_log.py`; here secrets
travel all the way from an environment, an agent, a tool or a client to every file.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hankweave_client.discovery import discover
from hankweave_server.transport.traffic_log import redact
from intruders.servers import target
from intruders.wire import frame, peer
from support.git_facts import GitWitness
from support.running_server import running_server
from support.scripted_hank import codon, write_hank
from support.watching import idle

OF_THE_DAEMON = {
    "ANTHROPIC_API_KEY": "sk-ant-canary-01-abcdefghijkl",
    "AWS_SECRET_ACCESS_KEY": "canary02wJalrXUtnFEMIK7MDENG",
    "GITHUB_TOKEN": "ghp_canary03abcdefghijklmnopqrstuvwx",
    "DATABASE_URL": "postgres://me:canary04@db/x",
    "SMTP_PASSWORD": "canary05-mailpass",
    "SESSION_COOKIE": "canary06-cookie",
}
"""The server's environment at its start: no agent receives these, so no file ever has them."""

GIVEN = {"HANKWEAVE_SERVICE_TOKEN": "canary07-for-agents"}
"""Secrets meant for agents: agents print them, and the server redacts them."""

OF_THE_HANK = {"BACKUP_PASSWORD": "canary08-of-the-hank"}
IN_THE_PROMPT = "sk-canary21-prompt-abcdef"
PRINTED = [
    "Authorization: Bearer canary09abcdefgh",
    '{"client_secret": "canary10-json"}',
    "export STRIPE_API_KEY=canary11-shell",
    "sk-canary12abcdefghijklmnop",
    "github_pat_canary13abcdefghijklmnop",
    "AKIACANARY14ABCDEFGH",
    "Set-Cookie: session; token=canary15-header",
]
"""Lines that tools print, one at a time."""

SAID = [
    "The password=canary16-said is the right one.",
    "Open ws://127.0.0.1:1/ws?token=canary17-url now.",
    "-----BEGIN PRIVATE KEY-----\ncanary18MIIEvQ\n-----END PRIVATE KEY-----",
]
WORDS_OF_A_CLIENT = {"password": "canary19-frame", "x": {"refresh_token": "canary20-nested"}}
CANARIES = [b"canary%02d" % number for number in range(1, 23) if number != 14] + [b"CANARY14"]
NEVER_ANYWHERE = CANARIES[:6]

EVERY_MARKER = b"token= key= cookie secret passw api private bearer sk- ghp_ akia private key-----"
"""Makes the traffic log try each of its rules."""

NAMED_ONLY = [b"canary10", b"canary15", b"canary16", b"canary17", b"canary22"]
"""Values without the form of a key behind a word such as `password`: agents' output keeps them."""

TELLING = ("events/events.jsonl", "runs/")
"""Files under `.hankweave` that contain the agents' output."""


def files_with(aim: Path, words: list[bytes]) -> set[tuple[str, bytes]]:
    """Return each file below a folder that contains one of the words, with the word."""
    found = set()
    for path in aim.rglob("*"):
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            name = str(path.relative_to(aim))
            found |= {(name, word) for word in words if word in content}

    return found


def everything_stored(execution: Path) -> bytes:
    """Return the content of every object of the shadow repository, as git unpacks it."""
    listed = GitWitness(execution).run(
        "cat-file", "--batch-all-objects", "--batch", "--unordered", "--buffer"
    )
    return listed.encode("utf-8", "surrogateescape")


@pytest.mark.parametrize(
    "text",
    [
        b"key=" + b"a-" * 500_000,
        b"a-" * 500_000 + b"token",
        b"token=" * 150_000,
        b'\\"token\\": \\"' * 60_000,
        b"bearer " * 140_000,
        b"bearer " + b" " * 1_000_000,
        b'"' * 1_000_000,
        b'\\"token' * 150_000,
        b'\\"token\\"' + b" " * 1_000_000,
        b"sk-" * 300_000,
        b"-----BEGIN PRIVATE KEY-----" * 40_000,
        b"\\" * 1_000_000 + b"token=",
    ],
    ids=lambda text: text[:12],
)
def test_no_megabyte_takes_redaction_long(text: bytes) -> None:
    """Redaction takes linear time; in quadratic time it would take many minutes."""
    assert redact(b'{"r":"' + EVERY_MARKER + text + b'"}').startswith(b'{"r":"')


@pytest.mark.story("A key reaches only the agent it is meant for.", of="SECURITY.md")
async def test_twenty_secrets_are_only_where_they_are_documented_to_be(tmp_path: Path) -> None:
    """Known values and forms of keys are nowhere; only the agents' other words are on record."""
    shows = [{"run": f"cat <<'END'\n{text}\nEND"} for text in PRINTED]
    steps = [{"run": "env; set"}, *shows, *({"say": text} for text in SAID)]
    steps.append({"stderr": "warning: password=canary22-stderr"})
    agent = {"type": "scripted", "script": "script.json"}
    one = codon("one", agent=agent, env=OF_THE_HANK) | {"promptText": f"Use {IN_THE_PROMPT}."}
    hank = write_hank(tmp_path / "hank", one)
    (hank.parent / "script.json").write_text(json.dumps({"steps": steps}))
    execution, env = tmp_path / "execution", OF_THE_DAEMON | GIVEN
    async with running_server(hank, None, execution, "--no-autostart", env=env) as server:
        address = discover(execution)
        async with (
            server.client(since_seq=0) as watcher,
            peer(address.url, address.token) as client,
        ):
            await client.handshake(token=address.token)
            await client.command("ping", **WORDS_OF_A_CLIENT)
            client.send(frame(b'{"token":"canary19-broken'))
            await client.command("codon.next")
            await idle(watcher)
            await client.command("checkpoint.create")

        tokens = [path.read_bytes().strip() for path in (execution / ".hankweave").glob("*token")]
        assert len(tokens) == 2
        assert {name for name, _ in files_with(execution, tokens)} == {
            ".hankweave/server.address",
            ".hankweave/server.token",
            ".hankweave/server.viewer-token",
        }
        assert await server.stop() == 0

    assert {name for name, _ in files_with(execution, tokens)} == {".hankweave/server.address"}
    assert files_with(execution, NEVER_ANYWHERE) == set()
    found = files_with(execution / ".hankweave", CANARIES)
    assert {name for name, _ in found if not name.startswith(TELLING)} == set()
    assert {word for _, word in found} == {*NAMED_ONLY}
    journal = (execution / ".hankweave" / "events" / "events.jsonl").read_text()
    removed = ("SERVICE_TOKEN", "BACKUP_PASSWORD", "authorization", "assigned-secret", "openai-key")
    for name in (*removed, "github-token", "aws-key", "private-key"):
        assert f"[redacted:{name}]" in journal, "it did come by"

    log = (execution / ".hankweave" / "logs" / "websocket.log").read_text()
    assert log.count("[redacted") >= len(PRINTED) + len(SAID)
    stored = everything_stored(execution)
    assert b"completed:one" in stored
    assert [word for word in [*CANARIES, *tokens] if word in stored] == []


@contextmanager
def nothing_masked() -> Iterator[None]:
    """Set the most permissive umask for processes that start within the context."""
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    """Return paths that others than the owner may access, except links, which have no own mode."""
    scanned = [(path, path.lstat().st_mode) for path in (folder, *folder.rglob("*"))]
    return [
        f"{stat.filemode(mode)} {path}"
        for path, mode in scanned
        if mode & 0o077 and not stat.S_ISLNK(mode)
    ]


@pytest.mark.story("Only its owner can read an execution directory.", of="SECURITY.md")
async def test_everything_of_ours_is_for_its_owner_alone(tmp_path: Path) -> None:
    """Under any umask, everything a command creates in `.hankweave` is private to its owner."""
    with nothing_masked():
        async with target(tmp_path) as aim, peer(aim.url, aim.controller) as client:
            await client.handshake()
            made = await client.command("checkpoint.create", label="x")
            sha = made["data"]["sha"]
            (aim.server.execution / "agentRoot" / "a.txt").write_text("second\n")
            branch = tmp_path / "branch"
            for name, data in {
                "checkpoint.pin": {"checkpointSha": sha, "pinned": True},
                "rollback.toLastSuccess": {},
                "rollback.undo": {},
                "execution.branch": {"checkpointSha": sha, "path": str(branch)},
                "store.gc": {"maxCount": 1},
                "store.fsck": {},
            }.items():
                reply = await client.command(name, **data)
                assert reply["type"] == "command.succeeded", reply

            for execution in (aim.server.execution, branch):
                assert execution.stat().st_mode & 0o777 == 0o700
                assert open_to_others(execution / ".hankweave") == []

            assert await aim.server.stop() == 0

        assert open_to_others(aim.state_directory) == []
        assert list((aim.state_directory / "runs").rglob("*-claude.log"))
