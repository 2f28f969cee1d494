"""Claims about `hankweave report`: real executions, next to their server and without one."""

from __future__ import annotations

import json
import re
import resource
import subprocess
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from hankweave_protocol.commands import CheckpointCreate
from hankweave_protocol.events import (
    CheckCompleted,
    CodonRetrying,
    CodonWaiting,
    FileUpdated,
    RollbackCompleted,
)
from hankweave_protocol.transitions import CheckpointCreated
from hankweave_server.errors import ExitCode
from support.command_line import Done, hankweave
from support.running_server import (
    command,
    environment,
    journal,
    run_headless,
    running_server,
    served,
    state,
)
from support.scripted_hank import codon, waits_for, write_hank, writes
from support.waiting import LIMIT
from support.watching import after_plan, events_of, started, transitions

pytestmark = pytest.mark.feature("reports")

EVIL = "</td><script>alert(1)</script> | [x](http://evil.example) `` **bold**"
NAME = "<img src=x onerror=alert(1)>|`a`"


async def shell(*words: str | Path, code: int = 0, **env: str) -> str:
    """Run a command next to a server; return its stdout."""
    run = partial(hankweave, *map(str, words), code=code, **env)
    done: Done = await anyio.to_thread.run_sync(run)
    return done.stdout


async def as_json(execution: Path, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await shell("report", execution, "--json", *words))
    return found


def night(passed: Path) -> tuple[dict[str, Any], ...]:
    """Return steps that wait, are retried, and leave files with a name that would be markup."""
    review = codon("review", {"limit": {"resetsIn": 1}}, writes("notes/r.md", "r"), {"cost": 0.02})
    loop = {
        "type": "loop",
        "id": "improve",
        "name": "Improve",
        "terminateOn": {"type": "iterationLimit", "limit": 2},
        "codons": [review],
    }
    publish = codon(
        "publish",
        writes("<img src=x>|`a`.md", "p"),
        {"cost": 0.3},
        checks=[{"run": f"test -e {passed} || {{ touch {passed}; exit 3; }}"}],
        onFailure="retry",
        retryConfig={"maxAttempts": 3, "delayMs": 0},
    )
    return codon("observe", writes("notes/a.md", "a"), {"cost": 0.1}), loop, publish


async def test_a_night_is_reported_as_the_journal_has_it(tmp_path: Path) -> None:
    """Steps, waits, retries, failures, edits and rollbacks; the same with and without a server."""
    execution = tmp_path / "tonight"
    hank = write_hank(tmp_path / "hank", *night(tmp_path / "passed"))
    async with after_plan(hank, execution) as (server, client):
        (execution / "agentRoot" / "notes" / "mine.md").write_text("by a person")
        await client.send(CheckpointCreate())
        await shell("rollback", "--codon", "observe", "--yes", "-e", execution)
        found = await as_json(execution)
        page = found.pop("page")
        assert await server.stop() == 0

    alone = await as_json(execution)
    assert (page is None, alone.pop("page")) == (False, None)
    assert (found.pop("hasServer"), alone.pop("hasServer")) == (True, False)
    assert (found.pop("status"), alone.pop("status")) == ("idle", "stopped")
    changing = ("generatedAt", "durationMs", "endTime", "runs", "eta")
    assert {k: v for k, v in found.items() if k not in changing} == {
        k: v for k, v in alone.items() if k not in changing
    }

    steps = [(step["codonId"], step["status"], step["attempts"]) for step in alone["steps"]]
    assert steps == [
        ("observe", "success", 1),
        ("review#0", "not run", 0),
        ("publish", "not run", 1),
    ]
    assert alone["cost"] == pytest.approx(0.1 + 2 * 0.02 + 2 * 0.3)
    assert alone["abandonedCost"] == pytest.approx(2 * 0.02 + 0.3)
    assert len(alone["waits"]) == len(events_of(execution, CodonWaiting)) == 2
    assert all(wait["ended"] and wait["by"] == "time" for wait in alone["waits"])
    assert alone["waitedMs"] >= 2000
    assert len(alone["retries"]) == len(events_of(execution, CodonRetrying)) == 1
    assert [each["what"] for each in alone["failures"]] == ["check", "codon"]
    assert [check.passed for check in events_of(execution, CheckCompleted)] == [False, True]
    (rollback,) = alone["rollbacks"]
    done = events_of(execution, RollbackCompleted)[-1]
    assert (rollback["checkpoint"], rollback["direction"]) == (done.checkpoint, "back")
    assert rollback["removed"] == done.report.counts.removed == 3
    made = transitions(execution, CheckpointCreated)
    assert sum(alone["totals"]["checkpoints"].values()) == len(made)
    assert [each["path"] for each in alone["files"]] == ["notes/a.md"]
    assert [each["path"] for each in alone["edits"]] == ["notes/mine.md"]
    by_seq = {event.seq: event.data for event in journal(execution)}
    edit = by_seq[alone["edits"][0]["seq"]]
    assert isinstance(edit, FileUpdated)
    assert edit.path == "notes/mine.md"
    (first, _) = alone["runs"]
    only = await as_json(execution, "--run", first["runId"][:13])
    assert [step["codonId"] for step in only["steps"]] == [
        *("observe", "review#0", "review#1", "publish")
    ]
    assert (only["status"], only["cost"]) == ("completed", alone["cost"])
    assert only["edits"] == alone["edits"]
    assert state(execution).runs[1].run_id == only["runId"] == first["runId"]


