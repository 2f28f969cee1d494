"""The policies that are derived by default, and the mounts that they become."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hankweave_server.confinement.namespaces import MountContent, Step, steps
from hankweave_server.confinement.policy import (
    SECRETS_OF_ROOT,
    Facts,
    Fence,
    Level,
    Policy,
    environment_of,
    granting,
    limits,
    program_files,
    toolchains,
    uncovered,
    workspace_policy,
)

ROOT = "/home/ada/work/execution"
STATE = f"{ROOT}/.hankweave"
TREE = f"{ROOT}/agentRoot"


def facts(**changes: Any) -> Facts:
    defaults = {
        "work_tree": TREE,
        "state_directory": STATE,
        "home": "/home/ada",
        "agent_home": f"{STATE}/homes/claude",
        "temporary": f"{STATE}/temporary",
    }
    return Facts(**(defaults | changes))


def test_the_work_tree_is_writable_and_the_state_hidden() -> None:
    """Of the state, an agent reaches its own home, its temporary files and its sockets."""
    policy = workspace_policy(facts(agent_write=(f"{STATE}/agents/hook.sock",)))
    assert TREE in policy.write
    assert STATE in policy.hidden
    assert STATE not in (*policy.read, *policy.write)
    assert set(policy.granted) == {
        f"{STATE}/homes/claude",
        f"{STATE}/temporary",
        f"{STATE}/agents/hook.sock",
    }


def test_a_reviewer_cannot_write_the_work_tree() -> None:
    """With `readonly` only its home and its temporary files are writable."""
    policy = workspace_policy(facts(extra_write=("/srv/cache",)), "readonly")
    assert TREE in policy.read
    assert not {TREE, "/srv/cache"} & set(policy.write)
    assert f"{STATE}/homes/claude" in policy.write


def test_the_lists_of_a_hank_cannot_open_what_is_hidden() -> None:
    """`extraRead` and `extraWrite` add paths, but grant nothing below a hidden one."""
    policy = workspace_policy(facts(extra_read=(STATE,), extra_write=(f"{STATE}/events",)))
    assert not {STATE, f"{STATE}/events"} & set(policy.granted)
    assert not {STATE, f"{STATE}/events"} & {step.path for step in mounts_of(policy)}
    around = workspace_policy(facts(extra_read=(ROOT,), extra_write=(f"{STATE}/events",)))
    assert (STATE, MountContent.HIDDEN, False) in below(STATE, mounts_of(around))
    assert f"{STATE}/events" not in {step.path for step in mounts_of(around)}


def test_a_home_looks_empty_but_for_what_is_listed() -> None:
    """Sockets of editors and of Docker are in homes, and names of files tell something as well."""
    mounts = mounts_of(workspace_policy(facts(extra_read=("/home/ada/models",))))
    assert below("/home/ada", mounts)[:2] == [
        ("/home/ada", MountContent.CONCEALED, False),
        ("/home/ada/.config/git", MountContent.READABLE, True),
    ]
    assert ("/home/ada/models", MountContent.READABLE, True) in below("/home/ada", mounts)


@pytest.mark.parametrize("home", ["/", "/usr/share/x", "/etc", "relative"])
def test_a_home_that_is_a_system_folder_stays(home: str) -> None:
    assert home not in workspace_policy(facts(home=home)).concealed


def test_a_home_that_is_the_work_tree_stays() -> None:
    mounts = mounts_of(workspace_policy(facts(work_tree="/home/ada")))
    assert ("/home/ada", MountContent.WRITABLE, False) in below("/home/ada", mounts)


def test_the_profile_none_is_empty() -> None:
    assert workspace_policy(facts(), "none") == Policy(profile="none")
    assert Fence(Policy(profile="none"), Level.NAMESPACE).is_open
    assert Fence(workspace_policy(facts()), Level.NONE).is_open


def test_files_that_only_root_can_read_are_hidden_from_root() -> None:
    """Mode bits protect them from others."""
    assert set(SECRETS_OF_ROOT) <= set(workspace_policy(facts(is_root=True)).hidden)
    assert not set(SECRETS_OF_ROOT) & set(workspace_policy(facts()).hidden)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("/usr/bin", set()),
        ("/home/ada/.nvm/versions/node/v22/bin", {"/home/ada/.nvm/versions/node/v22"}),
        ("/home/ada/.pyenv/shims", {"/home/ada/.pyenv"}),
        ("/home/ada/bin", {"/home/ada/bin"}),
        ("/home/bin", {"/home/bin"}),
        ("/bin2", {"/bin2"}),
        ("relative/bin", set()),
        ("", set()),
    ],
)
def test_a_toolchain_on_path_is_readable(entry: str, expected: set[str]) -> None:
    """A folder for programs brings the libraries beside it, but never a whole home."""
    assert set(toolchains(entry, "/home/ada")) == expected


@pytest.mark.parametrize("entry", [".cargo/bin", ".local/bin", "go/bin"])
def test_a_toolchain_that_shares_its_folder_brings_its_own_parts(entry: str) -> None:
    """Beside `.cargo/bin` are credentials, and below `.local/share` are keyrings."""
    found = toolchains(f"/home/ada/{entry}", "/home/ada")
    assert f"/home/ada/{entry}" in found
    assert not {"/home/ada/.cargo", "/home/ada/.local", "/home/ada/.local/share"} & set(found)


def test_a_program_of_npm_brings_its_packages() -> None:
    assert program_files("/x/lib/node_modules/a/cli.js") == (
        "/x/lib/node_modules/a/cli.js",
        "/x/lib/node_modules",
    )
    assert program_files("/usr/bin/git") == ("/usr/bin/git",)


def test_a_fence_is_json() -> None:
    fence = Fence(workspace_policy(facts(connect=(443,), server_ports=(7777,))), Level.LANDLOCK)
    assert msgspec.json.decode(msgspec.json.encode(fence), type=Fence) == fence


def test_what_a_program_needs_is_granted() -> None:
    fence = granting(Fence(workspace_policy(facts()), Level.NAMESPACE), read=(f"{STATE}/notices",))
    assert f"{STATE}/notices" in fence.policy.read
    assert f"{STATE}/notices" in fence.policy.granted


def test_temporary_files_go_where_the_level_has_them() -> None:
    """/tmp has the shorter name; Landlock cannot replace it."""
    policy = workspace_policy(facts())
    assert environment_of(Fence(policy, Level.NAMESPACE))["TMPDIR"] == "/tmp"
    assert environment_of(Fence(policy, Level.LANDLOCK))["TMPDIR"] == policy.temporary
    assert environment_of(Fence(policy, Level.NONE)) == {}


def test_landlock_cannot_hide_the_state_in_the_work_tree() -> None:
    """In a person's own project the state is below the work tree, which is allowed."""
    beside = workspace_policy(facts())
    in_place = workspace_policy(facts(work_tree=ROOT))
    assert STATE not in uncovered(beside, Level.LANDLOCK)
    assert STATE in uncovered(in_place, Level.LANDLOCK)
    assert uncovered(in_place, Level.NAMESPACE) == ()
    assert STATE in uncovered(beside, Level.NONE)


