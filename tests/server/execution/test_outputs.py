"""Export of codons' output files: commands, copies and failures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hankweave_protocol.events import CodonCompletedEvent, ErrorEvent, RigOutput
from hankweave_protocol.transitions import CheckpointCreated
from support.invariants import Acknowledged, violations
from support.running_server import run_headless, state, tree
from support.scripted_hank import codon, rig_command, write_hank, writes
from support.watching import events_of, transitions

KILL = (
    "test -e ../killed || { touch ../killed;"
    """ kill -9 $(grep -o '"pid": *[0-9]*' ../.hankweave/runtime.lock | grep -o '[0-9]*$');"""
    " sleep 20; }"
)
"""A command that kills its server, once."""


def hands_out(*patterns: str, before: tuple[str, ...] = (), **fields: Any) -> dict[str, Any]:
    commands = [rig_command(line, **fields) for line in before]
    return {"outputFiles": [{"copy": list(patterns), "beforeCopy": commands}]}


@pytest.mark.story("`--output` gets the files that a hank names as its results.")
async def test_output_files_are_copied_once_a_codon_has_completed(tmp_path: Path) -> None:
    """The codon's commands run first, in the work tree with its environment; then the matching
    files are copied with their paths, before anything is archived."""
    hank = write_hank(
        tmp_path / "hank",
        codon(
            "one",
            writes("out/deep/report.md", "report"),
            writes("other.md", "other"),
            env={"WORD": "sealed"},
            archiveOnSuccess=["out"],
            **hands_out("out/**/*.md", "seal.txt", before=("echo said; echo $WORD > seal.txt",)),
        ),
    )
    execution, results = tmp_path / "execution", tmp_path / "deep" / "results"
    assert await run_headless(hank, execution, "--output", str(results)) == 0
    assert tree(results) == {"out/deep/report.md": b"report", "seal.txt": b"sealed\n"}
    assert [each.line for each in events_of(execution, RigOutput)] == ["said"]
    assert (execution / "rigArchive" / "one" / "out" / "deep" / "report.md").exists()
    assert state(execution).edits == {}, "what a command made is no person's edit"
    assert violations(execution, Acknowledged()) == []


async def test_without_an_output_directory_nothing_is_prepared(tmp_path: Path) -> None:
    """The commands serve only the copies; an environment variable can set the directory, too."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", writes("a", "a"), **hands_out("a", before=("touch ran",))),
    )
    assert await run_headless(hank, tmp_path / "without") == 0
    assert not (tmp_path / "without" / "agentRoot" / "ran").exists()
    named = {"HANKWEAVE_RUNTIME_OUTPUT_DIRECTORY": str(tmp_path / "named")}
    assert await run_headless(hank, tmp_path / "with", env=named) == 0
    assert tree(tmp_path / "named") == {"a": b"a"}


@pytest.mark.parametrize(("command", "taken"), [("true", 0), ("touch made", 1)])
async def test_a_checkpoint_is_taken_of_what_the_commands_changed(
    tmp_path: Path, execution: Path, command: str, taken: int
) -> None:
    """Commands that change nothing leave no checkpoint."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", writes("a", "a"), **hands_out("a", before=(command,))),
    )
    assert await run_headless(hank, execution, "--output", str(tmp_path / "results")) == 0
    made = transitions(execution, CheckpointCreated)
    assert [each.checkpoint.kind for each in made].count("safety") == taken


async def test_a_command_that_fails_fails_the_run(tmp_path: Path) -> None:
    """The exit code is 1, an error event has the reason, and no codon follows; the codon stays
    completed.

    The next start tries again (before 0.9 Hankweave ignored such failures).
    """
    hank = write_hank(
        tmp_path / "hank",
        codon("one", writes("a", "a"), **hands_out("a", before=("test -e ../may",))),
        codon("two", writes("b", "b")),
    )
    execution, options = tmp_path / "execution", ("--output", str(tmp_path / "results"))
    assert await run_headless(hank, execution, *options) == 1
    (error,) = events_of(execution, ErrorEvent)
    assert error.fatal
    assert "exited with code 1: test -e ../may" in error.message
    assert [each.codon_id for each in events_of(execution, CodonCompletedEvent)] == ["one"]
    assert state(execution).runs[0].status == "failed"
    assert await run_headless(hank, execution, *options) == 1, "it is still not handed out"
    (execution / "may").touch()
    assert await run_headless(hank, execution, *options) == 0
    assert tree(tmp_path / "results") == {"a": b"a"}
    assert [each.codon_id for each in events_of(execution, CodonCompletedEvent)] == ["one", "two"]
    assert violations(execution, Acknowledged()) == []


async def test_a_copy_that_fails_after_the_last_codon_fails_the_run(tmp_path: Path) -> None:
    """A failed copy is reported even at the end of the plan, also by the next server."""
    hank = write_hank(tmp_path / "hank", codon("one", writes("a/b", "b"), **hands_out("a/b")))
    execution, results = tmp_path / "execution", tmp_path / "results"
    results.mkdir()
    (results / "a").write_text("in the way")
    options = ("--output", str(results))
    assert await run_headless(hank, execution, *options) == 1
    assert await run_headless(hank, execution, *options) == 1
    assert state(execution).runs[0].status == "failed"
    (results / "a").unlink()
    assert await run_headless(hank, execution, *options) == 0
    assert tree(results) == {"a/b": b"b"}
    assert await run_headless(hank, execution, *options) == 0


async def test_an_optional_failed_command_and_an_empty_glob_are_reported(
    tmp_path: Path, execution: Path
) -> None:
    """Neither ends the run, and both are reported."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", **hands_out("*.md", before=("exit 7",), allowFailure=True)),
    )
    assert await run_headless(hank, execution, "--output", str(tmp_path / "results")) == 0
    failed, nothing = events_of(execution, ErrorEvent)
    assert "code 7" in failed.message
    assert nothing.message == "one produced no output files: *.md."
    assert {each.severity for each in (failed, nothing)} == {"warning"}
    assert not (tmp_path / "results").exists()


async def test_a_crash_after_success_loses_neither_copies_nor_archives(tmp_path: Path) -> None:
    """The server dies after the last codon has completed, before its files are exported: the next
    start exports and archives them."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", writes("a/b", "b"), archiveOnSuccess=["a"], **hands_out("a", before=(KILL,))),
    )
    execution, results = tmp_path / "execution", tmp_path / "results"
    options = ("--output", str(results))
    assert await run_headless(hank, execution, *options) == -9
    assert not results.exists()
    assert await run_headless(hank, execution, *options) == 0
    assert tree(results) == {"a/b": b"b"}
    assert tree(execution / "rigArchive") == {"one/a/b": b"b"}
    assert len(events_of(execution, CodonCompletedEvent)) == 1
    assert violations(execution, Acknowledged()) == []
