"""Claims about signals: those that end a program by default end a server in order, or not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from hankweave_server.daemon.shutdown import Signals, StopSwitch
from hankweave_server.errors import ExitCode
from support.waiting import limited


@pytest.fixture
def switch(monkeypatch: pytest.MonkeyPatch) -> StopSwitch:
    """Return a switch that does not end the process of the tests."""
    switch = StopSwitch()
    monkeypatch.setattr(switch, "_start_deadline", lambda: None)
    return switch


async def reason_of_end(switch: StopSwitch, *numbers: signal.Signals) -> str:
    """Send signals to this process, and return why a server ends."""
    signals = Signals(switch, None, is_headless=False)
    async with anyio.create_task_group() as tasks:
        await tasks.start(signals.watch)
        with limited():
            for number in numbers:
                os.kill(os.getpid(), number)

            reason = await switch.wait()

        tasks.cancel_scope.cancel()

    return reason


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"])
async def test_a_signal_that_asks_for_the_end_is_an_orderly_stop(
    switch: StopSwitch, name: str
) -> None:
    """A closed terminal, which is SIGHUP, stops the server as SIGTERM does."""
    assert await reason_of_end(switch, signal.Signals[name]) == name
    assert switch.exit_code is ExitCode.DONE


async def test_a_signal_without_a_meaning_ends_nothing(switch: StopSwitch) -> None:
    """SIGUSR1 and SIGUSR2 are ignored; the handlers are gone with the server."""
    before = signal.getsignal(signal.SIGUSR1)
    sent = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)
    assert await reason_of_end(switch, *sent) == "SIGTERM"
    assert signal.getsignal(signal.SIGUSR1) is before


async def test_a_sighup_that_nohup_ignores_is_left_ignored(switch: StopSwitch) -> None:
    """A server under `nohup` outlives its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert await reason_of_end(switch, signal.SIGHUP, signal.SIGTERM) == "SIGTERM"
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


async def test_a_server_that_is_to_keep_running_leaves_its_terminal(switch: StopSwitch) -> None:
    """At SIGHUP, as often as it comes; other signals end it."""
    left: list[bool] = []
    signals = Signals(switch, None, is_headless=False, detach=lambda: left.append(True))
    async with anyio.create_task_group() as tasks:
        await tasks.start(signals.watch)
        with limited():
            for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM):
                os.kill(os.getpid(), number)

            assert await switch.wait() == "SIGTERM"

        tasks.cancel_scope.cancel()

    assert left


LEAVES = """
import os, sys
from pathlib import Path
from hankweave_server.daemon.shutdown import leave_terminal
assert os.getpgrp() == os.getpid() != os.getsid(0)
leave_terminal(Path(sys.argv[1]))
assert os.getsid(0) == os.getpid()
os.write(1, b"printed")
raise SystemExit("an error")
"""


def test_a_server_without_its_terminal_has_a_session_of_its_own(tmp_path: Path) -> None:
    """Also as the leader of a job; what is printed goes nowhere, and errors to the log."""
    log = tmp_path / "server.log"
    master, slave = os.openpty()
    done = subprocess.run(
        [sys.executable, "-c", LEAVES, str(log)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        process_group=0,
        check=False,
    )
    os.set_blocking(master, False)
    os.close(slave)
    with pytest.raises(OSError, match=r"Input/output error|temporarily"):
        os.read(master, 100)

    os.close(master)
    assert (done.returncode, log.read_text()) == (1, "an error\n")
