"""Files that an agent is about to change are saved first, without a permission request."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import pytest

from hankweave_client.client import Client
from hankweave_protocol.commands import CheckpointCreate
from hankweave_protocol.events import ToolResult
from hankweave_protocol.records import CheckpointRecord
from support.git_facts import GitWitness
from support.invariants import Acknowledged, violations
from support.models.turns import Held, Runs, Says, Writes
from support.real_agents import CODEX, GEMINI, REAL, Grounds, Kind
from support.running_server import running_server, tree
from support.scripted_hank import write_hank
from support.waiting import LIMIT
from support.watching import idle, listed


@pytest.mark.parametrize("kind", REAL, ids=str)
async def test_a_persons_edit_is_saved_before_an_agent_writes_over_it(
    grounds: Grounds, kind: Kind
) -> None:
    """An edit by a person is saved before an agent overwrites it.

    The person edits a file while the model thinks; the agent's shell overwrites it, then its file
    tool writes another. Both edits are in checkpoints that contain nothing of the call.
    """
    await saves_a_persons_edits(grounds, kind)


@pytest.mark.parametrize("kind", [GEMINI], ids=str)
async def test_gemini_cli_waits_though_its_person_lets_it_edit_unasked(
    grounds: Grounds, kind: Kind
) -> None:
    """A user's own Gemini CLI settings do not remove the wait before each call."""
    assert grounds.environment
    file = grounds.folder / "home" / ".gemini" / "settings.json"
    settings = json.loads(file.read_text())
    settings["general"] = settings.get("general", {}) | {"defaultApprovalMode": "auto_edit"}
    settings["tools"] = {"allowed": ["write_file", "replace", "run_shell_command"]}
    await saves_a_persons_edits(grounds, kind, lambda: file.write_text(json.dumps(settings)))


async def saves_a_persons_edits(
    grounds: Grounds, kind: Kind, before: Callable[[], object] = lambda: None
) -> None:
    first, second = threading.Event(), threading.Event()
    edited, other = grounds.work_tree / "a.txt", grounds.work_tree / "c.txt"
    grounds.endpoint.script.add(
        Writes(edited, "of the agent\n", saying="I write A."),
        Held(Runs("echo overwritten > a.txt"), first),
        Held(Writes(other, "of the agent\n"), second),
        Says("All is written."),
    )
    hank = write_hank(grounds.folder / "hank", grounds.codon("one", kind, "Please PROMPT-ONE."))
    environment = grounds.environment
    before()
    async with (
        running_server(hank, None, grounds.execution, env=environment) as server,
        server.client() as client,
    ):
        await client.until(ToolResult, timeout=LIMIT)
        await client.send(CheckpointCreate(label="the agent has written A"))
        edited.write_text("of a person\n")
        first.set()
        await client.until(ToolResult, timeout=LIMIT)
        await client.send(CheckpointCreate(label="the agent has overwritten A"))
        edited.write_text("of a person again\n")
        second.set()
        await idle(client)
        found = await saved(client, grounds)
        assert await server.stop() == 0

    assert tree(grounds.work_tree) == {"a.txt": b"of a person again\n", "c.txt": b"of the agent\n"}
    assert {"a.txt": b"of a person\n"} in [files for _, files in found]
    before = [record for record, files in found if files == {"a.txt": b"of a person again\n"}]
    assert [record.kind for record in before] == ["tool"]
    assert grounds.endpoint.script.is_done
    assert violations(grounds.execution, Acknowledged()) == []


@pytest.mark.parametrize("kind", [CODEX], ids=str)
async def test_codex_runs_no_hook_of_the_work_tree(grounds: Grounds, kind: Kind) -> None:
    """The server's hook is trusted without approval; a hook in the work tree is not."""
    handler = {"type": "command", "command": f"touch {grounds.folder}/was-run"}
    hooks = {"hooks": {"PreToolUse": [{"matcher": "*", "hooks": [handler]}]}}
    placed = f"mkdir -p .git .codex && echo '{json.dumps(hooks)}' > .codex/hooks.json"
    grounds.endpoint.script.add(Runs(placed), Says("Placed."), Runs("echo done > a.txt"), Says("."))
    codons = (grounds.codon(name, kind, "Please PROMPT.") for name in ("one", "two"))
    hank = write_hank(grounds.folder / "hank", *codons)
    async with running_server(
        hank, None, grounds.execution, "--headless", env=grounds.environment
    ) as server:
        assert await server.ended() == 0

    assert (grounds.work_tree / ".codex" / "hooks.json").exists()
    assert (grounds.work_tree / "a.txt").read_text() == "done\n"
    assert not (grounds.folder / "was-run").exists()


async def saved(
    client: Client, grounds: Grounds
) -> list[tuple[CheckpointRecord, dict[str, bytes]]]:
    git = GitWitness(grounds.execution)
    return [(record, git.files(record.sha)) for record in await listed(client)]
