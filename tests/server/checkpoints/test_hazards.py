"""Hazards of an untrusted work tree (facts on git hazards, section 6).

Those that show in the work tree alone, after one rollback, are cases of `tests/conformance`.
"""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import threading

from hankweave_server.checkpoints import file_reader
from hankweave_server.checkpoints.model import Skipped
from hankweave_server.worktree import tree_writer


def outside(lab):
    folder = lab.layout.root.parent / "outside"
    folder.mkdir()
    (folder / "f").write_text("not yours")
    return folder


# Links


def test_an_untracked_link_in_place_of_a_parent_is_saved_and_replaced(lab):
    """A link that no pattern matches is captured by the safety checkpoint before it is removed."""
    lab.write("d/f.md", "inside")
    made = lab.checkpoint("*.md")
    there = outside(lab)
    lab.delete("d")
    lab.link("d", str(there))

    lab.rollback(made.sha, patterns=("*.md",))

    assert lab.read("d/f.md") == b"inside"
    assert (there / "f").read_text() == "not yours"
    safety = next(facts.sha for facts in lab.engine.commits() if facts.kind == "safety")
    assert lab.engine.read_file(safety, b"d").data == os.fsencode(there)


def test_a_linked_folder_is_captured_as_a_link(lab):
    """Capture never follows a link, whatever the patterns or `also` say."""
    there = outside(lab)
    lab.link("d", str(there))

    made = lab.checkpoint("d", "d/f", also=frozenset({b"d/f"}))

    assert lab.names(made.sha) == {b"d"}
    assert lab.git("ls-tree", made.sha).startswith("120000 blob")


def test_a_tracked_folder_that_becomes_a_link_is_one(lab):
    """Files known below a folder count as deleted; they are not read through the new link."""
    lab.write("d/f", "inside")
    lab.checkpoint()
    there = outside(lab)
    lab.delete("d")
    lab.link("d", str(there))

    made = lab.checkpoint()

    assert lab.names(made.sha) == {b"d"}


def test_no_byte_leaves_the_tree_while_a_folder_flips_to_a_link(lab):
    """While another process swaps a folder and a link during restores, nothing outside changes."""
    there = outside(lab)
    lab.write("d/f", "one")
    first = lab.checkpoint("d")
    lab.write("d/f", "two")
    second = lab.checkpoint("d")
    lab.link("swap", str(there))
    stop = threading.Event()
    flips = threading.Thread(target=_flip, args=(lab.path("d"), lab.path("swap"), stop))
    flips.start()
    try:
        for _ in range(60):
            for target, safety in ((first, second), (second, first)):
                lab.engine.restore(target.sha, safety.sha)  # As far as possible.
    finally:
        stop.set()
        flips.join()

    assert [path.name for path in there.iterdir()] == ["f"]
    assert (there / "f").read_text() == "not yours"


def _flip(one, other, stop):
    third = one + b".third"
    while not stop.is_set():
        for source, goal in ((one, third), (other, one), (third, other)):
            try:
                os.rename(source, goal)
            except OSError:
                continue


# Names


def test_names_that_spell_git_are_never_captured(lab):
    """`.git` is skipped without a report; names that other systems equate with it are reported."""
    lab.write(".git", "gitdir: elsewhere")
    lab.write("x/.GIT/config", "evil")
    lab.write("git~1", "evil")
    lab.write(".git. ", "evil")
    lab.write(".g\u200cit", "evil")
    lab.write("good", "good")

    made = lab.checkpoint()

    assert lab.names(made.sha) == {b"good"}
    assert made.partial
    assert {item.path for item in made.skipped} == {
        b"x/.GIT",
        b"git~1",
        b".git. ",
        ".g\u200cit".encode(),
    }
    lab.assert_sound()


# Repositories inside


def nested_repository(lab, folder):
    path = lab.path(folder).decode()
    os.makedirs(path, exist_ok=True)
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    subprocess.run(["git", "init", "-q", path], check=True, env=environment)


def test_the_users_own_repository_does_not_move(in_place_lab):
    """In place, no byte below the user's `.git` changes and no file is added to the tree."""
    lab = in_place_lab
    nested_repository(lab, ".")
    lab.write("a", "1")
    (lab.tree / ".git" / "index").write_bytes(b"mine")
    before = {path: path.lstat().st_mtime_ns for path in (lab.tree / ".git").rglob("*")}
    made = lab.checkpoint()
    lab.write("a", "2")

    lab.rollback(made.sha)

    assert before == {path: path.lstat().st_mtime_ns for path in (lab.tree / ".git").rglob("*")}
    assert {path.name for path in lab.tree.iterdir()} == {".git", ".hankweave", "a"}
    assert lab.names(made.sha) == {b"a"}


