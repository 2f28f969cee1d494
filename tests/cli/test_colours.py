"""Claims about `diff`, `show` and `preview` on a terminal: colours, and nothing else."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.git_facts import GitWitness
from support.running_server import command, environment
from support.screens import screen
from support.scripted_hank import codon, write_hank, writes
from support.waiting import LIMIT

EVIL = "\x1b]0;title\x07 and \x1b[2J"
HARMLESS = re.compile(rb"\x1b\[[0-9;]*m|\r\n")
COLOURED = re.compile(rb"\x1b\[[0-9;]*3[0-7]m")


@pytest.fixture(scope="module")
def execution(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an execution with control characters in names and content, whose server has ended."""
    place = tmp_path_factory.mktemp("colours")
    hank = write_hank(
        place / "hank",
        codon("one", writes("a.txt", "one\nsame\n"), writes(EVIL, "x\n")),
        codon("two", writes("a.txt", f"two {EVIL}\nsame\n--- not a name\n"), {"delete": EVIL}),
    )
    run = command("run", str(hank), "-e", str(place / "execution"), "--headless")
    subprocess.run(run, env=environment(), check=True, capture_output=True, timeout=LIMIT)
    return place / "execution"


def words(execution: Path) -> Iterator[tuple[str, ...]]:
    log = GitWitness(execution).run("log", "--all", "--format=%H %s").splitlines()
    one = next(line.split()[0] for line in log if "completed:one " in line)
    two = next(line.split()[0] for line in log if "completed:two " in line)
    here = ("-e", str(execution))
    yield ("diff", *here, one, two)
    yield ("diff", *here, one, two, "--patch")
    yield ("show", *here, two)
    yield ("show", *here, f"{two}:a.txt")
    yield ("preview", *here, one, "--patch")


def shown(*command_line: str, **env: str) -> bytes:
    with screen(*command_line, columns=200, env=env) as terminal:
        assert terminal.ended() == 0
        return terminal.bytes


def test_on_a_terminal_it_is_in_colour_and_nothing_else_is_sent(execution: Path) -> None:
    """Control characters of agents, in names, lines and whole files, are escaped."""
    for each in words(execution):
        seen = shown(*each)
        is_a_file = each[0] == "show" and each[-1].endswith("a.txt")
        assert bool(COLOURED.search(seen)) != is_a_file, each
        rest = HARMLESS.sub(b"", _without_progress(seen))
        assert b"\x1b" not in rest, each
        assert b"\x07" not in rest, each
        if each[0] != "show" or is_a_file:
            assert b"\\x1b" in rest, each


def _without_progress(seen: bytes) -> bytes:
    """Remove the progress display, which is cleared by erasing lines."""
    return re.sub(rb"\x1b\[2K|\x1b\[1A", b"", seen)


def test_no_color_is_honoured(execution: Path) -> None:
    """With NO_COLOR set no colour is sent."""
    for each in words(execution):
        assert not COLOURED.search(shown(*each, NO_COLOR="1")), each


def test_in_a_pipe_it_is_plain(execution: Path) -> None:
    """Only escapes of the files themselves are printed, which a patch and a file keep."""
    for each in words(execution):
        done = subprocess.run(
            command(*each), env=environment(), capture_output=True, timeout=LIMIT, check=True
        )
        assert not re.search(rb"\x1b\[[0-9;]*m", done.stdout), each
        assert done.stderr == b""
        if "--patch" not in each and not each[-1].endswith("a.txt"):
            assert b"\x1b" not in done.stdout, each


def test_removed_and_added_lines_are_distinguished(execution: Path) -> None:
    """Changes are red and green; a line that begins with dashes is no file name."""
    patch = list(words(execution))[1]
    seen = shown(*patch)
    assert b"\x1b[31m-one\x1b[0m" in seen
    assert b"\x1b[32m+two " in seen
    assert b"\x1b[32m+--- not a name" in seen
    assert b"\x1b[36m@@" in seen
