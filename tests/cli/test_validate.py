"""Claims about `hankweave validate`: every error at once, or the complete plan of the hank."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.command_line import Done, hankweave
from support.golden import GOLDEN
from support.running_server import EXAMPLE
from support.scripted_hank import codon, write_hank
from support.sentinels import a_sentinel

REAL = GOLDEN / "valid" / "schema-from-data"


def validate(*words: str | Path, code: int | None = None, **env: str) -> Done:
    return hankweave("validate", *map(str, words), code=code, **env)


def a_broken_hank(folder: Path) -> Path:
    return write_hank(folder, codon("a", onFailrue="retry"), codon("a"), meta={"name": "n"})


@pytest.mark.story(
    "`validate` reports all errors of a hank at once, with their places and suggestions."
)
def test_every_error_is_reported_with_its_place_and_what_to_do(tmp_path: Path) -> None:
    """The exit code is 2; each error has a line in the style of compilers, and a hint below it."""
    hank = a_broken_hank(tmp_path)
    done = validate(hank, code=2)
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert lines[0].startswith(f"hankweave: {hank}:15:7: $.hank[0].onFailrue: ")
    assert lines[1] == "  hint: Did you mean 'onFailure'?"
    assert [line for line in lines if "$.hank[1].id" in line]
    assert [line for line in lines if "$.meta.version" in line]


def test_the_hank_of_the_current_directory_is_checked(tmp_path: Path) -> None:
    """As by `run`, if none is named; without one, the message says what to do."""
    folder = write_hank(tmp_path / "hank", codon("a")).parent
    assert "hank.json is valid" in _here(folder, code=0).stdout.replace(" (a hank)", "")
    refused = _here(tmp_path, code=2).stderr
    assert "There is no hank.json in this directory." in refused
    assert "`hankweave init my-hank` writes one" in refused


def _here(folder: Path, code: int) -> Done:
    return hankweave("validate", "--no-agent-check", cwd=folder, code=code)


def test_the_errors_come_as_json_too(tmp_path: Path) -> None:
    """With --json stdout is one object, valid or not; the exit code is the same."""
    done = validate(a_broken_hank(tmp_path), "--json", code=2)
    found = json.loads(done.stdout)
    assert found["valid"] is False
    assert [(each["path"], each["line"]) for each in found["problems"]] == [
        ("$.hank[0].onFailrue", 15),
        ("$.hank[1].id", 18),
        ("$.meta.version", 31),
    ]


def test_a_real_hank_is_shown_as_it_would_run() -> None:
    """Plan, policies, loops, rigs, sentinels, budgets and patterns are all there."""
    done = validate(REAL, "--no-agent-check", code=0)
    for words in (
        "5 codons, 2 loops",
        "Validate every row of <%DATA_DIR%> with the schemas … (10 words)",
        "retry, 5 attempts, first delay 2 s",
        "review-loop: ends after 3 iterations",
        "until-full: ends when the context is full",
        "generate-schema: copy ./templates/src to src",
        "observe: ./sentinels/narrator.json, error-grader",
        "generate-schema: src/**/*.ts  !src/**/*.generated.ts",
        "$4.00",
        "$.hank[1].budget.maxDollars: $5 cannot be reached: the enclosing budget allows $3.",
    ):
        assert words in done.stdout


def test_a_hank_can_be_checked_on_another_machine_than_the_one_it_runs_on() -> None:
    """With --no-agent-check, a missing requirement is shown, and is no error."""
    words = (REAL, "--no-agent-check")
    missing = validate(*words, PATH="/nonexistent", ANTHROPIC_API_KEY="", code=0)
    assert "env ANTHROPIC_API_KEY: missing" in missing.stdout
    assert "tool node: missing" in missing.stdout
    there = validate(*words, HANKWEAVE_ANTHROPIC_API_KEY="secret-value")
    assert "env ANTHROPIC_API_KEY: there" in there.stdout
    assert "secret-value" not in there.stdout + there.stderr


def test_a_missing_requirement_stops_the_run_before_anything_is_made(tmp_path: Path) -> None:
    """`run` and `validate` name all that is missing, and exit with 78; nothing is left behind."""
    requirements = {"tools": ["no-such-tool"], "env": ["NO_SUCH_VARIABLE"]}
    later = {**codon("b"), "agent": None, "model": "gpt-5"}
    hank = write_hank(tmp_path / "hank", codon("a"), later, requirements=requirements)
    execution = ("--execution", str(tmp_path / "execution"))
    for words in (("run", str(hank), *execution, "--headless"), ("validate", str(hank))):
        done = hankweave(*words, code=78, PATH="/usr/bin:/bin")
        assert "The program 'no-such-tool' is not on the PATH." in done.stderr
        assert "NO_SUCH_VARIABLE" in done.stderr
        assert "b: Codex is not installed" in done.stderr

    assert not (tmp_path / "execution").exists()
    validated = validate(hank, "--json", PATH="/usr/bin:/bin", code=78)
    assert [each["isMet"] for each in json.loads(validated.stdout)["requirements"]] == [
        False,
        False,
    ]


@pytest.mark.story("A missing agent stops a run with exit code 78 before anything is made.")
def test_a_missing_agent_stops_the_run_before_anything_is_made(tmp_path: Path) -> None:
    """`run` and `validate` exit with 78, and no execution is left behind.

    They name the codon, the missing agent and how to install it. A codon that a later step needs
    counts as well as the first.
    """
    later = {"model": "gpt-5", "agent": None}
    hank = write_hank(tmp_path / "hank", codon("first"), {**codon("later"), **later})
    execution = tmp_path / "execution"
    words = ("run", str(hank), "--execution", str(execution), "--headless")
    done = hankweave(*words, code=78, PATH="/usr/bin:/bin")
    assert "later: Codex is not installed: 'codex' was not found." in done.stderr
    assert "npm install -g @openai/codex" in done.stderr
    assert not execution.exists()
    validated = validate(hank, PATH="/usr/bin:/bin", code=78)
    assert "later: Codex is not installed" in validated.stderr
    assert "first" not in validated.stderr


def test_a_required_sentinel_that_cannot_load_stops_the_run_before_anything_is_made(
    tmp_path: Path, execution: Path
) -> None:
    """Sentinels are checked as agents are: `run` and `validate` exit with 78 and say what to do.

    If the codon can do without the sentinel, both warn, and the run starts.
    """
    sentinel = a_sentinel(model="anthropic/claude-test")
    entry = {"sentinelConfig": sentinel, "settings": {"failCodonIfNotLoaded": True}}
    later = codon("later", sentinels=[entry])
    hank = write_hank(tmp_path / "hank", codon("first"), later)
    words = ("run", str(hank), "--execution", str(execution), "--headless")
    keyless = {"ANTHROPIC_API_KEY": ""}
    refused = hankweave(*words, code=78, **keyless)
    assert "later: sentinel narrator, the codon will fail: There is no API key" in refused.stderr
    assert not execution.exists()
    validated = validate(hank, "--json", code=78, **keyless)
    (check,) = json.loads(validated.stdout)["sentinels"]
    assert (check["codon"], check["isRequired"]) == ("later", True)
    assert "ANTHROPIC_API_KEY" in check["faults"][0]
    validate(hank, "--no-agent-check", code=0, **keyless)

    entry["settings"] = {}
    hank = write_hank(tmp_path / "hank", codon("first"), later)
    assert "the codon will run without it" in validate(hank, **keyless).stdout
    validate(hank, code=0, **keyless)
    assert "warning: later: sentinel narrator" in hankweave(*words, code=0, **keyless).stderr


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("claude-sonet-4-5", "Did you mean 'claude-sonnet-4-5'?"),
        ("sonnett", "Did you mean 'sonnet'?"),
        ("gpt-5.4-minni", "Did you mean 'gpt-5.4-mini'?"),
    ],
)
def test_a_misspelt_model_is_found_before_a_provider_refuses_it(
    tmp_path: Path, model: str, expected: str
) -> None:
    """The exit code is 78, with the name that was meant; a fallback model counts as well."""
    first = {**codon("a"), "agent": None, "model": model}
    assert expected in hankweave("validate", str(write_hank(tmp_path, first)), code=78).stderr
    later = {**codon("a"), "agent": None, "model": "opus", "fallbackModels": [model]}
    assert expected in hankweave("validate", str(write_hank(tmp_path, later)), code=78).stderr


def test_a_model_that_is_not_listed_is_noted_and_is_no_error(tmp_path: Path) -> None:
    """It may be newer than the list of models."""
    hank = write_hank(tmp_path, {**codon("a"), "agent": None, "model": "gpt-9-nope"})
    validated = validate(hank, "--no-agent-check").stdout
    assert (
        "the model 'gpt-9-nope' is not in the list of known models; the nearest is 'gpt-"
        in validated
    )
    faults = json.loads(validate(hank, "--json").stdout)["agents"][0]["faults"]
    assert "gpt-9-nope" not in json.dumps(faults)


def test_a_variable_that_looks_like_a_setting_and_is_none_is_warned_about(tmp_path: Path) -> None:
    """`validate` and `run` name it, and the setting that was probably meant."""
    hank = write_hank(tmp_path / "hank", codon("a"))
    misspelt = {"HANKWEAVE_RUNTIME_MODLE": "opus"}
    expected = "HANKWEAVE_RUNTIME_MODLE is set, but there is no such setting. Did you mean "
    assert expected in validate(hank, **misspelt).stdout
    words = ("run", str(hank), "--execution", str(tmp_path / "execution"), "--headless")
    assert f"warning: {expected}" in hankweave(*words, code=0, **misspelt).stderr


REFUSED, ACCEPTED = 2, 0
VERDICTS: dict[str, tuple[int, dict[str, object]]] = {
    "an `id` with a space, a slash or `#`": (REFUSED, {"id": "a b"}),
    "a `promptText` of spaces, or a prompt of comments alone": (
        REFUSED,
        {"promptText": "<!-- later -->"},
    ),
    "an `outputFiles` path that leads out of the work tree": (
        REFUSED,
        {"outputFiles": [{"copy": ["../a"]}]},
    ),
    "a `trackedFiles` or `checkpointedFiles` pattern with `..`": (
        REFUSED,
        {"checkpointedFiles": ["../*"]},
    ),
    "an invalid name of a variable in `env`": (REFUSED, {"env": {"a b": "c"}}),
    "an empty `name`": (ACCEPTED, {"name": ""}),
    "`null` for an optional field": (ACCEPTED, {"description": None}),
    "a sentinel with an unknown event or a path that its events do not have": (
        ACCEPTED,
        {
            "sentinels": [
                {
                    "sentinelConfig": {
                        "id": "narrator",
                        "name": "Narrator",
                        "model": "scripted/any",
                        "trigger": {"type": "event", "on": ["no.such"]},
                        "execution": {"strategy": "immediate"},
                        "userPromptText": "What happened?",
                    }
                }
            ]
        },
    ),
}
"""Rows of the page's table of verdicts, with a codon for each and the exit code of `validate`."""

