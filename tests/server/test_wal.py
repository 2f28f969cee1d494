"""The write-ahead log: all or nothing after a power cut, and no replay undoes what came later."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hankweave_server import fsutil, wal
from hankweave_server.wal import HALF, LIMIT, StagedFile, Tail, WriteAheadLog
from support import waiting
from support.calls import failing, noted


class Store:
    """A directory with a log beside it, and the power cuts that it suffers."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "store"
        self.path = folder / "wal"
        self.root.mkdir()
        self.log, _ = WriteAheadLog.open(self.path, {"store": self.root})

    def staged(self, name: str, content: bytes) -> StagedFile:
        temporary = self.root / f"tmp_{name.replace('/', '_')}"
        temporary.write_bytes(content)
        return StagedFile(temporary, self.root / name)

    def publish(self, objects: dict[str, bytes], others: dict[str, bytes] | None = None) -> None:
        self.log.publish(
            [self.staged(name, content) for name, content in objects.items()],
            [self.staged(name, content) for name, content in (others or {}).items()],
        )

    def content(self) -> dict[str, bytes]:
        files = (path for path in self.root.rglob("*") if path.is_file())
        return {str(path.relative_to(self.root)): path.read_bytes() for path in files}

    def lose(self, *names: str) -> None:
        """Take from the disk what a power cut can take: files that were never flushed."""
        for name in names:
            (self.root / name).unlink()

    def restart(self) -> tuple[str, ...]:
        self.log, repaired = WriteAheadLog.open(self.path, {"store": self.root})
        return repaired


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path)
    yield made
    with contextlib.suppress(OSError):
        made.log.close()


def test_what_was_published_comes_back_after_a_power_cut(store: Store) -> None:
    """Objects and refs are written again, also those that were left empty or full of zeros."""
    store.publish({"ab/1": b"one"}, {"refs/main": b"1"})
    store.publish({"cd/2": b"two"}, {"refs/main": b"2", "refs/side": b"3", "HEAD": b"4"})
    before = store.content()
    store.lose("ab/1", "refs/main")
    for name in ("cd/2", "HEAD"):
        (store.root / name).write_bytes(b"")

    (store.root / "refs/side").write_bytes(b"\0")
    assert sorted(store.restart()) == ["1", "2", "HEAD", "main", "side"]
    assert store.content() == before
    assert not store.path.exists(), "nothing is left to replay"


