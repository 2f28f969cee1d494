"""The one ref of a mirror, moved by the real git program in real repositories."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from hankweave_server.features.mirror.contents import Segments
from hankweave_server.features.mirror.remote import (
    LEASE_REF,
    UPLOAD_REF,
    BadAddress,
    Remote,
    Unreachable,
    checked,
)
from support.mirrors import (
    NOTHING,
    WITHIN,
    Machine,
    in_remote,
    kill_a_push,
    race,
    retaken,
    slow_connection,
)
from support.waiting import eventually_blocking


@pytest.fixture
def machine(tmp_path: Path, bare: Path) -> Machine:
    return Machine(tmp_path / "one", bare)


@pytest.fixture
def other(tmp_path: Path, bare: Path) -> Machine:
    return Machine(tmp_path / "two", bare)


def test_a_push_moves_the_ref_from_what_it_is_expected_to_be(machine: Machine, bare: Path) -> None:
    """First it must not exist, then it must be the former one."""
    assert machine.remote.tip(WITHIN) is None
    first = machine.composed()
    assert machine.remote.push(first, None, WITHIN).outcome == "done"
    second = machine.composed(machine.lease())
    done = machine.remote.push(second, first, WITHIN)
    assert done.outcome == "done"
    assert done.sent_bytes > 0
    assert machine.remote.tip(WITHIN) == second == in_remote(bare)


def test_a_former_owner_cannot_push(machine: Machine, other: Machine, bare: Path) -> None:
    """It learns which commit is there, and nothing of its own arrives."""
    first = machine.composed()
    machine.remote.push(first, None, WITHIN)
    assert other.remote.fetch(WITHIN) == first
    second = other.composed(other.repository.lease(first))
    assert other.remote.push(second, first, WITHIN).outcome == "done"
    stale = machine.composed(machine.lease())
    done = machine.remote.push(stale, first, WITHIN)
    assert (done.outcome, done.found) == ("refused", second)
    assert in_remote(bare) == second
    assert subprocess.run(("git", "-C", bare, "cat-file", "-e", stale), check=False).returncode


def test_a_second_mirror_cannot_begin_in_the_same_repository(
    machine: Machine, other: Machine
) -> None:
    """An empty expectation is one, too."""
    first = machine.composed()
    machine.remote.push(first, None, WITHIN)
    done = other.remote.push(other.composed(), None, WITHIN)
    assert (done.outcome, done.found) == ("refused", first)


def test_a_push_whose_end_was_not_seen_is_done(machine: Machine) -> None:
    """It moved the ref and was then repeated: the outcome is the same."""
    first = machine.composed()
    assert machine.remote.push(first, None, WITHIN).outcome == "done"
    assert machine.remote.push(first, None, WITHIN).outcome == "done"


def test_a_remote_that_cannot_be_reached_leaves_everything_open(
    tmp_path: Path, machine: Machine
) -> None:
    """The push may be repeated; reading raises."""
    nowhere = Remote(str(tmp_path / "nowhere"), machine.repository.path, os.environ)
    done = nowhere.push(machine.composed(), None, WITHIN)
    assert done.outcome == "not done"
    assert "nowhere" in done.problem
    with pytest.raises(Unreachable):
        nowhere.tip(WITHIN)


def test_a_program_that_hangs_is_given_up_with_all_that_it_started(
    tmp_path: Path, machine: Machine
) -> None:
    """A network that drops packets silently looks like this."""
    marker = tmp_path / "pid"
    hangs = f"sh -c 'echo $$ > {marker}; sleep 1000'"
    remote = Remote(
        "ssh://localhost/mirror.git",
        machine.repository.path,
        {**os.environ, "GIT_SSH_COMMAND": hangs, "GIT_SSH_VARIANT": "simple"},
    )
    done = remote.push(machine.composed(), None, 1.0)
    assert done.outcome == "not done"
    assert "no answer" in done.problem
    eventually_blocking(lambda: not _is_alive(int(marker.read_text())))


def test_what_is_too_much_for_a_push_arrives_by_an_upload(
    tmp_path: Path, machine: Machine, bare: Path
) -> None:
    """Then little is left for the push, and nothing but the lease leads to it afterwards."""
    content = tmp_path / "content"
    content.write_bytes(random.Random(1).randbytes(3 << 20))
    repository = machine.repository
    environment = {**os.environ, **slow_connection(tmp_path)}
    remote = Remote(f"ssh://nas{bare}", repository.path, environment)
    folders = {"data": repository.store({"content": content})}
    large = repository.compose(machine.lease(), NOTHING, Segments(), folders)
    eventually_blocking(lambda: remote.push(large, None, 2.0).is_slow)
    assert remote.tip(WITHIN) is None
    uploaded = remote.upload(large)
    assert uploaded.problem is None
    assert uploaded.sent_bytes >= 3 << 20
    folders["hank"] = repository.store({"hank.json": tmp_path / "ssh.py"})
    later = repository.compose(machine.lease(), NOTHING, Segments(), folders, [large])
    done = remote.push(later, None, WITHIN)
    assert done.outcome == "done"
    assert done.sent_bytes < 1 << 20
    remote.forget_upload(WITHIN)
    assert refs_in(bare) == {LEASE_REF: later}
    fsck = ("git", "-C", bare, "fsck", "--connectivity-only", LEASE_REF)
    subprocess.run(fsck, check=True, capture_output=True)


def test_what_the_remote_has_is_not_sent_again(
    tmp_path: Path, machine: Machine, bare: Path
) -> None:
    """Neither data nor conversations, which no commit but that of the lease leads to."""
    content, hank = tmp_path / "content", tmp_path / "hank.json"
    content.write_bytes(random.Random(1).randbytes(1 << 20))
    repository, remote = machine.repository, machine.remote
    folders = {"data": repository.store({"large": content})}
    tip = repository.compose(machine.lease(), NOTHING, Segments(), folders)
    assert remote.push(tip, None, WITHIN).sent_bytes >= 1 << 20
    lease = machine.lease()
    for _ in range(3):
        hank.write_text(f"[{lease.epoch}]")
        lease = machine.lease(lease)
        folders["hank"] = repository.store({"hank.json": hank})
        former, tip = tip, repository.compose(lease, NOTHING, Segments(), folders, [tip])
        assert remote.push(tip, former, WITHIN).sent_bytes < 1 << 12

    former, tip = tip, repository.retaken(tip, machine.lease(lease))
    assert remote.push(tip, former, WITHIN).sent_bytes < 1 << 12
    assert in_remote(bare) == tip


def test_a_lease_is_read_without_what_it_leads_to(
    tmp_path: Path, machine: Machine, other: Machine, bare: Path
) -> None:
    """However large the data are."""
    content = tmp_path / "content"
    content.write_bytes(b"content")
    data = machine.repository.store({"large": content})
    tip = machine.repository.compose(machine.lease(), NOTHING, Segments(), {"data": data})
    machine.remote.push(tip, None, WITHIN)
    assert other.remote.fetch(WITHIN, only_commit=True) == tip
    assert other.repository.lease(tip).owner == machine.name
    bare.rename(bare.with_name("away"))  # Git would fetch what is missing.
    has_data = ("git", "-C", other.repository.path, "cat-file", "-e", data)
    assert subprocess.run(has_data, check=False, capture_output=True).returncode


def test_what_a_dead_owner_has_uploaded_is_forgotten(machine: Machine, bare: Path) -> None:
    """The next one sees the ref when it looks for the lease."""
    first = machine.composed()
    machine.remote.upload(first)
    other = Remote(str(bare), machine.repository.path, os.environ)
    other.forget_upload(WITHIN)
    assert UPLOAD_REF in refs_in(bare)
    assert other.tip(WITHIN) is None
    other.forget_upload(WITHIN)
    assert not refs_in(bare)


@pytest.mark.parametrize("reason", ["nothing moves", "on request"])
def test_an_upload_is_given_up(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """And with it all that it has started."""
    marker = tmp_path / "pid"
    hangs = f"sh -c 'echo $$ > {marker}; sleep 1000'"
    environment = {"GIT_SSH_COMMAND": hangs, "GIT_SSH_VARIANT": "simple"}
    path = machine.repository.path
    remote = Remote("ssh://localhost/mirror.git", path, {**os.environ, **environment})
    is_on_request = reason == "on request"
    if not is_on_request:
        monkeypatch.setattr("hankweave_server.features.mirror.remote.STALLED_SECONDS", 2.0)

    def has_begun() -> bool:
        return is_on_request and marker.exists() and marker.read_text() != ""

    done = remote.upload(machine.composed(), has_begun)
    assert done.problem is not None
    eventually_blocking(lambda: not _is_alive(int(marker.read_text())))


def refs_in(bare: Path) -> dict[str, str]:
    command = ("git", "-C", bare, "for-each-ref", "--format=%(refname) %(objectname)")
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return dict(line.split() for line in listed.splitlines())


@pytest.mark.parametrize(
    "address",
    [
        "",
        "-oProxyCommand=x",
        "ext::sh -c x",
        "https://me:secret@example.org/x.git",
        "ftp://example.org/x",
        "a\nb",
    ],
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    """Nor is one with a password, which would be stored and shown."""
    with pytest.raises(BadAddress) as refused:
        checked(address)

    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "address",
    ["https://github.com/me/x.git", "git@github.com:me/x.git", "ssh://nas/x.git", "nas:x.git"],
)
def test_addresses_as_git_has_them_are_taken(address: str) -> None:
    """They stay as they are."""
    assert checked(address) == address


def test_a_local_path_becomes_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The server has another directory than the shell."""
    monkeypatch.chdir(tmp_path)
    assert checked("mirror.git") == str(tmp_path / "mirror.git")


