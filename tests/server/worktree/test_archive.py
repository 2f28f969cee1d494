"""Claims about moving files between work tree and archive, and about which files a path selects."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hankweave_protocol.records import ArchiveMove
from hankweave_server.execution.post_codon import OutputNotCopied, publish_outputs
from hankweave_server.worktree import archive
from hankweave_server.worktree.archive import ArchivePlaces
from hankweave_server.worktree.names import AT_THE_TOP
from hankweave_server.worktree.patterns import choose, literally


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    return folder


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def places(tree: Path, shelf: Path) -> Iterator[ArchivePlaces]:
    with archive.both(tree, shelf, AT_THE_TOP) as opened:
        yield opened


def write(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def put(places: ArchivePlaces, *patterns: str, base: bytes = b"one") -> archive.Moved:
    """Archive as a codon's end does, without intent and manifest."""
    chosen = choose(places.tree, patterns)
    displaced, moves = archive.arranged(places.archive, base, chosen.files)
    assert not archive.displace(places.archive, displaced).failed
    moved = archive.move_to_archive(places, moves)
    archive.follow(
        places, [ArchiveMove(source=each, target=base + b"/" + each) for each in chosen.folders]
    )
    return moved


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("notes", {"notes/a", "notes/deep/b", "notes/.git/config"}),
        ("./notes/", {"notes/a", "notes/deep/b", "notes/.git/config"}),
        ("notes/*", {"notes/a"}),
        ("*.log", {"x.log", "deep/notes/y.log"}),
        ("x.{log,txt}", {"x.log"}),
        ("nothing", set()),
        ("rigArchive", set()),
        (".hankweave", set()),
        (".git", set()),
        (literally("odd[1]"), {"odd[1]"}),
    ],
)
def test_a_path_means_itself_and_a_glob_what_it_fits(
    tree: Path, places: ArchivePlaces, pattern: str, expected: set[str]
) -> None:
    """A plain path is the one at the top; a glob means the same as in trackedFiles.

    A product or repository folder at the top is never selected.
    """
    for name in ("notes/a", "notes/deep/b", "notes/.git/config", "deep/notes/y.log", "x.log"):
        write(tree / name)

    for name in (".git/config", ".hankweave/x", "rigArchive/x", "odd[1]", "odd1"):
        write(tree / name)

    assert set(map(os.fsdecode, choose(places.tree, [pattern]).files)) == expected


def test_a_folder_goes_whole_with_modes_links_and_empty_folders(
    tree: Path, shelf: Path, places: ArchivePlaces
) -> None:
    """Nothing of an archived folder stays, and its copy in the archive is identical."""
    write(tree / "src" / "run.sh").chmod(0o750)
    (tree / "src" / "link").symlink_to("../outside")
    (tree / "src" / "empty").mkdir(mode=0o700)
    os.mkfifo(tree / "src" / "pipe")
    write(tree / os.fsdecode(b"src/\xff"))
    write(tree / "stays")
    put(places, "src")
    assert os.listdir(tree) == ["stays"]
    there = shelf / "one" / "src"
    assert (there / "run.sh").stat().st_mode & 0o777 == 0o750
    assert os.readlink(there / "link") == "../outside"
    assert (there / "empty").stat().st_mode & 0o777 == 0o700
    assert (there / "pipe").is_fifo()
    assert b"\xff" in os.listdir(os.fsencode(there))


def test_no_link_is_followed(
    tmp_path: Path, tree: Path, shelf: Path, places: ArchivePlaces
) -> None:
    """The target of a link stays in place, on either side."""
    outside = write(tmp_path / "outside" / "secret")
    (tree / "src").symlink_to(outside.parent)
    put(places, "src/**")
    assert outside.exists()
    (tree / "src").unlink()
    write(tree / "src" / "a")
    (shelf / "one").mkdir()
    (shelf / "one" / "src").symlink_to(outside.parent)
    put(places, "src")
    assert os.listdir(outside.parent) == ["secret"]
    assert (shelf / "one" / "src" / "a").read_text() == "x"
    assert (shelf / "one" / "src~1").is_symlink()


