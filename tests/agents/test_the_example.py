"""Claude Code completes the README's example: `hankweave run HANK DATA --agent claude`."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from hankweave_protocol.events import (
    AssistantAction,
    CodonWarning,
    PermissionRequested,
    PermissionResolved,
    ToolResult,
)
from hankweave_protocol.state import CompletedCodon
from support.invariants import Acknowledged, violations
from support.models.turns import Edits, Reads, Runs, Says, Turn, Writes
from support.real_agents import CLAUDE, Grounds, Kind, assert_no_secrets
from support.running_server import EXAMPLE, running_server, state
from support.watching import events_of

DEADLINE = 200.0
CODONS = ("observe", "infer", "generate", "review#0", "review#1", "report")
PROMPTS = {
    "observe": "Count what is there, over all rows",
    "infer": "Be as narrow as the rows allow",
    "generate": "Generate the package",
    "review": "Let n be the number of",
    "report": "a dictionary of the fields",
}
"""Words that only this codon's prompt contains."""


def work(tool: str, *more: Turn) -> tuple[Turn, ...]:
    """Return the model's part of one codon: it runs the program of the step in the shell."""
    ran = Runs(f"python3 -B tools/{tool}.py </dev/null", saying=f"I run {tool}.")
    return ran, *more, Says(f"{tool} is done.")


def script(grounds: Grounds) -> None:
    model, tree = grounds.endpoint.script, grounds.work_tree
    data = tree / "read_only_data_source" / "LICENSE-DATA.md"
    notes, summary = tree / "notes" / "licence.md", tree / "reports" / "summary.md"
    model.on(PROMPTS["observe"], Reads(data), Writes(notes, "draft\n"), *work("observe"))
    model.on(PROMPTS["infer"], *work("infer"))
    model.on(PROMPTS["generate"], *work("generate"))
    model.on(PROMPTS["review"], *work("review"), *work("review"))
    heading = first_line(EXAMPLE / "kit" / "heading.md").format(file="earthquakes.json")
    edit = (Reads(summary), Edits(summary, heading, "# By Claude Code"))
    model.on(PROMPTS["report"], *work("report", *edit))


def first_line(file: Path) -> str:
    return file.read_text().splitlines()[0]


@pytest.mark.timeout(2 * DEADLINE)
@pytest.mark.parametrize("kind", [CLAUDE], ids=str)
async def test_claude_code_does_the_whole_example_without_a_permission_prompt(
    grounds: Grounds, kind: Kind
) -> None:
    """With nothing but a key in the environment, the agent completes five steps and a loop.

    Its shell, Read, Write and Edit tools do real work, no call is refused, and no row fails at the
    end.
    """
    script(grounds)
    options = ("--agent", "claude", "--headless")
    async with running_server(
        EXAMPLE / "hank.json",
        EXAMPLE / "data",
        grounds.execution,
        *options,
        env=grounds.environment,
    ) as server:
        with anyio.fail_after(DEADLINE):
            assert await server.process.wait() == 0, server.output[-5:]

    assert grounds.endpoint.script.is_done
    (run,) = state(grounds.execution).runs
    assert [(codon.codon_id, type(codon)) for codon in run.codons] == [
        (name, CompletedCodon) for name in CODONS
    ]
    assert [each.result for each in events_of(grounds.execution, ToolResult) if each.is_error] == []
    acts = [a.tool_name for a in events_of(grounds.execution, AssistantAction) if a.tool_name]
    assert {"Bash", "Read", "Write", "Edit"} == set(acts)
    assert events_of(grounds.execution, PermissionRequested) == []
    assert events_of(grounds.execution, PermissionResolved) == []
    assert events_of(grounds.execution, CodonWarning) == []
    tree = grounds.work_tree
    failures = [
        json.loads((tree / "reports" / f"review-{n}.json").read_text())["failures"] for n in (0, 1)
    ]
    assert failures == [75, 0]
    assert first_line(tree / "reports" / "summary.md") == "# By Claude Code"
    assert "Geological Survey" in grounds.endpoint.turns[1].shown
    assert_no_secrets(grounds)
    assert violations(grounds.execution, Acknowledged()) == []