async def test_a_plan_that_runs_is_estimated_from_the_one_before(tmp_path: Path) -> None:
    """`status` and the report say how long it still takes; then the server dies and comes back."""
    gate = tmp_path / "gate"
    gate.touch()
    hank = write_hank(
        tmp_path / "hank",
        codon("one", waits_for(gate), {"cost": 0.5}),
        codon("two", writes("b.txt", "b")),
    )
    async with running_server(hank, None, tmp_path / "first", "--headless") as server:
        assert await server.ended() == 0

    gate.unlink()
    execution = tmp_path / "second"
    async with served(hank, execution, since_seq=0) as (server, client):
        await started(client, "one")
        found = await as_json(execution)
        assert (found["status"], found["steps"][0]["status"]) == ("running", "running")
        assert found["endTime"] is None
        eta = found["eta"]
        assert (eta["durations"], eta["earlierDurations"], eta["unknown"]) == (0, 2, [])
        assert found["generatedAt"] <= eta["earliest"] <= eta["latest"]
        await _links_with_a_token_are_private(execution, tmp_path / "links.md")
        shown = await shell("status", "-v", "-e", execution)
        assert re.search(r"\n  left        .* \(done at [0-9:]+ UTC\)\n", shown)
        assert "\n  forecast " not in shown
        server.kill()

    found = await as_json(execution)
    assert (found["status"], found["steps"][0]["status"]) == ("interrupted", "interrupted")
    assert found["eta"]["earliest"] is None
    gate.touch()
    assert await run_headless(hank, execution) == 0

    found = await as_json(execution)
    assert (found["status"], found["eta"]) == ("completed", None)
    assert [each["type"] for each in found["incidents"]] == ["server.started"]
    assert found["steps"][0]["attempts"] == 2
    page = await shell("report", execution)
    assert "found a dead server" in page


async def _links_with_a_token_are_private(execution: Path, file: Path) -> None:
    """A link has the viewer's token only on request, in a file that nobody else can read."""
    token = (execution / ".hankweave" / "server.viewer-token").read_text().strip()
    await shell("report", execution, "-o", file)
    assert re.search(r"\(<http://127.0.0.1:\d+/#checkpoint=[0-9a-f]{40}>\)", file.read_text())
    assert "token" not in file.read_text()
    await shell("report", execution, "-o", file, "--link-token")
    assert f"&token={token}>)" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600


async def test_what_agents_wrote_stays_text(tmp_path: Path, execution: Path) -> None:
    """Names and messages are neither markup nor links, in Markdown and in HTML."""
    steps = ({"write": {"path": f"{NAME}.md", "text": "x"}}, {"fail": {"message": EVIL}})
    assert await run_headless(write_hank(tmp_path / "hank", codon("one", *steps)), execution) == 1

    file = tmp_path / "report.html"
    await shell("report", execution, "--output", file)
    page = _Page()
    page.feed(file.read_text())
    assert page.tags.isdisjoint({"script", "img", "a", "link", "iframe", "object"})
    assert EVIL in page.text
    assert f"{NAME}.md" in page.text
    markdown = await shell("report", execution)
    assert "<script>" not in markdown
    assert "\\<script\\>" in markdown
    assert "\\[x\\](http://evil.example)" in markdown


