"""A long loop with a long prompt: its journal grows evenly, and its last codons cost as the first.

The processor's time is the server's own, so that a busy machine does not change the comparison
much; its agents are programs that report a session and a result, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import anyio
import psutil

from bench.figures import AtMost, Figure
from bench.scale import Scale
from hankweave_protocol.transitions import CodonStarted
from hankweave_server.paths import Layout
from support.running_server import RunningServer, running_server
from support.scripted_hank import codon, write_hank

BENCH = "loop"
PROMPT = "Improve one thing. " * 432
"""8 KB."""

PART = 100
"""Codons at the beginning, and at the end, whose cost is compared."""

CODONS_OF_TARGET = 3_000
JOURNAL_TARGET = 30.0
"""Megabytes for that many codons."""

SLOWDOWN = 1.3
MEGABYTE = 1_000_000
POLL_SECONDS = 0.02

_SAID = (
    '{"type":"system","subtype":"init","session_id":"s","model":"m"}',
    '{"type":"result","subtype":"success","is_error":false,"result":""}',
)
_STARTED = b'"transitionType":"%s"' % CodonStarted.TYPE.encode()


async def measure(folder: Path, scale: Scale) -> list[Figure]:
    codons = scale.loop_codons
    layout = Layout.of_execution(folder / "execution")
    async with running_server(_hank(folder, codons), None, layout.root, "--headless") as server:
        marks = await _spent_at(server, layout.journal, codons)
        assert await server.process.wait() == 0, server.output[-3:]

    part = min(PART, codons // 2)
    first, last = _each(marks, 1, 1 + part), _each(marks, codons - part, codons)
    megabytes = layout.journal.stat().st_size / MEGABYTE
    journal = AtMost(JOURNAL_TARGET * codons / CODONS_OF_TARGET)
    many = f"{codons:,} codons with a prompt of 8 KB"
    return [
        Figure(BENCH, f"journal of {many}", megabytes, "MB", target=journal),
        Figure(
            BENCH,
            f"processor for a codon, the last {part} of {codons:,}",
            last,
            "ms",
            f"the first {part}",
            first,
            AtMost(SLOWDOWN * first),
        ),
    ]


def _hank(folder: Path, codons: int) -> Path:
    script = "; ".join(f"echo '{line}'" for line in _SAID)
    body = codon("improve", agent={"type": "command", "command": ["sh", "-c", script]})
    return write_hank(
        folder / "hank",
        {
            "type": "loop",
            "id": "again",
            "name": "Again",
            "terminateOn": {"type": "iterationLimit", "limit": codons},
            "codons": [body | {"promptText": PROMPT}],
        },
    )


async def _spent_at(server: RunningServer, journal: Path, codons: int) -> Mapping[int, float]:
    """Return the seconds that the server has used at the start of each codon that is seen."""
    process, marks, begun = psutil.Process(server.pid), dict[int, float](), 0
    rest = b""
    with journal.open("rb") as lines:
        while begun < codons and server.process.returncode is None:
            whole, _, rest = (rest + lines.read()).rpartition(b"\n")
            begun += whole.count(_STARTED)
            times = process.cpu_times()
            marks.setdefault(begun, times.user + times.system)
            await anyio.sleep(POLL_SECONDS)

    return marks


def _each(marks: Mapping[int, float], since: int, until: int) -> float:
    """Return the milliseconds for each codon between the marks nearest to these two."""
    begin, end = (min(marks, key=lambda mark: abs(mark - each)) for each in (since, until))
    return 1_000 * (marks[end] - marks[begin]) / max(1, end - begin)
