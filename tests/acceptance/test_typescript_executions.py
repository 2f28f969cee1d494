"""Claims about execution directories made by the TypeScript Hankweave (0.4 to 0.12)."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from hankweave_protocol.events import HankChanged, StateRecovered
from support.command_line import Done, hankweave
from support.running_server import journal, state
from support.typescript_execution import (
    BODY,
    RUN,
    TypescriptExecution,
    Version,
    write_execution,
)
from support.watching import events_of

SEEN = [
    "info",
    "hankweave.state.transition",
    "codon.started",
    "file.updated",
    "hankweave.codon.extended",
    "from.a.later.version",
    "codon.completed",
]

FORMS = [("0.12", True), ("0.10", False)]
"""The version, and whether its journal is compressed."""


@pytest.fixture(params=FORMS, ids=lambda form: f"{form[0]}{'-compressed' * form[1]}")
def execution(request: pytest.FixtureRequest, tmp_path: Path) -> TypescriptExecution:
    version, compressed = request.param
    made = write_execution(tmp_path, version=version)
    if compressed:
        made.compress()

    return made


def files_of(execution: TypescriptExecution) -> dict[str, str]:
    """Return the digests of all files in the directory."""
    return {
        str(path.relative_to(execution.root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in execution.root.rglob("*")
        if path.is_file()
    }


def lines(execution: TypescriptExecution, *words: str) -> list[str]:
    return (
        hankweave(*words, "-e", str(execution.root), code=0).stdout.removesuffix("\n").split("\n")
    )


def run_on(execution: TypescriptExecution) -> Done:
    """Run its hank on its data, in its directory."""
    words = (str(execution.hank), str(execution.data), "-e", str(execution.root), "--headless")
    return hankweave("run", *words, code=0)


def test_it_is_read_without_being_touched(execution: TypescriptExecution) -> None:
    """No read-only command changes a byte of the directory.

    The commands are `runs`, `checkpoints`, `events`, `log`, `show`, `replay`, `sessions`, `report`
    and `fsck`.
    """
    before = files_of(execution)
    assert any(RUN in line for line in lines(execution, "runs"))
    (listed,) = lines(execution, "checkpoints")
    assert listed.startswith(execution.sha[:12])
    events = lines(execution, "events", "--format", "jsonl")
    assert [json.loads(line)["type"] for line in events][:7] == SEEN
    assert any("completed" in line for line in lines(execution, "log"))
    assert lines(execution, "show", f"{execution.sha[:12]}:a.txt") == ["a"]
    assert lines(execution, "replay", execution.sha[:12])
    assert any(RUN in line for line in lines(execution, "sessions"))
    assert any(line.startswith("| one | **success** |") for line in lines(execution, "report"))
    assert "1 checkpoint is intact" in lines(execution, "fsck")[0]
    assert files_of(execution) == before


def test_it_is_listed(execution: TypescriptExecution) -> None:
    """`ls` shows its state, data, plan, checkpoints and size."""
    root = str(execution.root.parent)
    done = hankweave("ls", "--size", "--json", code=0, HANKWEAVE_RUNTIME_EXECUTION_BASE_DIR=root)
    (listed,) = json.loads(done.stdout)
    assert listed["path"] == str(execution.root)
    assert listed["problem"] is None
    assert (listed["state"], listed["codonsDone"], listed["codonsPlanned"]) == ("completed", 1, 2)
    assert (listed["data"], listed["checkpoints"]) == (str(execution.data), 1)


def test_file_contents_of_its_events_are_there(execution: TypescriptExecution) -> None:
    """`events` has `content` as it was written, and the fingerprint of later versions."""
    (found,) = lines(execution, "events", "--type", "file.updated", "--format", "jsonl")
    event = json.loads(found)
    assert event["data"]["content"] == BODY
    assert event["data"]["sha256"] == hashlib.sha256(BODY.encode()).hexdigest()
    assert event["runId"] == RUN


@pytest.mark.story(
    "An execution directory of Hankweave is continued where it ended.", cases=("0.10",)
)
def test_it_goes_on_where_it_ended(execution: TypescriptExecution) -> None:
    """`run` with its hank and data runs only the second codon, and reports neither as changed."""
    run_on(execution)
    assert events_of(execution.root, HankChanged) == []
    runs = state(execution.root).runs
    assert [[codon.codon_id for codon in run.codons] for run in runs] == [["two"], ["one"]]
    assert (execution.root / "agentRoot" / "b.txt").read_text() == "b"
    kinds = [event.type for event in journal(execution.root)]
    assert kinds[:7] == SEEN
    assert "nothing to do" in run_on(execution).stdout


def test_its_own_files_are_kept(execution: TypescriptExecution) -> None:
    """Each file that the first start replaces is kept under another name, named in an event."""
    before = files_of(execution)
    run_on(execution)
    after = set(files_of(execution).values())
    kept = {name for name in before if name.startswith((".hankweave/e", ".hankweave/state"))}
    assert {before[name] for name in kept} <= after
    (recovered,) = events_of(execution.root, StateRecovered)
    assert recovered.errors == ()
    assert "state.hankweave-1.json" in recovered.kept
    run_on(execution)
    assert len(events_of(execution.root, StateRecovered)) == 1


@pytest.mark.parametrize("version", ["0.4", "0.12"])
def test_metadata_of_every_version_is_read(tmp_path: Path, version: Version) -> None:
    """Every version's metadata is read: 0.4, without a hash or path of the hank, and plain 0.12."""
    execution = write_execution(tmp_path, version=version)
    lines(execution, "rollback", "--yes", "--to", execution.sha[:12])
    run_on(execution)
    assert events_of(execution.root, HankChanged) == []


