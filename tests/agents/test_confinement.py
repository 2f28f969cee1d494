"""Real agents inside their fence: they work as usual, and get nowhere else."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hankweave_protocol.commands import CodonNext
from hankweave_protocol.events import AgentConfined, Event, ServerIdle
from hankweave_server.confinement.policy import Level
from hankweave_server.confinement.probe import probe
from support.attacked import Attacked, Layout
from support.models.endpoint import Endpoint
from support.models.turns import Runs, Says, Writes
from support.real_agents import GEMINI, Grounds, Kind
from support.running_server import running_server
from support.scripted_hank import write_hank
from support.watching import events_of

DEADLINE = 240.0

pytestmark = pytest.mark.skipif(
    probe().level is not Level.NAMESPACE, reason="this machine has no user namespaces"
)


@pytest.fixture
def grounds(endpoint: Endpoint, kinds: tuple[Kind, ...]) -> Iterator[Grounds]:
    """Grounds outside of /tmp, which the fence replaces."""
    with tempfile.TemporaryDirectory(prefix="hankweave-", dir="/var/tmp") as name:
        yield Grounds(endpoint, Path(name), kinds)


def has_ended(event: Event) -> bool:
    return getattr(event.data, "reason", None) == "all-codons-completed"


@pytest.mark.enclosed
@pytest.mark.timeout(2 * DEADLINE)
@pytest.mark.parametrize("layout", ["beside", "in place"])
async def test_a_real_agent_gets_nowhere_with_any_attack(
    grounds: Grounds, kind: Kind, layout: Layout
) -> None:
    """Its shell runs every attack, in both layouts: none reaches the user or the server.

    Its own tools write in the work tree as usual, and a file that its shell may not read is
    reported.
    """
    data = grounds.folder / "data"
    attacked = Attacked(grounds.folder, layout, grounds.execution, data)
    tree = attacked.tree
    grounds.endpoint.script.add(
        Writes(tree / "notes.txt", "first\n"),
        Runs(f"cat {attacked.home}/.ssh/authorized_keys"),
        Runs(attacked.command("report.json")),
        Says("All is done."),
    )
    hank = write_hank(
        grounds.folder / "hank",
        grounds.codon("one", kind, "Please PROMPT-ONE."),
        overrides={"confinement": {"extraRead": [str(data)]}},
    )
    if layout == "in place":
        grounds.execution.mkdir()

    place = "--workspace" if layout == "in place" else "--execution"
    async with (
        running_server(
            hank, None, grounds.execution, "--no-autostart", env=grounds.environment, place=place
        ) as server,
        server.client() as client,
    ):
        attacked.arm(server.pid)
        await client.send(CodonNext())
        await client.until(ServerIdle, has_ended, timeout=DEADLINE)
        attacked.judge(server.pid, tree / "report.json")

    assert (tree / "notes.txt").read_text() == "first\n"
    if kind is GEMINI:
        return  # It does not report what its shell printed.

    refused = f"{attacked.home}/.ssh/authorized_keys"
    assert refused in [each.path for each in events_of(grounds.execution, AgentConfined)]
