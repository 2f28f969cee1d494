"""Record commands in a terminal, and write what it showed as an animated SVG.

`scripts/pictures` calls it. The commands really run, each on a pseudo terminal of its own whose
output `pyte` interprets; what a person would type before each is shown word by word. A frame of
the picture is the whole screen: all frames lie below each other, and one CSS animation moves the
strip past the window. Rows that several frames have in common are defined once.

asciinema records well, but its recordings need a player in JavaScript, which a README cannot have;
termtosvg and svg-term-cli are no longer maintained.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TypeAlias
from xml.sax.saxutils import escape

import pyte

COLUMNS, LINES = 96, 28
CELL_WIDTH, CELL_HEIGHT, MARGIN = 8.4, 18, 14

WORD, PAUSE, LONGEST = 0.25, 2.8, 1.2
"""Seconds: for a word typed, after a command, and at most for a silence of a command."""

AT_ONCE = 0.08
"""Seconds; output that follows so closely is one frame."""

PROMPT = "$ "
SECRET = re.compile(rb"(?<=token=)[0-9a-f]{8,}(?:\xe2\x80\xa6)?")
COLOURS = {
    "default": "#d8dee9",
    "black": "#5b6472",
    "red": "#f2777a",
    "green": "#8fce7e",
    "brown": "#e5c07b",
    "blue": "#7aa2f7",
    "magenta": "#c792ea",
    "cyan": "#6fd3e3",
    "white": "#ffffff",
}

Style: TypeAlias = tuple[str, bool, bool]
"""Colour, bold, italic."""
Row: TypeAlias = tuple[tuple[int, str, Style], ...]
"""Runs of equal style: first column, text, style."""


@dataclass(frozen=True)
class Frame:
    rows: tuple[Row, ...]
    seconds: float
    """The time for which it is shown."""


class Recorder:
    """A screen, and the frames that it has shown."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self._screen = pyte.HistoryScreen(COLUMNS, LINES)
        self._stream = pyte.ByteStream(self._screen)

    def type(self, command: str) -> None:
        """Show a command being typed."""
        self._show(PROMPT.encode(), 2 * WORD)
        for word in re.findall(r"\S+\s*", command):
            self._show(word.encode(), WORD)

        self._show(b"\r\n", WORD)

    def run(self, command: str) -> None:
        """Run a command to its end; raise if it fails."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        with subprocess.Popen(
            ["/bin/sh", "-c", command], stdin=slave, stdout=slave, stderr=slave
        ) as process:
            os.close(slave)
            pending, since = b"", time.monotonic()
            while chunk := _read(master, AT_ONCE if pending else None):
                if chunk.is_late:
                    self._show(pending, min(time.monotonic() - since, LONGEST))
                    pending, since = b"", time.monotonic()

                pending += chunk.data

            self._show(pending, PAUSE)

        os.close(master)
        if process.returncode:
            raise SystemExit(f"{command} exited with {process.returncode}")

    def _show(self, output: bytes, seconds: float) -> None:
        # A token of the real run is of no use to anybody, and looks as if it were.
        self._stream.feed(SECRET.sub("…".encode(), output))
        rows = tuple(self._row(line) for line in range(LINES))
        if self.frames and self.frames[-1].rows == rows:
            seconds += self.frames.pop().seconds

        self.frames.append(Frame(rows, seconds))

    def _row(self, line: int) -> Row:
        cells = self._screen.buffer[line]
        styled = ((column, cells[column].data, _style(cells[column])) for column in range(COLUMNS))
        runs = [list(run) for _, run in groupby(styled, key=lambda cell: cell[2])]
        found_runs = ((run[0][0], "".join(cell[1] for cell in run), run[0][2]) for run in runs)
        return tuple(
            (start, text.rstrip(), style) for start, text, style in found_runs if text.strip()
        )


@dataclass(frozen=True)
class _Chunk:
    data: bytes
    is_late: bool
    """True if nothing came for a while before it."""


def _read(master: int, timeout: float | None) -> _Chunk | None:
    """Return the next output; None at the end."""
    is_late = timeout is not None and not select.select([master], [], [], timeout)[0]
    try:
        data = os.read(master, 65536)
    except OSError:  # Linux reports a closed terminal so.
        return None

    return _Chunk(data, is_late) if data else None


def _style(cell: pyte.screens.Char) -> Style:
    return (cell.fg if cell.fg in COLOURS else "default", cell.bold, cell.italics)


def svg(frames: list[Frame], title: str) -> str:
    """Return the picture, which begins again at its end."""
    known: dict[Row, str] = {}
    for row in (row for frame in frames for row in frame.rows if row):
        known.setdefault(row, f"r{len(known)}")

    width, height = COLUMNS * CELL_WIDTH, LINES * CELL_HEIGHT
    strip = [
        f'<use href="#{known[row]}" y="{number * height + line * CELL_HEIGHT}"/>'
        for number, frame in enumerate(frames)
        for line, row in enumerate(frame.rows)
        if row
    ]
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" '
            f'viewBox="0 0 {width + 2 * MARGIN:g} {height + 2 * MARGIN:g}" '
            f'width="{width + 2 * MARGIN:g}">',
            f"<title>{escape(title)}</title>",
            f"<style>{_rules(frames, height)}</style>",
            "<defs>",
            *(f'<g id="{name}">{_texts(row)}</g>' for row, name in known.items()),
            "</defs>",
            '<rect width="100%" height="100%" rx="9" fill="#1b1f27" stroke="#5b6472"/>',
            f'<svg x="{MARGIN}" y="{MARGIN}" width="{width:g}" height="{height}">',
            '<g class="strip">',
            *strip,
            "</g>",
            "</svg>",
            "</svg>\n",
        )
    )


def _rules(frames: list[Frame], height: int) -> str:
    seconds = sum(frame.seconds for frame in frames)
    steps = "".join(_steps(frames, seconds, height))
    colours = "".join(f".{name}{{fill:{colour}}}" for name, colour in COLOURS.items())
    last = f"transform:translateY(-{(len(frames) - 1) * height}px)"
    return (
        "text{font:14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre}"
        f"{colours}.b{{font-weight:bold}}.i{{font-style:italic}}"
        f".strip{{animation:strip {seconds:.1f}s step-end infinite}}"
        f"@keyframes strip{{{steps}}}"
        f"@media(prefers-reduced-motion:reduce){{.strip{{animation:none;{last}}}}}"
    )


def _steps(frames: list[Frame], seconds: float, height: int) -> Iterator[str]:
    begin = 0.0
    for number, frame in enumerate(frames):
        yield f"{100 * begin / seconds:.3g}%{{transform:translateY(-{number * height}px)}}"
        begin += frame.seconds


def _texts(row: Row) -> str:
    return "".join(
        f'<text x="{start * CELL_WIDTH:g}" y="14" textLength="{len(text) * CELL_WIDTH:g}" '
        f'class="{colour}{" b" * bold}{" i" * italic}">{escape(text)}</text>'
        for start, text, (colour, bold, italic) in row
    )


def main(target: Path, title: str, *commands: str) -> None:
    """Record the commands in the current directory; write the picture."""
    recorder = Recorder()
    for command in commands:
        recorder.type(command)
        recorder.run(command)

    target.write_text(svg(recorder.frames, title))
    print(f"{target}: {target.stat().st_size / 1000:.0f} kB, {len(recorder.frames)} frames")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
