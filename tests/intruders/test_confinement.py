"""The limits that a fence sets, attack by attack, and what has to work inside of it.

The attacks themselves are in `support/attacks.py`. They run at each level in both layouts, as root
and as an ordinary user, against a home, other executions, and a process that stands for the server;
the last test runs them without a fence, which shows that they work.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hankweave_server.confinement.namespaces import is_below
from hankweave_server.confinement.policy import Level
from hankweave_server.confinement.probe import try_level
from support import ordinary_user
from support.attacks import OF_LANDLOCK
from support.fenced import STATE
from support.fenced_programs import PROGRAMS
from support.waiting import LIMIT

TESTS = Path(__file__).resolve().parent.parent


class Case(NamedTuple):
    """A fence, and who is inside."""

    user: str
    layout: str
    level: Level
    machine: str = ""
    """What the machine is made to look like: see `support/fenced.py`."""

    def __str__(self) -> str:
        place = f"{self.level.value} {self.machine}".strip()
        return f"{place}, {self.layout}, {self.user}"


CASES = [
    Case(user, layout, level, machine)
    for level, machine in (
        (Level.NAMESPACE, ""),
        (Level.NAMESPACE, "old"),
        (Level.LANDLOCK, ""),
        (Level.LANDLOCK, "docker"),
        (Level.BWRAP, ""),
    )
    for layout in ("beside", "in place", *(["apart"] if level is Level.LANDLOCK else []))
    for user in ("root", "ordinary")
]

OF_LANDLOCK_IN_PLACE = OF_LANDLOCK | {
    "read_the_token",
    "read_the_journal",
    "write_the_journal",
    "make_a_file_in_the_state",
    "rename_the_state",
}
"""With the state in the work tree, as in a project that was first served at another level: Landlock
has no exceptions below an allowed folder."""

WITHOUT_LANDLOCK = {
    "connect_to_its_port",
    "connect_to_any_address",
    "connect_by_a_mapped_address",
    "connect_by_delayed_fast_open",
    "connect_to_its_abstract_socket",
    "signal_it",
    "signal_its_group",
    "signal_its_thread",
    "signal_by_descriptor",
    "queue_a_signal",
    "signal_by_ownership_of_a_socket",
}

IN_A_PRIVATE_COPY = {"list_the_home", "work_in_a_linked_tree"}
"""Harmless below /tmp, which the fence replaces: these see folders made for the mounts alone."""

IN_A_PRIVATE_ROOT = {*IN_A_PRIVATE_COPY, "make_a_file_in_the_state", "rename_the_state"}
"""Harmless in a new root, where all that surrounds the open folders was made for this fence."""

CHANGED_FILES = {
    "change_the_mode_of_the_token": "server.token",
    "write_the_journal": "events/events.jsonl",
    "make_a_file_in_the_state": "made",
}
"""What an attack on the state changes in it."""

UNAVAILABLE = {
    "use_inherited_descriptors",
    "uncover",
    "mount_writable",
    "copy_a_mount",
    "enter_the_servers_mounts",
    "change_the_root",
    "open_by_handle",
    "set_up_io_uring",
    "call_with_other_numbers",
    "connect_by_smc",
    "connect_by_the_family_of_smc",
    "connect_by_mptcp",
    "connect_by_fast_open",
    "connect_by_fast_open_of_messages",
    "connect_from_another_group",
    "make_a_user_namespace",
    "clone_a_user_namespace",
    "clone3_a_user_namespace",
    "type_into_the_terminal",
    "watch_the_machine",
    "use_a_keyring",
    "rename_its_thread",
    "go_through_its_root",
    "change_attributes",
    "signal_by_ownership_of_a_socket",
    "renice_all_of_the_user",
}
"""What may fail on some machines even without a fence: calls that an ordinary user may not make
everywhere, a signal that a busy machine delivers late, and a change of all processes of a user,
which one of another test with a lower priority prevents."""


def allowed(case: Case) -> set[str]:
    if case.machine == "old":
        return WITHOUT_LANDLOCK | IN_A_PRIVATE_ROOT

    if case.level is Level.NAMESPACE:
        return IN_A_PRIVATE_COPY if case.layout == "in place" else set()

    if case.level is Level.BWRAP:
        return IN_A_PRIVATE_ROOT

    return OF_LANDLOCK_IN_PLACE if case.layout == "in place" else OF_LANDLOCK


@functools.cache
def reason_against(level: Level) -> str | None:
    try:
        return try_level(level)
    except OSError as error:
        return str(error)


def command_of(case: Case, module: str, base: Path, *words: str) -> list[str]:
    """Return the command that runs a module as the case's user; skip if that cannot be."""
    if case.level is not Level.NONE and (reason := reason_against(case.level)):
        pytest.skip(f"this level does not work here: {reason}")

    command = ["-m", module, str(base), case.layout, case.level.value]
    command += [case.machine] if case.machine else []
    if case.user == "root" and os.geteuid() != 0:
        pytest.skip("needs root")

    if case.user == "root" or os.geteuid() != 0:
        return [sys.executable, *command, *words]

    if (reason := ordinary_user.reason_against()) is not None:
        pytest.skip(reason)

    os.chown(base, ordinary_user.ID, ordinary_user.ID)
    return [*ordinary_user.PREFIX, str(ordinary_user.interpreter()), *command, *words]


