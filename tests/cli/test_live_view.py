"""Claims about `hankweave run` on a terminal: a real console script on a real pseudo-terminal."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import termios
import time
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from hankweave_protocol.events import AgentOutput, BudgetFigures, Event
from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import State
from hankweave_server.cli.live.frame import amount, duration, frame
from hankweave_server.cli.live.model import NOTHING, ObservedFacts, view
from hankweave_server.cli.live.reporters import REDRAW_SECONDS, LiveOutput, without_sequences
from hankweave_server.cli.shared.serving import QUESTION
from hankweave_server.clock import SystemClock
from hankweave_server.ledger.writer import Published
from support.histories import MOMENT, completed, running
from support.running_server import command, environment
from support.screens import screen
from support.scripted_hank import codon, waits_for, write_hank, writes
from support.showing import NOW, state_of

HARMLESS = re.compile(rb"\x1b\[(?:[0-9;]*m|[0-9]*A|2K)")
"""Sequences that the view itself needs: colours, up, and erase in line."""


# --- on a pseudo-terminal -------------------------------------------------------------------------


@pytest.mark.story("On a terminal, the plan is a live table, which leaves the terminal as it was.")
def test_rows_appear_and_an_interrupt_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    """Codons, totals and address are visible; after ^C the lines and a last table stay."""
    never = tmp_path / "never"
    hank = write_hank(
        tmp_path / "hank",
        codon("one", writes("a.txt", "a")),
        codon("two", {"say": "I am \x1b[2J\x1b]0;title\x07 here"}, waits_for(never)),
        codon("three"),
    )
    with screen("run", str(hank), "-e", str(tmp_path / "execution")) as shown:
        shown.until(lambda text: "three" in text and "running" in text and "I am" in text)
        assert "watch it: http://127.0.0.1:" in shown.text()
        for role, link in (("token", "watch it"), ("viewer-token", "read-only, to share")):
            token = (tmp_path / f"execution/.hankweave/server.{role}").read_text().strip()
            assert re.search(rf"{link}: http://127\.0\.0\.1:\d+/#token={token}\b", shown.text())
        shown.resize(44, 12)
        shown.until(lambda text: text.count("steps  ") > 3)
        shown.process.send_signal(signal.SIGINT)
        shown.until(lambda text: QUESTION.splitlines()[1] in text)
        shown.process.send_signal(signal.SIGINT)
        assert shown.ended() == 0
        text = shown.text()
        assert "Traceback" not in text
        assert re.search(r"one +completed", text)
        assert text.rstrip().splitlines()[-1].startswith("2 of 3 steps")
        assert termios.tcgetattr(shown.slave) == shown.before
        assert b"\x1b[?25l" not in shown.bytes  # The cursor was never hidden.
        foreign = {
            bytes(found) for found in re.findall(rb"\x1b.{0,6}", HARMLESS.sub(b"", shown.bytes))
        }
        assert foreign == set()
        assert b"\x07" not in shown.bytes


def test_plain_says_lines_on_a_terminal_too(tmp_path: Path) -> None:
    """--plain moves no cursor and draws no table."""
    hank = write_hank(tmp_path / "hank", codon("one"))
    words = ("run", str(hank), "-e", str(tmp_path / "execution"), "--plain", "--headless")
    with screen(*words) as shown:
        assert shown.ended() == 0
        assert "one            completed" in shown.text()
        assert b"\x1b" not in shown.bytes


def test_a_changed_hank_is_asked_about(tmp_path: Path) -> None:
    """On a terminal the default answer is no, and changes nothing."""
    hank, execution = write_hank(tmp_path / "hank", codon("one")), tmp_path / "execution"
    words = ("run", str(hank), "-e", str(execution))
    subprocess.run(
        command(*words, "--headless"), env=environment(), check=True, capture_output=True
    )
    meta = (execution / ".hankweave" / "execution-meta.json").read_bytes()
    write_hank(tmp_path / "hank", codon("one"), codon("two"))
    with screen(*words) as shown:
        shown.until(lambda text: "Continue with the changed hank? [y/N]" in text)
        os.write(shown.master, b"n\n")
        assert shown.ended() == 1
        assert "Nothing was changed" in shown.text()
        assert (execution / ".hankweave" / "execution-meta.json").read_bytes() == meta


# --- the drawing ----------------------------------------------------------------------------------


def drawn(width: int, live: ObservedFacts = NOTHING) -> list[str]:
    names = tuple(f"codon-with-a-long-name-{number}" for number in range(30))
    state = state_of(completed(names[0]), running(names[1]), plan=names)
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=False)
    console.print(frame(view(state, live, NOW, 10), width, "http://127.0.0.1:1/#token=t"))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """Columns are dropped and the rest is cut: a frame has exactly the lines it counts."""
    lines = drawn(width, ObservedFacts(words="地震" * 200, sentinel="x" * 300))
    assert max(map(cell_len, lines)) <= width
    assert len(lines) == 10 + 1 + 1 + 1 + 3  # Rows, title, omitted, totals; words to address.
    assert any("running" in line for line in lines) or width < 40


def test_amounts_are_short() -> None:
    """Times and numbers have a form that is easy to read."""
    assert [duration(each) for each in (9.54, 187, 7205)] == ["9.5 s", "3:07", "2:00:05"]
    assert [amount(each) for each in (950, 12_340, 4_500_000)] == ["950", "12.3k", "4.5M"]


def test_a_chatty_agent_draws_no_oftener_than_a_quiet_one() -> None:
    """With 200 lines a second and 10,000 codons, drawings are a fifth of a second apart."""
    names = tuple(f"c{number}" for number in range(10_000))
    state = state_of(running("c5000"), plan=names)
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, height=30)
    output = LiveOutput(SystemClock(), lambda _entry, _state: BudgetFigures(), console)
    line = AgentOutput(codon_id=CodonId("c5000"), stream="stdout", line="chatter")
    event = Event(id="e", timestamp=MOMENT, type=line.TYPE, data=line)
    asked = 0

    def read_state() -> State:
        nonlocal asked
        asked += 1
        return state

    began = time.monotonic()
    with output.writing():
        output.open("hello\n  address", read_state)
        while asked < 10:
            output.report(Published(event, b""))
            time.sleep(0.005)

    drawings = asked // 2  # It reads the clock when it decides to draw, and when it draws.
    assert (drawings - 2) * REDRAW_SECONDS <= time.monotonic() - began
    assert out.getvalue().count("c5000") >= 2


def test_arrows_are_no_keys() -> None:
    """Letters, control characters and Escape are keys; control sequences are skipped."""
    sent = "s\x1b[A\x1bOB\x1b[1;5C\x1b[200~q\r\x04\x1b"
    assert without_sequences(sent) == "sq\r\x04\x1b"
