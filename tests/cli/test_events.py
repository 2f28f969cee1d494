"""`hankweave events` filters the journal's file as the server does for a client."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from hankweave_server.cli.app import main
from hankweave_server.cli.output.text import precise_moment
from hankweave_server.paths import Layout

EVENTS: list[dict[str, Any]] = [
    {"type": "codon.started", "data": {"codonId": "one"}, "causes": ["c-1"]},
    {"type": "info", "data": {"message": 'a "quoted", long\nline'}, "causes": [1]},
    {"type": "info", "data": {"message": "\x1b[2Jé" + "x" * 100}},
    {
        "type": "codon.completed",
        "data": {"codonId": "one", "cost": 0.5},
        "causes": [1],
        "runId": "r-2",
    },
    {
        "type": "codon.completed",
        "data": {"codonId": "7", "cost": 7},
        "codonId": "7",
        "causes": [4],
        "runId": "r-2",
    },
]


class Output(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Shell:
    """The command line over one journal, in this process."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self._capsys = capsys

    def __call__(self, *options: str) -> Output:
        code = 0
        try:
            main(["events", "--execution", str(self.root), *options])
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1

        return Output(code, *self._capsys.readouterr())

    def seqs(self, *options: str) -> list[int]:
        output = self(*options, "--json")
        assert output.code == 0, output.err
        return [json.loads(line)["seq"] for line in output.lines]


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    """Return an execution that has only a journal of five events."""
    journal = Layout.of_execution(tmp_path).journal
    journal.parent.mkdir(parents=True)
    lines = [
        msgspec.json.encode(
            {"id": f"id-{seq}", "seq": seq, "timestamp": f"2025-01-04T12:00:0{seq}.000Z", **event}
        )
        for seq, event in enumerate(EVENTS, start=1)
    ]
    journal.write_bytes(b"".join(line + b"\n" for line in lines))
    return Shell(tmp_path, capsys)


@pytest.mark.parametrize(
    ("options", "seqs"),
    [
        ([], [1, 2, 3, 4, 5]),
        (["--type", "info"], [2, 3]),
        (["--type", "info", "--type", "codon.started"], [1, 2, 3]),
        (["--codon", "7"], [5]),
        (["--run", "r-2"], [4, 5]),
        (["--text", "LONG\nline"], [2]),
        (["--text", "codon", "--run", "r-2"], [4, 5]),
        (["--since", "3"], [4, 5]),
        (["--since", "2025-01-04T13:00:03+01:00"], [3, 4, 5]),
        (["--until", "2", "--since", "1"], [2]),
        (["--until", "2025-01-04T12:00:02Z"], [1, 2]),
        (["--caused-by", "1"], [2, 4]),
        (["--caused-by", "c-1"], [1]),
        (["--descendants-of", "c-1"], [1, 2, 4, 5]),
        (["--descendants-of", "1", "--type", "codon.completed"], [4, 5]),
        (["--ancestors-of", "5"], [1, 4]),
        (["--limit", "2"], [1, 2]),
    ],
)
def test_options_make_the_query_a_client_would_send(
    shell: Shell, options: list[str], seqs: list[int]
) -> None:
    """Every option is a filter of a client's query."""
    assert shell.seqs(*options) == seqs


def test_events_are_lines_for_people_and_json_for_programs(shell: Shell) -> None:
    """A table is the default; JSON lines are the journal's own, byte for byte."""
    assert shell("--since", "4").lines == [
        f"     5  {precise_moment('2025-01-04T12:00:05.000Z')}  codon.completed       7: cost 7"
    ]
    journal = Layout.of_execution(shell.root).journal.read_text()
    assert shell("--format", "jsonl").out == shell("--json").out == journal


def test_the_table_leaves_out_what_only_programs_read(shell: Shell) -> None:
    """Unless its type is asked for; JSON and CSV have it, and a limit counts the printed lines."""
    with Layout.of_execution(shell.root).journal.open("ab") as journal:
        for seq, (kind, data) in enumerate(
            [("state.transition", {"transitionType": "CodonTransitioned"}), ("info", {})], start=6
        ):
            event = {"id": f"id-{seq}", "seq": seq, "timestamp": "2025-01-04T12:00:06.000Z"}
            journal.write(msgspec.json.encode({**event, "type": kind, "data": data}) + b"\n")

    since = ("--since", "5")
    assert [line.split()[0] for line in shell(*since).lines] == ["7"]
    assert [line.split()[0] for line in shell(*since, "--limit", "1").lines] == ["7"]
    (asked,) = shell(*since, "--type", "state.transition").lines
    assert asked.endswith("state.transition      CodonTransitioned")
    assert shell.seqs(*since) == [6, 7]
    assert "state.transition" in shell(*since, "--format", "csv").out