def test_a_push_needs_no_terminal_and_no_hook(machine: Machine, tmp_path: Path) -> None:
    """A hook of the user's configuration does not run, and nobody is asked for a password."""
    hooks, ran = tmp_path / "hooks", tmp_path / "ran"
    hooks.mkdir()
    hook = hooks / "pre-push"
    hook.write_text(f"#!{sys.executable}\nopen({str(ran)!r}, 'w')\n")
    hook.chmod(0o700)
    config = tmp_path / "gitconfig"
    config.write_text(f"[core]\n\thooksPath = {hooks}\n")
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": str(config)}
    remote = Remote(machine.remote.address, machine.repository.path, environment)
    assert remote.push(machine.composed(), None, WITHIN).outcome == "done"
    assert not ran.exists()


def test_the_error_of_a_push_is_what_the_remote_says(machine: Machine, bare: Path) -> None:
    """Not how far it was."""
    hook = bare / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho big.bin is larger than 100 MB\nexit 1\n")
    hook.chmod(0o700)
    problem = machine.remote.push(machine.composed(), None, WITHIN).problem
    assert problem == "remote: big.bin is larger than 100 MB"


@pytest.mark.parametrize("thoroughly", [False, True])
def test_the_remote_stays_small(machine: Machine, bare: Path, thoroughly: bool) -> None:
    """The objects of many pushes become one pack or two, and the lease is as it was.

    Git would make a small file of each superfluous object, if it tidied by itself.
    """
    for setting in ("gc.autoPackLimit=1", "gc.autoDetach=false"):
        subprocess.run(("git", "-C", bare, "config", *setting.split("=")), check=True)

    tip = None
    for _ in range(20):
        sha = machine.composed() if tip is None else retaken(machine, tip)
        assert machine.remote.push(sha, tip, WITHIN).outcome == "done"
        tip = sha

    small_files = "objects/[0-9a-f][0-9a-f]/*"
    assert not list(bare.glob(small_files))
    machine.remote.clean_up(thoroughly=thoroughly)
    for each in (bare, machine.repository.path):
        assert len(list(each.glob("objects/pack/*.pack"))) <= 2
        assert not list(each.glob(small_files))

    assert machine.remote.tip(WITHIN) == tip


