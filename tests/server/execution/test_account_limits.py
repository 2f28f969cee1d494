"""Limits of accounts, shared by processes."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from hankweave_protocol.events import CodonResumed, CodonWaiting
from hankweave_protocol.state import CompletedCodon
from hankweave_server.execution.account_limits import AccountLimits, usual_place
from support.running_server import appears, running_server, state
from support.scripted_hank import codon, write_hank
from support.waiting import LIMIT, limited
from support.watching import events_of

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
SOON = NOW + timedelta(minutes=10)
LATE = NOW + timedelta(days=3)


@pytest.fixture
def limits(tmp_path: Path) -> AccountLimits:
    return AccountLimits(tmp_path / "state" / "limits")


def test_a_limit_holds_for_one_model_or_for_all(limits: AccountLimits) -> None:
    """The one that ends last counts; other accounts are not affected."""
    limits.note("a", "opus", "usage", LATE, is_exact=True)
    limits.note("a", "", "usage", SOON, is_exact=False)
    ends = [limits.standing("a", model) for model in ("opus", "sonnet")]
    assert [each and each.end for each in ends] == [LATE, SOON]
    assert limits.standing("b", "opus") is None
    limits.note("a", "opus", "usage", NOW, is_exact=True)
    found = limits.standing("a", "opus")
    assert found is not None
    assert found.end == SOON


def test_an_answer_removes_the_limits_that_have_ended(limits: AccountLimits) -> None:
    """A limit that another execution has met meanwhile stays."""
    limits.note("a", "", "usage", NOW, is_exact=True)
    limits.note("a", "opus", "rate", LATE, is_exact=True)
    limits.remove("a", "opus", NOW + timedelta(seconds=1))
    assert limits.standing("a", "sonnet") is None
    assert limits.standing("a", "opus") is not None


def test_the_file_is_private_and_has_no_secrets(tmp_path: Path, limits: AccountLimits) -> None:
    """It contains limits alone, for the user alone."""
    limits.note("claude-0123", "opus", "usage", SOON, is_exact=True)
    folder = tmp_path / "state" / "limits"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in folder.iterdir())
    assert (folder / "claude-0123.json").read_text() == (
        '{"limits":[{"model":"opus","kind":"usage","until":"2026-11-21T12:10:00.000Z",'
        '"isExact":true}]}'
    )


@pytest.mark.parametrize("content", ["", "{", "[]", '{"limits":[{"model":"x"}]}', '{"limits":3}'])
def test_a_broken_file_counts_as_empty(tmp_path: Path, content: str) -> None:
    """The next limit replaces it."""
    (tmp_path / "a.json").write_text(content)
    limits = AccountLimits(tmp_path)
    assert limits.standing("a", "opus") is None
    limits.note("a", "opus", "usage", SOON, is_exact=True)
    assert limits.standing("a", "opus") is not None


def test_without_a_place_or_account_nothing_is_shared(tmp_path: Path) -> None:
    """A directory that cannot be made is no error: each execution waits for itself."""
    (tmp_path / "file").touch()
    for limits, account in (
        (AccountLimits(None), "a"),
        (AccountLimits(tmp_path / "file" / "limits"), "a"),
        (AccountLimits(tmp_path), None),
    ):
        limits.note(account, "", "usage", SOON, is_exact=True)
        assert limits.standing(account, "") is None
        assert limits.probe(account) is not None

    assert usual_place("/x") == Path("/x/hankweave/limits")
    assert usual_place(None) == Path.home() / ".local/state/hankweave/limits"


HOLDER = """
import sys, time
from pathlib import Path
from hankweave_server.execution.account_limits import AccountLimits
assert AccountLimits(Path(sys.argv[1])).probe("a") is not None
Path(sys.argv[2]).touch()
time.sleep(600)
"""


async def test_one_process_tries_first_until_it_dies(tmp_path: Path) -> None:
    """The kernel gives the right back when its holder is killed."""
    limits = AccountLimits(tmp_path / "limits")
    words = [sys.executable, "-c", HOLDER, str(tmp_path / "limits"), str(tmp_path / "held")]
    async with await anyio.open_process(words) as holder:
        await appears(tmp_path / "held")
        assert limits.probe("a") is None
        assert limits.probe("b") is not None
        holder.kill()
        await holder.wait()

    mine = limits.probe("a")
    assert mine is not None
    assert limits.probe("a") is None
    mine.close()
    assert limits.probe("a") is not None


AGENT = """
import json, os, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
def say(**line): print(json.dumps(line), flush=True)
say(type="system", subtype="init", session_id="s", model="m")
now, end = time.time(), float((folder / "end").read_text())
with (folder / "requests").open("a") as file:
    file.write(f"{now} {now < end}\\n")
if now < end:
    info = {"status": "rejected", "resetsAt": end, "rateLimitType": "five_hour"}
    say(type="rate_limit_event", rate_limit_info=info)
    say(type="result", subtype="success", is_error=True, result="You've hit your limit",
        api_error="usage_limit_reached", api_error_status=429)
    sys.exit(1)
block = {"type": "text", "text": "Hello"}
say(type="assistant", message={"content": [block], "usage": {"output_tokens": 3}})
say(type="result", subtype="success", is_error=False, result="Done")
"""


def asks_its_provider(folder: Path) -> dict[str, Any]:
    """Return an agent whose provider has a limit until the epoch in `end`, and logs requests."""
    program = {"type": "command", "command": [sys.executable, "-c", AGENT, str(folder)]}
    return {"agent": program, "env": {"HANKWEAVE_AGENT_ACCOUNT": "shared"}}


@pytest.mark.full
async def test_three_executions_make_one_request_after_a_limit(tmp_path: Path) -> None:
    """Two begin while the limit of the first is known, and make no request. When it should have
    ended, one of the three finds that it was prolonged, and the others wait on."""
    end, requests = tmp_path / "end", tmp_path / "requests"
    first, second = time.time() + 20, time.time() + 28
    end.write_text(str(first))
    hank = write_hank(tmp_path / "hank", codon("one") | asks_its_provider(tmp_path))
    places = [tmp_path / f"execution-{number}" for number in range(3)]

    async def run(place: Path, waits: anyio.Event) -> None:
        async with running_server(hank, None, place, "--headless") as server:
            async with server.client(since_seq=0) as client:
                await client.until(CodonWaiting, timeout=LIMIT)
                waits.set()

            with limited():
                assert await server.process.wait() == 0

    async with anyio.create_task_group() as tasks:
        for place in places:
            waits = anyio.Event()
            tasks.start_soon(run, place, waits)
            await waits.wait()

        assert time.time() < first, "the machine is too slow for this test's times"
        end.write_text(str(second))

    made = [line.split() for line in requests.read_text().splitlines()]
    times = [float(at) for at, _ in made]
    assert [refused for _, refused in made] == ["True", "True", "False", "False", "False"]
    assert times[0] < first <= times[1] < second <= times[2]
    waited = [each for place in places for each in events_of(place, CodonWaiting)]
    assert sorted(each.source for each in waited) == ["event", "event", *["shared"] * 4]
    assert all(each.by in ("time", "other") for p in places for each in events_of(p, CodonResumed))
    codons = [each for place in places for each in state(place).runs[0].codons]
    assert [type(each) for each in codons] == [CompletedCodon] * 3
