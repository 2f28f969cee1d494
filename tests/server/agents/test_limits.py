"""Time, memory and log size stay bounded, whatever an agent does (T-P4, T-P6)."""

from __future__ import annotations

import json
from datetime import timedelta

import anyio
import psutil
import pytest

from hankweave_server.agents.base import (
    AgentLimits,
    AgentSaid,
    Exited,
    PlainOutput,
    Stderr,
    TimedOut,
)
from support.waiting import limited

GRACE = timedelta(seconds=0.2)
SOON = timedelta(seconds=0.4)
"""A limit that is expected to expire."""
LATER = timedelta(seconds=1.5)
"""A limit that must not expire where time itself is the subject, outside of the gate."""
HOURS = timedelta(hours=3)
"""A limit that must not expire."""
MIB = 1024 * 1024


def limits(**changes: object) -> AgentLimits:
    return AgentLimits(**({"kill_grace": GRACE} | changes))


async def test_an_agent_that_begins_no_session_times_out(a_task, run_agent, python) -> None:
    """An agent that stays silent from the start ends at the start limit."""
    run = await run_agent(python("import time; time.sleep(600)"), a_task(limits=limits(start=SOON)))
    assert run.outcome == TimedOut("start")


async def test_an_agent_that_falls_silent_times_out(a_task, run_agent, python) -> None:
    """Open pipes without output end at the idle limit, even if the agent closed its stdout."""
    source = "import os, time; print('x', flush=True); os.close(1); time.sleep(600)"
    run = await run_agent(python(source), a_task(limits=limits(idle=SOON)))
    assert run.outcome == TimedOut("idle")


async def test_an_agent_that_never_ends_times_out(a_task, run_agent, python) -> None:
    """An agent that prints forever and ignores SIGINT and SIGTERM ends at the total limit."""
    source = """
import signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    print("still here", flush=True)
    time.sleep(0.05)
"""
    run = await run_agent(python(source), a_task(limits=limits(total=SOON, idle=HOURS)))
    assert run.outcome == TimedOut("total")


@pytest.mark.full
async def test_stderr_counts_as_a_sign_of_life(a_task, run_agent, python) -> None:
    """Output on stderr alone renews the idle limit."""
    source = """
import sys, time
print("begun", flush=True)
for _ in range(20):
    print(".", file=sys.stderr, flush=True)
    time.sleep(0.1)
"""
    run = await run_agent(python(source), a_task(limits=limits(idle=LATER)))
    assert run.outcome == Exited(0)
    assert run.of(Stderr) == [Stderr(".")] * 20


@pytest.mark.full
async def test_a_paused_agent_does_not_time_out(a_task, python, printed_lines) -> None:
    """Paused time does not count against the limits."""
    source = "import time; print('x', flush=True); time.sleep(0.3)"
    with limited():
        async with python(source).start(a_task(limits=limits(idle=LATER))) as session:
            await printed_lines(session, 1)
            await session.pause()
            with anyio.move_on_after(1.5 * LATER.total_seconds()):
                await session.wait()

            await session.resume()
            assert await session.wait() == Exited(0)


@pytest.mark.full
async def test_a_slow_reader_does_not_time_the_agent_out(a_task, python) -> None:
    """An agent that waits for a slow reader is not idle, and none of its output is lost."""
    source = "for n in range(2000): print(f'{n:01000}')"
    with limited():
        async with python(source).start(a_task(limits=limits(idle=LATER))) as session:
            lines = []
            async for signal in session.signals():
                if not lines:
                    await anyio.sleep(1.5 * LATER.total_seconds())

                lines += [signal] if isinstance(signal, PlainOutput) else []

            assert len(lines) == 2000
            assert await session.wait() == Exited(0)


async def test_an_agent_can_be_stopped_by_its_own_reader(a_task, python) -> None:
    """A stop from inside the read loop lets the agent finish its output, which is not read."""
    source = """
try:
    while True: print("x" * 1000)
except KeyboardInterrupt:
    for _ in range(2000): print("y" * 1000)
    raise SystemExit(7)
"""
    patient = limits(kill_grace=HOURS)
    with limited():
        async with python(source).start(a_task(limits=patient)) as session:
            async for signal in session.signals():
                if isinstance(signal, PlainOutput):
                    await session.stop()
                    break

            assert await session.wait() == Exited(7)


FLOOD = """
import os, threading
def flood(descriptor):
    block = (b"y" * 8191 + b"\\n") * 128
    for _ in range(48):
        os.write(descriptor, block) == len(block) or os._exit(9)
other = threading.Thread(target=flood, args=[2])
other.start()
flood(1)
other.join()
for _ in range(20):
    os.write(1, b"z" * (1 << 20))
os.write(1, b"\\n")
os.write(1, b'{"type":"assistant","message":{"content":"after the flood"}}\\n')
"""


async def test_a_flood_needs_no_memory_and_fills_no_disk(a_task, python) -> None:
    """48 MiB on each stream and a line of 20 MiB are read in bounded memory; the log is capped."""
    task = a_task(limits=limits(log_bytes=8 * MIB))
    before = psutil.Process().memory_info().rss
    peak = before
    last: object = None
    longest = read = 0
    with limited():
        async with python(FLOOD).start(task) as session:
            async for signal in session.signals():
                match signal:
                    case PlainOutput(line) | Stderr(line):
                        longest, read = max(longest, len(line)), read + len(line)
                    case AgentSaid():
                        last = signal

                peak = max(peak, psutil.Process().memory_info().rss) if read % 64 == 0 else peak

            assert await session.wait() == Exited(0)

    assert last == AgentSaid("after the flood")
    assert read >= 96 * (MIB - 128) + MIB
    assert MIB < longest < MIB + 100
    assert peak - before < 32 * MIB
    assert task.log_path.stat().st_size <= 8 * MIB + 200
    *_, marker = task.log_path.read_bytes().splitlines()
    assert json.loads(marker)["type"] == "truncated"


@pytest.mark.parametrize("line", ["\\n", ".\\n"])
@pytest.mark.full
async def test_a_flood_of_tiny_lines_needs_no_memory(a_task, python, line: str) -> None:
    """Memory stays bounded for a slow reader even if every one or two bytes are a line."""
    source = f"import os\nfor _ in range(10): os.write(1, b'{line}' * 50_000)"
    before = psutil.Process().memory_info().rss
    count = 0
    with limited():
        async with python(source).start(a_task()) as session:
            async for signal in session.signals():
                count += signal == PlainOutput(".")

            assert await session.wait() == Exited(0)

    assert count == (500_000 if line.startswith(".") else 0)
    assert psutil.Process().memory_info().rss - before < 32 * MIB
