"""Agents that print thousands of planted secrets, in pieces of any size, leave none on the disk.

`HANKWEAVE_PLANTED` is the number of outputs; the long tier prints 10,000.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from hankweave_protocol.commands import CodonNext
from hankweave_server.redaction.redactor import Redactor
from intruders.tier import IS_LONG
from support.planted import FAMILIES, MARK, output_line, sentence
from support.running_server import running_server
from support.scripted_hank import write_hank
from support.tally import Tally
from support.watching import idle

OUTPUTS = int(os.environ.get("HANKWEAVE_PLANTED", "10000" if IS_LONG else "300"))

KNOWN = {
    "HANKWEAVE_SERVICE_TOKEN": f'{MARK}-with"quotes\\and\ttabs',
    "HANKWEAVE_LICENSE": f"x9{MARK}a1b2c3d4",
    "ANTHROPIC_API_KEY": f"sk-ant-api03-{MARK}-of-the-server-1234",
}

PRINTER = """
import os, sys, json
for line in open(sys.argv[1]):
    stream, pieces = json.loads(line)
    for piece in pieces:
        os.write(stream, piece.encode())
"""
"""Writes each piece with a call of its own, so that the server reads them in any division."""


def script_of(source: random.Random, outputs: int) -> list[tuple[int, list[str]]]:
    """Return what the agent writes: to which stream, and in which pieces."""
    begin = {"type": "system", "subtype": "init", "session_id": "s", "model": "m"}
    script: list[tuple[int, list[str]]] = [(1, [json.dumps(begin) + "\n"])]
    makers = [*FAMILIES.values(), *(lambda _, value=value: value for value in KNOWN.values())]
    for number in range(outputs):
        secret = makers[number % len(makers)](source)
        stream = 2 if source.random() < 0.1 else 1
        text = sentence(source, secret) if stream == 2 else output_line(source, secret)
        text += "\n"
        cuts = sorted(source.randrange(len(text)) for _ in range(source.randrange(4)))
        edges = [0, *cuts, len(text)]
        script.append((stream, [text[start:end] for start, end in pairwise(edges)]))

    end = {"type": "result", "subtype": "success", "is_error": False, "result": "ok"}
    return [*script, (1, [json.dumps(end | {"session_id": "s"}) + "\n"])]


def files_with(folder: Path, word: bytes) -> list[str]:
    """Return the files below a folder that contain a word, and where."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and word in (content := path.read_bytes()):
            at = content.index(word)
            found.append(f"{path.relative_to(folder)}: {content[max(0, at - 80) : at + 80]!r}")

    return found


@pytest.mark.story("No secret in the output of an agent reaches the disk.", of="SECURITY.md")
async def test_no_planted_secret_reaches_the_disk(tmp_path: Path, tally: Tally) -> None:
    """A byte search over the execution directory finds none of the secrets that were printed."""
    script, printer = tmp_path / "script.jsonl", tmp_path / "printer.py"
    seed = random.randrange(10**9) if IS_LONG else 20261122
    lines = script_of(random.Random(seed), OUTPUTS)
    script.write_text("".join(json.dumps(each) + "\n" for each in lines))
    printer.write_text(PRINTER)
    one = {
        "id": "one",
        "name": "One",
        "model": "m",
        "continuationMode": "fresh",
        "promptText": f"Use {KNOWN['HANKWEAVE_LICENSE']}.",
        "trackedFiles": ["**"],
        "agent": {"type": "command", "command": [sys.executable, str(printer), str(script)]},
    }
    hank, execution = write_hank(tmp_path / "hank", one), tmp_path / "execution"
    async with running_server(hank, None, execution, env=KNOWN) as server:
        async with server.client(since_seq=0) as client:
            await idle(client)

        assert files_with(execution, MARK.encode()) == [], f"seed {seed}"
        assert await server.stop() == 0

    assert files_with(execution, MARK.encode()) == [], f"seed {seed}"
    journal = (execution / ".hankweave" / "events" / "events.jsonl").read_text()
    names = {*FAMILIES, "SERVICE_TOKEN", "LICENSE", "ANTHROPIC_API_KEY"}
    assert [name for name in names if f"[redacted:{name}]" not in journal] == []
    tally.add("planted secrets", rounds=OUTPUTS, of="outputs")


READER = """
import hashlib, os, sys
given = sys.stdin.buffer.read() + os.environ["SERVICE_TOKEN"].encode()
open("seen.txt", "w").write(hashlib.sha256(given).hexdigest())
"""


async def test_an_agent_gets_the_secrets_that_the_record_lacks(tmp_path: Path) -> None:
    """Prompt and `env` reach the agent unchanged, also after a restart in mid-plan."""
    key, value = f"sk-proj-{MARK}a1b2c3d4e5f6", f"{MARK}-of-the-env"
    codons = [
        {
            "id": name,
            "name": name,
            "model": "m",
            "continuationMode": "fresh",
            "promptText": f"{name}: the key is {key}",
            "env": {"SERVICE_TOKEN": value},
            "trackedFiles": ["**"],
            "agent": {"type": "command", "command": [sys.executable, "-c", READER]},
        }
        for name in ("one", "two")
    ]

    hank, execution = write_hank(tmp_path / "hank", *codons), tmp_path / "execution"
    for name in ("one", "two"):
        async with running_server(hank, None, execution, "--no-autostart") as server:
            async with server.client() as client:
                await client.send(CodonNext())
                await idle(client, "codon-completed" if name == "one" else "all-codons-completed")

            assert await server.stop() == 0

        expected = hashlib.sha256(f"{name}: the key is {key}{value}".encode()).hexdigest()
        assert (execution / "agentRoot" / "seen.txt").read_text() == expected

    assert files_with(execution, MARK.encode()) == []
    journal = (execution / ".hankweave" / "events" / "events.jsonl").read_text()
    assert journal.count('"transitionType":"Plan') == 1, "the plan compares equal again"
    assert Redactor().text(key) in journal
