"""Claims about `hankweave attach`: a real server; its screen in memory, and on a real terminal."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import termios
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from hankweave_client.client import connect_to
from hankweave_protocol.replies import Mode
from hankweave_server.cli.attach.control import READ_ONLY
from hankweave_server.clock import SystemClock
from support.attached import attached_to, press, text_of, until
from support.command_line import hankweave
from support.running_server import command, environment, journal, state
from support.screens import Screen, screen
from support.scripted_hank import codon, waits_for, write_hank, writes
from support.waiting import LIMIT, eventually_blocking

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
            assert b"server.ready" in server.stdout.readline()
            yield server, execution
        finally:
            server.kill()


@asynccontextmanager
async def watching(execution: Path, mode: Mode = "readandwrite") -> AsyncIterator[Pilot[int]]:
    """Show the server of an execution on a screen in memory."""
    async with (
        connect_to(execution, mode=mode, name="attach", progress=True) as client,
        attached_to(client, 100, 30, clock=SystemClock()) as pilot,
    ):
        yield pilot


async def sees(pilot: Pilot[int], *texts: str) -> None:
    """Wait until all these texts are on the screen."""
    await until(pilot, lambda shown: all(text in shown for text in texts))


async def ask(pilot: Pilot[int], key: str, *answers: str) -> None:
    """Press a key and wait for what it brings."""
    await press(pilot, key)
    await sees(pilot, *answers)


# --- with a server --------------------------------------------------------------------------------


async def test_a_codon_is_skipped_with_one_key_and_a_yes(tmp_path: Path) -> None:
    """The plan is visible; "no" changes nothing; "yes" skips; leaving does not stop the server."""
    never = tmp_path / "never"
    two = codon("two", {"say": "I am \x1b]0;title\x07 here"}, waits_for(never))
    with serving(tmp_path, codon("one", writes("a.txt", "a")), two) as (server, execution):
        async with watching(execution) as pilot:
            await sees(pilot, "✓ Codon one", "▸ Codon two", r"I am \x1b]0;title\x07 here")
            await ask(pilot, "s", "Skip Codon two? This stops its agent")
            await ask(pilot, "n", "▸ Codon two")
            await ask(pilot, "r", "Codon two is running: skip or stop it first.")
            await ask(pilot, "s", "Skip Codon two?")
            await ask(pilot, "y", "2 of 2", "» Codon two")
            await press(pilot, "q")
            assert pilot.app.return_value == 0

        assert server.poll() is None
        skipped = state(execution).runs[0].codons[-1]
        assert (skipped.codon_id, type(skipped).__name__) == ("two", "SkippedCodon")


async def test_what_is_left_of_the_budget_is_in_sight(tmp_path: Path) -> None:
    """The view shows the running codon's budget, and what the hank leaves to the next one."""
    gate, never = tmp_path / "gate", tmp_path / "never"
    one = codon("one", {"cost": 0.25}, waits_for(gate), budget={"maxDollars": 1.0})
    two = codon("two", waits_for(never))
    options = ("--max-cost", "3")
    with serving(tmp_path, one, two, options=options) as (_, execution):
        async with watching(execution) as pilot:
            await sees(pilot, "left $1.00", "of $3")
            gate.touch()
            await sees(pilot, "Codon two", "left $2.75", "$0.25 of $3")


@pytest.mark.story("In `attach`, keys choose a checkpoint, preview it, go back and undo.")
async def test_going_back_is_chosen_foreseen_done_and_undone(tmp_path: Path) -> None:
    """p lists, Enter previews and changes nothing, y rolls back; u undoes."""
    hank = (codon("one", writes("a.txt", "a")), codon("two", writes("b.txt", "b")))
    with serving(tmp_path, *hank) as (_, execution):
        b = execution / "agentRoot" / "b.txt"
        async with watching(execution) as pilot:
            await sees(pilot, "2 of 2", "b.txt", "+1 −0")
            await ask(pilot, "p", "Checkpoints, newest first")
            await press(pilot, "down", "down")
            await ask(pilot, "enter", "1 file goes away", "b.txt", "Everything is saved first")
            assert b.exists()
            await ask(pilot, "y", "Done: 1 file changed. u takes it back.", "1 of 2")
            assert not b.exists()
            await ask(pilot, "u", "Undo the last rollback", "1 file comes back")
            await ask(pilot, "y", "Done: 1 file changed.", "2 of 2")
            assert b.read_text() == "b"
            await ask(pilot, "u", "There is no rollback to undo.")


