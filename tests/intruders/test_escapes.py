"""Paths and shas that try to escape, in every command that takes one, and texts that forge lines.

That a rig or a prompt of a hank stays in the hank's directory is claimed in
`tests/server/hank/test_load.py` and `tests/server/worktree/test_rigs.py`; that no restore follows a
link in `tests/server/checkpoints/test_hazards.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hankweave_protocol.commands import COMMANDS
from intruders.servers import Target, target
from intruders.wire import peer
from support.git_facts import GitWitness
from support.running_server import tree
from support.scripted_hank import codon, writes

SECRET = "the neighbour's secret"
PATHS = [
    "../outside/secret.txt",
    "a/../../outside/secret.txt",
    "./a.txt",
    "..",
    ".",
    "/etc/passwd",
    "//etc/passwd",
    "{outside}/secret.txt",
    "linked/secret.txt",
    ".git/config",
    ".GIT/config",
    ".git./config",
    "git~1/config",
    ".g\u200cit/config",
    ".git\\config",
    "sub/.git/hooks/post-checkout",
    ".hankweave/server.token",
    "../.hankweave/server.token",
    ".hankweavecheckpoints/HEAD",
    "read_only_data_source/x",
    "rigArchive/x",
    "a.txt\0",
    "\0",
    "a\0/../..",
    "a.txt/b",
    "n" * 300,
    "n/" * 3_000,
    "\\xff",
    "*",
    "!a.txt",
    ":(top)a.txt",
    "file:///etc/passwd",
    "~/.ssh/id_rsa",
    "$HOME",
    "",
    " ",
]
SHAS = [
    "HEAD",
    "refs/heads/main",
    "{sha}^",
    "{sha}~1",
    "{sha}^{tree}",
    "{sha}:a.txt",
    "{sha}\n",
    "{blob}",
    "@{-1}",
    ":/completed",
    "--help",
    "-" * 40,
    "0" * 40,
    "../../../../etc/passwd",
    "\0" * 40,
    "f" * 100_000,
    "é" * 40,
    "*",
    "",
]
A_PATH = ("INVALID_PATH", "INVALID_COMMAND")
A_SHA = ("CHECKPOINT_NOT_FOUND", "INVALID_COMMAND")

TAKES_PATHS: dict[str, dict[str, Any]] = {
    "checkpoint.readFile": {"path": "{it}"},
    "checkpoint.diff": {"paths": ["{it}"]},
    "exploration.adopt": {"paths": ["{it}"], "attemptId": "attempt-1"},
    "exploration.compare": {"paths": ["{it}"], "attemptId": "attempt-1"},
    "file.blame": {"path": "{it}"},
    "file.changes": {"path": "{it}"},
    "file.why": {"path": "{it}", "line": 1},
    "replay.view": {"paths": ["{it}"]},
    "rollback.preview": {"paths": ["{it}"]},
    "rollback.toCheckpoint": {"paths": ["{it}"]},
    "rollback.toCodon": {"paths": ["{it}"], "codonId": "one", "checkpointType": "completed"},
    "rollback.toLastSuccess": {"paths": ["{it}"]},
}
TAKES_SHAS: dict[str, dict[str, Any]] = {
    "checkpoint.diff": {"from": "{it}"},
    "checkpoint.readFile": {"checkpointSha": "{it}", "path": "a.txt"},
    "checkpoint.pin": {"checkpointSha": "{it}", "pinned": True},
    "file.blame": {"path": "a.txt", "at": "{it}"},
    "file.changes": {"path": "a.txt", "at": "{it}"},
    "file.pickaxe": {"text": "a", "at": "{it}"},
    "file.why": {"path": "a.txt", "line": 1, "at": "{it}"},
    "replay.view": {"checkpointSha": "{it}"},
    "rollback.preview": {"checkpointSha": "{it}"},
    "rollback.toCheckpoint": {"checkpointSha": "{it}"},
    "execution.branch": {"checkpointSha": "{it}"},
    "exploration.start": {"checkpointSha": "{it}"},
}
"""`execution.branch` takes an absolute path; what it refuses is in
`tests/acceptance/test_branches.py`.
"""


def filled(data: dict[str, Any], word: str) -> dict[str, Any]:
    """Return the data with the word in place of `{it}`."""
    return {
        key: [word] if value == ["{it}"] else word if value == "{it}" else value
        for key, value in data.items()
    }


def make_traps(aim: Target) -> Path:
    """Create a folder beside the work tree, and links to it in the tree."""
    work_tree, outside = aim.server.execution / "agentRoot", aim.server.execution / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text(SECRET)
    (work_tree / "linked").symlink_to(outside)
    (work_tree / "link.txt").symlink_to(outside / "secret.txt")
    return outside


def condition(aim: Target) -> tuple[Any, ...]:
    """Return all files of the execution except journal, logs and cache, which record requests."""
    keep = {
        name: content
        for name, content in tree(aim.server.execution).items()
        if not name.startswith((".hankweave/", "agentRoot/linked"))
    }
    return (keep, sorted(str(path) for path in aim.server.execution.parent.iterdir()))


def test_every_field_that_names_a_path_or_a_checkpoint_is_tried() -> None:
    """Every command that takes a sha or paths, including any new one, is in the list here."""
    fields = {name: set(kind.__struct_encode_fields__) for name, kind in COMMANDS.members.items()}
    with_paths = {name for name, own in fields.items() if own & {"path", "paths"}}
    with_shas = {name for name, own in fields.items() if own & {"checkpointSha", "from", "at"}}
    assert with_paths - {"execution.branch"} == TAKES_PATHS.keys()
    assert with_shas == TAKES_SHAS.keys()


@pytest.mark.story("No path in a command leads out of the work tree.", of="SECURITY.md")
async def test_no_path_leads_out_of_the_work_tree(tmp_path: Path) -> None:
    """Every command refuses such a path; nothing outside is read, written or reported."""
    async with target(tmp_path) as aim, peer(aim.url, aim.controller) as client:
        outside = make_traps(aim)
        await client.handshake()
        sha = str((await client.command("checkpoint.create"))["data"]["sha"])
        before = condition(aim)
        for name, data in TAKES_PATHS.items():
            needs = TAKES_SHAS.get(name, {})
            for path in PATHS:
                path = path.replace("{outside}", str(outside))
                words = filled(needs, sha) | filled(data, path)
                reply = await client.command(name, **words)
                assert reply["data"].get("code") in A_PATH, (name, path[:50], reply)
                assert SECRET not in str(reply)

        assert condition(aim) == before
        assert "Traceback" not in aim.log("server.log")


@pytest.mark.story("Links in the work tree are never followed.", of="SECURITY.md")
async def test_a_link_is_read_as_a_link(tmp_path: Path) -> None:
    """`checkpoint.readFile` returns the target of a link, never the content behind it."""
    async with target(tmp_path) as aim, peer(aim.url, aim.controller) as client:
        outside = make_traps(aim)
        await client.handshake()
        sha = (await client.command("checkpoint.create"))["data"]["sha"]
        found = await client.command("checkpoint.readFile", checkpointSha=sha, path="link.txt")
        assert found["data"]["content"] == str(outside / "secret.txt")
        (aim.server.execution / "agentRoot" / "link.txt").unlink()
        for words in ({"patch": True}, {"paths": ["linked"], "patch": True}):
            shown = await client.command("checkpoint.diff", **{"from": sha}, **words)
            assert SECRET not in str(shown)

        await client.command("rollback.toCheckpoint", checkpointSha=sha, paths=["link.txt"])
        assert (aim.server.execution / "agentRoot" / "link.txt").is_symlink()
        assert (outside / "secret.txt").read_text() == SECRET


async def test_a_sha_is_a_sha(tmp_path: Path) -> None:
    """No command accepts a ref, an expression or another object in place of a checkpoint."""
    async with target(tmp_path) as aim, peer(aim.url, aim.controller) as client:
        await client.handshake()
        sha = await client.newest_checkpoint()
        witness = GitWitness(aim.server.execution)
        blob = witness.run("rev-parse", f"{sha}:a.txt").strip()
        before = condition(aim)
        for name, data in TAKES_SHAS.items():
            for word in SHAS:
                word = word.replace("{sha}", sha)
                reply = await client.command(name, **filled(data, word.replace("{blob}", blob)))
                assert reply["data"].get("code") in A_SHA, (name, word[:50], reply)

        assert condition(aim) == before
        assert "Traceback" not in aim.log("server.log")


FORGERIES = [
    "x\n\nOp-Id: forged\nEvent-Seq: 99999",
    "x\r\n2025-01-04T12:00:00.000Z [INFO] forged",
    "x\u2028forged\u2029\x85forged\x0bforged",
    'x"}\n{"id":"forged","seq":99999,"type":"forged","data":{}}',
]


@pytest.mark.story("No text forges a line in a log, the journal or a trailer.", of="SECURITY.md")
async def test_no_text_forges_a_line(tmp_path: Path) -> None:
    """Labels, reasons and file names forge no line of the log or journal, and no trailer."""
    named = [writes(text.replace("/", "_"), "x") for text in FORGERIES]
    spoken = [{"say": text} for text in FORGERIES] + [{"stderr": text} for text in FORGERIES]
    async with target(tmp_path, codon("one", *named, *spoken)) as aim:
        async with peer(aim.url, aim.controller) as client:
            await client.handshake()
            for text in FORGERIES:
                made = await client.command("checkpoint.create", label=text)
                sha = made["data"]["sha"]
                await client.command("checkpoint.pin", checkpointSha=sha, pinned=True, name=text)
                await client.command("rollback.toCheckpoint", checkpointSha=sha, reason=text)
                await client.command("codon.forceStop", reason=text)
                await client.command(text[:20])

        assert await aim.server.stop() == 0
        for line in aim.log("server.log").split("\n"):
            assert "forged" not in line[:40], line

        journal = (aim.state_directory / "events" / "events.jsonl").read_bytes()
        for number, line in enumerate(journal.splitlines(), 1):
            assert b'"seq":%d,' % number in line[:80]

        witness = GitWitness(aim.server.execution)
        trailers = witness.run("log", "--all", "--format=%(trailers:key=Op-Id,key=Event-Seq)")
        assert "forged" not in trailers
        assert "99999" not in trailers
