"""Claims about authors: the journal says who made a change, and the timeline which one counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pygit2
import pytest
from pygit2.enums import FileMode

from hankweave_protocol import codec
from hankweave_protocol.events import (
    AssistantAction,
    CheckpointRollback,
    Event,
    EventData,
    FilesChanged,
    FileSource,
    FileUpdated,
    TokenUsage,
)
from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_protocol.records import Coordinate
from hankweave_protocol.replies import ChangeAuthor
from hankweave_server.checkpoints import commit_message
from hankweave_server.errors import Stop
from hankweave_server.features.answers.authors import authors_of, words_before
from hankweave_server.features.answers.blame import blame
from hankweave_server.features.answers.local_past import LocalHistory, reading_history
from hankweave_server.paths import Layout
from support.checkpointing import a_request

RUN = RunId("1736000000000-abc123-def456")
BUILD = CodonId("build")
START = datetime(2025, 1, 4, 12, 0, tzinfo=UTC)
PERSON = FileSource(kind="person")


@dataclass
class WrittenExecution:
    """An execution whose checkpoints and journal are written directly."""

    layout: Layout
    lines: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.layout.work_tree.mkdir(parents=True)
        self.layout.journal.parent.mkdir(parents=True)
        self.repo = pygit2.init_repository(str(self.layout.shadow_repository), bare=True)

    def event(self, data: EventData, codon: CodonId | None = BUILD) -> int:
        seq = len(self.lines) + 1
        moment = f"2025-01-04T12:00:{seq:02d}.000Z"
        made = Event(
            id=f"{seq}",
            seq=seq,
            timestamp=moment,
            type=data.TYPE,
            data=data,
            run_id=RUN,
            codon_id=codon,
        )
        self.lines.append(codec.encode(made))
        self.layout.journal.write_bytes(b"".join(line + b"\n" for line in self.lines))
        return seq

    def message(self, text: str) -> None:
        self.event(AssistantAction(codon_id=BUILD, action="message", content=text))

    def calls(self, use: str, tool: str, **given: object) -> None:
        self.event(
            AssistantAction(
                codon_id=BUILD,
                action="tool_use",
                content="",
                tool_name=tool,
                tool_input=given,
                tool_use_id=use,
            )
        )

    def costs(self, dollars: float) -> None:
        self.event(
            TokenUsage(
                codon_id=BUILD,
                input_tokens=1,
                output_tokens=1,
                cache_creation_tokens=0,
                cache_read_tokens=0,
                total_cost=dollars,
                model_id="small-1",
            )
        )

    def changed(self, path: str, source: FileSource) -> None:
        self.event(
            FileUpdated(
                path=path, filename=path, action="modified", sha256="", bytes=1, source=source
            )
        )

    def checkpoint(
        self,
        files: Mapping[str, bytes],
        *parents: Sha,
        kind: str = "tool",
        codon: CodonId | None = BUILD,
        label: str | None = None,
    ) -> Sha:
        seq = len(self.lines)
        request = replace(
            a_request(seq),
            kind=kind,
            codon_id=codon,
            run_id=RUN,
            timestamp=START + timedelta(seconds=seq),
            label=label,
        )
        index = pygit2.Index()
        for name, content in files.items():
            index.add(pygit2.IndexEntry(name, self.repo.create_blob(content), FileMode.BLOB))

        tree = bytes.fromhex(str(index.write_tree(self.repo)))
        body = commit_message.commit_object(
            tree, parents, request.timestamp, commit_message.written(request)
        )
        sha = Sha(str(self.repo.odb.write(pygit2.enums.ObjectType.COMMIT, body)))
        self.repo.set_head(pygit2.Oid(hex=sha))
        return sha


@pytest.fixture(name="execution")
def _execution(tmp_path: Path) -> WrittenExecution:
    execution = WrittenExecution(Layout.of_execution(tmp_path / "execution"))
    execution.event(_started())
    return execution


def _started() -> EventData:
    return AssistantAction(codon_id=BUILD, action="thinking", content="")


def lines_by(past: LocalHistory, path: str, at: str | None = None) -> list[ChangeAuthor]:
    """Return the author of each line of a file."""
    version = past.files.file_at(past.named(at), path.encode())
    count = past.files.content(version.blob).count(b"\n")
    found = blame(version, count, [(0, count)], past.files)
    authors = authors_of(past, [(each.version.sha, each.version.path) for each in found])
    return [
        authors[each.version.sha, each.version.path]
        for each in found
        for _ in range(each.start, each.end)
    ]


def test_each_line_has_its_call_its_person_or_the_start(execution: WrittenExecution) -> None:
    """The call comes with its name, its share of the message's cost, and the model."""
    first = execution.checkpoint({"f": b"a\n"}, kind="initial", codon=None)
    execution.message("I add b.")
    path = str(execution.layout.work_tree / "f")
    execution.calls("use-1", "Edit", file_path=path, old_string="a", new_string="b")
    execution.calls("use-2", "Read", file_path=path)
    execution.costs(0.5)
    execution.changed("f", FileSource(kind="tool_use", tool_use_id="use-1"))
    second = execution.checkpoint({"f": b"a\nb\n"}, first)
    execution.changed("f", PERSON)
    third = execution.checkpoint({"f": b"a\nb\nc\n"}, second, kind="manual", codon=None)
    execution.calls("use-3", "Bash", command="make\nmake install")
    execution.changed("f", FileSource(kind="tool_use"))
    execution.costs(0.25)
    execution.checkpoint({"f": b"a\nb\nc\nd\n"}, third)

    with reading_history(execution.layout) as past:
        a, b, c, d = lines_by(past, "f")
        assert words_before(past, b) == "I add b."
        assert words_before(past, d) is None

    assert (a.by, a.codon_id, a.checkpoint_sha) == ("initial", None, first)
    assert (b.by, b.codon_id, b.call, b.cost) == ("agent", BUILD, "Edit f", 0.25)
    assert (b.model, b.tool_use_id, b.event_seq) == ("small-1", "use-1", 3)
    assert (c.by, c.codon_id, c.call, c.checkpoint_sha) == ("person", None, None, third)
    assert (d.by, d.call, d.cost) == ("agent", "Bash make", 0.25)


