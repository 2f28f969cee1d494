"""The contents of server.log: by default as in seed 001, at debug everything, and as JSON."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from hankweave_protocol.commands import CheckpointCreate, RollbackToCodon
from hankweave_protocol.events import (
    ClockJumped,
    EventData,
    Info,
    ServerResumed,
)
from hankweave_protocol.ids import CodonId
from hankweave_server.clock import SystemClock
from hankweave_server.execution.event_log import BURST, EventLog, log_line
from hankweave_server.ledger.batch import Published
from hankweave_server.logs import server_log
from hankweave_server.paths import Layout
from support.command_line import hankweave
from support.events import a_file_change, an_event
from support.running_server import served
from support.scripted_hank import codon, write_hank, writes
from support.watching import idle


def log_of(execution: Path) -> list[str]:
    lines = (execution / ".hankweave" / "logs" / "server.log").read_text().splitlines()
    return [line.partition("Z ")[2] for line in lines]


async def test_the_log_records_codons_files_and_checkpoints(tmp_path: Path) -> None:
    """At info: codons, changed files, checkpoints, a rollback and the end, as in seed 001."""
    hank = write_hank(
        tmp_path / "hank",
        codon("observe", writes("notes/observations.md", "seen")),
        codon("report", writes("report.md", "done"), {"fail": {"message": "no more paper"}}),
    )
    execution = tmp_path / "execution"
    async with served(hank, execution, since_seq=0) as (server, client):
        await idle(client, "codon-failed")
        await client.send(CheckpointCreate(label="by hand"))
        await client.send(RollbackToCodon(codon_id=CodonId("observe"), checkpoint_type="completed"))
        assert await server.stop() == 0

    messages = log_of(execution)
    debug = [line for line in messages if line.startswith("[DEBUG]")]
    assert [line for line in debug if not line.startswith("[DEBUG] File change detected: ")] == []
    expected = [
        "[INFO] Starting HankweaveRuntime on port ",
        "[INFO] Beginning codon: observe",
        "[DEBUG] File change detected: agentRoot/notes/observations.md",
        "[INFO] Checkpoint created: completed:observe ",
        "[INFO] Codon completed: observe in ",
        "[INFO] Beginning codon: report",
        "[DEBUG] File change detected: agentRoot/report.md",
        "[ERROR] Codon failed: report in ",
        "[INFO] Checkpoint created: manual:",
        "[INFO] Rolling back to completed:observe ",
        "[INFO] Rolled back to ",
        "[INFO] Stopping: SIGTERM",
    ]
    rest = iter(messages)
    missing = [wanted for wanted in expected if not any(x.startswith(wanted) for x in rest)]
    assert missing == [], messages


@pytest.mark.parametrize(("level", "has_debug", "has_info"), [("debug", 1, 1), ("error", 0, 0)])
def test_the_level_is_an_option_and_a_variable(
    tmp_path: Path, level: str, has_debug: bool, has_info: bool
) -> None:
    """At debug each tool call, message and step has a line, without its contents."""
    hank = write_hank(tmp_path / "hank", codon("one", {"say": "my secret"}, writes("a.txt", "a")))
    words = ("run", str(hank), "--headless")
    hankweave(*words, "--execution", str(tmp_path / "by-option"), "--log-level", level, code=0)
    variable = {"HANKWEAVE_RUNTIME_LOG_LEVEL": level}
    hankweave(*words, "--execution", str(tmp_path / "by-variable"), code=0, **variable)
    for name in ("by-option", "by-variable"):
        messages = log_of(tmp_path / name)
        assert any(line.startswith("[DEBUG] Codon one calls ") for line in messages) is bool(
            has_debug
        )
        assert any(line.startswith("[INFO] Beginning codon: one") for line in messages) is bool(
            has_info
        )
        assert "my secret" not in "".join(messages)


def test_as_json_each_line_is_an_object(tmp_path: Path, execution: Path) -> None:
    hank = write_hank(tmp_path / "hank", codon("one", writes("a.txt", "a")))
    words = ("run", str(hank), "--headless", "--execution", str(execution))
    hankweave(*words, "--log-format", "json", code=0)
    lines = (execution / ".hankweave" / "logs" / "server.log").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    assert all(list(each)[:3] == ["timestamp", "level", "message"] for each in found)
    assert ("info", "Beginning codon: one") in [(x["level"], x["message"]) for x in found]


def test_a_level_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    done = hankweave("run", "--log-level", "loud", cwd=tmp_path, code=2)
    assert "'debug', 'info', 'warning', 'error'" in done.stderr


# --- The rate limit -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (
            ServerResumed(suspended_seconds=61.2, cause="suspended"),
            "The machine was suspended for 61 s",
        ),
        (ServerResumed(suspended_seconds=7.5, cause="stopped"), "The server did not run for 8 s"),
        (ClockJumped(seconds=3600.0, direction="back"), "The clock was set back by 3600 s"),
    ],
)
def test_a_pause_and_a_jump_of_the_clock_are_warnings(data: EventData, text: str) -> None:
    assert log_line(an_event(data), "agentRoot/") == (logging.WARNING, text)


@pytest.mark.parametrize(("level", "lines"), [("info", BURST + 2), ("debug", 501)])
def test_a_burst_of_files_is_counted(tmp_path: Path, level: str, lines: int) -> None:
    """Five hundred files at once are a hundred lines and a count; at debug five hundred lines."""
    log = tmp_path / "server.log"
    layout = Layout.of_execution(tmp_path)
    with server_log(log, logging.DEBUG if level == "debug" else logging.INFO):
        events = EventLog(layout, SystemClock())
        for number in range(500):
            events.handle(Published(an_event(a_file_change(f"{number}.txt")), b""))

        events.handle(Published(an_event(Info(message="done")), b""))

    messages = [line.partition("] ")[2] for line in log.read_text().splitlines()]
    assert len(messages) == lines
    assert messages[-1] == "done"
    assert messages[0] == "File change detected: agentRoot/0.txt"
    assert (f"File changes detected: {500 - BURST} more" in messages) is (level == "info")


def test_nothing_that_is_quoted_makes_a_line_of_its_own(tmp_path: Path) -> None:
    """Line ends and terminal escapes in a message are written as visible text."""
    log = tmp_path / "server.log"
    with server_log(log):
        logging.getLogger("hankweave").warning("%s", "odd\n2025 [INFO] made up\x1b[2J")

    (line,) = log.read_text().splitlines()
    assert line.endswith("[WARNING] odd\\n2025 [INFO] made up\\x1b[2J")
