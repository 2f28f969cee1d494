"""The attacks of `support/attacks.py` by an agent of a real server, in both layouts.

`test_confinement.py` runs them in a fence of its own making. Here the server makes the fence, for
an agent, a rig command and a check of a hank that says nothing about confinement, and the attacks
are on the server's own process, port, token, journal and checkpoints.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from hankweave_protocol.commands import CodonNext
from hankweave_protocol.events import ServerIdle
from hankweave_protocol.state_directory import state_directory_of
from hankweave_server.confinement.policy import Level
from hankweave_server.confinement.probe import probe, try_level
from support.attacked import Attacked, Layout
from support.attacks import OF_LANDLOCK
from support.running_server import CONFINED, running_server
from support.scripted_hank import codon, write_hank, writes
from support.waiting import LIMIT

IN_DOCKER = (
    sys.executable,
    "-c",
    "import os, sys; sys.path.insert(0, sys.argv[1]); "
    "from support.fenced import imitate_docker; imitate_docker(); "
    "os.execvp(sys.argv[2], sys.argv[2:])",
    str(Path(__file__).resolve().parent.parent),
)
"""Starts a program as in a container with Docker's default profile: without user namespaces."""


pytestmark = pytest.mark.enclosed


@pytest.fixture
def base() -> Iterator[Path]:
    """A folder outside of /tmp, which the fence replaces."""
    with tempfile.TemporaryDirectory(prefix="hankweave-", dir="/var/tmp") as name:
        yield Path(name)


@pytest.mark.skipif(
    probe().level is not Level.NAMESPACE, reason="this machine has no user namespaces"
)
@pytest.mark.story(
    "No attack of a confined agent reaches the server or its user.",
    of="SECURITY.md",
    cases=("agent-in place",),
)
@pytest.mark.parametrize(
    ("who", "layout"),
    [("agent", "beside"), ("agent", "in place"), ("rig", "beside"), ("check", "in place")],
)
async def test_no_attack_of_an_agent_or_command_reaches_the_server_or_the_user(
    base: Path, who: Literal["agent", "rig", "check"], layout: Layout
) -> None:
    """Every attack is stopped, the server lives on unchanged, and no file outside has changed."""
    root = base / "home" / "work" / "execution"
    attacked = Attacked(base, layout, root, base / "tools")
    run = attacked.command("report.json")
    steps = [writes("before.txt", "x")]
    fields: dict[str, Any] = {"confinement": {"extraRead": [str(base / "tools")]}}
    if who == "agent":
        steps.append({"run": run})
    elif who == "rig":
        fields["rigSetup"] = [{"type": "command", "command": {"run": run}}]
    else:
        fields["checks"] = [{"run": run}]

    hank = write_hank(base / "hank", codon("one", *steps, **fields))
    if layout == "in place":
        root.mkdir(parents=True)

    place = "--workspace" if layout == "in place" else "--execution"
    env = CONFINED | {"HOME": str(attacked.home)}
    async with (
        running_server(hank, None, root, "--no-autostart", env=env, place=place) as server,
        server.client() as client,
    ):
        attacked.arm(server.pid)
        await client.send(CodonNext())
        await client.until(
            ServerIdle,
            lambda event: getattr(event.data, "reason", None) == "all-codons-completed",
            timeout=LIMIT,
        )
        attacked.judge(server.pid, attacked.tree / "report.json")


@pytest.mark.skipif(try_level(Level.LANDLOCK) is not None, reason="this machine has no Landlock")
async def test_at_the_level_of_landlock_the_state_of_a_project_is_out_of_reach(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container, an agent in its user's project reaches neither tokens nor checkpoints.

    The state lies outside of the project, where commands find it by the project's path. What
    remains possible is what Landlock does not govern.
    """
    root = base / "home" / "work" / "execution"
    root.mkdir(parents=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(base / "home" / "state"))
    attacked = Attacked(base, "in place", root, base / "tools")
    tools = {"confinement": {"extraRead": [str(base / "tools")]}}
    steps = (writes("before.txt", "x"), {"run": attacked.command("report.json")})
    hank = write_hank(base / "hank", codon("one", *steps, **tools))
    env = CONFINED | {"HOME": str(attacked.home)}
    place = {"place": "--workspace", "within": IN_DOCKER}
    async with (
        running_server(hank, None, root, "--no-autostart", env=env, **place) as server,
        server.client() as client,
    ):
        attacked.arm(server.pid)
        await client.send(CodonNext())
        await client.until(
            ServerIdle,
            lambda event: getattr(event.data, "reason", None) == "all-codons-completed",
            timeout=LIMIT,
        )
        attacked.judge(server.pid, root / "report.json", possible=OF_LANDLOCK)
        assert not (root / ".hankweave").exists()
        assert state_directory_of(root).is_relative_to(base / "home" / "state")
