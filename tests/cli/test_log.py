"""Claims about `hankweave log`: the end of the journal, as lines for people."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

from hankweave_protocol import codec, events
from hankweave_protocol.events import ErrorEvent, Event, EventData, Info
from hankweave_protocol.ids import EventSeq
from hankweave_server.cli import log as log_command
from hankweave_server.cli.app import main
from hankweave_server.cli.output import event_lines
from hankweave_server.cli.output.event_lines import SHOWN_TYPES
from hankweave_server.paths import Layout

AT = "2025-01-04T12:00:00.000Z"
LEFT_OUT = "Earlier lines are left out"

Log = Callable[..., tuple[int, list[str], str]]


def a_past(count: int) -> list[bytes]:
    """Return events of which every third has a line, which ends with its number among those."""
    quiet = Info(message="nothing")
    errors = (ErrorEvent(message=f"no {number}.", fatal=False) for number in range(count))
    data = (each for one in errors for each in (quiet, one, quiet))
    return [codec.encode(_event(seq, each)) for seq, each in enumerate(data, start=1)]


def _event(seq: int, data: EventData) -> Event:
    return Event(id=f"e{seq}", seq=EventSeq(seq), timestamp=AT, type=data.TYPE, data=data)


@pytest.fixture
def log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Log:
    """Return the command over a journal: the exit code, stdout without its heading, and stderr."""

    def log(lines: list[bytes], *options: str) -> tuple[int, list[str], str]:
        journal = Layout.of_execution(tmp_path).journal
        journal.parent.mkdir(parents=True, exist_ok=True)
        journal.write_bytes(b"".join(line + b"\n" for line in lines))
        code = 0
        try:
            main(["log", "-e", str(tmp_path), *options])
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1

        out, err = capsys.readouterr()
        return code, [line.rpartition(" ")[2] for line in out.splitlines()[1:]], err

    return log


def numbers(first: int, last: int) -> list[str]:
    return [f"{number}." for number in range(first, last + 1)]


def test_a_long_log_is_printed_from_its_end(log: Log) -> None:
    """The last 100 lines are printed; stderr tells how to see the others."""
    code, printed, notes = log(a_past(150))
    assert (code, printed) == (0, numbers(50, 149))
    assert notes.startswith(LEFT_OUT)
    assert "`hankweave log --all -e " in notes


def test_a_log_that_fits_is_printed_whole(log: Log) -> None:
    """Nothing is left out, and nothing is said."""
    assert log(a_past(100)) == (0, numbers(0, 99), "")
    assert log([]) == (0, [], "")


def test_the_number_of_lines_can_be_chosen(log: Log) -> None:
    """--lines is exact, and who asks for a number is not told about the rest; --all is all."""
    assert log(a_past(150), "--lines", "3") == (0, numbers(147, 149), "")
    assert log(a_past(150), "-n", "120") == (0, numbers(30, 149), "")
    assert log(a_past(150), "-n", "0") == (0, [], "")
    assert log(a_past(150), "--all") == (0, numbers(0, 149), "")
    for options in (("--all", "-n", "3"), ("--graph", "-n", "3"), ("--graph", "--all")):
        assert log(a_past(1), *options)[0] == 2


def test_a_default_log_reads_only_the_end(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events without a line may be any number, so that the bytes are bounded as well."""
    past = a_past(10)
    monkeypatch.setattr(log_command, "_REACH", sum(len(line) + 1 for line in past[-9:]))
    code, printed, notes = log(past)
    assert (code, printed) == (0, numbers(7, 9))
    assert notes.startswith(LEFT_OUT)
    assert log(past, "-n", "5") == (0, numbers(5, 9), "")


@pytest.mark.parametrize("options", [(), ("--all",), ("-n", "100")])
def test_damage_ends_the_log(log: Log, options: tuple[str, ...]) -> None:
    """The events before it are printed; the exit code is 65, with the number of the line."""
    past = a_past(10)
    code, printed, notes = log([*past[:6], b"garbage", *past[6:]], *options)
    assert (code, printed) == (65, numbers(0, 1))
    assert "line 7, is not an event" in notes


def test_damage_that_is_not_reached_does_not_matter(log: Log) -> None:
    """Only the lines that are asked for are read."""
    assert log([b"garbage", *a_past(10)], "-n", "5") == (0, numbers(5, 9), "")


def test_the_log_searches_every_event_that_has_a_line() -> None:
    """`SHOWN_TYPES` has the types that the functions of the module match, and no others."""
    source = ast.parse(inspect.getsource(event_lines))
    functions = [each for each in source.body if isinstance(each, ast.FunctionDef)]
    names = {
        ast.unparse(pattern.cls).removeprefix("events.")
        for function in functions
        if function.name in ("_of_codon", "_of_checkpoints", "_of_server")
        for pattern in ast.walk(function)
        if isinstance(pattern, ast.MatchClass)
    } - {"int", "str"}
    assert {getattr(events, name).TYPE for name in names} == SHOWN_TYPES