@pytest.mark.parametrize(("old", "new"), [("f", "f"), ("f", "f/inner"), ("f/inner", "f")])
def test_what_is_in_the_way_in_the_archive_gets_another_name(
    tree: Path, shelf: Path, places: ArchivePlaces, old: str, new: str
) -> None:
    """The older file is kept beside the new one; Hankweave replaces it."""
    write(shelf / "one" / old, "older")
    write(tree / new, "newer")
    put(places, "f")
    found = {path.read_text() for path in (shelf / "one").rglob("*") if path.is_file()}
    assert found == {"older", "newer"}
    assert (shelf / "one" / new).read_text() == "newer"


def test_moving_twice_is_as_moving_once(tree: Path, shelf: Path, places: ArchivePlaces) -> None:
    """A start after a crash makes only the missing moves, and loses no later files."""
    for name in ("a", "b"):
        write(tree / name)

    moves = [ArchiveMove(source=name, target=b"one/" + name) for name in (b"a", b"b")]
    archive.move_to_archive(places, moves[:1])
    write(tree / "a", "made since")
    moved = archive.move_to_archive(places, moves)
    assert moved.done == moves
    assert (tree / "a").read_text() == "made since"
    assert not (tree / "b").exists()
    assert (shelf / "one" / "a").read_text() == "x"


def test_coming_back_overwrites_nothing(tree: Path, shelf: Path, places: ArchivePlaces) -> None:
    """A path that exists in the work tree stays, and so does the archived one."""
    write(shelf / "one" / "src" / "a", "archived")
    write(shelf / "one" / "src" / "b", "archived")
    write(tree / "src" / "a", "present")
    moves = [ArchiveMove(source=b"one/src/" + n, target=b"src/" + n) for n in (b"a", b"b")]
    came = archive.move_back(places, moves)
    assert came.failed == {b"one/src/a": "File exists"}
    assert (tree / "src" / "a").read_text() == "present"
    assert (tree / "src" / "b").read_text() == "archived"
    assert archive.move_back(places, moves).done == came.done, "twice is as once"
    archive.clean_up(places.archive, [b"one/src/b"], frozenset())
    assert (shelf / "one" / "src" / "a").read_text() == "archived"


def test_a_file_that_is_handed_out_is_whole_or_not_there(tree: Path, tmp_path: Path) -> None:
    """Regular files keep path and mode; links are not exported, and no link redirects a copy."""
    write(tree / "out" / "report.md", "new").chmod(0o640)
    (tree / "out" / "link").symlink_to("/etc/passwd")
    target = tmp_path / "results"
    write(target / "out" / "report.md", "a longer old one")
    assert publish_outputs(tree, AT_THE_TOP, ["out/**"], target) == (b"out/report.md",)
    assert (target / "out" / "report.md").read_text() == "new"
    assert (target / "out" / "report.md").stat().st_mode & 0o777 == 0o640
    assert os.listdir(target / "out") == ["report.md"]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "out").symlink_to(elsewhere)
    with pytest.raises(OutputNotCopied, match=r"out/report\.md"):
        publish_outputs(tree, AT_THE_TOP, ["out"], tmp_path / "other")

    assert os.listdir(elsewhere) == []


def test_a_file_in_the_way_keeps_its_name(tree: Path, tmp_path: Path) -> None:
    """As in Hankweave the copy becomes `name_<n>_<ms>.ext`; the same content is copied once."""
    target = tmp_path / "results"
    for text, names in (
        ("one", ["report.md"]),
        ("one", ["report.md"]),
        ("two", ["report.md", "report_1_17.md"]),
        ("two", ["report.md", "report_1_17.md"]),
        ("three", ["report.md", "report_1_17.md", "report_2_17.md"]),
    ):
        write(tree / "out" / "report.md", text)
        publish_outputs(tree, AT_THE_TOP, ["out/report.md"], target, overwrite=False, now_ms=17)
        assert sorted(os.listdir(target / "out")) == names

    assert (target / "out" / "report.md").read_text() == "one"
    assert (target / "out" / "report_2_17.md").read_text() == "three"


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Path]:
    """Return a folder on another file system than the tree."""
    place = Path("/dev/shm")
    if not place.is_dir() or place.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system here")

    with tempfile.TemporaryDirectory(dir=place) as name:
        yield Path(name)


