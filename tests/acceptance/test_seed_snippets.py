"""Every command in the documents works on a live execution with the printed result.

`tests/features/architect/test_seed_003.py` does the same for the document about Architect's
checkpoints.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

from hankweave_client.discovery import discover
from hankweave_client.log_reader import WebSocketLogReader
from hankweave_protocol.events import Event, ServerIdle
from support import seed_snippets as seed
from support.git_facts import GitWitness
from support.running_server import command, environment, running_server, state
from support.scripted_hank import codon, write_hank, writes
from support.waiting import LIMIT, eventually_blocking, limited

TOP = Path(__file__).resolve().parents[2]

AGENT = """\
import json, pathlib, sys
sys.stdin.read()
path = pathlib.Path("src/schema/types.ts")
path.parent.mkdir(parents=True, exist_ok=True)
def say(line):
    print(json.dumps(line), flush=True)
say({"type": "system", "subtype": "init", "session_id": "s-%(name)s", "model": "m", "tools": []})
for number in (1, 2, 3):
    say({"type": "assistant", "message": {"id": f"m{number}", "role": "assistant", "model": "m",
         "content": [{"type": "tool_use", "id": f"t{number}", "name": "Write",
                      "input": {"file_path": str(path), "content": f"%(name)s {number}"}}],
         "usage": {"input_tokens": 10, "output_tokens": 5}}})
    path.write_text(f"%(name)s {number}\\n")
    say({"type": "user", "message": {"role": "user", "content": [
         {"type": "tool_result", "tool_use_id": f"t{number}", "content": "File written"}]}})
say({"type": "result", "subtype": "success", "is_error": False, "result": "done",
     "session_id": "s-%(name)s", "duration_ms": 1, "num_turns": 3, "total_cost_usd": 0.015})
sys.exit(%(code)d)
"""
"""A program that prints Claude Code's format and makes three tool calls."""


def agent(name: str, code: int = 0) -> dict[str, Any]:
    program = AGENT % {"name": name, "code": code}
    return {"type": "command", "command": ["python3", "-c", program]}


def loop(name: str) -> dict[str, Any]:
    """Return a loop of one iteration, whose codon therefore runs as `NAME#0`."""
    return {
        "type": "loop",
        "id": f"{name}-loop",
        "name": f"Loop {name}",
        "terminateOn": {"type": "iterationLimit", "limit": 1},
        "codons": [codon(name, tracked=["src/**/*.ts"], agent=agent(name), promptText="Go on.")],
    }


