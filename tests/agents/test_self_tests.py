"""`hankweave agents --test` with the real programs, which can reach only scripted models."""

from __future__ import annotations

import json
import subprocess

import anyio.to_thread
import pytest

from support.models.turns import Runs, Says
from support.real_agents import REAL, Grounds, Kind
from support.running_server import command, environment

DEADLINE = 200.0


@pytest.mark.timeout(2 * DEADLINE)
@pytest.mark.parametrize("kinds", [REAL], ids=["all"])
async def test_every_agent_passes_its_self_test_without_a_network(
    kinds: tuple[Kind, ...], grounds: Grounds
) -> None:
    """Each agent completes a turn with its usual options and requests no permission.

    It has a key in the environment and no login, and runs a command that writes the file.
    """
    for _ in kinds:
        grounds.endpoint.script.add(Runs("echo hello > hello.txt"), Says("done"))

    offline = {**grounds.environment, "OPENAI_BASE_URL": f"{grounds.endpoint.url}/v1"}
    done = await anyio.to_thread.run_sync(
        lambda: subprocess.run(
            command("agents", "--test", "--json"),
            env=environment(**offline),
            cwd=grounds.folder,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
    )
    assert done.returncode == 0, done.stdout + done.stderr
    reports = json.loads(done.stdout)
    assert {each["name"]: each["passed"] for each in reports} == {kind.name: True for kind in kinds}
    assert grounds.endpoint.script.is_done