def test_a_lock_file_that_a_dead_push_has_left_is_removed(machine: Machine, bare: Path) -> None:
    """After the time for which a lease is given; no push takes that long."""
    first = machine.composed()
    machine.remote.push(first, None, WITHIN)
    lock = bare / f"{LEASE_REF}.lock"
    lock.touch()
    second = retaken(machine, first)
    assert machine.remote.push(second, first, WITHIN).outcome == "not done"
    machine.remote.unblock(30.0, now=100.0)
    machine.remote.unblock(30.0, now=129.0)
    assert lock.exists()
    machine.remote.unblock(30.0, now=130.0)
    assert machine.remote.push(second, first, WITHIN).outcome == "done"


def test_a_lock_file_of_a_push_at_work_stays(machine: Machine, bare: Path) -> None:
    """Each has its own; time counts anew for another one."""
    machine.remote.push(machine.composed(), None, WITHIN)
    lock = bare / f"{LEASE_REF}.lock"
    lock.touch()
    machine.remote.unblock(30.0, now=100.0)
    lock.rename(bare / "former")
    lock.touch()
    machine.remote.unblock(30.0, now=200.0)
    assert lock.exists()


def test_of_racing_take_overs_one_wins(tmp_path: Path, bare: Path) -> None:
    """Four machines push against the same lease at the same time, in 25 rounds.

    The campaign has 1,000 of them.
    """
    race([Machine(tmp_path / f"machine-{number}", bare) for number in range(4)], bare, 25)


@pytest.mark.parametrize("delay_ms", range(0, 60, 6))
def test_a_push_that_is_killed_leaves_the_old_state_or_the_new_one(
    machine: Machine, bare: Path, delay_ms: int
) -> None:
    """With everything that it leads to, and the next push succeeds. The campaign has 300 more."""
    first = machine.composed()
    machine.remote.push(first, None, WITHIN)
    kill_a_push(machine, bare, first, delay_ms / 1000)


def _is_alive(pid: int) -> bool:
    """Return whether a process is neither gone nor a zombie."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except FileNotFoundError:
        return False