async def test_going_back_stops_the_codon_that_runs_and_says_so_first(tmp_path: Path) -> None:
    """The question names the codon; then it has ended, the files are back, and nothing runs."""
    two = codon("two", writes("b.txt", "b"), waits_for(tmp_path / "never"))
    hank = (codon("one", writes("a.txt", "a")), two)
    with serving(tmp_path, *hank) as (_, execution):
        b = execution / "agentRoot" / "b.txt"
        async with watching(execution) as pilot:
            await sees(pilot, "▸ Codon two", "b.txt")
            await ask(
                pilot, "z", "Back to before Codon two", "1 file goes away", "is stopped first"
            )
            assert b.exists()
            await ask(pilot, "y", "u takes it back", "1 of 2")
            assert not b.exists()


async def test_the_changes_of_a_step_are_shown_line_by_line(tmp_path: Path) -> None:
    """c compares where the selected step began with its end; a later step is not part of it."""
    hank = (codon("one", writes("a.txt", "first\n")), codon("two", writes("b.txt", "second\n")))
    with serving(tmp_path, *hank) as (_, execution):
        async with watching(execution) as pilot:
            await sees(pilot, "2 of 2")
            await press(pilot, "up")
            await ask(pilot, "c", "created a.txt +1 −0", "+first")
            assert "b.txt" not in text_of(pilot)
            await ask(pilot, "c", "Write a.txt")


async def test_a_request_of_an_agent_is_allowed_with_its_call_in_sight(tmp_path: Path) -> None:
    """A request from before the attach is visible; `a` shows all of it, and `a` again approves."""
    one = codon("one", {"run": "touch ran.txt"}, permissions={"otherwise": "ask"})
    with serving(tmp_path, one) as (_, execution):
        async with watching(execution) as pilot:
            await sees(pilot, "waits for you", "a allow A always d deny")
            await ask(pilot, "a", "one asks for Bash", "command: touch ran.txt")
            await ask(pilot, "a", "1 of 1", "allowed by a person")
        assert (execution / "agentRoot" / "ran.txt").exists()


async def test_a_refusal_is_shown_with_what_to_do(tmp_path: Path) -> None:
    """A refusal of the server is shown in its words, and nothing is lost."""
    with serving(tmp_path, codon("one", writes("a.txt", "a"))) as (_, execution):
        async with watching(execution) as pilot:
            await sees(pilot, "1 of 1")
            await ask(pilot, "n", "All codons of the plan have run.", "errors#nothing-to-run")


@pytest.mark.parametrize("by", ["token", "option"])
@pytest.mark.story("With the viewer token, `attach` is read-only.", cases=("token",))
async def test_with_the_viewer_token_attach_is_read_only(tmp_path: Path, by: str) -> None:
    """The server grants the token's role; the view says so, and no key sends a command."""
    one = codon("one", waits_for(tmp_path / "never"))
    with serving(tmp_path, one) as (_, execution):
        if by == "token":
            (execution / ".hankweave" / "server.token").unlink()

        async with watching(execution, "readandwrite" if by == "token" else "readonly") as pilot:
            await sees(pilot, "read-only")
            await ask(pilot, "x", READ_ONLY)
            await ask(pilot, "p", "Checkpoints, newest first")
            await ask(pilot, "enter", "This connection is read-only.")
            await press(pilot, "y", "escape", "x")

        assert all(event.type != "codon.completed" for event in journal(execution))


async def test_a_server_that_is_killed_and_started_again_is_found_again(tmp_path: Path) -> None:
    """The loss is reported, then the connection is restored, with the events in between."""
    go = tmp_path / "go"
    hank = (codon("one", waits_for(go)), codon("two", {"say": "I am two"}))
    with serving(tmp_path, *hank) as (server, execution):
        async with watching(execution) as pilot:
            await sees(pilot, "▸ Codon one")
            server.kill()
            server.wait()
            await sees(pilot, "connection lost")
            go.touch()
            with serving(tmp_path, *hank):
                await sees(pilot, "2 of 2", "✓ Codon one", "✓ Codon two", "I am two")
                assert "connection lost" not in text_of(pilot)


# --- on a terminal --------------------------------------------------------------------------------


@contextmanager
def attached(execution: Path, *options: str, columns: int = 110) -> Iterator[Screen]:
    with screen("attach", "-e", str(execution), *options, columns=columns) as shown:
        shown.until(lambda text: KEYS in text)
        yield shown


def leaves_terminal_as_it_was(shown: Screen) -> bool:
    """Return whether settings, cursor and main screen are those from before."""
    hidden, seen = shown.bytes.rfind(b"\x1b[?25l"), shown.bytes.rfind(b"\x1b[?25h")
    left = shown.bytes.rfind(b"\x1b[?1049l") > shown.bytes.rfind(b"\x1b[?1049h")
    return termios.tcgetattr(shown.slave) == shown.before and seen > hidden and left