def test_without_a_report_the_kind_of_the_checkpoint_decides(execution: WrittenExecution) -> None:
    """A rig belongs to the start of its step; an unlisted file of a burst to its source."""
    files = {"f": b"a\n", "g": b"a\n"}
    made = [execution.checkpoint(files, kind="initial", codon=None)]
    for kind, codon in (("rig-setup", BUILD), ("completed", BUILD), ("manual", None)):
        files = {"f": files["f"] + kind.encode() + b"\n", "g": files["g"]}
        execution.event(_started())
        made.append(execution.checkpoint(files, made[-1], kind=kind, codon=codon))

    burst = FilesChanged(
        total=300,
        created=0,
        modified=300,
        deleted=0,
        folders=(),
        other_folders=1,
        in_other_folders=300,
        paths=(),
        source=PERSON,
    )
    execution.event(burst)
    files = {"f": files["f"] + b"burst\n", "g": files["g"]}
    execution.checkpoint(files, made[-1])
    with reading_history(execution.layout) as past:
        found = [(each.by, each.call) for each in lines_by(past, "f")]

    assert found[:2] == [("initial", None), ("initial", "rig")]
    assert found[2:] == [("agent", None), ("person", None), ("person", None)]


def test_abandoned_work_has_written_nothing(execution: WrittenExecution) -> None:
    """After a rollback, only the target and what came after it count."""
    first = execution.checkpoint({"f": b"a\n"}, kind="initial", codon=None)
    execution.changed("f", FileSource(kind="tool_use"))
    execution.checkpoint({"f": b"a\nx\n"}, first)
    execution.changed("f", PERSON)
    last = execution.checkpoint({"f": b"a\nx\n"}, first, kind="manual", codon=None)
    with reading_history(execution.layout) as past:
        a, x = lines_by(past, "f")
        assert len(list(past.files.line(last))) == 2

    assert (a.by, x.by, x.checkpoint_sha) == ("initial", "person", last)


def test_restored_paths_keep_their_authors(execution: WrittenExecution) -> None:
    """A file that was brought back from an abandoned checkpoint has the lines of that timeline."""
    first = execution.checkpoint({"f": b"a\n", "g": b"1\n"}, kind="initial", codon=None)
    execution.calls("use-1", "Write", file_path="f")
    execution.changed("f", FileSource(kind="tool_use", tool_use_id="use-1"))
    aside = execution.checkpoint({"f": b"a\nb\n", "g": b"1\n"}, first)
    there = Coordinate(
        checkpoint_sha=aside, event_seq=3, run_id=RUN, codon_id=BUILD, codon_state="running"
    )
    execution.event(
        CheckpointRollback(
            operation_id="1", checkpoint=aside, source=None, target=there, paths=("f",), report=None
        )
    )
    execution.changed("g", PERSON)
    execution.checkpoint({"f": b"a\nb\n", "g": b"2\n"}, first, kind="manual", codon=None)
    with reading_history(execution.layout) as past:
        a, b = lines_by(past, "f")
        (g,) = lines_by(past, "g")

    assert (a.by, a.checkpoint_sha) == ("initial", first)
    assert (b.by, b.call, b.checkpoint_sha) == ("agent", "Write f", aside)
    assert g.by == "person"


def test_a_text_is_found_where_it_came_and_went(execution: WrittenExecution) -> None:
    """A renamed file is no change; an abandoned timeline is searched on request."""
    made = [execution.checkpoint({"f": b"TODO\n"}, kind="initial", codon=None)]
    made.append(execution.checkpoint({"g": b"TODO\n"}, made[0]))
    aside = execution.checkpoint({"g": b"TODO TODO\n"}, made[1])
    made.append(execution.checkpoint({"g": b"done\n"}, made[1]))
    with reading_history(execution.layout) as past:
        line = past.files.line(past.named(None))
        found = list(past.files.occurrences(line, b"TODO"))
        assert [(each.sha, each.path, each.before, each.after) for each in found] == [
            (made[2], b"g", 1, 0),
            (made[0], b"f", 0, 1),
        ]
        commits = [commit for sha in (made[2], aside) for commit in past.files.line(sha)]
        every = past.files.occurrences(commits, b"TODO")
        assert (aside, 1, 2) in [(each.sha, each.before, each.after) for each in every]


def test_a_missing_file_is_named_with_what_to_do(execution: WrittenExecution) -> None:
    """So is an execution without checkpoints."""
    with reading_history(execution.layout) as past, pytest.raises(Stop, match="no checkpoint yet"):
        past.named(None)

    execution.checkpoint({"f": b"a\n"}, kind="initial", codon=None)
    with pytest.raises(Stop, match="has no file g"), reading_history(execution.layout) as past:
        lines_by(past, "g")