def test_it_is_rolled_back(execution: TypescriptExecution) -> None:
    """A rollback to its checkpoint restores the file; the edit is in the safety checkpoint."""
    edited = execution.root / "agentRoot" / "a.txt"
    edited.write_text("edited")
    lines(execution, "rollback", "--yes", "--to", execution.sha[:12])
    assert edited.read_text() == "a"
    safety = next(line for line in lines(execution, "checkpoints") if "safety" in line)
    assert lines(execution, "show", f"{safety.split()[0]}:a.txt") == ["edited"]


@pytest.mark.parametrize("copy", [False, True])
def test_its_data_is_taken_over(tmp_path: Path, copy: bool) -> None:
    """The link, or the copy, in its work tree still works."""
    execution = write_execution(tmp_path, copy=copy)
    run_on(execution)
    link = execution.root / "agentRoot" / "read_only_data_source"
    assert link.is_symlink()
    assert (link / "rows.csv").read_text() == "1,2\n"
    assert (execution.root / "read_only_data_source").is_symlink() is not copy
    assert not list(execution.root.glob("read_only_data_source.replaced-*"))


def test_a_hank_that_did_change_is_reported(tmp_path: Path) -> None:
    """The hash that 0.12 recorded is of another file."""
    execution = write_execution(tmp_path)
    hank = json.loads(execution.hank.read_text())
    hank["hank"][1]["name"] = "Renamed"
    execution.hank.write_text(json.dumps(hank))
    run_on(execution)
    assert len(events_of(execution.root, HankChanged)) == 1


def test_an_abbreviated_checkpoint_is_found(tmp_path: Path) -> None:
    """Until 0.10 state.json may have the seven digits that `git commit` prints."""
    execution = write_execution(tmp_path, version="0.10")
    path = execution.state_folder / "state.json"
    path.write_text(path.read_text().replace(execution.sha, execution.sha[:7]))
    assert execution.sha[:12] in "".join(lines(execution, "runs"))
    run_on(execution)
    assert state(execution.root).runs[1].codons[0].completion_checkpoint == execution.sha
    (recovered,) = events_of(execution.root, StateRecovered)
    assert recovered.warnings == ()


def test_a_damaged_compressed_journal_is_not_believed(tmp_path: Path) -> None:
    """A message names the file; with it moved aside, the rest of the execution is read."""
    execution = write_execution(tmp_path)
    execution.compress()
    path = execution.events / "events.jsonl.zst"
    path.write_bytes(path.read_bytes()[:-20])
    for command in ("events", "runs", "log"):
        done = hankweave(command, "-e", str(execution.root), code=65)
        assert "events.jsonl.zst" in done.stderr

    path.rename(path.with_name("aside"))
    assert any(RUN in line for line in lines(execution, "runs"))
