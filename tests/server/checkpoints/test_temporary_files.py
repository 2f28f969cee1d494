"""Reuse of displaced files: other users of a file see no change, and no file is left over."""

from __future__ import annotations

import fcntl
import mmap
import os
import stat

import pytest

from hankweave_server.checkpoints.model import Skipped
from hankweave_server.worktree import tree_writer

FILES = 40


def two_checkpoints(lab, size: int = 3000):
    """Return the older of two checkpoints that differ in every file, and its picture."""
    for number in range(FILES):
        lab.write(f"d{number % 4}/f{number:02}", f"{number} one\n" * (size // 8 + number))

    made = lab.checkpoint()
    then = lab.picture()
    for number in range(FILES):
        lab.write(f"d{number % 4}/f{number:02}", f"{number} two\n" * (size // 8 + number + 1))

    return made, then


def inodes(lab) -> set[int]:
    return {os.stat(lab.path(f"d{n % 4}/f{n:02}")).st_ino for n in range(FILES)}


def test_files_are_made_of_those_they_replace(lab):
    """A restore of many files creates few inodes, and leaves no temporary file."""
    made, then = two_checkpoints(lab)
    before = inodes(lab)

    lab.rollback(made.sha)

    assert lab.picture() == then
    assert len(inodes(lab) & before) > FILES - 2 * tree_writer.KEPT
    assert not [name for name in os.listdir(lab.tree) if name.startswith(".hankweave.")]


def test_a_process_that_has_an_old_file_keeps_it(lab):
    """Open files, mappings and hard links keep the old content."""
    made, then = two_checkpoints(lab)
    old = {number: lab.read(f"d{number % 4}/f{number:02}") for number in range(FILES)}
    opened = {n: open(lab.path(f"d{n % 4}/f{n:02}"), "rb") for n in range(0, FILES, 4)}  # noqa: SIM115
    mapped = {}
    for n in range(1, FILES, 4):
        with open(lab.path(f"d{n % 4}/f{n:02}"), "rb") as stream:
            mapped[n] = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)

    for n in range(2, FILES, 4):
        os.link(lab.path(f"d{n % 4}/f{n:02}"), lab.tree.parent / f"link{n}")

    lab.rollback(made.sha)

    assert lab.picture() == then
    assert all(stream.read() == old[n] for n, stream in opened.items())
    assert all(bytes(mapping) == old[n] for n, mapping in mapped.items())
    assert all((lab.tree.parent / f"link{n}").read_bytes() == old[n] for n in range(2, FILES, 4))
    for held in (*opened.values(), *mapped.values()):
        held.close()


def test_attributes_of_a_replaced_file_stay_with_its_path(lab):
    """Extended attributes of a replaced file stay with its path, and appear on no other file."""
    made, _ = two_checkpoints(lab)
    for number in range(FILES):
        try:
            os.setxattr(lab.path(f"d{number % 4}/f{number:02}"), "user.mark", b"%d" % number)
        except OSError:
            pytest.skip("no attributes on this disk")

    lab.rollback(made.sha)

    for number in range(FILES):
        restored = lab.path(f"d{number % 4}/f{number:02}")
        assert os.listxattr(restored) == ["user.mark"]
        assert os.getxattr(restored, "user.mark") == b"%d" % number


def test_permissions_and_times_are_its_own(lab):
    """A restored file, empty or not, has its own permissions and the time of the restore."""
    contents = [b"", b"x" * 5000, b"", b"y"]
    for number, content in enumerate(contents):
        lab.write(f"f{number}", content, 0o600 if number % 2 else 0o755)

    made = lab.checkpoint()
    for number in range(len(contents)):
        lab.write(f"f{number}", b"other" * number * 1000, 0o644)
        os.utime(lab.path(f"f{number}"), (1000, 1000))

    lab.rollback(made.sha)

    for number, content in enumerate(contents):
        status = os.stat(lab.path(f"f{number}"))
        assert lab.read(f"f{number}") == content
        assert stat.S_IMODE(status.st_mode) == (0o600 if number % 2 else 0o755)
        assert status.st_mtime > 1000


def test_an_edit_in_the_last_moment_is_put_back(lab, monkeypatch):
    """A file edited between the check and the exchange stays, and the restore reports it."""
    made, _ = two_checkpoints(lab)
    safety = lab.checkpoint(kind="safety", codon=None)
    real = tree_writer.write_sparsely
    edited = []

    def write(descriptor, content, size):
        real(descriptor, content, size)
        if not edited:
            edited.append(lab.path("d0/f00"))
            lab.write("d0/f00", "in the last moment")

    monkeypatch.setattr(tree_writer, "write_sparsely", write)

    report = lab.engine.restore(made.sha, safety.sha)

    assert report.unrestored == (Skipped(b"d0/f00", "changed"),)
    assert lab.read("d0/f00") == b"in the last moment"
    assert lab.read("d1/f01") == b"1 one\n" * 376
    assert not [name for name in os.listdir(lab.tree) if name.startswith(".hankweave.")]


def test_a_write_that_no_time_shows_is_put_back_in_the_last_moment(lab, monkeypatch):
    """A store into a page that is dirty already moves no time; the content is compared instead."""
    lab.write("a", "1" * mmap.PAGESIZE)
    made = lab.checkpoint()
    lab.write("a", "2" * mmap.PAGESIZE)
    with (lab.tree / "a").open("r+b") as file:
        memory = mmap.mmap(file.fileno(), 0)

    memory[0] = ord("3")
    safety = lab.checkpoint(kind="safety", codon=None)
    memory[0] = ord("3")  # The checkpoint has flushed the page; now it is dirty again.
    real = tree_writer.write_sparsely

    def write(descriptor, content, size):
        real(descriptor, content, size)
        memory[0] = ord("4")

    monkeypatch.setattr(tree_writer, "write_sparsely", write)

    report = lab.engine.restore(made.sha, safety.sha)

    assert report.unrestored == (Skipped(b"a", "changed"),)
    assert lab.read("a") == b"4" + b"2" * (mmap.PAGESIZE - 1)
    memory.close()


@pytest.mark.parametrize("missing", ["exchange", "lease"])
def test_a_kernel_without_the_exchange_call_restores_as_well(lab, monkeypatch, missing):
    """Without the exchange call or leases, files are created and renamed."""
    made, then = two_checkpoints(lab)
    if missing == "exchange":
        monkeypatch.setattr(tree_writer, "_renameat2", None)
    else:

        def refused(descriptor, command, *arguments):
            raise OSError(22, "no leases")

        monkeypatch.setattr(fcntl, "fcntl", refused)

    lab.rollback(made.sha)

    assert lab.picture() == then


def test_a_crash_beside_an_exchange_is_healed(lab, monkeypatch):
    """A process that dies right before or after an exchange leaves the old or the new file."""
    made, then = two_checkpoints(lab)
    real = tree_writer._exchanged
    for point in range(6):
        for number in range(FILES):
            lab.write(f"d{number % 4}/f{number:02}", f"{number} {point}\n" * 400)

        safety = lab.checkpoint(kind="safety", codon=None)
        calls = []

        def dying(*arguments, point=point, calls=calls):
            calls.append(arguments)
            if len(calls) == 10 + point // 2 and point % 2:
                raise KeyboardInterrupt

            done = real(*arguments)
            if len(calls) == 10 + point // 2:
                raise KeyboardInterrupt

            return done

        monkeypatch.setattr(tree_writer, "_exchanged", dying)
        monkeypatch.setattr(tree_writer.TemporaryFiles, "clear", lambda self: None)
        with pytest.raises(KeyboardInterrupt):
            lab.engine.restore(made.sha, safety.sha)

        monkeypatch.undo()
        lab.reopen(forget=True)
        lab.engine.restore(made.sha, safety.sha)
        assert lab.picture() == then
        assert not [name for name in os.listdir(lab.tree) if name.startswith(".hankweave.")]
