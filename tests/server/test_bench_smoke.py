"""The benchmarks at their smallest: the figures mean nothing here, but every one must appear."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

import bench.__main__ as program
from bench import contenders, over_socket, page, socket_tables, ui
from bench.__main__ import BENCHES, MISSED, USAGE, main
from bench.figures import (
    RESULTS,
    AtLeast,
    AtMost,
    Figure,
    Target,
    Within,
    print_table,
    write_results,
)
from bench.rounds import Variant, medians
from bench.scale import SMALLEST, Scale
from bench.trees import make_real_tree
from support.running_server import tree

pytestmark = pytest.mark.feature("answers")

EXPECTED: dict[str, list[tuple[str, str, type[Target] | None]]] = {
    "journal": [
        ("journal, durable each", "/s", None),
        ("ledger, durable each", "/s", None),
        ("journal, batched", "/s", AtLeast),
        ("ledger, batched", "/s", AtLeast),
    ],
    "fanout": [("events to 1 client", "deliveries/s", None)],
    "startup": [
        ("start with", "s", AtMost),
        ("--version", "s", AtMost),
        ("--help", "s", AtMost),
        ("rollback --preview", "s", AtMost),
        ("log, ", "s", AtMost),
        ("events --limit 20, ", "s", AtMost),
    ],
    "memory": [("idle server", "MB", AtMost), ("idle server,", "MB", AtMost)],
}


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.full
async def test_a_bench_yields_its_figures(name: str, tmp_path: Path) -> None:
    """Every benchmark measures the quantities of issue 2, each figure beside a reference."""
    figures = await BENCHES[name](tmp_path, SMALLEST)

    assert len(figures) == len(EXPECTED[name])
    for figure, (begins, unit, target) in zip(figures, EXPECTED[name], strict=True):
        assert figure.bench == name
        assert figure.name.startswith(begins)
        assert figure.unit == unit
        assert figure.value > 0
        assert figure.ratio is not None
        assert figure.ratio > 0
        assert (None if figure.target is None else type(figure.target)) is target


@pytest.mark.full
async def test_the_bench_of_trees_measures_every_row(tmp_path: Path) -> None:
    """Each row of issue 3's table is measured for every contender."""
    figures = await BENCHES["trees"](tmp_path, SMALLEST)

    contenders = ["best git", "pygit2"]
    checkpoint = [*contenders, "bare walk", "documented"]
    assert _references_by_row(figures) == {
        "first checkpoint": contenders,
        "no change": checkpoint,
        "one file changed": checkpoint,
        "100 files changed": checkpoint,
        "diff, one file": contenders,
        "diff, 100 files": contenders,
        "rollback, one file": contenders,
        "rollback, 100 files": contenders,
        "rollback, everything": contenders,
        "memory, at its peak": [""],
        "memory, settled": [""],
    }
    assert all(figure.value > 0 for figure in figures)


async def test_the_bench_of_history_measures_every_row(tmp_path: Path) -> None:
    """The disk usage and lookup time of small checkpoints are measured before and after packing."""
    figures = await BENCHES["history"](tmp_path, SMALLEST)

    assert all(figure.reference is None for figure in figures)
    assert [(figure.name, figure.unit) for figure in figures] == [
        ("one-file checkpoint on disk", "KB"),
        ("5 checkpoints read from git alone", "ms"),
        ("one file of an old checkpoint", "ms"),
        ("packing of 5 checkpoints", "ms"),
        ("one-file checkpoint on disk, packed", "KB"),
        ("5 checkpoints read from git alone, packed", "ms"),
        ("one file of an old checkpoint, packed", "ms"),
    ]


@pytest.mark.full
async def test_the_bench_of_a_long_store_measures_time_packs_and_size(tmp_path: Path) -> None:
    """The store is measured while it grows, and compared with itself after a gc."""
    figures = await BENCHES["store"](tmp_path, SMALLEST)

    assert [figure.unit for figure in figures] == ["ms", "ms", "", "MB"]
    assert all(figure.value > 0 and figure.target is not None for figure in figures)