def test_our_own_folders_are_never_captured(lab):
    """State, data source and rig archive are excluded, whatever the patterns say."""
    for name in ("read_only_data_source/x", "rigArchive/x", ".hankweave/state.json", "deep/.git/x"):
        lab.write(name, "x")

    lab.write("deep/rigArchive/x", "x")

    made = lab.checkpoint("**", "read_only_data_source/**", ".hankweave/**")

    assert lab.names(made.sha) == {b"deep/rigArchive/x"}


def test_in_place_a_folder_that_has_one_of_our_names_is_the_persons(in_place_lab):
    """In place, only the state folder and `.git` are excluded; data and archive are inside."""
    lab = in_place_lab
    for name in ("read_only_data_source/x", "rigArchive/x", ".hankweave/state.json", ".git/x"):
        lab.write(name, "x")

    made = lab.checkpoint("**", ".hankweave/**")
    assert lab.names(made.sha) == {b"read_only_data_source/x", b"rigArchive/x"}

    lab.write("rigArchive/x", "changed")
    lab.rollback(made.sha)
    assert lab.read("rigArchive/x") == b"x"


# Configuration


def test_no_configuration_of_user_or_system_is_read(lab, tmp_path, monkeypatch):
    """A home directory full of hostile settings changes no byte of a checkpoint or a rollback."""
    (tmp_path / "ignored").write_text("*\n")
    (tmp_path / ".gitconfig").write_text(
        f"[core]\n autocrlf = true\n excludesFile = {tmp_path}/ignored\n[commit]\n gpgsign = true\n"
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    engine = lab.reopen()
    lab.write("a.txt", b"one\r\ntwo\r\n")

    made = lab.checkpoint()
    lab.write("a.txt", b"other")
    lab.rollback(made.sha)

    assert lab.read("a.txt") == b"one\r\ntwo\r\n"
    assert engine.read_file(made.sha, b"a.txt").data == b"one\r\ntwo\r\n"
    assert "Hankweave Runtime <froggie@southbridge.ai>" in lab.git(
        "log", "-1", "--format=%an <%ae>"
    )


def test_attributes_and_filters_change_no_byte(lab):
    """A hostile `.gitattributes` changes neither the stored nor the restored content."""
    lab.write(
        ".gitattributes", "* text=auto eol=crlf ident working-tree-encoding=UTF-16 filter=x\n"
    )
    every_byte = bytes(range(256)) * 3 + b"\r\n\n$Id$\n"
    lab.write("all", every_byte)
    made = lab.checkpoint()
    lab.write("all", "other")

    lab.rollback(made.sha)

    assert lab.read("all") == every_byte
    assert lab.git_bytes("cat-file", "blob", f"{made.sha}:all") == every_byte
    lab.write_index(made.sha)
    assert lab.git("status", "--porcelain") == ""


def test_hooks_and_monitors_never_run(lab, tmp_path):
    """A planted hook or file monitor never runs, even under stock git; config is reset."""
    canary = tmp_path / "canary"
    hooks = lab.layout.shadow_repository / "hooks"
    hooks.mkdir()
    for name in ("post-checkout", "reference-transaction", "post-index-change", "pre-commit"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {canary}\n")
        (hooks / name).chmod(0o755)

    with (lab.layout.shadow_repository / "config").open("a") as config:
        config.write(f"[core]\n\tfsmonitor = touch {canary}\n\thooksPath = hooks\n")

    engine = lab.reopen()
    lab.write("a", "1")
    made = lab.checkpoint()
    lab.rollback(made.sha)
    lab.write_index(made.sha)
    lab.git("status")

    assert "config" in engine.leftovers
    assert not canary.exists()


def test_everything_of_ours_is_private(lab):
    """No file or folder of the shadow repository is readable by other users."""
    lab.write("a", "secret")
    lab.write("b", "secret", 0o600)
    made = lab.checkpoint()
    lab.write_index(made.sha)
    lab.reopen()

    open_to_others = [
        path for path in lab.layout.checkpoints.rglob("*") if path.lstat().st_mode & 0o077
    ]

    assert lab.layout.checkpoints.stat().st_mode & 0o077 == 0
    assert open_to_others == []


# Ignore rules


def test_a_file_ignored_later_stays_tracked(lab):
    """An agent cannot hide a tracked file behind a new `.gitignore`."""
    lab.write("secret/a", "1")
    lab.checkpoint()
    lab.write(".gitignore", "*\n")
    lab.write("secret/a", "2")
    lab.write("hidden", "x")

    made = lab.checkpoint()

    assert lab.names(made.sha) == {b"secret/a"}
    assert lab.git("show", f"{made.sha}:secret/a") == "2"
    lab.delete("secret/a")
    assert lab.names(lab.checkpoint().sha) == set()


def test_an_ignore_file_edited_in_place_is_obeyed_at_once(lab):
    """The rules are read again when only the content of `.gitignore` changed."""
    lab.write(".gitignore", "*.a\n")
    lab.write("sub/x.a", "1")
    lab.checkpoint()
    lab.write(".gitignore", "*.b\n")

    assert b"sub/x.a" in lab.names(lab.checkpoint().sha)


def test_a_safety_checkpoint_captures_the_requested_paths(lab):
    """Paths in `also` are captured even if they are ignored and match no pattern."""
    lab.write(".gitignore", "*.log\n")
    lab.write("x/a.log", "1")
    lab.write("x/b.log", "1")

    made = lab.checkpoint("*.md", also=frozenset({b"x/a.log", b"missing", b"../up", b".git/x"}))

    assert lab.names(made.sha) == {b"x/a.log"}


# Non-files


def test_pipes_sockets_and_devices_are_skipped_and_reported(lab):
    """Each is named in the report; none blocks a checkpoint or makes it partial."""
    os.mkfifo(lab.path("pipe"))
    listener = socket.socket(socket.AF_UNIX)
    folder = os.open(lab.tree, os.O_RDONLY)
    listener.bind(f"/proc/self/fd/{folder}/sock")
    os.close(folder)
    lab.write("file", "1")
    expected = [Skipped(b"pipe", "fifo"), Skipped(b"sock", "socket")]
    if os.geteuid() == 0:
        os.mknod(lab.path("null"), stat.S_IFCHR | 0o600, os.makedev(1, 3))
        expected.insert(0, Skipped(b"null", "device"))

    made = lab.checkpoint()
    again = lab.checkpoint()
    listener.close()

    assert list(made.skipped) == expected
    assert again.skipped == made.skipped
    assert not made.partial
    assert lab.names(made.sha) == {b"file"}


# Sizes and timing


def test_a_large_file_is_streamed_and_comes_back(lab, monkeypatch):
    """A file too large for a pack is stored and restored in pieces, holes included."""
    lab.write("huge", b"\1" * 100 + bytes(20 << 20) + b"\2")
    made = lab.checkpoint()
    then = lab.picture()
    lab.write("huge", "small")

    lab.rollback(made.sha)

    assert lab.picture() == then
    assert os.lstat(lab.path("huge")).st_blocks * 512 < 10 << 20
    lab.assert_sound()


def test_a_file_over_the_limit_is_reported_and_never_lost(lab):
    """Oversized files make a checkpoint partial; no rollback deletes or overwrites them."""
    lab.size_limit = 1000
    lab.reopen()
    lab.write("big", b"x" * 2000)
    lab.write("grows", "1")
    made = lab.checkpoint()
    lab.write("grows", b"y" * 2000)
    lab.write("later", b"z" * 2000)
    other = lab.checkpoint()

    report = lab.rollback(made.sha)

    assert made.partial
    assert made.skipped == (Skipped(b"big", "too-large"),)
    assert {item.path for item in other.skipped} == {b"big", b"grows", b"later"}
    assert lab.read("big") == b"x" * 2000
    assert lab.read("grows") == b"y" * 2000
    assert lab.read("later") == b"z" * 2000
    assert Skipped(b"grows", "too-large") in report.skipped


def test_what_a_target_did_not_capture_is_not_deleted_on_the_way_back(lab):
    """A file that the target reported as too large existed then, so a rollback keeps it."""
    lab.size_limit = 1000
    lab.reopen()
    lab.write("shrinks", b"x" * 2000)
    made = lab.checkpoint()
    lab.write("shrinks", "1")
    lab.checkpoint()

    report = lab.rollback(made.sha)

    assert lab.read("shrinks") == b"1"
    assert report.skipped == (Skipped(b"shrinks", "too-large"),)


def test_a_file_that_changes_while_it_is_read_is_read_again(lab, monkeypatch):
    """A file that changes once while it is read is read again."""
    lab.write("a", "before")
    _disturb(monkeypatch, lab, times=1)

    made = lab.checkpoint()

    assert made.skipped == ()
    assert lab.git("show", f"{made.sha}:a") == "after 1"


def test_a_file_that_never_rests_is_stored_and_marked(lab, monkeypatch):
    """After three attempts the content is stored, marked unstable, and read again next time."""
    lab.write("a", "before")
    _disturb(monkeypatch, lab, times=3)

    made = lab.checkpoint()

    assert made.skipped == (Skipped(b"a", "unstable"),)
    assert not made.partial
    monkeypatch.undo()
    assert lab.git("show", f"{lab.checkpoint().sha}:a") == "after 3"


def _disturb(monkeypatch, lab, times):
    """Write to `a` after its content is read and before its stat data is compared."""
    real, left = file_reader._signature_if_unchanged, [times]

    def signature_if_unchanged(descriptor, status):
        if left[0]:
            left[0] -= 1
            lab.write("a", f"after {times - left[0]}")

        return real(descriptor, status)

    monkeypatch.setattr(file_reader, "_signature_if_unchanged", signature_if_unchanged)


def test_a_large_file_that_shrinks_while_it_is_read_is_not_stored(lab, monkeypatch):
    """A shorter stream cannot be stored: the file is named, and the checkpoint is partial."""
    lab.write("a", bytes(9 << 20))
    monkeypatch.setattr("hankweave_server.git.objects.os.read", lambda descriptor, size: b"")

    made = lab.checkpoint()

    assert made.skipped == (Skipped(b"a", "changing"),)
    assert made.partial
    assert not lab.leftovers()


# Modes, links, folders


def test_an_unusual_umask_is_not_an_exception(lab):
    """Under umask 002 the most common modes are the default, and the manifest lists the others."""
    for name in ("a", "b", "c"):
        lab.write(name, "1", 0o664)

    lab.write("d", "1", 0o644)
    made = lab.checkpoint()
    then = lab.picture()
    for name in ("a", "d"):
        lab.delete(name)

    lab.rollback(made.sha)

    assert lab.picture() == then
    note = lab.git("notes", "--ref=hankweave", "show", made.sha)
    assert '"d": "0644"' in note
    assert '"a"' not in note


def test_permissions_that_all_change_at_once_come_back(lab):
    """If every file's mode changes, so does the default mode; a rollback still restores each."""
    for name in ("a", "b", "c"):
        lab.write(name, "1", 0o644)

    made = lab.checkpoint()
    then = lab.picture()
    for name in ("a", "b", "c"):
        os.chmod(lab.path(name), 0o600)

    lab.rollback(made.sha)

    assert lab.picture() == then


def test_set_uid_is_restored_for_the_same_content_and_owner_only(lab):
    """Other content does not get it, which could grant another user's rights."""
    lab.write("tool", "1", 0o755)
    without = lab.checkpoint()
    lab.write("tool", "2")
    os.chmod(lab.path("tool"), 0o4755)
    made = lab.checkpoint()

    lab.rollback(without.sha)
    assert lab.mode("tool") == 0o755

    lab.rollback(made.sha)
    assert lab.mode("tool") == 0o4755


def test_modes_of_folders_come_back(lab):
    """A recreated private folder is private; a read-only one is filled before its mode is set."""
    lab.write("private/a", "1")
    os.chmod(lab.path("private"), 0o700)
    lab.write("frozen/a", "1")
    os.chmod(lab.path("frozen"), 0o555)
    made = lab.checkpoint()
    then = lab.picture()
    os.chmod(lab.path("frozen"), 0o755)
    lab.delete("private")
    lab.delete("frozen")

    lab.rollback(made.sha)

    assert lab.picture() == then


def test_file_folder_and_link_may_change_places(lab):
    """Every change of kind is undone by a rollback, and redone by restoring the newer state."""
    kinds = ("file", "folder", "link")
    for before in kinds:
        for after in kinds:
            _place(lab, f"{before}-{after}", before, "1")

    first = lab.checkpoint()
    one = lab.picture()
    for before in kinds:
        for after in kinds:
            lab.delete(f"{before}-{after}")
            _place(lab, f"{before}-{after}", after, "2")

    second = lab.checkpoint()
    two = lab.picture()

    lab.rollback(first.sha)
    assert lab.picture() == one
    lab.rollback(second.sha)
    assert lab.picture() == two


def _place(lab, name, kind, content):
    if kind == "file":
        lab.write(name, content)
    elif kind == "link":
        lab.link(name, content)
    else:
        lab.write(f"{name}/inner/{content}", content)


def test_a_folder_of_untracked_files_in_the_way_is_saved_then_replaced(lab):
    """Ignored files of a folder that must become a file are captured, then removed."""
    lab.write("x", "file")
    made = lab.checkpoint()
    lab.delete("x")
    lab.write(".gitignore", "*.log\n")
    lab.write("x/sub/a.log", "ignored")

    lab.rollback(made.sha)

    assert lab.read("x") == b"file"
    safety = next(facts.sha for facts in lab.engine.commits() if facts.kind == "safety")
    assert lab.engine.read_file(safety, b"x/sub/a.log").data == b"ignored"


def test_a_folder_with_a_repository_in_the_way_stays(lab):
    """If a file must replace a folder with a `.git`, the folder stays and the path is skipped."""
    lab.write("x", "file")
    lab.write("y", "1")
    made = lab.checkpoint()
    lab.delete("x")
    nested_repository(lab, "x")
    lab.write("y", "2")

    plan = lab.engine.plan_restore(made.sha, ("**",))
    report = lab.rollback(made.sha)

    assert plan.kept == (Skipped(b"x", "in-the-way"),)
    assert report.skipped == (Skipped(b"x", "in-the-way"),)
    assert lab.exists("x/.git/HEAD")
    assert lab.read("y") == b"1"


def test_a_file_that_took_a_folders_place_after_the_safety_checkpoint_stays(lab):
    """No checkpoint holds it, so the files below are named as exceptions instead."""
    lab.write("d/f", "inside")
    made = lab.checkpoint()
    lab.delete("d/f")
    os.rmdir(lab.path("d"))
    plan = lab.engine.plan_restore(made.sha, ("**",))
    safety = lab.checkpoint(kind="safety", before=plan, codon=None)
    lab.write("d", "a person's")

    report = lab.engine.restore(made.sha, safety.sha)

    assert lab.read("d") == b"a person's"
    assert report.unrestored == (Skipped(b"d/f", "in-the-way"),)


# Unreadable files and folders


def test_an_unreadable_file_is_reported_and_never_lost(lab, without_privileges):
    """An unreadable file makes the checkpoint partial; no rollback touches it."""
    lab.write("a", "1")
    lab.write("locked", "1")
    first = lab.checkpoint()
    lab.write("a", "2")
    lab.write("locked", "2", 0o000)
    lab.write("later", "2", 0o000)

    second = lab.checkpoint()
    report = lab.rollback(first.sha)

    assert second.partial
    assert set(second.skipped) == {
        Skipped(b"locked", "unreadable"),
        Skipped(b"later", "unreadable"),
    }
    assert lab.read("a") == b"1"
    assert set(report.skipped) == {Skipped(b"locked", "unreadable")}
    os.chmod(lab.path("locked"), 0o600)
    os.chmod(lab.path("later"), 0o600)
    assert (lab.read("locked"), lab.read("later")) == (b"2", b"2")


def test_an_unreadable_folder_protects_what_is_in_it(lab, without_privileges):
    """A folder that cannot be listed is reported, and no file in it counts as deleted."""
    lab.write("a", "1")
    lab.write("vault/x", "1")
    first = lab.checkpoint()
    os.chmod(lab.path("vault"), 0o000)
    lab.write("a", "2")

    second = lab.checkpoint()
    lab.rollback(first.sha)
    os.chmod(lab.path("vault"), 0o755)

    assert second.partial
    assert Skipped(b"vault", "unreadable") in second.skipped
    assert lab.read("vault/x") == b"1"
    assert lab.read("a") == b"1"


def test_a_half_written_restore_is_never_captured(lab):
    """The temporary files of a crashed restore are never part of a checkpoint."""
    lab.write("d/" + tree_writer.TEMPORARY.decode(), "half")
    lab.write("d/a", "1")

    assert lab.names(lab.checkpoint().sha) == {b"d/a"}
