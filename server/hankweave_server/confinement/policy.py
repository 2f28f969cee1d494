"""The limits of a confined process: the policy, the levels of enforcement, and the defaults.

Everything here is pure. `probe` finds the level that this machine offers, and `fence` applies a
policy in the process that is about to become an agent.

How the lists of a policy combine:

- what is in no list can neither be read nor written (its metadata may still be visible);
- a path in `read` or `write` includes everything below it;
- a path in `hidden` is unreachable with everything below it, whatever `read` and `write` say,
  except for the paths in `granted`, which keep the right that `read` or `write` gives them.

So `extraRead` and `extraWrite` of a hank can go into `read` and `write` unchecked: they cannot open
what the server hides.
"""

from __future__ import annotations

import enum
import os.path
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from hankweave_server.confinement.namespaces import is_below

Profile = Literal["workspace", "readonly", "none"]


class Level(enum.Enum):
    """How a policy is enforced, from strong to not at all."""

    NAMESPACE = "namespace"
    """A user and a mount namespace with read-only mounts, Landlock, and seccomp.

    Where Landlock is missing or too old, a new root with nothing but the policy's paths instead.
    """

    BWRAP = "bwrap"
    """The same by the program bubblewrap, which some systems alone allow to mount."""

    LANDLOCK = "landlock"
    """Landlock and seccomp alone, for instance in a container."""

    NONE = "none"


class Policy(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The rights of a confined process; all paths are absolute, and need not exist."""

    profile: Profile = "workspace"
    """With `none` nothing is enforced, and the other fields have no effect."""

    read: tuple[str, ...] = ()
    """Files and folders that it may read and execute."""

    write: tuple[str, ...] = ()
    """Files and folders that it may read, execute and change."""

    hidden: tuple[str, ...] = ()
    """Files and folders that are covered, for example `.hankweave` or the Docker socket."""

    concealed: tuple[str, ...] = ()
    """Folders that look empty but for what `read` and `write` name below them: the user's home.

    Without mounts they only cannot be read.
    """

    granted: tuple[str, ...] = ()
    """Paths below a hidden one that stay reachable, for example the agent's home."""

    temporary: str | None = None
    """A private folder that takes the place of /tmp where the level can do that.

    It is made if it does not exist, and writable at every level; see `environment_of`.
    """

    denied_ports: tuple[int, ...] = ()
    """TCP ports that it may not connect to, on any host: the server's own."""

    connect: tuple[int, ...] | None = None
    """The only TCP ports that it may connect to; None allows all but `denied_ports`."""


class Fence(msgspec.Struct, frozen=True, rename="camel"):
    """A policy and the level at which the keeper applies it; sent to the keeper as JSON."""

    policy: Policy
    level: Level

    @property
    def is_open(self) -> bool:
        """Whether nothing is enforced."""
        return self.policy.profile == "none" or self.level is Level.NONE


class Probe(msgspec.Struct, frozen=True, rename="camel"):
    """The strongest level of confinement that works on this machine."""

    level: Level
    """The strongest level that works here."""

    landlock_abi: int = 0
    """The version of Landlock's interface; 0 without Landlock."""

    reasons: Mapping[str, str] = {}
    """Why a level does not work here, by the level's name; levels that work are missing."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts from which the default policy of an agent or a command is derived."""

    work_tree: str
    state_directory: str
    home: str
    """The user's home directory."""

    search_path: str = "/usr/local/bin:/usr/bin:/bin"
    """The value of PATH that the process gets."""

    agent_home: str | None = None
    """The agent's own home, usually in the state directory."""

    data: str | None = None
    """The real path of the data; readable, not writable."""

    temporary: str | None = None
    """A private folder for temporary files and caches."""

    programs: tuple[str, ...] = ()
    """Real paths of the programs that are run, for those that PATH reaches through links."""

    server_ports: tuple[int, ...] = ()
    agent_read: tuple[str, ...] = ()
    """What this kind of agent needs to read besides, for example its login."""

    agent_write: tuple[str, ...] = ()
    extra_read: tuple[str, ...] = ()
    """The hank's and the command line's lists; `~` and relative paths are resolved already."""

    extra_write: tuple[str, ...] = ()
    connect: tuple[int, ...] | None = None
    is_root: bool = False


SYSTEM_READ = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/etc",
    "/proc",
    "/sys",
    "/nix/store",
    "/gnu/store",
    "/snap",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager/resolv.conf",
    "/run/current-system",
    "/var/lib/ca-certificates",
    "/var/lib/alternatives",
)
"""System folders, and where /etc/resolv.conf and certificates may really be."""

