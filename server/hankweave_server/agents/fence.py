"""The fence around an agent or a command: the facts that its policy is made of.

The hank says how strict a fence is, the agent's adapter what its kind of agent needs, and the
layout where the work tree and the private state are. `confinement.policy` combines them.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from hankweave_protocol.hank import Confinement, ConfinementProfile
from hankweave_protocol.replies import ConfinementStatus
from hankweave_protocol.state_directory import private_folder_of
from hankweave_server.agents.base import AgentNeeds
from hankweave_server.agents.process.environment import common
from hankweave_server.confinement.namespaces import is_below
from hankweave_server.confinement.policy import (
    Facts,
    Fence,
    Level,
    Policy,
    Probe,
    limits,
    uncovered,
    workspace_policy,
)
from hankweave_server.confinement.probe import own_programs
from hankweave_server.paths import Layout
from hankweave_server.worktree.data_source import linked_file

_MOST_LINKS = 40  # As in the kernel.


def fence_for(
    layout: Layout,
    wanted: Confinement,
    needs: AgentNeeds,
    level: Level,
    environment: Mapping[str, str],
    *,
    given: Iterable[Path] = (),
    ports: tuple[int, ...] = (),
) -> Fence | None:
    """Return the fence of a program, None if it is not confined.

    The paths in `wanted` must be absolute.

    `environment` is the codon's `env`, `given` what it may read of the server's private state, and
    `ports` are the server's. Raises Stop for damaged metadata.
    """
    if wanted.profile == "none" or level is Level.NONE:
        return None

    seen = {**common(os.environ, {}), **environment}
    search_path = seen.get("PATH", os.defpath)
    writable = (layout.work_tree, needs.home, *needs.write, *wanted.extra_write)
    folders = tuple(os.path.realpath(each) for each in writable if each is not None)
    programs = _programs(needs.programs, search_path, layout.work_tree, folders)
    file = linked_file(layout)
    facts = Facts(
        work_tree=os.path.realpath(layout.work_tree),
        state_directory=os.path.realpath(layout.state_directory),
        home=home_directory(),
        search_path=os.pathsep.join([search_path, *map(os.path.dirname, programs)]),
        agent_home=None if needs.home is None else str(needs.home.absolute()),
        data=os.path.realpath(layout.data_source) if layout.data_source.exists() else None,
        temporary=str(layout.agent_temporary),
        programs=programs,
        server_ports=ports,
        agent_read=(*own_programs(), *_path(file), *map(str, given), *map(str, needs.read)),
        agent_write=tuple(map(str, needs.write)),
        extra_read=wanted.extra_read,
        extra_write=wanted.extra_write,
        connect=wanted.connect,
        is_root=os.geteuid() == 0,
    )
    return Fence(workspace_policy(facts, wanted.profile), level)


def _path(file: Path | None) -> tuple[str, ...]:
    return () if file is None else (str(file),)


def home_directory() -> str:
    """Return the real path of the user's home directory."""
    return os.path.realpath(os.path.expanduser("~"))


def _programs(
    names: tuple[str, ...], search_path: str, work_tree: Path, writable: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the paths of programs, both as they are found and with all links resolved.

    No link is followed that an agent could have made, because it may lead to anything.
    """
    places: list[str] = []
    for name in names:
        found = shutil.which(work_tree / name if "/" in name else name, path=search_path)
        if found is not None:
            path = os.path.abspath(found)
            resolved = _resolved(path, writable)
            places += [path] if resolved is None else [path, resolved]

    return tuple(dict.fromkeys(places))


def _resolved(path: str, writable: tuple[str, ...]) -> str | None:
    """Resolve all links in a path; None if one of them is below a writable folder."""
    seen, rest, links = "/", path.split("/")[::-1], 0
    while rest:
        name = rest.pop()
        if name == "..":
            seen = os.path.dirname(seen)
        elif name not in ("", "."):
            here = os.path.join(seen, name)
            if not os.path.islink(here):
                seen = here
                continue

            links += 1
            if links > _MOST_LINKS or any(is_below(here, folder) for folder in writable):
                return None

            target = os.readlink(here)
            seen = "/" if target.startswith("/") else seen
            rest += target.split("/")[::-1]

    return seen


def status_of(layout: Layout, probe: Probe, profile: ConfinementProfile) -> ConfinementStatus:
    """Return what confines agents with this profile on this machine, and what it does not cover."""
    level = Level.NONE if profile == "none" else probe.level
    policy = Policy(write=(str(layout.work_tree),), hidden=(str(layout.state_directory),))
    apart = shlex.quote(str(private_folder_of(layout.root)))
    open_paths = () if level is Level.NONE else uncovered(policy, level)
    return ConfinementStatus(
        level=probe.level.value,
        landlock_abi=probe.landlock_abi,
        profile=profile,
        not_covered=(
            *(
                f"{path} cannot be hidden, because it is in the work tree. To hide it, move it "
                f"while no server runs: mkdir -p {apart} && mv {shlex.quote(path)} {apart}"
                for path in open_paths
            ),
            *limits(level, probe.landlock_abi),
        ),
    )
