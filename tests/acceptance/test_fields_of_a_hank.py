"""Claims about the fields of hank.json, one by one, on a real server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hankweave_protocol.events import (
    CodonCompletedEvent,
    CodonRetrying,
    CodonStartedEvent,
    LoopIterationCompleted,
    RigOutput,
    RigSetupFailed,
    SentinelError,
    SentinelOutput,
)
from hankweave_protocol.state import CompletedCodon, FailedCodon
from support.command_line import hankweave
from support.git_facts import GitWitness
from support.running_server import run_headless, state, tree
from support.scripted_hank import codon, write_hank, writes
from support.watching import events_of

COMPACTS = {"raw": json.dumps({"type": "system", "subtype": "compact_boundary"})}


def sh(line: str) -> dict[str, Any]:
    """Return an agent that is a plain program."""
    return {"agent": {"type": "command", "command": ["sh", "-c", line]}}


def runs(line: str, allow_failure: bool = False, **fields: Any) -> dict[str, Any]:
    """Return a rig operation that runs a command."""
    return {
        "type": "command",
        "command": {"run": line, **fields},
        "allowFailure": allow_failure,
    }


def copies(source: str, to: str, **fields: Any) -> dict[str, Any]:
    return {"type": "copy", "copy": {"from": source, "to": to}, **fields}


async def run(folder: Path, *codons: dict[str, Any], exit_code: int = 0, **fields: Any) -> Path:
    """Run a hank to its end, and return the execution."""
    hank = write_hank(folder / "hank", *codons, **fields)
    execution = folder / "execution"
    assert await run_headless(hank, execution) == exit_code

    return execution


async def test_the_model_of_the_command_line_is_every_codons(tmp_path: Path) -> None:
    """`--model` overrides the codon's model and the hank's."""
    prints = sh('printf %s "$HANKWEAVE_MODEL" > "$HANKWEAVE_CODON_ID.txt"')
    hank = write_hank(
        tmp_path / "hank",
        codon("one") | prints,
        codon("two") | prints,
        overrides={"model": "haiku"},
    )
    execution = tmp_path / "execution"
    assert await run_headless(hank, execution, "-m", "opus") == 0

    assert tree(execution / "agentRoot") == {"one.txt": b"opus", "two.txt": b"opus"}


# --- the hank and its codons ----------------------------------------------------------------------


def test_the_name_of_a_hank_is_shown(tmp_path: Path) -> None:
    """`meta.name` is above the output of `hankweave validate`."""
    meta = {"name": "Earthly things", "version": "1.0.0"}
    hank = write_hank(tmp_path, codon("one"), meta=meta)
    assert "Earthly things" in hankweave("validate", str(hank), code=0).stdout


async def test_events_of_a_codon_have_its_names(tmp_path: Path) -> None:
    """id, name, description and the prompt's frontmatter are in codon.started.

    id and name are in the checkpoint's subject; a missing description is not invented.
    """
    prompt = json.dumps({"steps": []})
    (tmp_path / "hank").mkdir()
    (tmp_path / "hank" / "prompt.md").write_text(f"---\nname: Look\ntags: [a, b]\n---\n{prompt}")
    execution = await run(
        tmp_path,
        codon("one", description="Looks at it.", promptFile="prompt.md"),
        codon("two") | {"name": "The second"},
    )
    one, two = events_of(execution, CodonStartedEvent)
    assert (one.codon_id, one.codon_name) == ("one", "Codon one")
    assert one.codon_description == "Looks at it."
    assert (one.prompt_metadata.name, one.prompt_metadata.tags) == ("Look", ("a", "b"))
    assert (two.codon_description, two.prompt_metadata) == (None, None)
    subjects = GitWitness(execution).subjects()
    assert subjects[0].startswith("completed:two [run:")
    assert subjects[0].endswith("] The second")


async def test_an_agent_receives_prompts_model_and_variables(tmp_path: Path) -> None:
    """The agent gets the global system prompt, the codon's, then the prompt.

    Of the prompts, the file takes precedence. Model and `env` are in the agent's environment.
    """
    folder = tmp_path / "hank"
    folder.mkdir()
    for name in ("rules", "style", "extra", "do", "it"):
        (folder / f"{name}.md").write_text(f"<{name}>")

    agent = sh('cat > "$HANKWEAVE_CODON_ID.txt"; echo "$HANKWEAVE_MODEL $WORD" >> models.txt')
    execution = await run(
        tmp_path,
        codon(
            "one",
            model="sonnet",
            env={"WORD": "magic"},
            promptFile=["do.md", "it.md"],
            appendSystemPromptFile=["extra.md"],
        )
        | agent,
        codon("two", model="opus", promptText="<say>", appendSystemPromptText="<more>") | agent,
        globalSystemPromptFile=["rules.md", "style.md"],
    )
    files = tree(execution / "agentRoot")
    assert files["one.txt"].split() == [b"<rules>", b"<style>", b"<extra>", b"<do>", b"<it>"]
    assert files["two.txt"].split() == [b"<rules>", b"<style>", b"<more>", b"<say>"]
    assert files["models.txt"] == b"sonnet magic\nopus \n"


async def test_a_scripted_agent_plays_the_file_it_is_given(tmp_path: Path) -> None:
    """`agent.script` is played if the prompt itself is not a script."""
    folder = tmp_path / "hank"
    folder.mkdir()
    (folder / "play.json").write_text(json.dumps({"steps": [writes("a.txt", "played")]}))
    agent = {"type": "scripted", "script": "play.json"}
    execution = await run(tmp_path, codon("one", promptText="Play.", agent=agent))
    assert tree(execution / "agentRoot") == {"a.txt": b"played"}


async def test_overrides_hold_for_every_codon(tmp_path: Path) -> None:
    """`overrides.model` replaces every codon's.

    `overrides.shimIdleTimeout` ends a silent agent, but not one whose codon has a longer timeout of
    its own. A global prompt may be text.
    """
    execution = await run(
        tmp_path,
        codon("one", model="opus", shimIdleTimeout=60)
        | sh('cat > said.txt; echo "$HANKWEAVE_MODEL" > model.txt; sleep 2.5'),
        codon("two") | sh("sleep 600"),
        exit_code=1,
        overrides={"model": "haiku", "shimIdleTimeout": 1},
        globalSystemPromptText="<rules>",
    )
    one, two = state(execution).runs[0].codons
    assert isinstance(one, CompletedCodon)
    assert isinstance(two, FailedCodon)
    assert two.failure_reason.type == "timeout"
    files = tree(execution / "agentRoot")
    assert files["model.txt"] == b"haiku\n"
    assert files["said.txt"].startswith(b"<rules>\n\n{")


@pytest.mark.story("A checkpoint holds the files that the hank tracks, and no others.")
async def test_only_tracked_files_are_in_checkpoints(tmp_path: Path) -> None:
    """`trackedFiles` and `checkpointedFiles` both apply, from their codon on."""
    steps = (writes("a.txt", "a"), writes("b.txt", "b"), writes("c.txt", "c"))
    execution = await run(
        tmp_path,
        codon("one", *steps, tracked=("a.txt",)),
        codon("two", tracked=(), checkpointedFiles=["b.*"]),
    )
    one, two = state(execution).runs[0].codons
    assert isinstance(one, CompletedCodon)
    assert isinstance(two, CompletedCodon)
    git = GitWitness(execution)
    assert set(git.files(one.completion_checkpoint)) == {"a.txt"}
    assert set(git.files(two.completion_checkpoint)) == {"a.txt", "b.txt"}
    assert (execution / "agentRoot" / "c.txt").exists()


# --- rigs -----------------------------------------------------------------------------------------


@pytest.mark.story("A rig copies files and runs commands in the work tree before its codon.")
async def test_a_rig_copies_and_runs_commands_where_they_belong(tmp_path: Path) -> None:
    """`from` is copied to `to`.

    A command runs in the work tree, or in the last copied folder, with the codon's `env`. A copy
    that is allowed to fail does not stop the rig.
    """
    folder = tmp_path / "hank"
    (folder / "kit").mkdir(parents=True)
    (folder / "kit" / "tool.txt").write_text("tool")
    rig = [
        copies("kit", "lib/kit"),
        runs("echo $WORD > here.txt; echo said", workingDirectory="lastCopied"),
        runs("echo $WORD > there.txt"),
        copies("kit", "there.txt/kit", allowFailure=True),
    ]
    execution = await run(tmp_path, codon("one", rigSetup=rig, env={"WORD": "magic"}))
    assert tree(execution / "agentRoot") == {
        "lib/kit/tool.txt": b"tool",
        "lib/kit/here.txt": b"magic\n",
        "there.txt": b"magic\n",
    }
    (failed,) = events_of(execution, RigSetupFailed)
    assert (failed.command_index, failed.ignored) == (3, True)
    assert [each.line for each in events_of(execution, RigOutput)] == ["said"]


async def test_a_rigs_command_is_ended_in_time(tmp_path: Path) -> None:
    """timeoutSeconds ends the command and all its processes (Hankweave has no such limit)."""
    line = "sleep 600 & echo $! > pid.txt; sleep 600"
    rig = [runs(line, timeoutSeconds=0.7, allow_failure=True)]
    execution = await run(tmp_path, codon("one", rigSetup=rig))
    (failed,) = events_of(execution, RigSetupFailed)
    assert (failed.failure_type, failed.ignored) == ("timeout", True)
    pid = (execution / "agentRoot" / "pid.txt").read_text().strip()
    assert not Path("/proc", pid).exists()


# --- failures, extensions, loops ------------------------------------------------------------------


async def test_retries_are_made_as_configured(tmp_path: Path) -> None:
    """maxAttempts includes the first attempt; delayMs doubles each time, up to maxDelayMs."""
    config = {"maxAttempts": 4, "delayMs": 10, "maxDelayMs": 15}
    broken = codon("one", onFailure="retry", retryConfig=config) | sh("echo overloaded >&2; exit 7")
    execution = await run(tmp_path, broken, exit_code=1)
    assert len(state(execution).runs[0].codons) == 4
    delays = [(each.delay_ms, each.max_attempts) for each in events_of(execution, CodonRetrying)]
    assert delays == [(10, 4), (15, 4), (15, 4)]


async def test_an_agent_that_compacts_goes_on_only_where_it_may(tmp_path: Path) -> None:
    """Compacting a full context ends an exhausted codon, unless `autoCompact` lets it continue."""
    further = json.dumps({"steps": [COMPACTS, {"say": "more"}]})
    execution = await run(
        tmp_path,
        codon("one", exhaustWithPrompt=further, maxExtensions=3),
        codon("two", exhaustWithPrompt=further, maxExtensions=3, autoCompact=True),
    )
    one, two = state(execution).runs[0].codons
    assert isinstance(one, CompletedCodon)
    assert isinstance(two, CompletedCodon)
    assert (one.context_exceeded, one.extension_count) == (True, 1)
    assert (two.context_exceeded, two.extension_count) == (False, 3)


async def test_a_loop_runs_its_codons_as_often_as_its_limit_says(tmp_path: Path) -> None:
    """The codons of a loop run in order as `{id}#{iteration}`.

    Each iteration is reported with the loop's id, and the last one with its reason.
    """
    loop = {
        "type": "loop",
        "id": "polish",
        "name": "Polish",
        "description": "Twice.",
        "terminateOn": {"type": "iterationLimit", "limit": 2},
        "codons": [codon("look"), codon("mend")],
    }
    execution = await run(tmp_path, loop)
    names = [each.codon_id for each in state(execution).runs[0].codons]
    assert names == ["look#0", "mend#0", "look#1", "mend#1"]
    ends = events_of(execution, LoopIterationCompleted)
    assert [(each.loop_id, each.iteration, each.termination_reason) for each in ends] == [
        ("polish", 0, None),
        ("polish", 1, "iteration_limit"),
    ]


# --- budgets --------------------------------------------------------------------------------------


@pytest.mark.story("A budget in dollars ends a codon that costs more.")
async def test_money_ends_a_codon_that_goes_on(tmp_path: Path) -> None:
    """`budget.maxDollars` is checked whenever an agent reports its cost."""
    further = json.dumps({"steps": [{"say": "more"}, {"cost": 0.4}]})
    execution = await run(
        tmp_path,
        codon("one", {"cost": 0.4}, exhaustWithPrompt=further, budget={"maxDollars": 1.0}),
    )
    (done,) = events_of(execution, CodonCompletedEvent)
    assert done.success
    assert (done.budget_exceeded.currency, done.budget_exceeded.limit) == ("cost", 1.0)
    assert 1.0 <= done.cost < 2.0


async def test_money_ends_a_codon_whose_agent_reports_its_cost_only_at_the_end(
    tmp_path: Path,
) -> None:
    """The agent is not continued past its limit, although no message of it reported a cost."""
    execution = await run(
        tmp_path,
        codon(
            "one",
            {"cost": 0.4},
            exhaustWithPrompt=json.dumps({"steps": [{"cost": 0.4}]}),
            budget={"maxDollars": 1.0},
        ),
    )
    (done,) = events_of(execution, CodonCompletedEvent)
    assert done.budget_exceeded.currency == "cost"
    assert done.cost == pytest.approx(1.2)


async def test_shares_of_a_hank_are_kept_apart(tmp_path: Path) -> None:
    """proportional-strict: a codon has its share and no more.

    With onExceeded fail it fails there, although others have not used theirs.
    """
    more = json.dumps({"steps": [{"say": "more"}, {"cost": 0.3}]})
    execution = await run(
        tmp_path,
        codon("one", {"cost": 0.1}),
        codon("two", {"cost": 0.3}, exhaustWithPrompt=more),
        exit_code=1,
        overrides={
            "budget": {
                "maxDollars": 2.0,
                "allocation": "proportional-strict",
                "shares": {"one": 0.75, "two": 0.25},
                "onExceeded": "fail",
            }
        },
    )
    one, two = state(execution).runs[0].codons
    assert isinstance(one, CompletedCodon)
    assert isinstance(two, FailedCodon)
    assert two.budget_exceeded.limit == 0.5
    assert 0.5 <= two.partial_cost < 1.0


# --- sentinels ------------------------------------------------------------------------------------


def sentinel(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": name,
        "name": name,
        "model": "scripted/any",
        "trigger": {"type": "event", "on": ["codon.started"]},
        "execution": {"strategy": "immediate"},
        "userPromptText": "SAY: seen",
        **fields,
    }


async def test_what_a_codon_settles_about_its_sentinels_holds(tmp_path: Path) -> None:
    """The settings of a codon for its sentinels apply.

    Files are in outputPaths, errors are reported or not, a sentinel comes from a file, and there is
    no history where enablePersistence is false.
    """
    folder = tmp_path / "hank"
    folder.mkdir()
    (folder / "watcher.json").write_text(
        json.dumps(
            sentinel(
                "watcher",
                systemPromptText="You watch.",
                conversational={"trimmingStrategy": {"type": "maxTurns", "maxTurns": 5}},
            )
        )
    )
    paths = {"logFile": "notes/log.md", "lastValueFile": "notes/last.txt"}
    broken = {"userPromptText": "FAIL: busy", "errorHandling": {"maxConsecutiveFailures": 1}}
    silent = {"reportToWebsocket": {"errors": False}}
    entries = [
        {"sentinelConfig": "watcher.json", "settings": {"outputPaths": paths}},
        {"sentinelConfig": sentinel("loud", **broken)},
        {"sentinelConfig": sentinel("quiet", **broken), "settings": silent},
    ]
    execution = await run(
        tmp_path,
        codon("one", {"say": "hello"}, sentinels=entries),
        overrides={"sentinel": {"enablePersistence": False}},
    )
    assert (execution / "agentRoot" / "notes" / "last.txt").read_text() == "seen"
    assert "seen" in (execution / "agentRoot" / "notes" / "log.md").read_text()
    assert [each.sentinel_id for each in events_of(execution, SentinelOutput)] == ["watcher"]
    assert {each.sentinel_id for each in events_of(execution, SentinelError)} == {"loud"}
    assert tree(execution / ".hankweave" / "sentinels" / "history") == {}
