"""An execution goes on from its mirror, and only one machine has it; time is virtual."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.cli import sessions
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.features.mirror.contents import CapturedExecution, MirrorRepository, Segments
from hankweave_server.features.mirror.lease import free_from, taken
from hankweave_server.features.mirror.pushing import Composed, Position
from hankweave_server.features.mirror.record import (
    MirrorRecord,
    owner_of,
    place_of,
    read_record,
    repository_of,
    with_nonce,
    write_record,
)
from hankweave_server.features.mirror.remote import LEASE_REF, Pushed, Remote
from hankweave_server.features.mirror.resume_source import (
    TEMPORARY,
    ResumeOptions,
    is_source,
    resume,
)
from hankweave_server.features.mirror.source import (
    ExecutionSource,
    files_of_data,
    hash_of_data,
    store_hank,
)
from hankweave_server.fsutil import opened
from hankweave_server.git.repo import MEMORY_REF, NOTES_REF, PINS, SAFETY, ShadowRepo
from hankweave_server.paths import Layout
from hankweave_server.worktree import data_source
from support.attached import StillClock
from support.checkpointing import RUN, EngineAccess, a_request
from support.git_facts import GitWitness
from support.histories import METADATA
from support.mirrors import in_remote
from support.running_server import tree
from support.scripted_hank import codon, write_hank

WITHIN = 60.0
TTL = 30.0
WAIT = free_from(0.0, TTL)
"""Seconds after which no former owner can have an agent at work."""

LINES = tuple(b'{"seq":%d}\n' % number for number in range(1, 6))


@dataclass
class HandClock(StillClock):
    """A clock that moves when someone sleeps."""

    seconds: float = 1000.0
    naps: int = 0
    meanwhile: dict[int, Callable[[], object]] = field(default_factory=dict)
    """What happens during the naps of these numbers."""

    def __post_init__(self) -> None:
        super().__init__()

    def boottime(self) -> float:
        return self.seconds

    def nap(self, seconds: float) -> None:
        self.seconds += seconds
        self.naps += 1
        self.meanwhile.get(self.naps, lambda: None)()


class Owner:
    """An execution with a mirror, and the owner of its lease; no server runs."""

    def __init__(self, folder: Path, bare: Path, *, in_place: bool = False) -> None:
        self.bare = bare
        layout = Layout.in_place(folder) if in_place else Layout.of_execution(folder)
        layout.work_tree.mkdir(parents=True)
        self.layout = layout
        self.engine = CheckpointEngine.open(layout)
        self.data_hash: str | None = None
        self.meta = msgspec.structs.replace(METADATA, in_place=in_place)
        layout.journal.parent.mkdir()
        layout.journal.write_bytes(b"".join(LINES))
        self.repository = MirrorRepository(
            repository_of(layout), layout.shadow_repository / "objects"
        )
        self.remote = Remote(str(bare), self.repository.path, os.environ)
        self.folders: dict[str, Sha] = {}
        record = MirrorRecord(address=str(bare), mode="sync", ttl=TTL, execution_id="e")
        self.record = with_nonce(record, layout)
        write_record(layout, self.record)
        lease = taken(
            None, execution_id="e", owner="nas:/old", nonce=self.record.nonces[0], ttl=TTL
        )
        self.last = Composed(Sha(""), lease, Segments())

    def write(self, name: str, text: str) -> None:
        path = self.layout.work_tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def checkpoint(self, number: int) -> Sha:
        return self.engine.checkpoint(a_request(number)).sha

    @cached_property
    def source(self) -> ExecutionSource:
        return ExecutionSource(
            self.layout,
            self.repository,
            quiesced=self.engine.quiesced,
            newest=lambda: Position(len(LINES), sum(map(len, LINES))),
            clean=lambda content: content,
            folders=self.folders,
            data_hash=self.data_hash,
        )

    def push(self, *, released: bool = False) -> bool:
        """Mirror the execution as it is; return whether the lease was still ours."""
        data_source.write_meta(self.layout, self.meta)
        composed = self.source.composed(self.last.lease, self.last.segments, released=released)
        expected = self.last.sha or None
        if self.remote.push(composed.sha, expected, WITHIN).outcome != "done":
            return False

        self.last = composed
        return True


@pytest.fixture
def owner(tmp_path: Path, bare: Path) -> Iterator[Owner]:
    made = Owner(tmp_path / "old", bare)
    made.write("a.txt", "a")
    made.checkpoint(1)
    with closing(made.engine):
        yield made


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@dataclass
class Machine:
    """Another machine, where the execution is resumed."""

    folder: Path
    bare: Path
    clock: HandClock
    output: list[str] = field(default_factory=list)

    def resume(self, **wanted: Any) -> Layout:
        found = resume(
            ResumeOptions(
                str(self.bare), self.folder / "executions", self.folder / "new", **wanted
            ),
            self.clock,
            nap=self.clock.nap,
            report=self.output.append,
        )
        return Layout.of_execution(found)

    def refused(self, **wanted: Any) -> Stop:
        """Resume, which must be refused and leave nothing behind."""
        before = sorted(self.folder.iterdir())
        with pytest.raises(Stop) as caught:
            self.resume(**wanted)

        assert sorted(self.folder.iterdir()) == before
        return caught.value


@pytest.fixture
def machine(tmp_path: Path, bare: Path, clock: HandClock) -> Machine:
    (tmp_path / "machine").mkdir()
    return Machine(tmp_path / "machine", bare, clock)


def push_with_data(owner: Owner) -> None:
    """Push with the data in the mirror."""
    files = files_of_data(owner.layout)
    assert files is not None
    owner.folders["data"] = owner.repository.store(files)
    owner.push()


def refs(layout: Layout) -> tuple[str, dict[str, Sha]]:
    repo = ShadowRepo(layout.shadow_repository)
    with closing(repo):
        return (layout.shadow_repository / "HEAD").read_text(), repo.references()


# --- what is restored -----------------------------------------------------------------------------


async def test_everything_of_an_execution_is_restored(
    tmp_path: Path, bare: Path, machine: Machine
) -> None:
    """Journal, work tree and refs are equal: notes, pins, safety checkpoints and conversations."""
    owner = Owner(tmp_path / "old", bare)
    owner.engine.close()
    access = EngineAccess(owner.layout.root)
    await access.begin()
    owner.engine = access.engine
    owner.write("folder/a.txt", "first")
    owner.write("run.sh", "#!/bin/sh\n")
    (owner.layout.work_tree / "run.sh").chmod(0o755)
    (owner.layout.work_tree / "link").symlink_to("folder/a.txt")
    (owner.layout.work_tree / os.fsdecode(b"latin\xff")).write_text("name")
    os.mkfifo(owner.layout.work_tree / "pipe")  # A note says that it was skipped.
    first = (await access.checkpoint()).sha
    owner.write("folder/a.txt", "second")
    second = (await access.checkpoint()).sha
    owner.engine.pins.pin(Sha(first), "keep")
    owner.engine.pins.pin(Sha(second), None)
    conversation = owner.layout.agent_sessions / "s.jsonl"
    conversation.parent.mkdir()
    conversation.write_text("{}\n")
    owner.engine.sessions.save({"sessions/s/s.jsonl": conversation}, beyond=0)
    owner.write("folder/a.txt", "unsaved")
    await access.rollback(first)
    assert owner.push(released=True)
    new = machine.resume()
    assert new.journal.read_bytes() == owner.layout.journal.read_bytes()
    assert refs(new) == refs(owner.layout)
    assert tree(new.work_tree) == tree(owner.layout.work_tree)
    assert os.readlink(new.work_tree / "link") == "folder/a.txt"
    assert (new.work_tree / "run.sh").stat().st_mode & 0o777 == 0o755
    named = refs(new)[1].keys()
    assert {NOTES_REF, MEMORY_REF, PINS + first, PINS + second} <= named
    assert any(name.startswith(SAFETY) for name in named)
    GitWitness(new.root).assert_sound()
    await access.end()
    again = EngineAccess(new.root)
    await again.begin()
    assert again.engine.head() == first
    assert (await again.rollback(second)).touched == {"folder/a.txt"}
    assert again.engine.pins.all().keys() == {first, second}
    await again.end()


def test_an_execution_without_a_checkpoint_is_restored(
    tmp_path: Path, bare: Path, machine: Machine
) -> None:
    """Its HEAD is unborn."""
    owner = Owner(tmp_path / "old", bare)
    with closing(owner.engine):
        owner.push(released=True)

    new = machine.resume()
    assert refs(new) == refs(owner.layout) == ("ref: refs/heads/main\n", {})
    assert list(new.work_tree.iterdir()) == []
    GitWitness(new.root).assert_sound()


def test_lease_and_journal_are_not_in_the_shadow_repository(owner: Owner, machine: Machine) -> None:
    """The repository that is pushed from has them, and borrows everything else."""
    owner.push(released=True)
    new = machine.resume()

    def count(repository: Path) -> int:
        command = ("git", "-C", repository, "cat-file", "--batch-all-objects", "--batch-check")
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return sum(line.split()[1] == "commit" for line in done.stdout.splitlines())

    assert count(new.shadow_repository) == 1
    remote = Remote(str(machine.bare), repository_of(new), os.environ)
    assert remote.fetch(WITHIN) == in_remote(machine.bare)


def test_the_archive_is_restored(owner: Owner, machine: Machine) -> None:
    """Files keep their permission to be executed; links stay links."""
    archive = owner.layout.rig_archive
    (archive / "two").mkdir(parents=True)
    (archive / "two" / "run.sh").write_text("#!/bin/sh\n")
    (archive / "two" / "run.sh").chmod(0o700)
    (archive / "link").symlink_to("two/run.sh")
    owner.push(released=True)
    new = machine.resume()
    assert tree(new.rig_archive) == tree(archive)
    assert os.readlink(new.rig_archive / "link") == "two/run.sh"
    assert (new.rig_archive / "two" / "run.sh").stat().st_mode & 0o100


def test_the_archive_is_stored_again_only_if_it_changed(
    owner: Owner, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are not read for each push."""
    stored: list[set[str]] = []
    store = MirrorRepository.store

    def counted(repository: MirrorRepository, files: Mapping[str, Path]) -> Sha:
        stored.append(set(files))
        return store(repository, files)

    monkeypatch.setattr(MirrorRepository, "store", counted)
    owner.layout.rig_archive.mkdir()
    owner.push()
    (owner.layout.rig_archive / "a").write_text("a")
    owner.push()
    owner.push()
    (owner.layout.rig_archive / "b").write_text("b")
    owner.push(released=True)
    assert stored == [{"a"}, {"a", "b"}]
    assert tree(machine.resume().rig_archive) == {"a": b"a", "b": b"b"}