def test_control_characters_of_agents_do_not_reach_the_terminal(tmp_path: Path) -> None:
    """They are shown as text; leaving ends with 0, and the terminal is as it was."""
    one = codon("one", {"say": "I am \x1b]0;title\x07 here"}, waits_for(tmp_path / "never"))
    with serving(tmp_path, one) as (_, execution), attached(execution) as shown:
        shown.until(lambda text: r"I am \x1b]0;title\x07 here" in text)
        shown.press("q")
        assert shown.ended() == 0
        assert b"\x1b]0;title" not in shown.bytes
        assert "Traceback" not in shown.text()
        assert leaves_terminal_as_it_was(shown)


def test_after_a_stop_in_the_shell_the_keys_are_taken_again(tmp_path: Path) -> None:
    """After ^Z and fg, whatever the shell did to the terminal, each key is taken at once."""
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
        shown.press("x")
        shown.until(lambda text: "Stop Codon one by force?" in text)
        shown.press("y")
        # Only the answer brings this: each frame of the question has the steps behind it as well.
        shown.until(lambda text: "Stopped. r runs it again" in text)
        shown.press("q")
        assert shown.ended() == 0


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
        assert leaves_terminal_as_it_was(shown)
        assert server.poll() is None


def test_it_ends_when_its_terminal_is_gone(tmp_path: Path) -> None:
    """No signal is needed: the first output that nobody can read ends it."""
    with (
        serving(tmp_path, codon("one", waits_for(tmp_path / "never"))) as (server, execution),
        attached(execution) as shown,
    ):
        shown.close()
        assert shown.left() == 128 + signal.SIGHUP
        assert server.poll() is None


# --- in tmux --------------------------------------------------------------------------------------

in_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="There is no tmux.")


class Tmux:
    """A tmux server of its own, with a screen of 80 by 24 and one program on it."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._socket = folder / "tmux"
        self._run("-f", "/dev/null", *("new-session", "-d", "-x", "80", "-y", "24"), *words)

    def _run(self, *words: str) -> str:
        done = self._try(*words)
        done.check_returncode()
        return done.stdout

    def _try(self, *words: str) -> subprocess.CompletedProcess[str]:
        line = ("tmux", "-u", "-S", str(self._socket), *words)
        env = environment(TERM="xterm-256color", LC_ALL="C.UTF-8")
        return subprocess.run(line, env=env, capture_output=True, text=True, check=False)

    def press(self, *keys: str) -> None:
        self._run("send-keys", *keys)

    def until(self, *texts: str) -> str:
        """Wait until all these texts are on the screen, and return it."""
        try:
            eventually_blocking(lambda: all(text in self.screen() for text in texts))
        except TimeoutError:
            raise AssertionError(self.screen()) from None

        return self.screen()

    def screen(self) -> str:
        return self._run("capture-pane", "-p")

    def has_ended(self) -> bool:
        """Return whether the program has ended, and tmux with it."""
        return self._try("has-session").returncode != 0

    def close(self) -> None:
        self._try("kill-server")


@in_tmux
def test_in_tmux_a_step_is_watched_and_stopped(tmp_path: Path) -> None:
    """The screen is drawn as it is meant, in 80 by 24, and keys arrive."""
    one = codon("one", writes("a.txt", "a"), {"say": "Ich prüfe."}, waits_for(tmp_path / "never"))
    with serving(tmp_path, one) as (_, execution):
        tmux = Tmux(tmp_path, *command("attach", "-e", str(execution)))
        try:
            shown = tmux.until("▸ Codon one", "Ich prüfe.", "a.txt", KEYS)
            assert max(map(len, shown.splitlines())) <= 80
            tmux.press("x")
            tmux.until("Stop Codon one by force?")
            tmux.press("y")
            tmux.until("✗ Codon one", "Stopped.")
            tmux.press("q")
            eventually_blocking(tmux.has_ended)
        finally:
            tmux.close()


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


def test_where_no_server_runs_that_is_reported(tmp_path: Path) -> None:
    """The exit code is 69, with one sentence and a hint that starts a server."""
    hank, execution = write_hank(tmp_path / "hank", codon("one")), tmp_path / "execution"
    hankweave("run", str(hank), "-e", str(execution), "--headless", code=0)
    done = hankweave("attach", "-e", str(execution), code=69)
    assert f"hint: Start a server with `hankweave run -e {execution}`" in done.stderr


def test_where_no_execution_is_that_is_reported(tmp_path: Path) -> None:
    """The exit code is 66, with one sentence and a hint that lists the existing executions."""
    done = hankweave("attach", "-e", str(tmp_path / "nowhere"), code=66)
    assert "nowhere" in done.stderr
    assert "`hankweave ls`" in done.stderr


def test_the_test_terminal_distinguishes_settings() -> None:
    """The values that the checks above compare differ between terminals."""
    master, slave = os.openpty()
    before = termios.tcgetattr(slave)
    changed = [*before]
    changed[3] &= ~termios.ECHO
    termios.tcsetattr(slave, termios.TCSANOW, changed)
    assert termios.tcgetattr(slave) != before
    os.close(master)
    os.close(slave)