class _Page(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


async def one_done(tmp_path: Path) -> Path:
    """Return an execution of one codon."""
    execution = tmp_path / "execution"
    hank = write_hank(tmp_path / "hank", codon("one", writes("a.txt", "a")))
    assert await run_headless(hank, execution) == 0

    return execution


async def test_the_format_is_that_of_the_file(tmp_path: Path) -> None:
    """Or the one that is named; times are local for people, and in UTC for programs."""
    execution = await one_done(tmp_path)
    for name, beginning in {
        "r.md": "# execution\n",
        "r.HTML": "<!doctype html>",
        "r.json": '{\n  "execution"',
        "r": "# execution\n",
    }.items():
        await shell("report", execution, "-o", tmp_path / name)
        assert (tmp_path / name).read_text().startswith(beginning)

    named = ("--format", "html", "--output", tmp_path / "r.md")
    await shell("report", "-e", execution, *named)
    assert (tmp_path / "r.md").read_text().startswith("<!doctype html>")
    at_home = {"TZ": "EST5"}
    assert re.search(r"Started\*\*: .* EST\n", await shell("report", execution, **at_home))
    times = json.loads(await shell("report", execution, "--json", **at_home))
    assert times["startTime"].endswith("Z")


async def test_a_mistake_is_explained(tmp_path: Path) -> None:
    """With an exit code, and what to do."""
    execution = await one_done(tmp_path)
    nowhere = tmp_path / "nowhere"
    for words, code, message in (
        ((nowhere,), ExitCode.NO_INPUT, f"There is no execution in {nowhere}."),
        ((execution, "--run", "17x"), ExitCode.NO_INPUT, "There is no run '17x'."),
        ((execution, "--run", ""), ExitCode.NO_INPUT, "an id that begins with ''"),
        ((execution, "-e", execution), ExitCode.USAGE, "Name the execution once"),
        ((execution, "--json", "--format", "html"), ExitCode.USAGE, "exclude each other"),
        ((execution, "-o", nowhere / "r.md"), ExitCode.IO_ERROR, "could not be written"),
    ):
        done = hankweave("report", *map(str, words), code=code)
        assert message in done.stderr
        assert done.stdout == ""

    folder = execution / ".hankweave" / "events" / "events.jsonl"
    lines = folder.read_bytes().split(b"\n")
    folder.write_bytes(b"\n".join([*lines[:3], b"{broken", *lines[4:]]))
    assert "line 4" in hankweave("report", str(execution), code=ExitCode.BAD_DATA).stderr


@pytest.mark.parametrize("has_state", [True, False])
async def test_a_journal_of_a_million_events_takes_little_memory(
    tmp_path: Path, has_state: bool
) -> None:
    """Also if state.json is missing, and with lines that are longer than a page.

    The limit is for memory of its own; the journal itself is mapped.
    """
    execution = await one_done(tmp_path)
    path = execution / ".hankweave" / "events" / "events.jsonl"
    before = path.read_bytes().splitlines(keepends=True)
    long = 40 << 20
    with path.open("ab") as file:
        file.writelines(_lines(len(before) + 1, 1_000_000))
        file.write(_action(len(before) + 1_000_001, "x" * long))

    if not has_state:
        for name in ("state.json", "state.json.bak"):
            (execution / ".hankweave" / name).unlink()

    done = subprocess.run(  # noqa: ASYNC221 # nothing else waits
        command("report", str(execution), "--json"),
        env=environment(),
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (MOST_DATA, MOST_DATA)),
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["steps"][0]["status"] == "success"
    assert found["totals"]["files"] == 10_000
    assert found["totals"]["files"] + found["totals"]["otherFileChanges"] == 250_000 + 1


MOST_DATA = 200 << 20


def _lines(first: int, count: int) -> Iterator[bytes]:
    """Yield events: of four, three are messages, and one is a change of a file of its own."""
    for seq in range(first, first + count):
        yield _change(seq) if seq % 4 == 0 else _action(seq, "message " * 20)


def _change(seq: int) -> bytes:
    return (
        f'{{"id":"e{seq}","seq":{seq},"timestamp":"2026-01-01T00:00:00.000Z","type":"file.updated",'
        f'"data":{{"path":"d/{seq}","filename":"{seq}","action":"created","sha256":"{seq:064}",'
        '"bytes":1,"source":{"kind":"tool_use"}}}\n'
    ).encode()


def _action(seq: int, content: str) -> bytes:
    return (
        f'{{"id":"e{seq}","seq":{seq},"timestamp":"2026-01-01T00:00:00.000Z",'
        '"type":"assistant.action","data":{"codonId":"one","action":"message",'
        f'"content":"{content}"}}}}\n'
    ).encode()