@pytest.mark.full
async def test_the_bench_of_a_long_past_measures_every_row(tmp_path: Path) -> None:
    """A start and what clients ask first are measured beside an execution without a past."""
    figures = await BENCHES["past"](tmp_path, SMALLEST)

    past = "; 5 checkpoints, 60 events"
    assert [figure.name.removesuffix(past) for figure in figures] == [
        "start",
        "server.status",
        "checkpoint.list, first page",
        "events.query, newest page",
        "rollback.toCheckpoint",
    ]
    assert all(figure.ratio and figure.target for figure in figures)


@pytest.mark.full
async def test_the_bench_of_a_long_loop_measures_every_row(tmp_path: Path) -> None:
    """The journal's size, and the processor's time at the end beside that at the beginning."""
    journal, processor = await BENCHES["loop"](tmp_path, SMALLEST)

    assert journal.name == "journal of 6 codons with a prompt of 8 KB"
    assert processor.name == "processor for a codon, the last 3 of 6"
    assert all(figure.value > 0 and figure.target for figure in (journal, processor))
    assert processor.ratio


@pytest.mark.full
async def test_the_bench_of_the_socket_measures_every_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row of issue 18's table is measured for us, watched and not, and for each peer."""
    for name in ("SETTLE", "REST", "REST_LIMIT"):
        monkeypatch.setattr(contenders, name, 0.01)

    figures = await BENCHES["socket"](tmp_path, replace(SMALLEST, runs=2))

    rows: dict[str, list[str]] = {}
    paces: dict[str, set[str]] = {}
    for figure in figures:
        row, pace = figure.name.removesuffix(", idle disk").split(", 110 files, ")
        rows.setdefault(row, []).append(figure.reference_name)
        paces.setdefault(row, set()).add(pace)

    assert list(rows) == list(over_socket.ROWS)
    assert all({"ours, watch off", "git", "documented"} <= set(each) for each in rows.values())
    once = {over_socket.FIRST: {"settled"}, over_socket.AGENT: {"busy"}}
    assert paces == {row: once.get(row, {"settled", "busy"}) for row in over_socket.ROWS}
    assert all(figure.value > 0 and figure.reference for figure in figures)
    tables = page.markdown(figure.as_json() for figure in figures)
    assert [line.split(" | ")[0] for line in tables.splitlines() if line.startswith("| ")] == [
        "| 110 files, idle disk",
        "| ---",
        *(f"| {row}" for row in over_socket.ROWS),
    ]


def test_the_tables_of_the_socket_have_both_paces_and_each_peer() -> None:
    """Sizes and disks have tables of their own; below them stands what each peer is."""
    details = {"p95": 3.21, "flushes": 2, "lstats": 1234, "flush": 0.6}
    figures = [
        Figure(
            "socket", f"one file, {size}, {pace}, {disk}", value, "ms", who, beside, None, details
        )
        for size in ("1,000 files", "10,000 files")
        for disk in ("idle disk", "busy disk")
        for pace, value in (("settled", 2.5), ("busy", 5))
        for who, beside in (("ours, watch off", 4), ("git", 250.4), ("Hermes", 1_500))
    ]
    tables = socket_tables.of_rows([figure.as_json() for figure in figures])

    first, *others = tables.split("\n\n")
    assert first.splitlines()[0] == (
        "| 1,000 files, idle disk | settled, ms | p95 | git | to git | busy, ms | p95 | git "
        "| to git | flushes | a flush, ms | watch off | Hermes |"
    )
    assert first.splitlines()[2] == (
        "| one file | 2.5 | 3.21 | 250 | 0.01 x | 5 | 3.21 | 250 | 0.02 x | 2 | 0.6 | 4 | 1,500 |"
    )
    headings = [each.split(" | ")[0] for each in others[:3]]
    assert headings == [
        "| 1,000 files, busy disk",
        "| 10,000 files, idle disk",
        "| 10,000 files, busy disk",
    ]
    assert "- **Hermes**: " in tables
    assert "Gemini" not in tables, "it was not measured"