def test_a_project_that_was_served_in_place_becomes_an_execution(
    tmp_path: Path, bare: Path, machine: Machine
) -> None:
    """Its files are in a work tree of their own there."""
    owner = Owner(tmp_path / "project", bare, in_place=True)
    with closing(owner.engine):
        owner.write("a.txt", "a")
        owner.checkpoint(1)
        owner.push(released=True)

    new = machine.resume()
    assert (new.work_tree / "a.txt").read_text() == "a"
    assert not data_source.layout_of(new.root).is_in_place
    assert refs(new) == refs(owner.layout)
    GitWitness(new.root).assert_sound()


def test_a_managed_name_is_found_again_by_the_data(
    owner: Owner, tmp_path: Path, bare: Path, clock: HandClock
) -> None:
    """Without a directory, the execution goes to the folder of executions."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows.csv").write_text("1\n")
    with_data(owner, tmp_path / "data")
    owner.push(released=True)
    root = tmp_path / "executions"
    new = resume(ResumeOptions(str(bare), root), clock, nap=clock.nap)
    assert list(root.iterdir()) == [new]
    assert data_source.find_execution(root, data_source.data_hash(tmp_path / "data")) == new


# --- hank -----------------------------------------------------------------------------------------


def test_the_hank_and_what_it_names_are_restored(
    owner: Owner, tmp_path: Path, machine: Machine
) -> None:
    """The metadata name it, so `run` finds it."""
    folder = tmp_path / "hank"
    (folder / "prompts").mkdir(parents=True)
    (folder / "prompts" / "a.md").write_text("Do it.")
    (folder / "unused.md").write_text("mine")
    write_hank(folder, codon("one", promptFile="prompts/a.md")).rename(folder / "my.json")
    owner.meta = msgspec.structs.replace(owner.meta, hank_path=str(folder / "my.json"))
    stored = store_hank(owner.repository, folder / "my.json", lambda _content: False)
    assert stored is not None
    owner.folders["hank"] = stored
    owner.push(released=True)
    new = machine.resume()
    meta = data_source.read_meta(new)
    assert meta.hank_path == str(new.state_directory / "hank" / "my.json")
    assert tree(new.state_directory / "hank").keys() == {"my.json", "prompts/a.md"}


def test_a_hank_with_a_secret_is_not_stored(owner: Owner, tmp_path: Path) -> None:
    """The secret may be in any of its files."""
    folder = tmp_path / "hank"
    hank = write_hank(folder, codon("one", promptFile="a.md"))
    (folder / "a.md").write_text("The key is 123.")
    assert store_hank(owner.repository, hank, lambda content: b"123" in content) is None


def test_a_hank_that_the_mirror_does_not_have_must_be_named(
    owner: Owner, tmp_path: Path, machine: Machine
) -> None:
    """That is so if it may have a secret."""
    hank = write_hank(tmp_path / "hank", codon("one"))
    owner.meta = msgspec.structs.replace(owner.meta, hank_path="/elsewhere/hank.json")
    owner.push(released=True)
    stop = machine.refused()
    assert (stop.exit_code, stop.hint) == (
        ExitCode.NO_INPUT,
        f"Name it: `hankweave resume {machine.bare} HANK`.",
    )
    meta = data_source.read_meta(machine.resume(hank=hank))
    assert meta.hank_path == str(hank)


# --- data -----------------------------------------------------------------------------------------


def with_data(owner: Owner, path: Path) -> None:
    """Give an execution data, as a start does."""
    data_source.link_data(owner.layout, path, copy=False)
    owner.meta = msgspec.structs.replace(
        owner.meta,
        link_type="symlink",
        read_only_source_data_path=path.name,
        read_only_source_resolved_data_path=str(path),
        data_hash=data_source.data_hash(path),
    )
    data_source.write_meta(owner.layout, owner.meta)
    owner.data_hash = hash_of_data(owner.layout)


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_equal_data_elsewhere_are_used(
    owner: Owner, tmp_path: Path, machine: Machine, kind: str
) -> None:
    """Only names and contents must be equal, not times."""
    for place in ("data", "elsewhere"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "rows.csv").write_text("1\n")
        os.utime(tmp_path / place / "rows.csv", (len(place), 1))

    name = "" if kind == "folder" else "rows.csv"
    with_data(owner, tmp_path / "data" / name)
    owner.push(released=True)
    shutil.rmtree(tmp_path / "data")
    stop = machine.refused()
    assert (stop.exit_code, stop.hint) == (ExitCode.NO_INPUT, "Name them with --data PATH.")
    new = machine.resume(data=tmp_path / "elsewhere" / name)
    assert (new.data_source / "rows.csv").read_text() == "1\n"
    meta = data_source.read_meta(new)
    assert meta.data_hash == data_source.data_hash(tmp_path / "elsewhere" / name)


def test_other_data_are_refused_unless_forced(
    owner: Owner, tmp_path: Path, machine: Machine
) -> None:
    """The message has both hashes."""
    (tmp_path / "data.csv").write_text("1\n")
    with_data(owner, tmp_path / "data.csv")
    owner.push(released=True)
    (tmp_path / "data.csv").write_text("2\n")
    stop = machine.refused()
    assert stop.exit_code is ExitCode.USAGE
    assert owner.data_hash is not None
    for digest in (owner.data_hash, data_source.content_hash(tmp_path / "data.csv")):
        assert digest[:12] in stop.message

    new = machine.resume(is_forced=True)
    assert (new.data_source / "data.csv").read_text() == "2\n"


@pytest.mark.parametrize("name", ["", "rows.csv"])
def test_data_in_the_mirror_are_restored(
    tmp_path: Path, owner: Owner, machine: Machine, name: str
) -> None:
    """A folder, or a single file; the machine needs no data of its own."""
    (tmp_path / "data" / "below").mkdir(parents=True)
    (tmp_path / "data" / "rows.csv").write_text("1\n")
    (tmp_path / "data" / "below" / "more.csv").write_text("2\n")
    with_data(owner, tmp_path / "data" / name)
    push_with_data(owner)
    shutil.rmtree(tmp_path / "data")
    new = machine.resume()
    assert (new.data_source / "rows.csv").read_text() == "1\n"
    assert (new.data_source / "below" / "more.csv").exists() == (not name)
    meta = data_source.read_meta(new)
    assert meta.link_type == "copy"


def test_an_empty_folder_of_data_is_restored(
    tmp_path: Path, owner: Owner, machine: Machine
) -> None:
    """Git stores no empty folder."""
    (tmp_path / "data").mkdir()
    with_data(owner, tmp_path / "data")
    push_with_data(owner)
    assert list(machine.resume().data_source.iterdir()) == []


def test_an_execution_without_data_has_none_for_the_mirror(owner: Owner) -> None:
    """There is nothing to store, which is not the same as an empty folder."""
    assert files_of_data(owner.layout) is None


def test_data_too_large_to_be_hashed_are_compared_from_outside(
    owner: Owner, tmp_path: Path, machine: Machine
) -> None:
    """Names, sizes and times must be equal then."""
    (tmp_path / "data.csv").write_text("1\n")
    with_data(owner, tmp_path / "data.csv")
    owner.data_hash = None
    owner.push(released=True)
    status = (tmp_path / "data.csv").stat()
    os.utime(tmp_path / "data.csv", (1, 1))
    assert machine.refused().exit_code is ExitCode.USAGE
    os.utime(tmp_path / "data.csv", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (machine.resume().data_source / "data.csv").exists()


# --- the lease ------------------------------------------------------------------------------------


def test_a_released_lease_is_taken_at_once(
    owner: Owner, machine: Machine, clock: HandClock
) -> None:
    """The new record says that the lease is its own, and keeps how the mirror is written."""
    owner.push(released=True)
    new = machine.resume(takes_over=True)
    assert clock.naps == 0
    record = read_record(new)
    assert record is not None
    lease = MirrorRepository(repository_of(new), None).lease(Sha(in_remote(machine.bare)))
    assert (lease.epoch, lease.released, lease.owner) == (2, False, owner_of(new))
    assert (lease.journal_bytes, lease.last_event_seq) == (sum(map(len, LINES)), len(LINES))
    assert (record.nonces, record.place) == ((lease.nonce,), place_of(new))
    assert (record.mode, record.execution_id) == (owner.record.mode, owner.record.execution_id)
    assert not owner.push()


def test_a_lease_that_is_not_renewed_is_taken_when_its_time_is_over(
    owner: Owner, machine: Machine, clock: HandClock
) -> None:
    """A person reads whom it waits for, and how long it still takes."""
    owner.push()
    began = clock.seconds
    machine.resume()
    assert clock.seconds - began == WAIT
    assert machine.output[0] == (
        f"nas:/old has the lease of {machine.bare}. Waiting {WAIT:.0f} s to see whether it is "
        "renewed."
    )
    assert machine.output[1:] == [f"{left} s left." for left in (28, 23, 18, 13, 8, 3)]
    assert not owner.push()


@pytest.mark.parametrize("nap", [1, 7])
def test_a_lease_that_is_renewed_is_refused(
    owner: Owner, machine: Machine, clock: HandClock, nap: int
) -> None:
    """Up to the last look; the message names the owner, and a way to take the execution."""
    owner.push()
    clock.meanwhile[nap] = owner.push
    stop = machine.refused()
    assert stop.exit_code is ExitCode.LOCK_HELD
    assert stop.message.startswith(f"nas:/old has the lease of {machine.bare}, and renewed it ")
    assert stop.hint is not None
    assert f"`hankweave resume {machine.bare} --take-over`" in stop.hint
    assert owner.push()


def test_a_lease_that_is_released_meanwhile_is_taken_with_what_came_last(
    owner: Owner, machine: Machine, clock: HandClock
) -> None:
    """The wait ends then."""
    owner.push()

    def end() -> None:
        owner.write("a.txt", "last")
        owner.checkpoint(2)
        owner.push(released=True)

    clock.meanwhile[2] = end
    assert (machine.resume().work_tree / "a.txt").read_text() == "last"
    assert clock.naps == 2


def test_a_take_over_fences_the_owner_first_and_starts_when_its_agent_has_stopped(
    owner: Owner, machine: Machine, clock: HandClock
) -> None:
    """During the whole wait, it cannot push, and the execution is not published."""
    owner.push()
    found: list[tuple[bool, bool]] = []
    clock.meanwhile[1] = lambda: found.append((owner.push(), (machine.folder / "new").exists()))
    began = clock.seconds
    assert machine.resume(takes_over=True).root.exists()
    assert found == [(False, False)]
    assert clock.seconds - began == WAIT
    assert machine.output[0] == (
        f"The lease is taken. Waiting {WAIT:.0f} s for nas:/old to stop its agent."
    )


class Before:
    """Something that happens before the first push of a machine that resumes."""

    def __init__(self, patch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
        self._happens: list[Callable[[], object]] = [happens]
        push = Remote.push

        def after(remote: Remote, new: Sha, expected: Sha | None, within: float) -> Pushed:
            while self._happens:
                self._happens.pop()()

            return push(remote, new, expected, within)

        patch.setattr(Remote, "push", after)


def test_a_take_over_has_what_the_owner_pushes_until_then(
    owner: Owner, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last push before the lease is taken counts."""
    owner.push()

    def go_on() -> None:
        owner.write("a.txt", "later")
        owner.checkpoint(2)
        assert owner.push()

    Before(monkeypatch, go_on)
    assert (machine.resume(takes_over=True).work_tree / "a.txt").read_text() == "later"