def test_one_flush_makes_all_files_of_a_call_durable(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many they are; the first call also creates the log."""
    store.publish({"first": b""})
    flushed = noted(monkeypatch, os, "fdatasync")
    monkeypatch.setattr(os, "fsync", lambda each: pytest.fail("another flush"))
    monkeypatch.setattr(fsutil, "sync_filesystem", lambda each: pytest.fail("another flush"))

    store.publish({f"{number}": b"x" for number in range(50)}, {"ref": b"y"})
    monkeypatch.undo()

    assert len(flushed) == 1


def test_the_next_lines_of_a_journal_share_the_flush(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut the journal has them, whatever part of it was written: nothing, a torn
    part, zeros, or all of it with more behind."""
    journal = store.root / "events"
    journal.write_bytes(b"1\n2\n")
    store.publish({"first": b""})
    flushed = noted(monkeypatch, os, "fdatasync")
    store.log.publish([store.staged("ab/1", b"one")], tail=Tail(journal, 4, b"3\n4\n"))
    monkeypatch.undo()
    assert len(flushed) == 1

    log = store.path.read_bytes()
    for rest, expected in (
        (b"", b"3\n4\n"),
        (b"3\n", b"3\n4\n"),
        (b"3\n\0\0", b"3\n4\n"),
        (b"\0\0\0\0", b"3\n4\n"),
        (b"3\n4\n5\n", b"3\n4\n5\n"),
        (b"another server's line\n", b"another server's line\n"),
    ):
        journal.write_bytes(b"1\n2\n" + rest)
        store.path.write_bytes(log)
        assert ("events" in store.restart()) == (rest != expected)
        assert journal.read_bytes() == b"1\n2\n" + expected

    journal.write_bytes(b"1\n")
    store.path.write_bytes(log)
    store.restart()
    assert journal.read_bytes() == b"1\n", "not even the lines before them are there"


@pytest.mark.parametrize("is_settled", [True, False], ids=["settled", "turned over"])
def test_lines_that_are_not_written_yet_stay_in_the_log(store: Store, *, is_settled: bool) -> None:
    """A record that holds them is not given up before the journal has them."""
    journal = store.root / "events"
    journal.write_bytes(b"1\n")
    store.log.publish([], [store.staged("ref", b"1")], tail=Tail(journal, 2, b"2\n"))
    for number in range(1 if is_settled else 6):
        store.publish({f"{number}": random.Random(number).randbytes(HALF // 2 - 1000)})
        if is_settled:
            store.log.settle()

    store.restart()
    assert journal.read_bytes() == b"1\n2\n"


def test_lines_that_are_partly_written_stay_in_the_log(store: Store) -> None:
    """A journal that has the first of several lines does not have the others."""
    journal = store.root / "events"
    journal.write_bytes(b"1\n")
    store.log.publish([], [store.staged("ref", b"1")], tail=Tail(journal, 2, b"2\n3\n"))
    journal.write_bytes(b"1\n2\n")
    store.log.settle()

    store.restart()
    assert journal.read_bytes() == b"1\n2\n3\n"


def test_a_torn_record_counts_as_not_written(store: Store) -> None:
    """Cut anywhere, the log holds all files of the last call or none of them."""
    store.publish({"one": b"1"}, {"ref": b"1"})
    end = _end_of(store.path)
    store.publish({"two": b"2" * 40}, {"ref": b"2"})
    whole = store.path.read_bytes()
    final = _end_of(store.path)

    for cut in range(end, final):
        store.path.write_bytes(whole[:cut] + bytes(len(whole) - cut))
        for path in list(store.root.rglob("*")):
            path.unlink()

        store.restart()
        assert store.content() == {"one": b"1", "ref": b"1"}

    store.path.write_bytes(whole)
    store.restart()
    assert store.content() == {"one": b"1", "two": b"2" * 40, "ref": b"2"}


def test_a_replay_undoes_nothing_that_came_later(store: Store) -> None:
    """A ref that another program, or an older version of the server, has moved stays there."""
    store.publish({}, {"ref": b"1"})
    store.publish({}, {"ref": b"2", "other": b"3"})
    (store.root / "ref").write_bytes(b"moved by git")

    assert store.restart() == ()
    assert store.content() == {"ref": b"moved by git", "other": b"3"}


def test_a_ref_that_a_power_cut_moved_back_moves_on_again(store: Store) -> None:
    """Each value that the log has held is one of its own."""
    store.publish({}, {"ref": b"0"})
    store.log.settle()
    store.publish({}, {"ref": b"1"})
    store.publish({}, {"ref": b"2"})
    (store.root / "ref").write_bytes(b"0")

    assert store.restart() == ("ref",)
    assert store.content() == {"ref": b"2"}


def test_what_was_removed_after_settling_stays_removed(store: Store) -> None:
    """gc settles first: its work is not undone."""
    store.publish({"garbage": b"1"})
    store.log.settle()
    store.lose("garbage")
    store.publish({"kept": b"2"})

    assert store.restart() == ()
    assert store.content() == {"kept": b"2"}


def test_an_orderly_end_leaves_no_log(store: Store) -> None:
    """The files are durable themselves, and an older version can open the store."""
    store.publish({"one": b"1"})
    store.log.close()
    assert not store.path.exists()
    assert store.content() == {"one": b"1"}


def test_long_content_is_flushed_itself(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log holds the refs alone, and the content is durable before they are."""
    order: list[str] = []
    real = wal.flush_and_rename
    monkeypatch.setattr(wal, "flush_and_rename", lambda files: (order.append("files"), real(files)))
    append = WriteAheadLog._append
    monkeypatch.setattr(
        WriteAheadLog, "_append", lambda *words: (order.append("record"), append(*words))
    )
    store.publish({"long": bytes(LIMIT + 1)}, {"ref": b"1"})
    monkeypatch.undo()

    assert order == ["files", "record"]
    store.lose("ref")
    assert store.restart() == ("ref",)


def test_a_log_that_was_filled_many_times_replays_what_is_needed(store: Store) -> None:
    """Halves take turns; what the disk already holds may be overwritten, the rest never is."""
    chance = random.Random(7)
    for number in range(12):
        store.publish({f"{number}": chance.randbytes(HALF // 3)}, {"ref": b"%d" % number})

    before = store.content()
    kept = {
        os.fsdecode(image.name) for each in wal.read_records(store.path) for image in each.images
    }
    assert "11" in kept
    assert len(kept) <= 8, "the oldest ones are durable themselves"
    for name in kept:
        store.lose(name)

    store.restart()
    assert store.content() == before


def test_a_half_is_needed_until_its_files_are_durable_themselves(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut during the flush in the background loses no file of that half."""
    is_flushing, may_end = threading.Event(), threading.Event()

    def slow(_: object) -> None:
        is_flushing.set()
        assert may_end.wait(waiting.LIMIT)

    monkeypatch.setattr(wal, "_sync", slow)
    for number in range(3):
        store.publish({f"{number}": random.Random(number).randbytes(HALF // 2 - 1000)})

    assert is_flushing.wait(waiting.LIMIT)
    store.publish({"last": b"1"})
    log, before = store.path.read_bytes(), store.content()
    may_end.set()
    store.log.settle()

    store.path.write_bytes(log)
    store.lose("0", "1")
    store.restart()
    assert store.content() == before


def test_a_file_that_was_removed_stays_removed_once_the_log_is_flushed(store: Store) -> None:
    """Removing an intent takes no flush; the record says that it is gone."""
    store.publish({}, {"intent": b"A"})
    store.log.remove(store.root / "intent", b"A")
    assert store.content() == {}
    store.publish({"later": b"1"})
    (store.root / "intent").write_bytes(b"A")  # The power cut undid the unflushed removal.

    assert store.restart() == ("intent",)
    assert store.content() == {"later": b"1"}


def test_a_file_whose_removal_was_lost_comes_back_whole(store: Store) -> None:
    """Its reader has to judge it; never does it come back instead of a later one."""
    store.publish({}, {"intent": b"A"})
    end = _end_of(store.path)
    store.log.remove(store.root / "intent", b"A")
    whole = store.path.read_bytes()
    store.path.write_bytes(whole[:end] + bytes(len(whole) - end))

    assert store.restart() == ("intent",)
    assert store.content() == {"intent": b"A"}


def test_a_removal_leaves_what_has_come_since(store: Store) -> None:
    """A later file under the name stays, and so does one that the log does not know."""
    store.publish({}, {"intent": b"A"})
    store.publish({}, {"intent": b"B"})
    store.log.remove(store.root / "intent", b"A")
    assert store.content() == {"intent": b"B"}
    store.log.remove(store.root / "intent", b"B")
    (store.root / "intent").write_bytes(b"by somebody else")

    assert store.restart() == ()
    assert store.content() == {"intent": b"by somebody else"}


def test_a_removal_takes_no_flush(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """An intent goes when its rollback is over, and nobody waits for the disk."""
    store.publish({}, {"intent": b"A"})
    for module, name in ((os, "fdatasync"), (os, "fsync"), (fsutil, "sync_filesystem")):
        monkeypatch.setattr(module, name, lambda _: pytest.fail("a flush"))

    store.log.remove(store.root / "intent", b"A")
    monkeypatch.undo()
    assert store.content() == {}


def test_files_of_two_folders_are_published_together(store: Store, tmp_path: Path) -> None:
    """A safety checkpoint and the intent of the rollback: both survive, or neither does."""
    state = tmp_path / "state"
    state.mkdir()
    roots = {"store": store.root, "state": state}
    log, _ = WriteAheadLog.open(store.path, roots)
    (state / "intent.tmp").write_bytes(b"A")
    log.publish(
        [store.staged("object", b"1")], [StagedFile(state / "intent.tmp", state / "intent")]
    )
    store.lose("object")
    (state / "intent").unlink()

    _, repaired = WriteAheadLog.open(store.path, roots)
    assert sorted(repaired) == ["intent", "object"]
    assert (state / "intent").read_bytes() == b"A"
    assert store.content() == {"object": b"1"}


def test_one_flush_takes_other_files_along(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file system of the log is flushed once, before the file gets its name."""
    store.publish({"first": b""})
    flushed: list[Path] = []
    real = fsutil.sync_filesystem

    def sync(path: Path) -> None:
        flushed.append(path)
        assert not (store.root / "HEAD").exists()
        real(path)

    monkeypatch.setattr(fsutil, "sync_filesystem", sync)
    monkeypatch.setattr(os, "fdatasync", lambda _: pytest.fail("another flush"))
    store.log.publish([], [store.staged("HEAD", b"1")], flush_also=store.root)
    monkeypatch.undo()

    assert flushed == [store.root]
    store.lose("HEAD")
    assert store.restart() == ("HEAD",)


def test_a_log_on_another_file_system_is_flushed_by_itself(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = Path("/dev/shm")
    if not elsewhere.is_dir() or elsewhere.stat().st_dev == store.root.stat().st_dev:
        pytest.skip("there is only one file system")

    store.publish({"first": b""})
    flushed: list[str] = []
    real = os.fdatasync
    monkeypatch.setattr(fsutil, "sync_filesystem", lambda _: flushed.append("files"))
    monkeypatch.setattr(os, "fdatasync", lambda each: (flushed.append("log"), real(each)))
    store.log.publish([], [store.staged("HEAD", b"1")], flush_also=elsewhere)
    monkeypatch.undo()

    assert flushed == ["files", "log"]


def test_a_long_file_that_may_change_is_flushed_itself(store: Store) -> None:
    """No older version of it is replayed: the intent of a rollback may list any number of edits."""
    store.publish({}, {"intent": b"A"})
    store.publish({"object": b"1"}, {"intent": bytes(LIMIT + 1)})
    store.lose("intent")

    assert store.restart() == ()
    assert store.content() == {"object": b"1"}


def test_many_threads_may_publish(store: Store) -> None:
    """Each record is whole, and all of them are replayed."""

    def work(number: int) -> None:
        for turn in range(20):
            store.publish({f"{number}-{turn}": b"x" * 100}, {f"ref-{number}": b"%d" % turn})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    before = store.content()
    assert len(before) == 105
    for name in before:
        store.lose(name)

    assert len(store.restart()) == 105
    assert store.content() == before


def test_after_a_failed_flush_nothing_is_renamed_and_the_log_is_not_continued(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may have dropped the pages: what the file holds is unknown."""
    store.publish({"one": b"1"})
    monkeypatch.setattr(os, "fdatasync", failing(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        store.publish({"two": b"2"})

    monkeypatch.undo()
    with pytest.raises(OSError, match="write-ahead log failed"):
        store.publish({"three": b"3"})

    assert set(store.content()) == {"one", "tmp_two", "tmp_three"}


def _end_of(path: Path) -> int:
    records = list(wal._records_in(path.read_bytes()[:HALF]))
    return sum(wal._HEADER.size + len(wal._encode(record.images)) for record in records)


@pytest.mark.parametrize("at", range(4))
def test_a_failed_call_has_no_effect_after_a_restart_either(
    store: Store, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Whatever the full disk refuses, a folder or a name: files that may change stay the same."""
    store.publish({}, {"refs/main": b"1"})
    calls = []

    def refusing(call: Callable[..., object]) -> Callable[..., object]:
        def maybe(path: Path, *arguments: object, **options: object) -> object:
            calls.append(path)
            if len(calls) == at + 1:
                raise OSError(errno.ENOSPC, "no space")

            return call(path, *arguments, **options)

        return maybe

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", refusing(Path.rename))
        patch.setattr(Path, "mkdir", refusing(Path.mkdir))
        with pytest.raises(OSError, match="no space"):
            store.publish({"ab/object": b"new"}, {"refs/main": b"2", "intent": b"new"})

    for left in store.root.glob("tmp_*"):
        left.unlink()

    def others() -> dict[str, bytes]:
        return {name: content for name, content in store.content().items() if "object" not in name}

    assert others() == {"refs/main": b"1"}
    store.restart()
    assert others() == {"refs/main": b"1"}
    store.publish({}, {"refs/main": b"3"})
    store.restart()
    assert others() == {"refs/main": b"3"}
