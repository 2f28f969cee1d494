"""Owner, special bits, ACLs, `user.*` attributes and hard links survive a rollback and its undo."""

from __future__ import annotations

import errno
import json
import os
import stat
import struct
import tempfile

import pytest

from hankweave_server.checkpoints import manifest as manifests
from hankweave_server.checkpoints.manifest import Manifest
from hankweave_server.worktree import attributes
from hankweave_server.worktree.attributes import CAPABILITY, LIMIT, Attributes
from support.calls import failing

ACL = "system.posix_acl_access"
DEFAULT_ACL = "system.posix_acl_default"
ANYONE = 0xFFFFFFFF

MAY_BIND = struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0)
"""The capability to listen on any port, as the kernel stores it."""


def acl(permissions: int) -> bytes:
    """Return an access control list with an entry for the user 1234, as the kernel stores it."""
    entries = ((1, 6, ANYONE), (2, 4, 1234), (4, permissions, ANYONE), (16, 4, ANYONE))
    entries += ((32, 0, ANYONE),)
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def can_set(name: str, value: bytes) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        try:
            os.setxattr(folder, name, value)
        except OSError:
            return False

    return True


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
with_acls = pytest.mark.skipif(
    not can_set(ACL, acl(4)), reason="the file system of temporary files has no ACLs"
)
with_user = pytest.mark.skipif(
    not can_set("user.a", b"1"), reason="the file system of temporary files has no attributes"
)


def described(lab, name):
    """Return everything but the content of a file or folder."""
    path = lab.path(name)
    status = os.lstat(path)
    found = {each: os.getxattr(path, each) for each in os.listxattr(path)}
    return stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, found


def inode(lab, name):
    return os.lstat(lab.path(name)).st_ino


def without_record(lab, made):
    """Take the attributes out of a checkpoint, as if an older server had made it."""
    lab.git("update-ref", "-d", "refs/notes/hankweave")
    lab.reopen()
    return made


def dress(lab, name):
    path = lab.path(name)
    os.setxattr(path, "user.origin", b"somewhere")
    os.setxattr(path, ACL, acl(4))
    os.chown(path, 1234, 2345)
    os.chmod(path, 0o6754)


@as_root
@with_acls
@with_user
def test_a_file_comes_back_as_it_was(lab):
    """Whether it was changed or removed; and the undo has what there was before the rollback."""
    for name in ("changed", "removed", "plain"):
        lab.write(name, "one")

    dress(lab, "changed")
    dress(lab, "removed")
    then = {name: described(lab, name) for name in ("changed", "removed", "plain")}
    made = lab.checkpoint()
    lab.write("changed", "two")
    os.chown(lab.path("changed"), 77, 77)
    os.removexattr(lab.path("changed"), "user.origin")
    os.setxattr(lab.path("changed"), "user.later", b"x")
    lab.delete("removed")
    lab.write("plain", "two")
    now = described(lab, "changed")

    report = lab.rollback(made.sha)
    assert {name: described(lab, name) for name in then} == then
    assert report.lost_attributes == ()

    safety = next(facts.sha for facts in lab.engine.commits() if facts.kind == "safety")
    lab.rollback(safety)
    assert described(lab, "changed") == now
    lab.assert_sound()


@as_root
@with_acls
@with_user
def test_what_a_checkpoint_does_not_know_is_carried_over(lab):
    """Rights that were granted to a content are not: they are reported instead."""
    lab.write("a", "one", 0o755)
    made = lab.checkpoint()
    lab.write("a", "two")
    dress(lab, "a")
    without_record(lab, made)

    report = lab.rollback(made.sha)

    mode, uid, gid, extended = described(lab, "a")
    assert (mode, uid, gid, extended["user.origin"]) == (0o755, 1234, 2345, b"somewhere")
    assert ACL in extended
    (lost,) = report.lost_attributes
    assert (lost.path, "set-uid" in lost.sentence) == (b"a", True)


@as_root
def test_set_uid_comes_back_only_with_its_owner(lab, monkeypatch):
    """An attribute that cannot be put back is reported with the path."""
    lab.write("tool", "1")
    os.chown(lab.path("tool"), 1234, -1)
    os.chmod(lab.path("tool"), 0o4755)
    made = lab.checkpoint()
    lab.delete("tool")
    monkeypatch.setattr(attributes.os, "fchown", failing(errno.EPERM))
    report = lab.rollback(made.sha)

    assert lab.mode("tool") == 0o755
    (lost,) = report.lost_attributes
    assert lost.path == b"tool"
    assert "owner 1234; set-uid" in lost.sentence


@as_root
@with_acls
def test_a_folder_comes_back_with_its_special_bits_and_default_acl(lab):
    """A change of its permissions alone leaves the special bits."""
    lab.write("shared/a", "1")
    lab.write("other/a", "1")
    os.chown(lab.path("shared"), -1, 2345)
    os.setxattr(lab.path("shared"), DEFAULT_ACL, acl(6))
    os.chmod(lab.path("shared"), 0o3775)
    then = described(lab, "shared")
    made = lab.checkpoint()
    lab.delete("shared")
    os.chmod(lab.path("other"), 0o2700)

    report = lab.rollback(made.sha)

    assert described(lab, "shared") == then
    assert lab.mode("other") == 0o2755
    assert report.lost_attributes == ()