LAX = {"sentinel": {"healthCheckGracePeriodMs": 0}}


def test_the_verdicts_that_differ_from_hankweaves_are_those_of_the_page(tmp_path: Path) -> None:
    """Each row of the page is refused with exit code 2, or accepted, as it says."""
    page = (EXAMPLE.parents[1] / "docs" / "migration" / "hankweave.md").read_text()
    for row, (code, fields) in VERDICTS.items():
        assert f"\n| {row} | " in page
        done = validate(write_hank(tmp_path, {**codon("a"), **fields}))
        assert done.returncode == code, (row, done.stderr)

    text = write_hank(tmp_path, codon("a"), overrides=LAX).read_text()
    (tmp_path / "hank.json").write_text("\ufeff" + text)
    validate(tmp_path, code=ACCEPTED)
    (tmp_path / "hank.json").write_text(text.replace('"overrides"', '"overrides": {}, "overrides"'))
    validate(tmp_path, code=REFUSED)


def test_an_agent_is_checked_as_the_command_line_chooses_it(tmp_path: Path) -> None:
    """--agent and --model mean the same as with `run`; with --no-agent-check nothing fails."""
    hank = write_hank(tmp_path / "hank", {**codon("a"), "agent": None, "model": "llama"})
    unknown = validate(hank, "--json", code=78)
    (check,) = json.loads(unknown.stdout)["agents"]
    assert check["faults"][0]["message"] == "No agent is known to run the model 'llama'."
    validate(hank, "--agent", "scripted", code=0)
    validate(hank, "--no-agent-check", code=0)
    bin_only = {"PATH": "/usr/bin:/bin"}
    chosen = validate(hank, "--model", "gpt-5", **bin_only)
    assert "Codex is not installed" in chosen.stderr