def test_the_table_names_a_severity_once(shell: Shell) -> None:
    """The type of the event names it already."""
    data = {"code": "INSUFFICIENT_SPACE", "message": "Full.", "since": "2025-01-04T12:00:06.000Z"}
    event = {"id": "id-6", "seq": 6, "timestamp": "2025-01-04T12:00:06.000Z", "data": data}
    with Layout.of_execution(shell.root).journal.open("ab") as journal:
        journal.write(msgspec.json.encode({**event, "type": "server.degraded"}) + b"\n")

    (line,) = shell("--since", "5").lines
    assert line.split()[-2:] == ["server.degraded", "Full."]


def test_a_table_is_one_that_no_agent_can_steer(shell: Shell) -> None:
    """Control characters of an agent's text are escaped."""
    assert "\x1b" not in shell("--since", "2", "--until", "3").out


def test_csv_comes_back_as_it_was(shell: Shell) -> None:
    """A CSV reader gets every field back: quotes, commas, newlines and nested JSON."""
    rows = list(csv.DictReader(io.StringIO(shell("--format", "csv").out)))
    assert [int(row["seq"]) for row in rows] == [1, 2, 3, 4, 5]
    assert [json.loads(row["data"]) for row in rows] == [event["data"] for event in EVENTS]
    assert [json.loads(row["causes"] or "[]") for row in rows] == [
        event.get("causes", []) for event in EVENTS
    ]


def test_an_empty_answer_is_no_failure(shell: Shell) -> None:
    """The output is empty, or the header alone; the exit code is 0."""
    none = ("--text", "nothing")
    assert shell(*none) == (0, "", "")
    assert shell(*none, "--format", "csv").out.startswith("seq,timestamp,type")


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--type", "codon.complete"], "Did you mean 'codon.completed'?"),
        (["--where", "type=info"], "--where"),
        (["--since", "yesterday"], "not a seq or moment"),
        (["--caused-by", "99"], "ends at 5"),
        (["--ancestors-of", "0"], "--ancestors-of"),
        (["--format", "xml"], "jsonl"),
        (["--follow", "--limit", "1"], "--follow excludes"),
        (["--follow", "--until", "3"], "--follow excludes"),
    ],
)
def test_a_wrong_query_exits_2_with_the_reason(shell: Shell, options: list[str], word: str) -> None:
    """Usage errors of the shell and of the query leave stdout empty."""
    output = shell(*options)
    assert (output.code, output.out) == (2, "")
    assert word in output.err


def test_a_line_that_is_still_being_written_is_left_out(shell: Shell) -> None:
    """A running server may be in the middle of an append."""
    with Layout.of_execution(shell.root).journal.open("ab") as journal:
        journal.write(b'{"id": "id-6", "seq": 6, "timesta')

    assert shell.seqs("--since", "4") == [5]


def test_a_damaged_journal_answers_nothing(shell: Shell) -> None:
    """The exit code is 65, with the line; a partial answer could be mistaken for a complete one."""
    path = Layout.of_execution(shell.root).journal
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"garbage\n", *lines[2:]]))
    output = shell("--type", "info")
    assert (output.code, output.out) == (65, "")
    assert "line 3" in output.err


@pytest.mark.parametrize("options", [["--format", "csv"], ["--text", "x"]])
def test_an_event_with_bytes_that_are_no_text_ends_in_a_sentence(
    shell: Shell, options: list[str]
) -> None:
    """The exit code is 65 where the event must be parsed; otherwise it is printed."""
    path = Layout.of_execution(shell.root).journal
    path.write_bytes(path.read_bytes().replace("é".encode(), b"\xff"))
    output = shell(*options)
    assert output.code == 65
    assert "cannot be read" in output.err
    assert len(shell("--json").lines) == len(shell().lines) == 5