def test_what_a_level_does_not_cover_is_reported() -> None:
    """Weaker levels and older kernels say more; no level is silent."""
    counts = [len(limits(level, 7)) for level in (Level.NAMESPACE, Level.LANDLOCK)]
    assert 0 < counts[0] < counts[1]
    assert len(limits(Level.NAMESPACE, 3)) == counts[0] + 2
    assert any("TCP" in sentence for sentence in limits(Level.BWRAP, 0))
    assert limits(Level.BWRAP, 7) == limits(Level.NAMESPACE, 7)
    assert limits(Level.NONE, 7) == ("Agents run with all rights of the user.",)


def mounts_of(policy: Policy, protected: tuple[str, ...] = ()) -> list[Step]:
    return steps(
        read=policy.read,
        write=policy.write,
        hidden=policy.hidden,
        concealed=policy.concealed,
        granted=policy.granted,
        protected=protected,
        temporary=policy.temporary,
    )


def below(path: str, mounts: list[Step]) -> list[tuple[str, MountContent, bool]]:
    return [tuple(step) for step in mounts if step.path.startswith(path)]


def test_grants_are_mounted_on_the_cover() -> None:
    """The cover comes first, and what stays reachable is placed in it."""
    mounts = mounts_of(workspace_policy(facts(work_tree=ROOT)))
    assert below(ROOT, mounts) == [
        (ROOT, MountContent.WRITABLE, True),
        (STATE, MountContent.HIDDEN, False),
        (f"{STATE}/homes/claude", MountContent.WRITABLE, True),
        (f"{STATE}/temporary", MountContent.WRITABLE, True),
    ]


def test_data_in_a_hidden_folder_is_mounted_read_only() -> None:
    mounts = mounts_of(workspace_policy(facts(work_tree=ROOT, data=f"{STATE}/data")))
    assert (f"{STATE}/data", MountContent.READABLE, True) in below(STATE, mounts)


def test_nothing_is_mounted_twice() -> None:
    """A readable or writable folder inside of one that is already so needs no mount."""
    policy = Policy(
        read=("/usr", f"{TREE}/data"), write=(TREE, f"{TREE}/a", "/dev/null"), hidden=("/run/user",)
    )
    assert mounts_of(policy) == [
        Step("/dev/pts", MountContent.TERMINALS, False),
        Step("/dev/shm", MountContent.SCRATCH, False),
        Step(TREE, MountContent.WRITABLE, False),
        Step("/run/user", MountContent.HIDDEN, False),
    ]


def test_a_server_in_the_work_tree_is_protected() -> None:
    """A project's virtual environment is read-only if this server runs from it."""
    policy = Policy(write=(TREE,))
    mounts = mounts_of(policy, (f"{TREE}/.venv", "/usr"))
    assert below("/usr", mounts) == []
    assert below(TREE, mounts) == [
        (TREE, MountContent.WRITABLE, False),
        (f"{TREE}/.venv", MountContent.PROTECTED, False),
    ]


def test_a_tree_below_tmp_is_put_into_the_private_tmp() -> None:
    policy = Policy(
        write=("/tmp/x/tree", "/tmp/x/state/temporary"),
        hidden=("/tmp/x/state",),
        granted=("/tmp/x/state/temporary",),
        temporary="/tmp/x/state/temporary",
    )
    assert below("/tmp", mounts_of(policy)) == [
        ("/tmp", MountContent.TEMPORARY, False),
        ("/tmp/x/state/temporary", MountContent.WRITABLE, True),
        ("/tmp/x/tree", MountContent.WRITABLE, True),
    ]