def test_only_codons_that_are_still_to_run_need_their_agents(tmp_path: Path) -> None:
    """An ended execution is served on a machine without its agent.

    One that has not ended is refused, and nothing of it is changed.
    """
    program = tmp_path / "bin" / "worker"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\ntrue\n")
    program.chmod(0o755)
    worker = {"type": "command", "command": ["worker"]}
    hank = write_hank(tmp_path / "hank", codon("a", agent=worker), codon("b"))
    execution = tmp_path / "execution"
    words = ("run", str(hank), "--execution", str(execution), "--headless")
    hankweave(*words, code=0, PATH=f"{program.parent}:/usr/bin:/bin")
    program.unlink()
    hankweave(*words, code=0, PATH="/usr/bin:/bin")
    before = (execution / ".hankweave" / "state.json").read_bytes()
    refused = hankweave(*words, "--from", "a", code=78, PATH="/usr/bin:/bin")
    assert "a: The program 'worker' was not found." in refused.stderr
    assert (execution / ".hankweave" / "state.json").read_bytes() == before


def test_what_would_be_tracked_in_a_project_is_counted(tmp_path: Path) -> None:
    """Files count as in a checkpoint: patterns, ignore rules and reserved names; never data."""
    project = tmp_path / "project"
    for name in ("src/a.ts", "src/b.ts", "build/c.ts", "notes.md", ".git/config"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("1234567890")

    (project / ".gitignore").write_text("build/\n")
    hank = write_hank(
        tmp_path / "hank", codon("a", tracked=["src/**"]), codon("b", tracked=["*.md"])
    )
    done = validate(hank, project, "--workspace", project, "--json")
    found = json.loads(done.stdout)
    assert found["patterns"] == ["src/**", "*.md"]
    [workspace, data] = found["folders"]
    assert (workspace["tracked"], workspace["files"], workspace["bytesTracked"]) == (3, 4, 30)
    assert data["role"] == "data"
    assert "data is not tracked" in validate(hank, project).stdout


@pytest.mark.story("Validating a hank runs nothing of it and changes nothing.", of="SECURITY.md")
def test_validating_makes_and_changes_nothing(tmp_path: Path) -> None:
    """Not even a $schema is written into the hank (Hankweave's validate does)."""
    hank = write_hank(tmp_path, codon("a"))
    before = hank.read_bytes()
    home = tmp_path / "executions"
    validate(hank, HANKWEAVE_RUNTIME_EXECUTION_BASE_DIR=str(home), code=0)
    assert hank.read_bytes() == before
    assert sorted(tmp_path.iterdir()) == [hank]


def test_the_example_is_valid_without_a_warning() -> None:
    """The first example that newcomers see has no warning."""
    done = validate(EXAMPLE / "hank.json", EXAMPLE / "data", code=0)
    assert "Warnings" not in done.stdout


def test_missing_data_is_reported(tmp_path: Path) -> None:
    """The exit code is 66, as for `hankweave run`."""
    hank = write_hank(tmp_path, codon("a"))
    validate(hank, tmp_path / "none", code=66)
    validate(tmp_path / "none", code=66)


def test_a_misspelt_model_is_reported_beside_other_problems(tmp_path: Path) -> None:
    """Agents are checked only in a valid hank, but a person corrects a file once."""
    hank = {"hank": [{**codon("a b"), "agent": {"type": "claude"}, "model": "sonet"}]}
    (tmp_path / "hank.json").write_text(json.dumps(hank))
    done = validate(tmp_path / "hank.json")
    assert "'a b' cannot be an id." in done.stderr
    assert "$.hank[0].model: There is no model 'sonet' in the list of known models." in done.stderr
    assert "Did you mean 'sonnet'?" in done.stderr
    assert "'sonet'" not in validate(tmp_path / "hank.json", "--model", "opus").stderr
