"""Seed 001's snippets for reading an agent's log work verbatim on a live execution."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from support.running_server import run_headless
from support.scripted_hank import codon, write_hank, writes
from support.watching import after_plan

SNIPPET = """\
import { readFileSync } from "fs";

const logPath = ".hankweave/runs/run-123/observe#0-claude.log";
const log = readFileSync(logPath, "utf-8");
const messages = log
  .split("\\n")
  .filter(Boolean)
  .map((line) => JSON.parse(line));

// Find all tool calls made by the assistant
const toolCalls = messages
  .filter((m) => m.type === "assistant")
  .flatMap((m) => m.content?.filter((c) => c.type === "tool_use") || []);
"""
"""Seed 001, "View an agent's conversation", verbatim."""

PLACE = "run-123/observe#0"


async def test_the_seeds_snippet_finds_the_calls_of_a_running_agent(tmp_path: Path) -> None:
    """Seed 001's JavaScript finds all three calls.

    Python finds time, tokens and cost where the seed's table of messages has them.
    """
    hank = write_hank(
        tmp_path / "hank",
        codon(
            "observe",
            {"say": "I begin."},
            writes("a.txt", "a\n"),
            writes("b.txt", "b\n"),
            {"run": "cat a.txt"},
            {"cost": 0.015},
        ),
    )
    execution = tmp_path / "execution"
    async with after_plan(hank, execution) as (server, _):
        log = only_log(execution)
        messages = [json.loads(line) for line in log.read_text().splitlines()]
        found = seen_by_node(execution, log) if shutil.which("node") else tool_calls(messages)
        assert await server.stop() == 0

    assert [call["name"] for call in found] == ["Write", "Write", "Bash"]
    assert found == tool_calls(messages)
    moments = [datetime.fromisoformat(each["timestamp"]) for each in messages]
    assert moments == sorted(moments)
    kinds = {each["type"] for each in messages}
    assert kinds == {"system", "assistant", "user", "result", "control_request"}
    spoken = [each for each in messages if each["type"] == "assistant"]
    assert all(each["usage"]["output_tokens"] > 0 for each in spoken)
    assert all(each["message"]["content"] == each["content"] for each in spoken)
    results = [block for each in messages if each["type"] == "user" for block in each["content"]]
    assert [each["tool_use_id"] for each in results] == [each["id"] for each in found]
    ended = messages[-1]
    assert (ended["type"], ended["cost"], ended["total_cost"]) == ("result", 0.015, 0.015)


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
async def test_jq_prints_the_whole_log(tmp_path: Path, execution: Path) -> None:
    """Seed 001's `cat … | jq .` reads every line."""
    hank = write_hank(tmp_path / "hank", codon("observe", writes("a.txt", "a\n")))
    assert await run_headless(hank, execution) == 0

    log = only_log(execution)
    shell = f"cat '{log}' | jq ."
    printed = await anyio.run_process(["sh", "-c", shell])
    assert printed.stdout.count(b'"timestamp"') == len(log.read_text().splitlines())


def only_log(execution: Path) -> Path:
    (found,) = (execution / ".hankweave" / "runs").glob("*/*-claude.log")
    return found


def tool_calls(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what the snippet returns, by the same rule in Python."""
    spoken = [each for each in messages if each["type"] == "assistant"]
    return [block for each in spoken for block in each["content"] if block["type"] == "tool_use"]


def seen_by_node(execution: Path, log: Path) -> list[dict[str, Any]]:
    """Run the snippet in the execution directory, with only the names in its path replaced."""
    place = f"{log.parent.name}/{log.name.removesuffix('-claude.log')}"
    source = SNIPPET.replace(PLACE, place) + "\nconsole.log(JSON.stringify(toolCalls));\n"
    program = execution.parent / "snippet.mjs"
    program.write_text(source)
    ran = subprocess.run(
        ["node", os.fspath(program)], cwd=execution, capture_output=True, text=True, check=True
    )
    return list(json.loads(ran.stdout))