def test_the_tables_can_be_put_into_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each table replaces the one of its bench, as often as wanted; all else stays."""
    monkeypatch.setattr(program, "CHECKOUT", tmp_path)
    text = tmp_path / "page.md"
    text.write_text("Before.\n")
    assert main(["--markdown"]) == USAGE
    details = {"p95": 1, "flushes": 0, "lstats": 0, "flush": 0.5}
    name = "first, 10 files, settled, idle disk"
    figures = [
        Figure("socket", name, 1, "ms", "git", 2, None, details),
        Figure("startup", "--version", 0.1, "s", "an interpreter", 0.02, AtMost(0.2)),
    ]
    write_results(tmp_path / RESULTS, figures, {"socket": 1, "startup": 1})
    assert main(["--into", str(text)]) == USAGE
    assert "<!-- bench: socket -->" in capsys.readouterr().err
    ours = "<!-- bench: {} -->\nold {}\n<!-- end of bench -->\nBetween.\n"
    text.write_text("Before.\n" + "".join(ours.format(n, n) for n in ("socket", "past", "startup")))
    for _ in range(2):
        assert main(["--into", str(text)]) == 0

    written = text.read_text()
    assert written.count("| first | 1 | 1 |") == 1
    assert written.count("| --version | 0.1 s | 5 x an interpreter | <= 0.2 |") == 1
    assert [line for line in written.splitlines() if line.startswith(("Be", "old"))] == [
        *("Before.", "Between.", "old past", "Between.", "Between.")
    ]
    assert main(["--markdown"]) == 0
    assert "| first | 1 | 1 |" in capsys.readouterr().out


@pytest.mark.full
async def test_the_bench_of_responsiveness_measures_every_row(tmp_path: Path) -> None:
    """A real server's pings are measured for a checkpoint of many files and one of a big file."""
    figures = await BENCHES["responsiveness"](tmp_path, SMALLEST)

    listed, *pings = figures
    assert listed.name == "5 checkpoints listed"
    assert [figure.name for figure in pings] == [
        f"ping, {word}, checkpoint of {what}"
        for what in ("20 files", "0.0625 MiB")
        for word in ("p50", "p99", "max")
    ]
    assert all(figure.ratio is not None and figure.ratio > 0 for figure in pings)


@pytest.mark.full
async def test_the_bench_of_questions_measures_every_row(tmp_path: Path) -> None:
    """Each reply that people wait for is measured beside its reference."""
    figures = await BENCHES["questions"](tmp_path, SMALLEST)

    assert [figure.name for figure in figures] == [
        "50 events asked, by type",
        "50 events asked, by text",
        "50 events asked, what came of one",
        "a moment of 20 files, again",
        "one change in a repository of 20 files",
    ]
    assert all(figure.ratio is not None and figure.ratio > 0 for figure in figures)


async def test_the_bench_of_blame_measures_a_long_history(tmp_path: Path) -> None:
    """A long file is blamed through all checkpoints, beside git."""
    (figure,) = await BENCHES["blame"](tmp_path, SMALLEST)

    assert figure.name == "2,000 lines through 5 checkpoints"
    assert figure.ratio is not None
    assert figure.target is not None


@pytest.mark.full
async def test_the_bench_of_confinement_measures_every_level(tmp_path: Path) -> None:
    """The start of a program is measured at each level that works here."""
    figures = await BENCHES["confinement"](tmp_path, SMALLEST)

    assert len(figures) in (0, 2, 4)
    assert all(figure.ratio is not None and figure.ratio > 0 for figure in figures)


async def test_every_row_of_ours_can_be_profiled(tmp_path: Path) -> None:
    """The profile folder has a table for every row that Hankweave in Python takes part in."""
    (tmp_path / "profiles").mkdir()
    scale = replace(SMALLEST, profiles=tmp_path / "profiles")
    await BENCHES["history"](tmp_path, scale)

    (table,) = (tmp_path / "profiles").glob("5-checkpoints-read-from-git-alone.txt")
    assert "commits" in table.read_text()


