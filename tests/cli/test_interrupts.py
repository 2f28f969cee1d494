"""Claims about Ctrl-C on a terminal: it asks what to do with the running step."""

from __future__ import annotations

import json
import shlex
import signal
import termios
from pathlib import Path

import pytest

from hankweave_protocol.state import CompletedCodon, FailedCodon, State
from hankweave_server.cli.shared.serving import QUESTION
from support.command_line import hankweave
from support.running_server import command, state
from support.screens import Screen, screen
from support.scripted_hank import codon, waits_for, write_hank, writes
from support.waiting import eventually_blocking

ASKED = QUESTION.splitlines()[1]


class Plan:
    """Two steps of which the first waits for the test, and an execution of them."""

    def __init__(self, root: Path) -> None:
        self.go = root / "go"
        self.executions = root / "executions"
        self.execution = self.executions / "one"
        one = codon("one", writes("a.txt", "a"), waits_for(self.go))
        self.hank = write_hank(root / "hank", one, codon("two", writes("b.txt", "b")))

    def words(self, *options: str) -> tuple[str, ...]:
        return ("run", str(self.hank), "-e", str(self.execution), "-y", *options)

    @property
    def state(self) -> State:
        return state(self.execution)

    def listed(self) -> str:
        base = {"HANKWEAVE_RUNTIME_EXECUTION_BASE_DIR": str(self.executions)}
        (found,) = json.loads(hankweave("ls", "--json", code=0, **base).stdout)
        return str(found["state"])


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return Plan(tmp_path)


def begun(terminal: Screen, plan: Plan) -> None:
    """Wait until the first step runs."""
    terminal.until(lambda text: "running    Codon one" in text)
    terminal.until(lambda _text: (plan.execution / "agentRoot" / "a.txt").exists())


def press_ctrl_c(terminal: Screen) -> None:
    """Send the signal that a terminal sends for Ctrl-C; this terminal controls no session."""
    terminal.process.send_signal(signal.SIGINT)


def is_as_before(terminal: Screen) -> bool:
    return termios.tcgetattr(terminal.slave) == terminal.before


@pytest.mark.parametrize("options", [(), ("--plain",)], ids=["live", "plain"])
def test_the_step_may_be_finished_first(plan: Plan, options: tuple[str, ...]) -> None:
    """The step completes, the next one does not begin, and a new start continues with that one."""
    with screen(*plan.words(*options)) as terminal:
        begun(terminal, plan)
        press_ctrl_c(terminal)
        terminal.until(lambda text: ASKED in text)
        terminal.press("f")
        terminal.until(lambda text: "Stopping after this step" in text)
        assert terminal.process.poll() is None
        plan.go.touch()
        assert terminal.ended() == 0
        assert is_as_before(terminal)

    (one,) = plan.state.runs[0].codons
    assert isinstance(one, CompletedCodon)
    assert plan.listed() == "completed"
    hankweave(*plan.words("--headless"), code=0)
    assert [each.codon_id for run in plan.state.runs for each in run.codons] == ["two", "one"]


@pytest.mark.story("While a step is running, Ctrl-C asks, and the step can continue undisturbed.")
def test_it_may_go_on_as_if_nothing_had_happened(plan: Plan) -> None:
    """The plan runs to its end."""
    with screen(*plan.words("--headless")) as terminal:
        begun(terminal, plan)
        press_ctrl_c(terminal)
        terminal.until(lambda text: ASKED in text)
        terminal.press("c")
        plan.go.touch()
        assert terminal.ended() == 0
        assert is_as_before(terminal)

    assert [each.codon_id for each in plan.state.runs[0].codons] == ["one", "two"]


@pytest.mark.parametrize("answer", ["s", None], ids=["s", "second Ctrl-C"])
def test_it_may_stop_now(plan: Plan, answer: str | None) -> None:
    """A second Ctrl-C does the same; the output says that the step was stopped, not failed."""
    with screen(*plan.words()) as terminal:
        begun(terminal, plan)
        press_ctrl_c(terminal)
        terminal.until(lambda text: ASKED in text)
        press_ctrl_c(terminal) if answer is None else terminal.press(answer)
        assert terminal.ended() == 0
        assert is_as_before(terminal)
        assert "one            stopped" in terminal.text()

    (one,) = plan.state.runs[0].codons
    assert isinstance(one, FailedCodon), "as in Hankweave: state.json knows no other word"
    assert plan.listed() == "stopped"
    assert "stopped" in hankweave("log", "-e", str(plan.execution)).stdout


