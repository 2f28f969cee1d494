"""The time that a fence adds to the start of a program, below a keeper as every agent is."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from time import perf_counter

from bench.figures import AtMost, Figure
from bench.rounds import Variant, medians
from bench.scale import Scale
from hankweave_protocol.ids import CodonId, RunId
from hankweave_server.agents.process import peers
from hankweave_server.agents.process.subprocess_task import SubprocessTasks
from hankweave_server.confinement.policy import Facts, Fence, Level, workspace_policy
from hankweave_server.confinement.probe import prepare_ports, try_level

BENCH = "confinement"
PLAIN = "unconfined"
STARTS_IN_A_ROUND = 20
MOST_ADDED = 10.0
PORT = 7777
LEVELS = (Level.NAMESPACE, Level.LANDLOCK)


async def measure(folder: Path, scale: Scale) -> list[Figure]:
    """Measure until the first output: at each level, without and with the denied port."""
    if not peers.can_recognize():
        prepare_ports((PORT,))

    variants: dict[str, Variant] = {PLAIN: partial(_start, folder, None)}
    for level in LEVELS:
        if try_level(level) is None:
            for name, ports in ((level.value, ()), (f"{level.value}, port denied", (PORT,))):
                variants[name] = partial(_start, folder, _fence(folder, level, ports))

    found = await medians(variants, STARTS_IN_A_ROUND * scale.rounds)
    target = AtMost(found[PLAIN] + MOST_ADDED)
    return [
        Figure(BENCH, f"start of a program, {name}", value, "ms", PLAIN, found[PLAIN], target)
        for name, value in found.items()
        if name != PLAIN
    ]


def _fence(folder: Path, level: Level, ports: tuple[int, ...]) -> Fence:
    state = folder / ".hankweave"
    facts = Facts(
        work_tree=str(folder / "agentRoot"),
        state_directory=str(state),
        home=str(Path.home()),
        search_path=os.environ["PATH"],
        temporary=str(state / "temporary"),
        server_ports=ports,
        is_root=os.geteuid() == 0,
    )
    return Fence(workspace_policy(facts), level)


async def _start(folder: Path, fence: Fence | None) -> float:
    tree = folder / "agentRoot"
    tree.mkdir(exist_ok=True)
    subprocess_tasks = SubprocessTasks(RunId("run"), CodonId("codon"), folder / "processes", fence)
    began = perf_counter()
    async with subprocess_tasks.start(["echo"], tree, {"PATH": os.environ["PATH"]}) as child:
        await anext(child.stdout.chunks())
        seconds = perf_counter() - began
        await child.ended()

    return 1000 * seconds