@dataclass(frozen=True)
class Live:
    """An execution whose plan has ended and whose server still runs."""

    home: Path
    execution: Path

    def shell(self, script: str) -> str:
        """Run a script in the execution directory, as a reader of the documents would."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.execution,
            env={"HOME": str(self.home), "PATH": os.environ["PATH"], "GIT_PAGER": "cat"},
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def git(self, script: str, **names: str) -> str:
        """Run git commands of the documents, with each placeholder replaced by its value."""
        for placeholder, value in names.items():
            script = script.replace(placeholder, value)

        return self.shell(seed.CONFIGURE_GIT + script)

    def node(self, program: str, *shown: str, folder: Path) -> tuple[list[Any], str]:
        """Run a JavaScript module and return the values of these names, and its output."""
        if shutil.which("node") is None:
            pytest.skip("there is no node program")

        modules = folder / "node_modules"
        modules.mkdir()
        (modules / "hankweave").symlink_to(TOP / "protocol" / "javascript")
        module = folder / "program.mjs"
        values = ", ".join(f"{name} ?? null" for name in shown)
        module.write_text(f"{program}\nconsole.log(JSON.stringify([{values}]));\n")
        done = subprocess.run(
            ["node", str(module)],
            cwd=self.execution,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        *printed, last = done.stdout.splitlines()
        found: list[Any] = json.loads(last)
        return found, "\n".join(printed)

    @property
    def commits(self) -> dict[str, str]:
        """Return the checkpoint of each kind and codon, by its subject up to the bracket."""
        lines = self.git("git log --all --format='%H %s'").splitlines()
        return {line[41:].split(" [")[0]: line[:40] for line in lines}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Run three codons, one with a failure that the hank ignores."""
    folder = tmp_path_factory.mktemp("seeds")
    home, data = folder / "home", folder / "data"
    home.mkdir()
    data.mkdir()
    (data / "input.txt").write_text("input\n")
    hank = write_hank(
        folder / "hank",
        codon(
            "build-schema",
            tracked=["src/**/*.ts"],
            agent=agent("build-schema"),
            promptText="Build it.",
            name="Build Zod Schemas",
            **json.loads(seed.RIG_WITH_ARCHIVE.replace('"src"', '"kit"')),
        ),
        loop("observe"),
        codon(
            "validate", agent=agent("validate", code=1), promptText="Check it.", onFailure="ignore"
        ),
        loop("generate"),
    )
    templates = folder / "hank" / "templates"
    templates.mkdir()
    (templates / "readme.md").write_text("a template\n")
    words = ("run", str(hank), str(data), "--json", "--no-exit-on-complete")
    with (folder / "output").open("w+") as output:
        server = subprocess.Popen(
            command(*words),
            env=environment(HOME=str(home)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
        )
        try:
            assert server.stdout is not None
            ended = any('"all-codons-completed"' in line for line in server.stdout)
            assert ended, (folder / "output").read_text()
            (execution,) = (home / ".hankweave-executions").iterdir()
            yield Live(home, execution)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(LIMIT)
            server.stdout.close()


def test_the_listing_shows_every_checkpoint_on_every_branch(live: Live) -> None:
    """`git log --oneline --all` prints one line for each, as the document shows them."""
    lines = live.git(seed.LIST_CHECKPOINTS).splitlines()
    run = state(live.execution).runs[0].run_id
    assert any(
        re.fullmatch(
            rf"[0-9a-f]{{7,}} (\(.*\) )?completed:build-schema \[run:{run}\] Build Zod Schemas",
            line,
        )
        for line in lines
    )
    assert any(f" error:validate [run:{run}] " in line for line in lines)
    assert all(re.match(r"[0-9a-f]{7,} ", line) for line in lines)


def test_two_checkpoints_can_be_compared(live: Live) -> None:
    """`git diff` names the changes, over all files and for one of them."""
    found = live.commits
    names = {"abc123": found["completed:build-schema"], "def456": found["completed:observe#0"]}
    assert live.git(seed.COMPARE_STATES, **names).count("+observe 3") == 2


def test_a_checkpoint_can_be_inspected(live: Live) -> None:
    """The message of a checkpoint, its files, and one file's content are shown."""
    shown = live.git(seed.INSPECT_CHECKPOINT, abc123=live.commits["completed:build-schema"])
    assert "Codon: Build Zod Schemas\n    Status: completed" in shown
    assert re.search(r"^    Duration: \d+ms$", shown, re.MULTILINE)
    assert shown.endswith("build-schema 3\n")
    assert "\nsrc\n" in shown


def test_history_can_be_searched_by_file_and_by_codon(live: Live) -> None:
    """`--follow` finds each checkpoint that changed a file, `--grep` those of a codon."""
    shown = live.git(seed.FIND_WHEN_IT_BROKE)
    assert "Codon: Codon generate" in shown
    assert f"commit {live.commits['completed:build-schema']}" in shown


@pytest.mark.story(
    "With the printed exports, the git program reads the checkpoints, and its status is clean."
)
def test_git_status_is_clean_with_the_exports(live: Live) -> None:
    """Stock git reports the true state: nothing is staged, nothing deleted.

    The index is written a moment after a checkpoint, because no checkpoint waits for it.
    """
    eventually_blocking(lambda: live.git("git status --porcelain") == "")


def test_the_git_configuration_is_isolated(live: Live) -> None:
    """checkpoints/.gitconfig has the content in the document."""
    expected, found = configparser.ConfigParser(), configparser.ConfigParser()
    expected.read_string(seed.CHECKPOINT_CONFIG)
    found.read(live.execution / ".hankweave" / "checkpoints" / ".gitconfig")
    for section in expected.sections():
        assert dict(found[section]).items() >= dict(expected[section]).items()


def test_the_newest_execution_is_listed_first(live: Live) -> None:
    """Executions are in the folder that the document lists."""
    assert live.execution.name in live.shell(seed.FIND_EXECUTION).splitlines()[1]


def test_the_lock_says_who_serves(live: Live) -> None:
    """runtime.lock has the four documented fields, of a living process."""
    lock = json.loads(live.shell(seed.CHECK_SERVER.replace("/path/to/execution", ".")))
    assert {"pid", "runId", "startTime", "lastHeartbeat"} <= lock.keys()
    os.kill(lock["pid"], 0)


def test_the_journal_and_the_metadata_have_the_documented_fields(live: Live) -> None:
    """Each event has four fields, and execution-meta.json nine."""
    lines = live.shell(
        "jq -c 'select(.type == \"codon.completed\") | [.timestamp, .data.codonId, .data.success]' "
        ".hankweave/events/events.jsonl"
    ).splitlines()
    assert json.loads(lines[0])[1:] == ["build-schema", True]
    meta = json.loads(live.shell("cat .hankweave/execution-meta.json"))
    assert {
        "version",
        "readOnlySourceDataPath",
        "readOnlySourceResolvedDataPath",
        "dataHash",
        "hankHash",
        "hankPath",
        "linkType",
        "createdAt",
        "lastUsed",
    } <= meta.keys()


def test_the_server_log_records_the_run(live: Live) -> None:
    """Each line has instant, level and message, and one line reports the codon's start."""
    lines = (live.execution / ".hankweave" / "logs" / "server.log").read_text().splitlines()
    assert any(
        re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z \[INFO\] Beginning codon: observe#0.*", line)
        for line in lines
    )


def test_an_agents_conversation_can_be_read_with_jq(live: Live) -> None:
    """The log is JSON Lines, under the codon's name."""
    run = state(live.execution).runs[0].run_id
    script = seed.VIEW_CONVERSATION.replace("/path/to/execution", ".").replace("RUN_ID", run)
    shown = live.shell(script.replace("CODON_ID", "build-schema"))
    assert shown.count('"type": "tool_use"') >= 3


def test_checkpoints_can_be_compared_from_anywhere(live: Live) -> None:
    """The second document's commands work from another folder."""
    found = live.commits
    script = seed.COMPARE_CHECKPOINTS.replace("/path/to/execution", str(live.execution))
    script = script.replace("<commit-hash-1>", found["completed:build-schema"])
    script = script.replace("<commit-hash-2>", found["completed:generate#0"])
    script = script.replace("<commit-hash>", found["error:validate"])
    shown = live.shell(f"cd /\n{script}")
    assert "+generate 3" in shown
    assert "Status: error" in shown


def test_tool_calls_are_found_in_an_agents_log(live: Live, tmp_path: Path) -> None:
    """The JavaScript program of the document finds all three calls."""
    run = state(live.execution).runs[0].run_id
    program = seed.FIND_TOOL_CALLS.replace("run-123", run)
    (calls, messages), _ = live.node(program, "toolCalls", "messages", folder=tmp_path)
    assert [call["id"] for call in calls] == ["t1", "t2", "t3"]
    assert all(message["timestamp"] for message in messages)
    assert [m["usage"]["output_tokens"] for m in messages if m["type"] == "assistant"] == [5, 5, 5]
    (result,) = (message for message in messages if message["type"] == "result")
    assert (result["cost"], result["total_cost"]) == (0.015, 0.015)


def test_traffic_can_be_analyzed_in_javascript(live: Live, tmp_path: Path) -> None:
    """The reader counts the log's messages, and agrees with the one for Python."""
    log = live.execution / ".hankweave" / "logs" / "websocket.log"
    log.touch()
    (stats, messages), printed = live.node(
        seed.ANALYZE_TRAFFIC, "stats", "codonMessages", folder=tmp_path
    )
    assert f"Total messages: {stats['totalEntries']}" in printed
    reader = WebSocketLogReader(log)
    reader.read_log_sync()
    assert stats["messageTypes"] == reader.get_statistics().message_types
    assert len(messages) == len(reader.get_codon_messages("generate#0"))


def test_state_can_be_read_in_javascript(live: Live, tmp_path: Path) -> None:
    """The current run is the one that just ended; its failures and all costs are found."""
    (current, failed, cost), _ = live.node(
        seed.READ_STATE, "currentRun", "failedCodons", "totalCost", folder=tmp_path
    )
    assert current["runId"] == state(live.execution).runs[0].run_id
    assert [each["codonId"] for each in failed] == ["validate"]
    assert cost >= 0.045


@pytest.mark.parametrize(
    ("snippet", "name"),
    [
        (seed.FIND_RUNNING_CODON, "runningCodon"),
        (seed.COST_OF_CURRENT_RUN, "totalCost"),
    ],
)
def test_the_current_run_answers(live: Live, tmp_path: Path, snippet: str, name: str) -> None:
    """No codon is running, and the cost is that of the whole run."""
    (value,), _ = live.node(_after_reading_state(snippet), name, folder=tmp_path)
    assert value is None if name == "runningCodon" else value >= 0.045


def test_the_last_success_has_a_checkpoint(live: Live, tmp_path: Path) -> None:
    """The checkpoint of the last success is the commit that git has under the same name."""
    (sha,), _ = live.node(
        _after_reading_state(CURRENT_RUN + seed.LAST_SUCCESS), "checkpoint", folder=tmp_path
    )
    assert sha == live.commits["completed:generate#0"]


def test_why_a_codon_failed_is_printed(live: Live, tmp_path: Path) -> None:
    """Four lines are printed: time, reason, retriable, and exit code."""
    _, printed = live.node(
        _after_reading_state(CURRENT_RUN + seed.WHY_IT_FAILED), "failedCodon", folder=tmp_path
    )
    assert re.fullmatch(
        r"Failed during: running\nReason: .+\nRetriable: (true|false)\nExit code: 1", printed
    )


def test_an_archived_rig_leaves_the_work_tree(live: Live) -> None:
    """`archiveOnSuccess` on a copy moves the copied files to rigArchive/{codonId}/."""
    assert (live.execution / "rigArchive" / "build-schema" / "kit" / "readme.md").is_file()
    assert not (live.execution / "agentRoot" / "kit").exists()


async def test_the_three_rollback_commands_go_back(tmp_path: Path) -> None:
    """As plain messages, they go to the last success, a codon's checkpoint, and part of a SHA."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", writes("a.txt", "one")),
        codon("two", writes("a.txt", "two")),
        codon("three", writes("a.txt", "three"), {"fail": {"message": "no"}}, onFailure="ignore"),
    )
    data, execution = tmp_path / "data", tmp_path / "execution"
    data.mkdir()
    async with running_server(hank, data, execution, "--no-exit-on-complete") as server:
        async with server.client() as client:
            await client.until(ServerIdle, lambda event: _has_reason(event, "all-codons-completed"))

        address = discover(execution)
        headers = {"Authorization": f"Bearer {address.token}"}
        async with connect(address.url, additional_headers=headers) as socket:
            await socket.send('{"type": "handshake", "data": {"mode": "readandwrite"}}')
            commit = GitWitness(execution).run(
                "log", "--all", "--grep=completed:one", "--format=%h"
            )
            for kind, fields, expected in (
                ("rollback.toLastSuccess", {}, "two"),
                ("rollback.toCodon", {"codonId": "one", "checkpointType": "end"}, "one"),
                ("rollback.toCodon", {"codonId": "three", "checkpointType": "error"}, "three"),
                ("rollback.toCheckpoint", {"checkpointSha": commit[:7]}, "one"),
            ):
                await socket.send(json.dumps({"id": kind, "type": kind, "data": fields}))
                await _receives(socket, "rollback.completed")
                assert (execution / "agentRoot" / "a.txt").read_text() == expected


def _has_reason(event: Event, reason: str) -> bool:
    return isinstance(event.data, ServerIdle) and event.data.reason == reason


async def _receives(socket: ClientConnection, kind: str) -> None:
    """Wait for a message of this type; an error before it fails the test."""
    with limited():
        async for frame in socket:
            message = json.loads(frame)
            assert message["type"] != "error", message
            if message["type"] == kind:
                return


CURRENT_RUN = "const currentRun = state.runs.find(r => r.runId === state.currentRunId);\n"


def _after_reading_state(snippet: str) -> str:
    """Return a program that reads the state, followed by a snippet that uses it."""
    reading = seed.READ_STATE.split("\n// Find the current run")[0]
    return f"{reading}\n{snippet}"