DEVICES = (
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
    "/dev/shm",
)

HOME_READ = (".gitconfig", ".config/git")
"""Git ends with an error if one of these exists and cannot be read."""

SECRETS_OF_ROOT = (
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssl/private",
    "/etc/pki/tls/private",
)
"""Files below a readable folder that only root can read; mode bits protect them from others."""

RUNTIME = "/run"
"""Sockets of the system's services, and secrets of containers."""

SSH_SETTINGS = ("/etc/ssh/ssh_config.d",)
"""Settings for all users. In a user namespace files of root seem to belong to nobody, and ssh ends
with an error if one of these does."""

DAEMON_SOCKETS = (
    "/run/user",
    "/run/docker.sock",
    "/run/docker",
    "/run/containerd",
    "/run/podman",
    "/run/dbus",
    "/run/systemd/private",
    "/run/systemd/journal",
    "/run/snapd.socket",
    "/run/libvirt",
    "/run/lxd",
    "/run/crio",
    "/var/lib/lxd/unix.socket",
    "/var/snap/lxd/common/lxd/unix.socket",
)
"""Unix sockets of programs that would act for the process outside its fence.

No list of a hank opens these. Landlock does not govern connections by path, so only mounts can
hide them.
"""

_TOOLCHAINS: Mapping[str, tuple[str, ...]] = {
    ".cargo/bin": (
        ".cargo/bin",
        ".cargo/config.toml",
        ".cargo/registry",
        ".cargo/git",
        ".rustup",
    ),
    ".local/bin": (".local/bin", ".local/lib", ".local/share/pipx", ".local/share/uv"),
    "go/bin": ("go/bin", "go/pkg"),
    "bin": ("bin",),
}
"""For entries of PATH in a home whose parent holds other things as well: what belongs to them."""


def workspace_policy(facts: Facts, profile: Profile = "workspace") -> Policy:
    """Return the policy of an agent or a command by default, for a profile."""
    if profile == "none":
        return Policy(profile="none")

    own = _given(facts.agent_home, facts.temporary)
    write = (*own, *DEVICES, *facts.agent_write)
    if profile == "workspace":
        write = (facts.work_tree, *write, *facts.extra_write)

    read = (
        *SYSTEM_READ,
        facts.work_tree,
        *_given(facts.data),
        *toolchains(facts.search_path, facts.home),
        *(part for program in facts.programs for part in program_files(program)),
        *(f"{facts.home}/{name}" for name in HOME_READ),
        *facts.agent_read,
        *facts.extra_read,
    )
    ours = (*own, *_given(facts.data), *facts.agent_read, *facts.agent_write)
    if is_below(facts.work_tree, facts.state_directory):
        ours = (facts.work_tree, *ours)

    return Policy(
        profile=profile,
        read=_unique(read),
        write=_unique(write),
        hidden=_unique(
            (
                facts.state_directory,
                *DAEMON_SOCKETS,
                *(SECRETS_OF_ROOT if facts.is_root else ()),
            )
        ),
        concealed=(RUNTIME, *_concealable(facts.home), *(() if facts.is_root else SSH_SETTINGS)),
        granted=_unique(path for path in ours if is_below(path, facts.state_directory)),
        temporary=facts.temporary,
        denied_ports=facts.server_ports,
        connect=facts.connect,
    )


def _concealable(home: str) -> tuple[str, ...]:
    """Return the home unless it holds, or is, a folder of the system, as for some services."""
    system = any(is_below(home, path) or is_below(path, home) for path in SYSTEM_READ)
    return () if system or not home.startswith("/") else (home,)


def toolchains(search_path: str, home: str) -> tuple[str, ...]:
    """Return the folders of the toolchains on PATH that are not in a system folder.

    A folder `X/bin` stands for `X`, because libraries are usually beside it, unless `X` is a home,
    or a folder at the top, where other things are as well.
    """
    entries = (entry.rstrip("/") for entry in search_path.split(":") if entry.startswith("/"))
    return _unique(folder for entry in entries for folder in _toolchain(entry, home))