def test_files_move_to_another_file_system_and_back(tree: Path, far: Path) -> None:
    """Content, mode, owner and time, and links, are the same at the other end, and only there."""
    write(tree / "notes" / "a", "first")
    os.utime(tree / "notes" / "a", ns=(1, 1_700_000_000_123_456_789))
    (tree / "notes" / "a").chmod(0o640)
    if os.geteuid() == 0:
        os.chown(tree / "notes" / "a", 12345, 54321)

    owner = (tree / "notes" / "a").stat().st_uid, (tree / "notes" / "a").stat().st_gid
    (tree / "notes" / "link").symlink_to("nowhere")
    os.mkfifo(tree / "notes" / "pipe", 0o600)
    with archive.both(tree, far / "archive", AT_THE_TOP) as places:
        moved = put(places, "notes")
        there = far / "archive" / "one" / "notes"
        assert not moved.failed
        assert not (tree / "notes").exists()
        assert {path.name for path in there.iterdir()} == {"a", "link", "pipe"}
        assert (there / "a").read_text() == "first"
        assert (there / "a").stat().st_mtime_ns == 1_700_000_000_123_456_789
        assert stat.S_IMODE((there / "a").stat().st_mode) == 0o640
        assert ((there / "a").stat().st_uid, (there / "a").stat().st_gid) == owner
        assert os.readlink(there / "link") == "nowhere"
        assert stat.S_ISFIFO((there / "pipe").stat().st_mode)

        back = [ArchiveMove(source=move.target, target=move.source) for move in moved.done]
        assert not archive.move_back(places, back).failed

    assert (tree / "notes" / "a").stat().st_mtime_ns == 1_700_000_000_123_456_789
    assert not (there / "a").exists()


@pytest.mark.parametrize("again", [archive.move_to_archive, archive.move_to_archive_again])
def test_a_copy_that_a_crash_left_beside_its_source_is_completed(
    tree: Path, far: Path, again: Callable[..., archive.Moved]
) -> None:
    """Repeating the move removes the source; a different file at the target is never touched."""
    for name in ("a", "b", "c"):
        write(tree / name, "the same")
        write(far / "archive" / "one" / name, "the same")

    shutil.copystat(tree / "a", far / "archive" / "one" / "a")
    os.utime(far / "archive" / "one" / "b", ns=(1, 1))
    write(far / "archive" / "one" / "c", "another!")
    shutil.copystat(tree / "c", far / "archive" / "one" / "c")
    with archive.both(tree, far / "archive", AT_THE_TOP) as places:
        moves = [ArchiveMove(source=name, target=b"one/" + name) for name in (b"a", b"b", b"c")]
        again(places, moves)

    assert not (tree / "a").exists()
    assert (far / "archive" / "one" / "a").read_text() == "the same"
    assert {path.name for path in tree.iterdir()} == {"b", "c"}
    assert (far / "archive" / "one" / "c").read_text() == "another!"


def test_a_file_that_changes_while_it_is_copied_stays_where_it_is(
    tree: Path, far: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write during the copy would be lost with the source."""
    write(tree / "log", "first")
    fsync = os.fsync

    def written_meanwhile(descriptor: int) -> None:
        with (tree / "log").open("a") as log:
            log.write(", second")

        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", written_meanwhile)
    with archive.both(tree, far / "archive", AT_THE_TOP) as places:
        moved = archive.move_to_archive(places, [ArchiveMove(source=b"log", target=b"log")])

    assert moved.failed == {b"log": os.strerror(errno.EBUSY)}
    assert (tree / "log").read_text().startswith("first, second")
    assert list((far / "archive").iterdir()) == []


def test_a_socket_stays_where_it_is(tree: Path, far: Path) -> None:
    """A file that cannot be copied to another file system is reported, and stays."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tree / "socket"))

    with archive.both(tree, far / "archive", AT_THE_TOP) as places:
        moved = archive.move_to_archive(places, [ArchiveMove(source=b"socket", target=b"socket")])

    assert moved.failed
    assert (tree / "socket").exists()
    assert list((far / "archive").iterdir()) == []