def test_a_real_tree_has_no_built_files(tmp_path: Path) -> None:
    """The real tree is a copy of folders without build products and third-party packages."""
    source = tmp_path / "lib"
    for name in ("os.py", "json/__init__.py", "__pycache__/os.pyc", "site-packages/x.py", "z.so"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("content")

    root = make_real_tree(tmp_path / "execution", [source])

    assert tree(root) == {
        "agentRoot/lib/os.py": b"content",
        "agentRoot/lib/json/__init__.py": b"content",
    }


@pytest.mark.full
async def test_a_variant_may_take_part_in_fewer_rounds() -> None:
    """A variant that takes minutes is measured in the first rounds only."""
    measured: list[str] = []

    def variant(name: str) -> Variant:
        async def measure() -> float:
            measured.append(name)
            return float(len(measured))

        return measure

    await medians({"quick": variant("quick"), "slow": variant("slow")}, 3, {"slow": 1})

    assert measured == ["quick", "slow", "quick", "quick"]


@pytest.mark.parametrize(
    ("value", "target", "is_met"),
    [
        (49_999, AtLeast(50_000), False),
        (50_000, AtLeast(50_000), True),
        (80, AtMost(80), True),
        (80.1, AtMost(80), False),
        (0, None, True),
        (28, Within(30, 2), True),
        (32.1, Within(30, 2), False),
    ],
)
def test_a_target_is_met_up_to_its_limit(value: float, target: Target | None, is_met: bool) -> None:
    """A figure on the good side of its target, or without one, is met; any other is missed."""
    assert a_figure(value, target).is_met is is_met


def test_the_table_marks_a_missed_target(capsys: pytest.CaptureFixture[str]) -> None:
    """The table shows value, ratio, target and verdict uncut, however narrow the terminal is."""
    print_table([a_figure(25_000, AtLeast(50_000)), a_figure(60_000, AtLeast(50_000))])

    missed, met = (line for line in capsys.readouterr().out.splitlines() if "appends" in line)
    assert " ".join(missed.split()) == (
        "journal appends 25,000 /s 0.25x raw 100,000 >= 50,000 MISSED"
    )
    assert met.split()[-1] == "ok"


def test_the_figures_can_be_read_by_programs(tmp_path: Path) -> None:
    """The results are one JSON object with every benchmark's machine and time, and every figure."""
    figures = [a_figure(25_000, AtLeast(50_000)), Figure("journal", "beat", 30, "s")]
    write_results(tmp_path / "results.json", figures, {"journal": 1.25})

    written = json.loads((tmp_path / "results.json").read_bytes())
    assert written["benches"]["journal"]["seconds"] == 1.2
    assert written["benches"]["journal"]["machine"]["processors"] > 0
    assert written["figures"] == [
        {
            "bench": "journal",
            "name": "appends",
            "value": 25_000,
            "unit": "/s",
            "reference": {"name": "raw", "value": 100_000},
            "ratio": 0.25,
            "target": ">= 50,000",
            "met": False,
        },
        {
            "bench": "journal",
            "name": "beat",
            "value": 30,
            "unit": "s",
            "reference": None,
            "ratio": None,
            "target": None,
            "met": True,
        },
    ]


def test_a_run_keeps_the_figures_of_the_other_benches(tmp_path: Path) -> None:
    """A benchmark's new figures replace its old ones, and nothing else in the file."""
    path = tmp_path / "results.json"
    write_results(path, [Figure("trees", "first", 1, "ms")], {"trees": 1})
    write_results(path, [Figure("trees", "second", 1, "ms")], {"trees": 1})
    write_results(path, [a_figure(1, None)], {"journal": 1})

    written = json.loads(path.read_bytes())
    assert [figure["name"] for figure in written["figures"]] == ["second", "appends"]
    assert written["benches"].keys() == {"trees", "journal"}


def test_results_of_another_shape_are_replaced(tmp_path: Path) -> None:
    """A file that an older version wrote counts as empty: its figures belong to no known run."""
    path = tmp_path / "results.json"
    path.write_text('{"seconds": 5, "figures": [{"bench": "journal", "name": "old"}]}')
    write_results(path, [a_figure(1, None)], {"journal": 1})

    assert [figure["name"] for figure in json.loads(path.read_bytes())["figures"]] == ["appends"]


def test_an_unknown_bench_is_a_mistake_of_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown name measures nothing, and the message lists the known names."""
    assert main(["journal", "speed"]) == USAGE
    assert (
        "'speed'; there are: journal, fanout, startup, memory, catching-up, trees"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(("value", "exit_code"), [(50_000, 0), (49_999, MISSED)])
def test_a_missed_target_fails_the_run(
    value: float, exit_code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code is 1 if a target is missed and 0 if none is; the results are written anyway."""

    async def measure(folder: Path, scale: Scale) -> list[Figure]:
        return [a_figure(value, AtLeast(50_000))]

    monkeypatch.setattr(program, "BENCHES", {"journal": measure})
    monkeypatch.setattr(program, "CHECKOUT", tmp_path)
    assert main([]) == exit_code
    assert (tmp_path / RESULTS).exists()


def test_a_quick_run_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With fewer rounds or other trees the last complete run's figures stay."""
    scales: list[Scale] = []

    async def measure(folder: Path, scale: Scale) -> list[Figure]:
        scales.append(scale)
        return [a_figure(1, None)]

    monkeypatch.setattr(program, "BENCHES", {"trees": measure})
    monkeypatch.setattr(program, "CHECKOUT", tmp_path)
    assert main(["trees", "--sizes", "1000,real", "--rounds", "2"]) == 0
    assert main(["trees", "--sizes", "5"]) == 0

    assert [scale.trees for scale in scales] == [(1_000,), (5,)]
    assert [scale.has_real_tree for scale in scales] == [True, False]
    assert scales[0].rounds == 2
    assert not (tmp_path / RESULTS).exists()


def test_the_run_is_bounded_in_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A benchmark that does not end is stopped, and the run fails."""

    async def measure(folder: Path, scale: Scale) -> list[Figure]:
        await anyio.sleep_forever()
        return []

    monkeypatch.setattr(program, "BENCHES", {"journal": measure})
    monkeypatch.setattr(program, "DEADLINE", 0.01)
    assert main([]) == MISSED
    assert "more than" in capsys.readouterr().err


def _references_by_row(figures: list[Figure]) -> dict[str, list[str]]:
    rows: dict[str, list[str]] = {}
    for figure in figures:
        row = figure.name.removesuffix(", 110 files")
        rows.setdefault(row, []).append(figure.reference_name.partition(":")[0])

    return rows


def a_figure(value: float, target: Target | None) -> Figure:
    return Figure("journal", "appends", value, "/s", "raw", 100_000, target)


async def test_the_bench_of_an_agent_measures_every_row(tmp_path: Path) -> None:
    """A real agent's lines reach all clients; memory and saves of the state are measured."""
    figures = await BENCHES["agent"](tmp_path, SMALLEST)

    assert [(figure.name, figure.unit) for figure in figures] == [
        ("32 lines to 10 clients", "lines/s"),
        ("lines in a second of its processor", "lines/s"),
        ("memory, growth", "MB"),
        ("state.json saved", "/s"),
    ]
    assert figures[0].value > 0


@pytest.mark.full
async def test_the_bench_of_tracing_measures_every_row(tmp_path: Path) -> None:
    """Lines of a real agent, with traces that a real collector receives, and without."""
    pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")
    figures = await BENCHES["tracing"](tmp_path, SMALLEST)

    assert [(figure.name, figure.reference_name) for figure in figures] == [
        ("32 lines, traced", "without"),
        ("lines in a second of its processor, traced", "without"),
    ]
    assert all(figure.value > 0 for figure in figures)


@pytest.mark.full
async def test_the_bench_of_plans_measures_every_row(tmp_path: Path) -> None:
    """Starting and resuming a long plan are measured beside a short one, with each codon's time."""
    figures = await BENCHES["plans"](tmp_path, SMALLEST)

    assert [(figure.name, figure.unit, figure.reference_name) for figure in figures] == [
        ("start of 20 codons", "s", "10 codons"),
        ("start, 2 of 20 codons done", "s", "10 codons"),
        ("plan of 12 codons", "codons/s", ""),
        ("a codon of the last tenth", "ms", "first tenth"),
        ("a codon, 2 of 20 done", "ms", "0 of 8 done"),
    ]
    assert all(figure.value > 0 for figure in figures)


async def test_the_bench_of_the_page_says_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a browser there are no figures, and the reason is reported."""
    monkeypatch.setattr(ui, "CHROMIUM", str(tmp_path / "nothing"))
    monkeypatch.setattr(ui, "BROWSER", tmp_path)
    monkeypatch.setattr(ui.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert await ui.measure(tmp_path, SMALLEST) == []
    assert "ui: skipped, because there is no playwright-core" in capsys.readouterr().err
    (tmp_path / "node_modules" / "playwright-core").mkdir(parents=True)
    assert await ui.measure(tmp_path, SMALLEST) == []
    assert f"no Chromium at {tmp_path}" in capsys.readouterr().err