@pytest.mark.parametrize("takes_over", [False, True])
def test_of_two_machines_one_has_the_execution(
    owner: Owner,
    machine: Machine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    takes_over: bool,
) -> None:
    """The other one is told who has it."""
    owner.push()
    (tmp_path / "third").mkdir()
    other = Machine(tmp_path / "third", machine.bare, HandClock())
    Before(monkeypatch, lambda: other.resume(takes_over=takes_over))
    stop = machine.refused(takes_over=takes_over)
    assert stop.exit_code is ExitCode.LOCK_HELD
    assert str(other.folder / "new") in stop.message
    assert not owner.push()


def test_nothing_is_left_if_it_is_not_known_whether_the_lease_was_taken(
    owner: Owner, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can be tried again."""
    owner.push(released=True)
    with monkeypatch.context() as patch:
        unknown = Pushed("not done", None, 0, "no answer within 60 s")
        patch.setattr(Remote, "push", lambda *_: unknown)
        stop = machine.refused()

    assert stop.exit_code is ExitCode.UNAVAILABLE
    assert "no answer within 60 s" in stop.message
    assert machine.resume().root.exists()


def test_what_a_killed_resume_has_left_is_removed_by_the_next_one(
    owner: Owner, machine: Machine
) -> None:
    """That of one at work stays, and so does a file with such a name."""
    owner.push(released=True)
    left, at_work, file = (machine.folder / f"{TEMPORARY}{name}" for name in ("1", "2", "3"))
    (left / "execution" / "agentRoot" / "closed").mkdir(parents=True)
    (left / "execution" / "agentRoot" / "closed").chmod(0)
    at_work.mkdir()
    file.write_text("")
    with opened(at_work, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        new = machine.resume()

    assert sorted(machine.folder.iterdir()) == sorted((at_work, file, new.root))


# --- what is refused ------------------------------------------------------------------------------


def test_a_directory_with_anything_in_it_is_refused(owner: Owner, machine: Machine) -> None:
    """An empty one is used."""
    owner.push(released=True)
    (machine.folder / "new").mkdir()
    (machine.folder / "new" / "mine").write_text("")
    assert machine.refused().exit_code is ExitCode.USAGE
    (machine.folder / "new" / "mine").unlink()
    machine.resume()


def test_a_repository_without_a_lease_is_no_mirror(machine: Machine) -> None:
    """The message names the ref that it should have."""
    stop = machine.refused()
    assert (stop.exit_code, stop.message) == (
        ExitCode.NO_INPUT,
        f"{machine.bare} is not a mirror: it has no {LEASE_REF}.",
    )


def test_a_repository_that_is_not_there_cannot_be_reached(machine: Machine) -> None:
    """The message has git's words."""
    machine.bare.rename(machine.bare.with_name("gone"))
    stop = machine.refused()
    assert stop.exit_code is ExitCode.UNAVAILABLE
    assert "does not appear to be a git repository" in stop.message


@pytest.mark.parametrize(
    "damage",
    [
        {"state": {"../../outside": b""}},
        {"state": {"a/.git/config": b""}},
        {"refs": {"refs/../config": "HEAD"}},
        {"refs": {"config": "HEAD"}},
        {"head": "ref: refs/heads/../../config"},
    ],
)
def test_a_mirror_cannot_write_outside_of_the_execution(
    owner: Owner, machine: Machine, damage: dict[str, Any]
) -> None:
    """Whoever can write to the repository decides what an execution has, and no more."""
    owner.push(released=True)
    contents = owner.repository.contents(owner.last.sha)
    found = {"head": contents.head, "refs": dict(contents.refs), "state": dict(contents.state)}
    for name, value in damage.items():
        if name == "refs":
            value = dict.fromkeys(value, next(iter(contents.refs.values())))

        found[name] = value if isinstance(value, str) else found[name] | value

    sha = owner.repository.compose(
        contents.lease, CapturedExecution(**found), owner.last.segments, owner.folders
    )
    assert owner.remote.push(sha, owner.last.sha, WITHIN).outcome == "done"
    stop = machine.refused()
    assert stop.exit_code is ExitCode.BAD_DATA
    assert "is not the " in stop.message


# --- addresses ------------------------------------------------------------------------------------


def test_a_source_is_an_address_or_a_repository_with_a_lease(
    owner: Owner, bare: Path, tmp_path: Path
) -> None:
    """The id of a run is none, and neither is any other folder."""
    assert all(map(is_source, ("https://host/a.git", "ssh://nas/x", "nas:x.git", "me@nas:/x")))
    assert not any(
        map(is_source, (RUN, RUN[:8], "", ".", "~x", "a" * 9999, str(bare), "--mirror", "--x=a:b"))
    )
    owner.push()
    assert is_source(str(bare))
    subprocess.run(("git", "-C", bare, "pack-refs", "--all"), check=True)
    assert is_source(str(bare))


def parsed(*words: str) -> click.Context:
    return sessions.resume.make_context("resume", list(words))


def test_the_options_of_run_may_stand_anywhere() -> None:
    """The address is found among them."""
    context = parsed("--port", "0", "--take-over", "nas:/x.git", "-e", "new", "--headless", "hank")
    given = context.params
    assert (given["address"], given["hank"]) == ("nas:/x.git", Path("hank"))
    assert (given["port"], given["take_over"], given["headless"]) == (0, True, True)
    assert given["execution"] == Path("new")


def test_options_that_choose_another_execution_are_refused() -> None:
    """So is an address with a password, which would be stored."""
    for words in (("--workspace", "w"), ("--new",), ("--mirror", "nas:/y")):
        with pytest.raises(click.NoSuchOption):
            parsed("nas:/x.git", *words)

    with pytest.raises(click.BadParameter, match="password"):
        parsed("https://me:secret@host/x.git")


def test_a_run_is_resumed_as_ever(tmp_path: Path) -> None:
    """Its options are the same, and the options of `run` are unknown."""
    assert parsed("17952849", "-e", str(tmp_path)).params["session_id"] == "17952849"
    with pytest.raises(click.NoSuchOption):
        parsed("17952849", "--port", "0")
