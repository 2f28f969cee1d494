"""Claims about `hankweave attach`: a real server, the real console script, a real terminal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from hankweave_server.cli.live.frame import foot
from hankweave_server.cli.live.keys import (
    LOOK_ONLY,
    Answer,
    Confirming,
    Consider,
    Foresee,
    List,
    Mode,
    Quit,
    Reading,
    Sight,
    Steer,
    Waiting,
    Watching,
    keys_of,
    step,
)
from support.command_line import hankweave
from support.running_server import command, environment, journal, state
from support.screens import Screen, screen
from support.scripted_hank import codon, waits_for, write_hank, writes
from support.waiting import LIMIT

KEYS = "? keys"


@contextmanager
def serving(
    tmp_path: Path, *codons: Mapping[str, Any], options: tuple[str, ...] = ()
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Run a server in the background; yield the process and its execution."""
    hank, execution = write_hank(tmp_path / "hank", *codons), tmp_path / "execution"
    stays = () if "--headless" in options else ("--no-exit-on-complete",)
    words = ("run", str(hank), "-e", str(execution), "--json", *stays, *options)
    with subprocess.Popen(command(*words), env=environment(), stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            assert b"server.ready" in server.stdout.readline()
            yield server, execution
        finally:
            server.kill()


@contextmanager
def attached(execution: Path, *options: str, columns: int = 110) -> Iterator[Screen]:
    with screen("attach", "-e", str(execution), *options, columns=columns) as shown:
        shown.until(lambda text: KEYS in text)
        yield shown


def ask(shown: Screen, key: str, answer: str) -> None:
    """Press a key and wait for its output."""
    shown.forget()
    shown.press(key)
    shown.until(lambda text: answer in text)


def leave(shown: Screen) -> None:
    shown.press("q")
    assert shown.ended() == 0
    assert "Traceback" not in shown.text()
    assert termios.tcgetattr(shown.slave) == shown.before
    assert b"\x1b[?25l" not in shown.bytes  # The cursor was never hidden.


# --- on a terminal --------------------------------------------------------------------------------


def test_a_codon_is_skipped_with_one_key_and_a_yes(tmp_path: Path) -> None:
    """The plan is visible; "no" changes nothing; "yes" skips; leaving does not stop the server."""
    never = tmp_path / "never"
    two = codon("two", {"say": "I am \x1b]0;title\x07 here"}, waits_for(never))
    with serving(tmp_path, codon("one", writes("a.txt", "a")), two) as (server, execution):
        with attached(execution) as shown:
            shown.until(lambda text: "running" in text and "I am" in text)
            assert "connected" in shown.text()
            assert b"\x1b]0;title" not in shown.bytes
            ask(shown, "s", "Skip two? This stops its agent")
            ask(shown, "n", "Nothing was done.")
            ask(shown, "r", "two is running: skip or stop it first.")
            ask(shown, "s", "Skip two?")
            ask(shown, "y", "two            skipped")
            leave(shown)

        assert server.poll() is None
        skipped = state(execution).runs[0].codons[-1]
        assert (skipped.codon_id, type(skipped).__name__) == ("two", "SkippedCodon")


def test_what_is_left_of_the_budget_is_in_sight(tmp_path: Path) -> None:
    """The view shows the running codon's budget, and what the hank leaves to the next one."""
    gate, never = tmp_path / "gate", tmp_path / "never"
    one = codon("one", {"cost": 0.25}, waits_for(gate), budget={"maxDollars": 1.0})
    two = codon("two", waits_for(never))
    options = ("--max-cost", "3")
    with (
        serving(tmp_path, one, two, options=options) as (_, execution),
        attached(execution) as shown,
    ):
        shown.until(lambda text: "$1.00" in text)
        shown.forget()
        gate.touch()
        shown.until(lambda text: "$2.75" in text)
        assert "$2.75" in shown.text()
        leave(shown)


@pytest.mark.story("In `attach`, keys choose a checkpoint, preview it, go back and undo.")
def test_going_back_is_chosen_foreseen_done_and_undone(tmp_path: Path) -> None:
    """p lists, enter previews and changes nothing, y rolls back; u undoes."""
    hank = (codon("one", writes("a.txt", "a")), codon("two", writes("b.txt", "b")))
    with serving(tmp_path, *hank) as (_, execution):
        b = execution / "agentRoot" / "b.txt"
        with attached(execution) as shown:
            shown.until(lambda text: "two            completed" in text)
            ask(shown, "p", "1 of 5, newest first")
            ask(shown, "\x1b[B\x1b[B", "3 of 5, newest first")
            ask(shown, "\r", "Go back? [y/N]")
            assert "0 files added, 0 updated, 1 removed" in shown.text()
            assert "- b.txt  1 byte" in shown.text()
            assert b.exists()
            ask(shown, "y", "Press u to undo")
            assert not b.exists()
            ask(shown, "u", "Undo the rollback? [y/N]")
            ask(shown, "y", "1 file added")
            assert b.read_text() == "b"
            ask(shown, "u", "There is no rollback to undo.")
            leave(shown)


def kept(execution: Path) -> int:
    """Return the number of checkpoints on record."""
    journal = execution / ".hankweave" / "events" / "events.jsonl"
    return sum('"CheckpointCreated"' in line for line in journal.read_text().splitlines())


def test_going_back_stops_the_codon_that_runs_and_says_so_first(tmp_path: Path) -> None:
    """The question names the codon; then it has ended, the files are back, and nothing runs."""
    two = codon("two", writes("b.txt", "b"), waits_for(tmp_path / "never"))
    hank = (codon("one", writes("a.txt", "a")), two)
    with serving(tmp_path, *hank) as (_, execution), attached(execution) as shown:
        b = execution / "agentRoot" / "b.txt"
        shown.until(lambda text: "two            running" in text and kept(execution) == 4)
        ask(shown, "p", "1 of 4, newest first")
        ask(shown, "j", "2 of 4, newest first")
        assert re.search(r"› [0-9a-f]{12}  [0-9:]{8}  completed  one", shown.text())
        ask(shown, "\r", "Go back? two is running, and will be stopped first. [y/N]")
        assert b.exists()
        ask(shown, "y", "Press u to undo")
        assert not b.exists()
        assert "1 of 2 steps" in shown.text()
        leave(shown)


def test_after_a_stop_in_the_shell_the_keys_are_taken_again(tmp_path: Path) -> None:
    """After ^Z and fg, whatever the shell did to the terminal, one key press is enough again."""
    with (
        serving(tmp_path, codon("one", waits_for(tmp_path / "never"))) as (_, execution),
        attached(execution) as shown,
    ):
        taken = termios.tcgetattr(shown.slave)
        assert taken != shown.before
        shown.process.send_signal(signal.SIGSTOP)
        termios.tcsetattr(shown.slave, termios.TCSANOW, shown.before)
        shown.process.send_signal(signal.SIGCONT)
        shown.until(lambda _: termios.tcgetattr(shown.slave) == taken)
        ask(shown, "x", "Stop one by force?")
        shown.press("n")
        leave(shown)


def test_a_request_of_an_agent_is_allowed_with_its_call_in_sight(tmp_path: Path) -> None:
    """A request from before the attach is visible; `a` and `y` approve it."""
    one = codon("one", {"run": "touch ran.txt"}, permissions={"otherwise": "ask"})
    with serving(tmp_path, one) as (_, execution), attached(execution) as shown:
        shown.until(lambda text: "a allow   d deny" in text)
        ask(shown, "a", "Allow it? This cannot be undone. [y/N]")
        assert "one asks for Bash:" in shown.text()
        assert "command: touch ran.txt" in shown.text()
        ask(shown, "y", "one            completed")
        leave(shown)
        assert (execution / "agentRoot" / "ran.txt").exists()


def test_a_call_that_cannot_be_shown_whole_is_not_asked_about(tmp_path: Path) -> None:
    """Such a call must be read elsewhere; on a low terminal a question is shown alone."""
    long = "; ".join(["true"] * 200)
    asks = {"otherwise": "ask"}
    one = codon("one", {"run": long}, {"run": "touch ran.txt"}, permissions=asks)
    with serving(tmp_path, one) as (_, execution), attached(execution) as shown:
        shown.until(lambda text: "a allow   d deny" in text)
        ask(shown, "a", "The call is too long to show here.")
        assert "hankweave permissions --json" in shown.text()
        ask(shown, "d", "Denied.")
        shown.until(lambda text: "Bash(touch ran.txt)" in text)
        shown.resize(60, 8)
        ask(shown, "a", "Allow it?")
        assert "command: touch ran.txt" in shown.text()
        ask(shown, "n", "Nothing was done.")
        leave(shown)


@pytest.mark.parametrize("by", ["token", "option"])
@pytest.mark.story("With the viewer token, `attach` is read-only.", cases=("token",))
def test_who_has_a_viewers_token_looks_and_moves_nothing(tmp_path: Path, by: str) -> None:
    """The server grants the token's role; the view says so, and no key sends a command."""
    one = codon("one", waits_for(tmp_path / "never"))
    with serving(tmp_path, one) as (_, execution):
        if by == "token":
            (execution / ".hankweave" / "server.token").unlink()

        options = () if by == "token" else ("--readonly",)
        with attached(execution, *options) as shown:
            shown.until(lambda text: "connected, readonly" in text)
            ask(shown, "x", LOOK_ONLY)
            ask(shown, "p", "newest first")
            ask(shown, "\r", "to checkpoint")
            assert "[y/N]" not in shown.text()
            shown.press("x")
            leave(shown)

        assert all(event.type != "codon.completed" for event in journal(execution))


def test_a_server_that_is_killed_and_started_again_is_found_again(tmp_path: Path) -> None:
    """The loss is reported, then the connection is restored, with the events in between."""
    go = tmp_path / "go"
    hank = (codon("one", waits_for(go)), codon("two"))
    with serving(tmp_path, *hank) as (server, execution), attached(execution) as shown:
        shown.until(lambda text: "one            running" in text)
        shown.forget()
        server.kill()
        server.wait()
        shown.until(lambda text: "connection lost" in text)
        go.touch()
        shown.forget()
        with serving(tmp_path, *hank):
            shown.until(lambda text: "● connected" in text and "two            completed" in text)
            assert "found a dead server" in shown.text()
            assert "two            completed" in shown.text()
            leave(shown)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_as_it_was(tmp_path: Path, number: signal.Signals) -> None:
    """The view ends in order, with the exit code that a shell expects; the server continues."""
    with (
        serving(tmp_path, codon("one", waits_for(tmp_path / "never"))) as (server, execution),
        attached(execution) as shown,
    ):
        assert termios.tcgetattr(shown.slave) != shown.before
        shown.process.send_signal(number)
        assert shown.ended() == 128 + number
        assert termios.tcgetattr(shown.slave) == shown.before
        assert server.poll() is None


# --- without a terminal ---------------------------------------------------------------------------


def test_in_a_pipe_the_story_comes_in_lines_until_the_server_ends(tmp_path: Path) -> None:
    """A pipe gets past and later events without control characters; the exit code is 0."""
    go = tmp_path / "go"
    hank = (codon("one"), codon("two", waits_for(go)))
    with (
        serving(tmp_path, *hank, options=("--headless",)) as (_, execution),
        subprocess.Popen(
            command("attach", "-e", str(execution)),
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        ) as attach,
    ):
        assert attach.stdout is not None
        lines = []
        while not lines or b"two            running" not in lines[-1]:
            lines.append(attach.stdout.readline())
            assert lines[-1], lines

        go.touch()
        rest = attach.stdout.read()
        assert attach.wait(LIMIT) == 0

    assert any(b"one            completed" in line for line in lines)
    assert b"two            completed" in rest
    assert b"\x1b" not in b"".join(lines) + rest


def test_where_no_server_runs_that_is_said(tmp_path: Path) -> None:
    """The exit code is 69, with one sentence and a hint that starts a server."""
    hank, execution = write_hank(tmp_path / "hank", codon("one")), tmp_path / "execution"
    hankweave("run", str(hank), "-e", str(execution), "--headless", code=0)
    done = hankweave("attach", "-e", str(execution), code=69)
    assert f"hint: Start a server with `hankweave run -e {execution}`" in done.stderr


def test_where_no_execution_is_that_is_said(tmp_path: Path) -> None:
    """The exit code is 66, with one sentence and a hint that lists the existing executions."""
    done = hankweave("attach", "-e", str(tmp_path / "nowhere"), code=66)
    assert "nowhere" in done.stderr
    assert "`hankweave ls`" in done.stderr


# --- keys in isolation ----------------------------------------------------------------------------

RUNNING = Sight(may_change=True, active="two", asking=("r1", "r2"))
IDLE = Sight(may_change=True, next="two")
VIEWER = Sight(may_change=False, active="two", asking=("r1",))


def test_keys_are_read_from_what_a_terminal_sends() -> None:
    """Letters, arrows in both encodings and escape are keys; unknown sequences are not."""
    sent = "s\x1b[A\x1bOB\x1b[1;5C\x1b[200~q\r\x1b"
    assert list(keys_of(sent)) == ["s", "up", "down", "q", "enter", "escape"]


@pytest.mark.parametrize("key", ["s", "x"])
def test_what_cannot_be_taken_back_is_asked_about(key: str) -> None:
    """Only `y` is a yes; return, escape and the same key again are not."""
    mode, wish = step(Watching(), key, RUNNING)
    assert isinstance(mode, Confirming)
    assert wish is None
    for other in ("enter", "escape", key, "Y", "n"):
        assert step(mode, other, RUNNING) == (Watching("Nothing was done."), None)

    assert step(mode, "y", RUNNING)[1] == mode.wish


def test_a_question_is_about_what_was_in_sight() -> None:
    """A yes applies to the request in the question, even if another one is the oldest by then."""
    mode = Confirming("Allow it?", Answer("r1", "allow"))
    later = Sight(may_change=True, asking=("r2",))
    assert step(mode, "y", later)[1] == Answer("r1", "allow")


@pytest.mark.parametrize("width", [20, 44, 100])
def test_a_question_is_never_cut(width: int) -> None:
    """The question and the call it is about are shown whole on the narrowest terminal."""
    call = "  command: " + "x" * 90 + "; rm -rf /"
    asked = Confirming("Allow it? This cannot be undone. [y/N]", Answer("r", "allow"), (call,))
    lines = foot(asked, RUNNING, is_connected=True, width=width)
    text = "".join(line.text for line in lines)
    assert call in text
    assert asked.question in text
    assert max(cell_len(line.text) for line in lines[:-2]) <= width


@pytest.mark.parametrize(
    ("key", "sight", "wish"),
    [
        ("n", IDLE, Steer("next", None)),
        ("d", RUNNING, Answer("r1", "deny")),
        ("a", RUNNING, Consider("r1")),
        ("p", VIEWER, List()),
        ("u", IDLE, Foresee(direction="undo")),
        ("U", IDLE, Foresee(direction="redo")),
        ("q", VIEWER, Quit()),
    ],
)
def test_what_can_be_taken_back_is_done_at_once(key: str, sight: Sight, wish: object) -> None:
    """Views, denials and the next codon need no question; a preview asks its own."""
    assert step(Watching(), key, sight)[1] == wish


@pytest.mark.parametrize("key", list("nsxrad"))
def test_a_viewers_keys_change_nothing(key: str) -> None:
    """Each such key is answered with the reason."""
    assert step(Watching(), key, VIEWER) == (Watching(LOOK_ONLY, is_complaint=True), None)


@pytest.mark.parametrize("key", ["s", "x"])
def test_where_nothing_runs_nothing_is_stopped(key: str) -> None:
    """The view says so, and asks no question."""
    assert step(Watching(), key, IDLE) == (
        Watching("No codon is running.", is_complaint=True),
        None,
    )


def test_while_the_server_works_only_leaving_is_possible() -> None:
    """Repeated key presses cause no second question."""
    for key in "nsxrpuad?y":
        assert step(Waiting("…"), key, RUNNING) == (Waiting("…"), None)

    assert step(Waiting("…"), "q", RUNNING)[1] == Quit()


@pytest.mark.parametrize("mode", [Watching(), Waiting("…"), Reading(("a",)), Watching("done")])
@pytest.mark.parametrize("width", [20, 60, 120])
def test_the_last_line_always_says_which_keys_there_are(mode: Mode, width: int) -> None:
    """A narrow terminal shows the most important ones; `?` shows all of them."""
    lines = foot(mode, IDLE, is_connected=True, width=width)
    assert lines[-1].text.endswith("? keys   q quit")
    assert cell_len(lines[-1].text) <= max(width, 20)
    lost = foot(mode, IDLE, is_connected=False, width=width)
    assert any("connection lost" in line.text for line in lost)


def test_the_test_terminal_tells_settings_apart() -> None:
    """The values that the checks above compare differ between terminals."""
    master, slave = os.openpty()
    before = termios.tcgetattr(slave)
    changed = [*before]
    changed[3] &= ~termios.ECHO
    termios.tcsetattr(slave, termios.TCSANOW, changed)
    assert termios.tcgetattr(slave) != before
    os.close(master)
    os.close(slave)