def _toolchain(entry: str, home: str) -> tuple[str, ...]:
    if not entry or any(is_below(entry, folder) for folder in SYSTEM_READ):
        return ()

    known = _TOOLCHAINS.get(entry.removeprefix(home + "/"))
    if known is not None:
        return tuple(f"{home}/{name}" for name in known)

    parent = os.path.dirname(entry)
    is_broad = parent.count("/") < 2 or is_below(home, parent)
    ends_as_program_folder = os.path.basename(entry) in {"bin", "sbin", "shims"}
    return (parent,) if ends_as_program_folder and not is_broad else (entry,)


def program_files(path: str) -> tuple[str, ...]:
    """Return a program's real path and, if it is in a package of npm, the packages beside it."""
    before, found, _ = path.partition("/node_modules/")
    return (path, f"{before}/node_modules") if found else (path,)


def granting(fence: Fence, *, read: Iterable[str] = (), write: Iterable[str] = ()) -> Fence:
    """Return a fence that also lets through what one program needs, hidden or not."""
    more_read, more_write, policy = tuple(read), tuple(write), fence.policy
    return msgspec.structs.replace(
        fence,
        policy=msgspec.structs.replace(
            policy,
            read=_unique((*policy.read, *more_read)),
            write=_unique((*policy.write, *more_write)),
            granted=_unique((*policy.granted, *more_read, *more_write)),
        ),
    )


def environment_of(fence: Fence) -> dict[str, str]:
    """Return variables that move temporary files, and the caches of package managers, inside.

    Their usual places are in /tmp and in the user's home. Where the fence replaces /tmp, TMPDIR is
    /tmp, because the name of a unix socket has room for 107 bytes only.
    """
    folder = fence.policy.temporary
    if folder is None or fence.is_open:
        return {}

    return {
        "TMPDIR": folder if fence.level is Level.LANDLOCK else "/tmp",
        "XDG_CACHE_HOME": f"{folder}/cache",
        "npm_config_cache": f"{folder}/cache/npm",
        "PIP_CACHE_DIR": f"{folder}/cache/pip",
        "UV_CACHE_DIR": f"{folder}/cache/uv",
        "GOCACHE": f"{folder}/cache/go-build",
        "GOMODCACHE": f"{folder}/cache/go-mod",
        "GRADLE_USER_HOME": f"{folder}/cache/gradle",
    }


_IN_ANY_CASE = (
    "UDP is not restricted.",
    "Unix sockets by path can be connected to where their folder is not hidden.",
    "Names, sizes and times of files can be seen, and the command lines of processes.",
)
_WITHOUT_MOUNTS = (
    "The mode, times, owner and attributes of the user's own files can be changed.",
    "Shared memory (/dev/shm, System V) of the user's other processes can be reached.",
    "The user's other terminals can be read and written.",
)
_BEFORE_VERSION = {
    4: "TCP ports are not restricted; without control groups, a token opens the server's.",
    6: "Signals and abstract unix sockets reach the user's other processes.",
}
"""What Landlock covers since a version of its interface."""


def limits(level: Level, landlock_abi: int) -> tuple[str, ...]:
    """Return what a level does not cover here, as sentences for people."""
    if level is Level.NONE:
        return ("Agents run with all rights of the user.",)

    return (
        *(sentence for since, sentence in _BEFORE_VERSION.items() if landlock_abi < since),
        *(_WITHOUT_MOUNTS if level is Level.LANDLOCK else ()),
        *_IN_ANY_CASE,
    )


def uncovered(policy: Policy, level: Level) -> tuple[str, ...]:
    """Return the hidden paths that a level cannot hide, because a folder around them is allowed.

    Landlock has no exceptions: what is below an allowed folder is allowed.
    """
    if policy.profile == "none" or level is Level.NONE:
        return policy.hidden

    if level is not Level.LANDLOCK:
        return ()

    allowed = (*policy.read, *policy.write)
    return tuple(
        hidden for hidden in policy.hidden if any(is_below(hidden, path) for path in allowed)
    )


def _given(*paths: str | None) -> tuple[str, ...]:
    return tuple(path for path in paths if path is not None)


def _unique(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(paths))
