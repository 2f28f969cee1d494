"""The program that runs a score command: the real one, as an attempt starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from hankweave_protocol.attempts import Attempt
from hankweave_protocol.hank import CommandAgentSpec
from hankweave_protocol.ids import CodonId
from hankweave_server.domain.attempts import score_codon
from hankweave_server.execution.score_output import FIRST, LAST
from support.waiting import LIMIT


def scored(command: str) -> subprocess.CompletedProcess[bytes]:
    attempt = Attempt(exploration_id="e", attempt_id="e-1", codon_id=CodonId("a"), score=command)
    codon = score_codon(attempt)
    assert codon is not None
    assert isinstance(codon.agent, CommandAgentSpec)
    return subprocess.run(codon.agent.command, capture_output=True, check=False, timeout=LIMIT)


def test_ordinary_output_is_passed_on_unchanged() -> None:
    """Both streams, and the exit code."""
    done = scored("echo a line; echo a warning >&2; printf 42; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"a line\n42", b"a warning\n")
    assert scored("kill -9 $$").returncode == 137


@pytest.mark.parametrize("stream", ["1", "2"])
def test_of_millions_of_lines_the_first_and_the_last_are_passed_on(stream: str) -> None:
    """The last line is the score."""
    done = scored(f"(echo first; yes chatter | head -n 3000000; echo 42) >&{stream}")
    printed = done.stdout if stream == "1" else done.stderr
    assert done.returncode == 0
    assert printed.startswith(b"first\nchatter\n")
    assert b" bytes are left out]\n" in printed
    assert printed.splitlines()[-1] == b"42"
    assert len(printed) < FIRST + LAST + 100


def test_a_command_that_prints_without_end_is_ended() -> None:
    """It fails, and says why."""
    source = "from hankweave_server.execution.score_output import run"
    program = f"{source}; raise SystemExit(run('yes', most=5 << 20))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, timeout=LIMIT
    )
    assert done.returncode == 1
    assert done.stderr.endswith(b"it printed more than 5242880 bytes.\n")


def test_what_a_command_leaves_behind_is_not_waited_for() -> None:
    """Its score counts, although another process has its output open."""
    done = scored("sleep 3600 & echo $!; echo 7")
    left = int(done.stdout.splitlines()[0])
    os.kill(left, signal.SIGKILL)
    assert done.stdout.splitlines()[-1] == b"7"