@pytest.mark.parametrize("is_recorded", [True, False], ids=["recorded", "unknown"])
def test_two_names_of_a_file_stay_two_names_of_one(lab, is_recorded):
    """The content is written once; the checkpoint records the names, or they are carried over."""
    lab.write("a", "one")
    os.link(lab.path("a"), lab.path("b"))
    made = lab.checkpoint()
    lab.write("a", "two")
    assert lab.read("b") == b"two"
    if not is_recorded:
        without_record(lab, made)

    report = lab.rollback(made.sha)

    assert inode(lab, "a") == inode(lab, "b")
    assert (lab.read("b"), report.lost_attributes) == (b"one", ())
    lab.write("a", "three")
    changed = lab.checkpoint().sha
    assert lab.git("show", f"{changed}:b") == "three"


def test_names_that_were_removed_or_torn_apart_are_one_file_again(lab):
    """A file whose content is as wanted gets its other names back."""
    lab.write("a", "one")
    for name in ("b", "c"):
        os.link(lab.path("a"), lab.path(name))

    made = lab.checkpoint()
    lab.delete("b")
    lab.delete("c")
    lab.write("c", "two")

    lab.rollback(made.sha)

    assert inode(lab, "a") == inode(lab, "b") == inode(lab, "c")


def test_a_name_outside_of_the_tree_is_reported(lab):
    """It keeps the content, so the file cannot stay the same."""
    lab.write("a", "one")
    made = lab.checkpoint()
    lab.write("a", "two")
    os.link(lab.path("a"), lab.layout.root / "outside")
    expected = lab.engine.preview_losses(lab.engine.plan_restore(made.sha, ("**",)))

    report = lab.rollback(made.sha)

    assert (lab.layout.root / "outside").read_text() == "two"
    assert report.lost_attributes == expected
    (lost,) = expected
    assert (lost.path, "hard links" in lost.sentence) == (b"a", True)


def test_a_file_all_of_whose_names_go_has_lost_none(lab):
    """One is replaced, the other removed: nothing keeps the old content."""
    lab.write("a", "one")
    made = lab.checkpoint()
    lab.write("a", "two")
    os.link(lab.path("a"), lab.path("b"))

    report = lab.rollback(made.sha)

    assert lab.read("a") == b"one"
    assert not os.path.lexists(lab.path("b"))
    assert report.lost_attributes == ()


@as_root
@pytest.mark.skipif(not can_set(CAPABILITY, MAY_BIND), reason="this user grants no capabilities")
def test_a_capability_is_not_given_to_other_content(lab):
    """It was granted to the content that the rollback replaces, and is reported."""
    lab.write("tool", "one")
    made = lab.checkpoint()
    lab.write("tool", "two")
    os.setxattr(lab.path("tool"), CAPABILITY, MAY_BIND)
    without_record(lab, made)

    report = lab.rollback(made.sha)

    assert (lab.read("tool"), os.listxattr(lab.path("tool"))) == (b"one", [])
    (lost,) = report.lost_attributes
    assert (lost.path, "capabilities" in lost.sentence) == (b"tool", True)


@with_user
def test_attributes_survive_a_restart_and_follow_changes(lab):
    """The index and its cache know them; a change of attributes alone is captured."""

    def recorded(made):
        shown = lab.git("notes", "--ref=hankweave", "show", made.sha, check=False)
        return json.loads(shown)["attributes"] if "attributes" in shown else {}

    lab.write("a", "one")
    os.setxattr(lab.path("a"), "user.a", b"1")
    first = lab.checkpoint()
    lab.engine._memory.scan.settle()
    lab.reopen()
    lab.write("b", "one")
    second = lab.checkpoint()
    os.removexattr(lab.path("a"), "user.a")
    third = lab.checkpoint()

    assert recorded(first) == recorded(second) == {"a": {"extended": {"user.a": "MQ=="}}}
    assert recorded(third) == {}


def test_a_manifest_with_attributes_can_be_read_by_everyone():
    """The part is added, is left out if it would be empty, and has a limit."""
    own = (os.geteuid(), os.getegid())
    found = {
        b"a": Attributes(7, 8, 0o4000, (("user.a", b"\0\xff"),)),
        b"b": Attributes(*own, group=1),
        b"c": Attributes(*own, group=1),
        b"d": Attributes(*own, extended=None),
    }
    manifest = Manifest(owner=own, attributes=found)
    note = manifests.encoded(manifest)
    assert manifests.decoded(note) == manifest
    assert manifest.names == {1: (b"b", b"c")}
    assert not manifest.is_plain

    known = {"version", "usualModes", "modes", "emptyFolders", "skipped"}
    assert json.loads(note).keys() - known == {"owner", "attributes"}
    assert json.loads(manifests.encoded(Manifest())).keys() == known

    large = Attributes(*own, extended=(("user.a", bytes(LIMIT)),))
    small = Attributes(*own, extended=(("user.a", b"1"),))
    assert manifests._within_limit({b"a": large, b"b": small}) == {
        b"a": large._replace(extended=None),
        b"b": small,
    }