@contextmanager
def base_of(case: Case) -> Iterator[Path]:
    """Make a folder that other users can reach; once in /tmp, which the fence replaces."""
    place = "/tmp" if case.layout == "in place" else "/var/tmp"
    with tempfile.TemporaryDirectory(prefix="hankweave-", dir=place) as name:
        os.chmod(name, 0o755)
        yield Path(name)


def run(case: Case, module: str, *words: str) -> dict[str, Any]:
    with base_of(case) as base:
        done = subprocess.run(
            command_of(case, module, base, *words),
            cwd=TESTS,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        result: dict[str, Any] = json.loads(done.stdout)
        return result


IN_GATE = (
    Case("ordinary", "in place", Level.NAMESPACE),
    Case("ordinary", "beside", Level.LANDLOCK, "docker"),
    Case("ordinary", "apart", Level.LANDLOCK, "docker"),
)


@pytest.mark.enclosed
@pytest.mark.story(
    "No attack gets out of the fence at any level.",
    of="SECURITY.md",
    cases=tuple(map(str, IN_GATE)),
)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_attack_gets_out(case: Case) -> None:
    """Only the known attacks of a level succeed, and nothing else changes outside."""
    report = run(case, "support.fenced")
    outcomes: dict[str, str] = report["outcomes"]
    assert report["trouble"] == ""
    assert [one for one in outcomes.values() if one.startswith("broken")] == []
    succeeded = {name for name, outcome in outcomes.items() if outcome.startswith("open")}
    assert succeeded <= allowed(case)
    state = STATE[case.layout]
    assert {path for path in report["changed"] if not is_known(path, succeeded, state)} == set()
    changed = dict(report["server after"].items() - report["server before"].items())
    assert changed.keys() <= ({"signals"} if "signal_it" in succeeded else set())


def is_known(path: str, succeeded: set[str], state: str) -> bool:
    """Return whether one of the attacks that succeeded explains the change of a path."""
    files = {f"{state}/{CHANGED_FILES.get(name, 'none')}" for name in succeeded}
    return path == "processes" or bool(succeeded & set(Path(path).parts)) or path in files


@pytest.mark.enclosed
def test_the_attacks_work_without_a_fence() -> None:
    """Each attack succeeds for an ordinary user, apart from those that the machine may forbid."""
    report = run(Case("ordinary", "beside", Level.NONE), "support.fenced")
    stopped = {
        name for name, outcome in report["outcomes"].items() if not outcome.startswith("open")
    }
    assert stopped <= UNAVAILABLE
    assert report["server after"]["memory"] == "hijacked"
    assert len(report["changed"]) > 15


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(
    ("level", "machine"),
    [(Level.NAMESPACE, ""), (Level.NAMESPACE, "old"), (Level.LANDLOCK, "docker")],
    ids=["namespace", "namespace old", "landlock docker"],
)
@pytest.mark.parametrize("user", ["root", "ordinary"])
def test_a_program_works_unmodified(user: str, level: Level, machine: str, program: str) -> None:
    """Toolchains do their work in the work tree, and need nothing else."""
    name, script = PROGRAMS[program]
    folders = os.environ["PATH"].split(os.pathsep)
    if user == "ordinary" and os.geteuid() == 0:
        folders = [folder for folder in folders if not is_below(folder, str(Path.home()))]

    if shutil.which(name, path=os.pathsep.join(folders)) is None:
        pytest.skip(f"{name} is not installed for this user")

    case = Case(user, "beside", level, machine)
    report = run(case, "support.fenced", "--", "bash", "-euc", script)
    assert report["code"] == 0, report["trouble"]