def test_nothing_is_asked_where_nothing_runs(plan: Plan) -> None:
    """An idle server ends at once."""
    with screen(*plan.words("--no-autostart")) as terminal:
        terminal.until(lambda text: "Waiting for a command." in text)
        press_ctrl_c(terminal)
        assert terminal.ended() == 0
        assert ASKED not in terminal.text()


def test_other_signals_are_not_asked_about(plan: Plan) -> None:
    """SIGTERM stops at once, also while a question is open."""
    with screen(*plan.words()) as terminal:
        begun(terminal, plan)
        press_ctrl_c(terminal)
        terminal.until(lambda text: ASKED in text)
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.ended() == 0
        assert is_as_before(terminal)


@pytest.mark.parametrize("options", [(), ("--plain",)], ids=["live", "plain"])
@pytest.mark.parametrize("is_asked", [False, True], ids=["working", "asked"])
def test_a_closed_terminal_is_an_orderly_stop(
    plan: Plan, options: tuple[str, ...], is_asked: bool
) -> None:
    """The step counts as stopped, no lock and no token is left, and a new start continues."""
    with screen(*plan.words(*options)) as terminal:
        begun(terminal, plan)
        if is_asked:
            press_ctrl_c(terminal)
            terminal.until(lambda text: ASKED in text)

        terminal.close()
        terminal.process.send_signal(signal.SIGHUP)
        assert terminal.left() == 0

    assert plan.listed() == "stopped"
    assert not list((plan.execution / ".hankweave").glob("*token*"))
    assert not (plan.execution / ".hankweave" / "runtime.lock").exists()
    plan.go.touch()
    hankweave(*plan.words("--headless"), code=0)
    assert [type(each) for each in plan.state.runs[0].codons] == [CompletedCodon] * 2


def test_sigquit_stops_in_order_and_sigusr1_has_no_effect(plan: Plan) -> None:
    """Neither asks, and neither leaves a run open."""
    with screen(*plan.words()) as terminal:
        begun(terminal, plan)
        for harmless in (signal.SIGUSR1, signal.SIGUSR2):
            terminal.process.send_signal(harmless)

        log = plan.execution / ".hankweave" / "logs" / "server.log"
        eventually_blocking(lambda: "SIGUSR2 has no meaning here" in log.read_text())
        assert "SIGUSR1 has no meaning here" in log.read_text()
        assert terminal.process.poll() is None
        terminal.process.send_signal(signal.SIGQUIT)
        assert terminal.ended() == 0
        assert is_as_before(terminal)

    assert plan.listed() == "stopped"


def test_nohup_outlives_the_terminal(plan: Plan) -> None:
    """A server under `nohup`, which ignores SIGHUP, goes on when the terminal is closed."""
    nohup = ("sh", "-c", 'trap "" HUP; exec "$@" >/dev/null 2>&1', "nohup")
    with screen(program=(*nohup, *command(*plan.words("--headless")))) as terminal:
        eventually_blocking(lambda: (plan.execution / "agentRoot" / "a.txt").exists())
        terminal.close()
        terminal.process.send_signal(signal.SIGHUP)
        plan.go.touch()
        assert terminal.left() == 0

    assert plan.listed() == "completed"


@pytest.mark.parametrize("options", [(), ("--plain",)], ids=["live", "plain"])
@pytest.mark.parametrize("is_asked", [False, True], ids=["working", "asked"])
def test_a_server_that_is_to_keep_running_outlives_its_terminal(
    plan: Plan, options: tuple[str, ...], is_asked: bool
) -> None:
    """It says how to see it again, in words that work, and ends with its plan."""
    with screen(*plan.words("--headless", "--keep-running", *options)) as terminal:
        begun(terminal, plan)
        if is_asked:
            press_ctrl_c(terminal)
            terminal.until(lambda text: ASKED in text)

        terminal.close()
        terminal.process.send_signal(signal.SIGHUP)
        log = plan.execution / ".hankweave" / "logs" / "server.log"
        message = "The terminal was closed; the server goes on. See it: hankweave "
        eventually_blocking(lambda: message in log.read_text())
        line = log.read_text().partition(message)[2].splitlines()[0]
        assert line == f"attach -e {plan.execution}"
        assert line in hankweave("status", "-e", str(plan.execution), code=0).stdout
        base = {"HANKWEAVE_RUNTIME_EXECUTION_BASE_DIR": str(plan.executions)}
        assert line in " ".join(hankweave("ls", code=0, **base).stdout.split())
        with screen(*shlex.split(line)) as another:
            another.until(lambda text: "▸ Codon one" in text)

        terminal.process.send_signal(signal.SIGHUP)
        plan.go.touch()
        assert terminal.left() == 0

    assert plan.listed() == "completed"
    assert "Traceback" not in log.read_text()
