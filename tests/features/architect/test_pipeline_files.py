"""Architect's pipelines: the meaning of their keys, and the problems reported."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from hankweave_protocol.hank import (
    AcpAgentSpec,
    Check,
    ClaudeAgentSpec,
    CodexAgentSpec,
    Codon,
    CommandAgentSpec,
    HankMeta,
    Overrides,
    Permissions,
    RetryConfig,
    ScriptedAgentSpec,
)
from hankweave_server.cli.shared import hank_loading
from hankweave_server.features.architect.yaml.load import (
    compile_pipeline,
    load_pipeline,
    plan_summary,
    unknown_step,
    write_compiled,
)
from hankweave_server.features.architect.yaml.model import Pipeline
from hankweave_server.features.architect.yaml.steps import NotAVariable, parse_var
from hankweave_server.hank.agents import BY_NAME
from hankweave_server.hank.problems import HankInvalid
from support.golden import GOLDEN

VALID = GOLDEN / "pipelines" / "valid"
STEP = "steps:\n  - name: one\n    prompt: Do it.\n"

Write: TypeAlias = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a pipeline into its own folder."""

    def write(text: str) -> Path:
        path = tmp_path / "pipeline.yaml"
        path.write_text(text)
        return path

    return write


def codons(pipeline: Pipeline) -> list[Codon]:
    return [step for step in compile_pipeline(pipeline).hank if isinstance(step, Codon)]


def messages(load: Callable[[], object]) -> list[str]:
    with pytest.raises(HankInvalid) as caught:
        load()

    return [problem.message for problem in caught.value.problems]


# --- Keys ---------------------------------------------------------------------------------------


def test_the_snippet_of_the_seed_loads_word_for_word() -> None:
    """Seed 003: two steps with a name, a prompt and a checkpoint are a complete pipeline."""
    pipeline = load_pipeline(VALID / "seed-003.yaml")
    assert pipeline.name == "seed-003"
    first, second = codons(pipeline)
    assert first == Codon(
        id="implement",
        name="implement",
        model="sonnet",
        continuation_mode="fresh",
        prompt_text="Implementa la feature",
        checkpoint_label="architect:checkpoint:implement",
    )
    assert (second.id, second.checkpoint_label) == ("optimize", "architect:checkpoint:optimize")


def test_every_key_arrives_in_the_hank() -> None:
    """Every pipeline key is translated, `timeout` included (A4 gap: parsed, never used)."""
    hank = compile_pipeline(load_pipeline(VALID / "every-key.yaml"))
    assert hank.meta == HankMeta(
        name="Every key", version="1.10", description="What a pipeline can say."
    )
    assert hank.variables == {"area": "parser", "tries": "3", "strict": "true", "nothing": ""}
    assert hank.overrides == Overrides(
        checkpoint_every_steps=7,
        checkpoint_repository="workspace",
        permissions=Permissions(
            allow=("Read", "Bash(git *)"),
            deny=("Bash(git push *)",),
            timeout_seconds=60,
            on_timeout="allow",
        ),
    )
    plan, build, lint, say, think, fly = (step for step in hank.hank if isinstance(step, Codon))
    assert (plan.agent, plan.output_var, plan.prompt_text) == (None, "plan", "Plan the {{area}}.")
    assert build == Codon(
        id="build",
        name="build",
        model="opus",
        continuation_mode="fresh",
        prompt_text="Do this: {{plan}}\n",
        append_system_prompt_text="Be brief.",
        env={"LEVEL": "2", "DEBUG": "false"},
        on_failure="retry",
        retry_config=RetryConfig(max_attempts=3),
        agent=ClaudeAgentSpec(permission_mode="plan"),
        timeout_seconds=600,
        condition="tries < 5 and ('parser' in plan or not strict)",
        checks=(
            Check(run="python -m pytest -q"),
            Check(run="ruff check", timeout_seconds=30.5, allow_failure=True),
        ),
        checkpoint_label="architect:checkpoint:build",
    )
    assert lint.agent == CommandAgentSpec(command=("lint", "--level", "2"))
    assert (lint.checks, lint.on_failure) == ((Check(run="test -f report.txt"),), "ignore")
    assert isinstance(say.agent, ScriptedAgentSpec)
    assert say.checkpoint_label is None
    assert (lint.permissions, say.permissions) == (
        Permissions(otherwise="allow"),
        Permissions(otherwise="deny"),
    )
    assert think.agent == CodexAgentSpec(
        sandbox="read-only", config={"model_reasoning_effort": '"high"', "hide": "true"}
    )
    assert fly.agent == AcpAgentSpec(command=("goose", "acp"), mode="auto", keys=("MISTRAL_",))


def test_a_merge_key_supplies_omitted_keys() -> None:
    """YAML merge keys supply defaults; a step's own values win."""
    steps = load_pipeline(VALID / "anchors-and-merges.yaml").steps
    _, two, three = (step.keys for step in steps)
    assert (two.prompt, two.checkpoint, two.timeout) == ("Look at {{area}}.", True, 60)
    assert (three.model, three.checkpoint, three.timeout) == ("opus", True, 90)


def test_a_script_goes_with_the_hank(tmp_path: Path) -> None:
    """A script, file or list of steps, is copied beside the hank.json; later edits do nothing."""
    (tmp_path / "play.json").write_text('{"steps": [{"say": "from a file"}]}')
    path = tmp_path / "p.yaml"
    path.write_text(
        "agents:\n  filed: {type: scripted, script: play.json}\n"
        "  inline: {type: scripted, script: [{say: at once}, {wait: 0.5}]}\n"
        "steps:\n  - {prompt: a, agent: filed}\n  - {prompt: b, agent: inline}\n"
        "  - {prompt: c, agent: filed}\n  - {prompt: d, agent: scripted}\n"
    )
    pipeline = load_pipeline(path)
    (tmp_path / "play.json").unlink()
    file = write_compiled(pipeline, tmp_path / "compiled")
    scripts = []
    for codon in codons(pipeline):
        assert isinstance(codon.agent, ScriptedAgentSpec)
        scripts.append(codon.agent.script)

    assert scripts[0] == scripts[2] != scripts[1]
    assert scripts[3] is None
    played = [json.loads((file.parent / name).read_text()) for name in scripts if name]
    assert played[0] == {"steps": [{"say": "from a file"}]}
    assert played[1] == {"steps": [{"say": "at once"}, {"wait": 0.5}]}
    assert hank_loading.read(file).hank == compile_pipeline(pipeline)


@pytest.mark.parametrize("name", ["build", "plan", "review", "resume"])
def test_architects_own_agents_are_the_default_ones(write: Write, name: str) -> None:
    """Without an agent on the command line the codon names none; `build` can be redefined."""
    text = f"agents: {{mine: {{type: command, command: [mine]}}}}\n{STEP}    agent: {name}\n"
    mine = CommandAgentSpec(command=("mine",))
    [codon] = codons(load_pipeline(write(text)))
    assert codon.agent is None
    [codon] = codons(load_pipeline(write(text), agent="mine"))
    assert codon.agent == mine
    [codon] = codons(load_pipeline(write(text), agent="claude"))
    assert codon.agent == ClaudeAgentSpec()
    [codon] = codons(load_pipeline(write(text.replace("mine:", "build:"))))
    assert codon.agent == mine
    [codon] = codons(load_pipeline(write(text.replace("mine:", "build:")), agent="claude"))
    assert codon.agent == ClaudeAgentSpec()


def test_an_unknown_agent_is_no_other_one(write: Write) -> None:
    """An unknown name is an error; Architect falls back to `build` (A4 [gap])."""
    path = write(f"{STEP}    agent: claud\n")
    expected = messages(lambda: load_pipeline(path, agent="scriptd"))
    assert expected == ["--agent: There is no agent 'scriptd'.", "There is no agent 'claud'."]


@pytest.mark.parametrize("name", [name for name in BY_NAME if name != "scripted"])
def test_an_agent_with_a_name_of_its_own_needs_no_words(write: Write, name: str) -> None:
    """Known agents work in a step and on the command line; the pipeline's own definition wins."""
    step = f"{STEP}    model: theirs\n"
    [codon] = codons(load_pipeline(write(f"{step}    agent: {name}\n")))
    assert codon.agent == BY_NAME[name]
    [codon] = codons(load_pipeline(write(step), agent=name))
    assert codon.agent == BY_NAME[name]
    own = f"agents: {{{name}: {{type: command, command: [mine]}}}}\n{step}    agent: {name}\n"
    [codon] = codons(load_pipeline(write(own)))
    assert codon.agent == CommandAgentSpec(command=("mine",))


def test_codex_is_given_no_model_of_another(tmp_path: Path, write: Write) -> None:
    """Codex cannot run the default model, so the step or the configuration has to name one."""
    expected = ["The step has no model, and Codex cannot run the default, 'sonnet'."]
    path = write(f"agents: {{mine: {{type: codex}}}}\n{STEP}  - {{prompt: b, agent: claude}}\n")
    assert messages(lambda: load_pipeline(path, agent="codex")) == expected
    assert messages(lambda: load_pipeline(path, agent="mine")) == expected
    config = tmp_path / "architect.yaml"
    config.write_text("llm: {model: gpt-6-luna}\n")
    pipeline = load_pipeline(path, agent="codex", config=config)
    assert [codon.model for codon in codons(pipeline)] == ["gpt-6-luna", "gpt-6-luna"]


# --- Permissions --------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", ["codex", "mine"])
def test_permissions_are_refused_for_an_agent_that_never_asks(write: Write, agent: str) -> None:
    """Permissions of pipeline or step are refused, unless they deny nothing."""
    step = f"agents: {{mine: {{type: command, command: [m]}}}}\n{STEP}    agent: {agent}\n"
    step += "    model: m\n"
    expected = ["The agent never asks for permission, so these permissions cannot be enforced."]
    own = "    permissions: {otherwise: allow}\n"
    for common in ("permissions: {}\n", "permissions: {otherwise: allow, deny: [Bash]}\n"):
        assert messages(lambda text=common + step: load_pipeline(write(text))) == expected  # type: ignore[misc]
        assert not load_pipeline(write(common + step + own)).warnings

    assert messages(lambda: load_pipeline(write(step + "    permissions: {}\n"))) == expected


@pytest.mark.parametrize(
    ("agent", "has_problem"),
    [
        ("{type: acp, command: [goose, acp]}", True),
        ("{type: acp, command: [gemini, --acp], mode: yolo}", True),
        ("{type: acp, command: [gemini, --acp]}", False),
        ("{type: scripted}", False),
    ],
)
def test_permissions_of_an_agent_that_may_not_ask_are_reported(
    write: Write, agent: str, has_problem: bool
) -> None:
    """This is only a warning: another agent on the command line may still run the step."""
    path = write(f"permissions: {{}}\nagents: {{mine: {agent}}}\n{STEP}    agent: mine\n")
    found = [(each.path, each.line) for each in load_pipeline(path).warnings]
    assert found == ([("$.steps[0].agent", 6)] if has_problem else [])


# --- Variables ----------------------------------------------------------------------------------


def test_a_number_is_no_crash(write: Write) -> None:
    """Every scalar is the text that its author wrote; in Architect `n: 3` fails (A8 19 [run])."""
    path = write("variables: {n: 3, v: 1.10, d: 2024-01-31, b: no, e: , s: '07', h: 0x1F}\n" + STEP)
    assert load_pipeline(path).variables == {
        "n": "3", "v": "1.10", "d": "2024-01-31", "b": "false", "e": "", "s": "07", "h": "0x1F",
    }  # fmt: skip


def test_the_command_line_wins_over_the_file(write: Write) -> None:
    """--var overrides the file's variables."""
    path = write("variables: {a: file, b: file}\n" + STEP.replace("Do it.", "'{{a}}{{b}}{{c}}'"))
    pipeline = load_pipeline(path, variables={"a": "line", "c": "line"})
    assert pipeline.variables == {"a": "line", "b": "file", "c": "line"}
    assert not pipeline.warnings


def test_a_var_is_a_name_and_a_value() -> None:
    """Name and value are stripped, as in Architect; the value may contain '=' or be empty."""
    assert parse_var(" a = b=c ") == ("a", "b=c")
    assert parse_var("a=") == ("a", "")


@pytest.mark.parametrize("text", ["a", "", "=b", "a-b=c", "1=2", "true=1", "a=\udcff", "a=\0"])
def test_an_entry_that_sets_nothing_is_an_error(text: str) -> None:
    """An entry without '=' is an error; Architect ignores it silently (A4)."""
    with pytest.raises(NotAVariable) as caught:
        parse_var(text)

    assert caught.value.message
    assert caught.value.suggestion


def test_an_unused_var_is_reported(write: Write) -> None:
    """A --var that no step reads is reported, since it may be a typing mistake."""
    path = write("variables: {area: x}\n" + STEP.replace("Do it.", "'{{area}}'"))
    [warning] = load_pipeline(path, variables={"aera": "y"}).warnings
    assert warning.message == "--var aera: no step of the pipeline uses it."
    assert warning.suggestion == "Did you mean 'area'?"
    assert messages(lambda: load_pipeline(path, variables={"a b": "", "b": "\ud800"})) == [
        "--var a b: 'a b' is not a valid variable name.",
        "--var b: The value is not valid text.",
    ]


def test_an_unknown_name_in_a_prompt_is_a_warning(write: Write) -> None:
    """An unknown name stays literal, as documented, and gives a warning with its line."""
    pipeline = load_pipeline(write("variables: {area: x}\n" + STEP.replace("Do it.", "'{{aera}}'")))
    [warning] = pipeline.warnings
    assert (warning.path, warning.line, warning.column) == ("$.steps[0].prompt", 4, 5)
    assert "{{aera}} unchanged" in warning.message
    assert warning.suggestion == "Did you mean 'area'?"
    assert codons(pipeline)[0].prompt_text == "{{aera}}"


def test_a_condition_may_use_undefined_names(write: Write) -> None:
    """`defined(name)` accepts undefined names; the answer of an earlier step counts as defined."""
    path = write(
        "steps:\n  - {prompt: a, output_var: early}\n"
        "  - {prompt: b, condition: \"defined(given) and given == 'x' or early\"}\n"
        "  - {prompt: c, condition: defined(late)}\n  - {prompt: d, output_var: late}\n"
    )
    assert not load_pipeline(path).warnings


# --- Problems -----------------------------------------------------------------------------------


def test_all_problems_are_reported_at_once_in_the_order_of_the_file(write: Write) -> None:
    """All faults are reported at once, each with its line and column."""
    path = write(
        "nme: x\nvariables: {a: [1]}\nsteps:\n  - {name: a b, prompt: x}\n"
        "  - name: c\n    task: y\n    checkpoint: 'no'\n    condition: exit 0\n"
        "  - {name: c, prompt: '', timeout: -1}\n"
    )
    with pytest.raises(HankInvalid) as caught:
        load_pipeline(path)

    places = [(each.path, each.line, each.column) for each in caught.value.problems]
    assert places == [
        ("$.nme", 1, 1),
        ("$.variables.a", 2, 13),
        ("$.steps[0].name", 4, 6),
        ("$.steps[1].task", 6, 5),
        ("$.steps[1].checkpoint", 7, 5),
        ("$.steps[1].condition", 8, 5),
        ("$.steps[2].name", 9, 6),
        ("$.steps[2].prompt", 9, 15),
        ("$.steps[2].timeout", 9, 27),
    ]
    assert str(caught.value).startswith(f"{path} cannot be run:\n{path}:1:1: $.nme: ")


def test_an_unknown_key_at_the_top_is_reported(write: Write) -> None:
    """Unknown top-level keys are errors; Architect ignores them silently (A4 [run])."""
    assert messages(lambda: load_pipeline(write("vars: {a: b}\n" + STEP))) == [
        "There is no field 'vars' here."
    ]


def test_two_steps_of_one_name_are_reported(write: Write) -> None:
    """Duplicates are errors; in Architect --from-step takes the first (A4 [run])."""
    [problem] = messages(lambda: load_pipeline(write(STEP + "  - {name: one, prompt: b}\n")))
    assert "is already used by a step: $.steps[0]" in problem


def test_a_text_is_no_boolean(write: Write) -> None:
    """The string "false" is an error; in Architect it is truthy and commits (A4 [run])."""
    [problem] = messages(lambda: load_pipeline(write(f'{STEP}    checkpoint: "false"\n')))
    assert problem == "Expected true or false; found 'false'."


def test_a_missing_file_is_reported_with_the_nearest_name(tmp_path: Path, write: Write) -> None:
    """A missing file has a hint with a similar name; Architect raises FileNotFoundError."""
    write(STEP)
    with pytest.raises(HankInvalid) as caught:
        load_pipeline(tmp_path / "pipelin.yaml")

    [problem] = caught.value.problems
    assert problem.suggestion == "Did you mean 'pipeline.yaml'?"
    assert messages(lambda: load_pipeline(tmp_path)) == ["The file cannot be read: Is a directory."]


def test_a_script_is_read_below_the_pipeline_alone(tmp_path: Path, write: Write) -> None:
    """Neither a path that leads out nor a symbolic link brings a file into the hank."""
    outside = tmp_path.parent / "outside.json"
    outside.write_text('{"steps": []}')
    (tmp_path / "link.json").symlink_to(outside)
    for reference, expected in (
        ("../outside.json", "leads outside its folder"),
        ("link.json", "goes through a symbolic link"),
        (str(outside), "is absolute"),
    ):
        path = write(f"agents: {{a: {{type: scripted, script: {reference}}}}}\n{STEP}")
        [message] = messages(lambda path=path: load_pipeline(path))  # type: ignore[misc]
        assert expected in message


# --- Configuration ------------------------------------------------------------------------------


def test_a_configuration_supplies_what_the_pipeline_omits(tmp_path: Path, write: Write) -> None:
    """Its checkpoints, agents and model apply; the pipeline's own keys win, key by key."""
    config = tmp_path / "architect.yaml"
    config.write_text(
        "llm: {model: opus, timeout: 60}\nsessions: {auto_save: true}\nworkspace: {root: .}\n"
        "checkpoints: {enabled: true, every_n_steps: 9, repository: workspace}\n"
        "agents:\n  build: {type: command, command: [usual]}\n  other: {type: claude}\n"
    )
    path = write(
        "checkpoints: {repository: shadow}\nagents: {other: {type: command, command: [own]}}\n"
        f"{STEP}  - {{prompt: b, agent: other, model: haiku}}\n"
    )
    pipeline = load_pipeline(path, config=config)
    hank = compile_pipeline(pipeline)
    assert hank.overrides == Overrides(checkpoint_every_steps=9)
    one, two = codons(pipeline)
    assert (one.model, one.agent) == ("opus", CommandAgentSpec(command=("usual",)))
    assert (two.model, two.agent) == ("haiku", CommandAgentSpec(command=("own",)))
    [warning] = pipeline.warnings
    assert warning.message == (
        "architect.yaml has keys that pipelines ignore: llm.timeout, sessions, workspace."
    )


def test_a_configuration_is_read_strictly_where_it_counts(tmp_path: Path, write: Write) -> None:
    """Its faults have its own lines, and a misspelt block is reported."""
    config = tmp_path / "architect.yaml"
    config.write_text("checkpoint: {}\ncheckpoints: {every_n_steps: 51}\nllm: {model: ''}\n")
    with pytest.raises(HankInvalid) as caught:
        load_pipeline(write(STEP), config=config)

    assert caught.value.file == config
    assert [(each.path, each.line) for each in caught.value.problems] == [
        ("$.checkpoint", 1),
        ("$.checkpoints.every_n_steps", 2),
        ("$.llm.model", 3),
    ]


def test_an_empty_configuration_sets_nothing(tmp_path: Path, write: Write) -> None:
    """A configuration without blocks is valid; a pipeline without steps is not."""
    empty = tmp_path / "architect.yaml"
    empty.write_text("# nothing yet\n")
    assert load_pipeline(write(STEP), config=empty) == load_pipeline(write(STEP))
    assert messages(lambda: load_pipeline(empty)) == ["A pipeline is a mapping with 'steps'."]


def test_checkpoints_are_off_unless_they_are_enabled(write: Write) -> None:
    """Seed 003: `enabled` is false by default; if true, the default is every 5 steps."""
    for block, every in (("", None), ("{enabled: true}", 5), ("{enabled: false}", None)):
        pipeline = load_pipeline(write(f"checkpoints: {block}\n{STEP}"))
        assert pipeline.checkpoints.every_n_steps == every

    pipeline = load_pipeline(write(f"checkpoints: {{every_n_steps: 3}}\n{STEP}"))
    assert pipeline.checkpoints.every_n_steps is None
    assert "enabled: true" in pipeline.warnings[0].message


# --- The printed plan ---------------------------------------------------------------------------


def test_the_plan_says_what_would_be_done(write: Write) -> None:
    """The plan has checks, models, conditions, and values that are not known yet (A5)."""
    path = write(
        "name: Ship it\nvariables: {area: parser, quick: yes}\nsteps:\n"
        "  - {name: review, prompt: 'Look at {{area}}, then {{later}}.', output_var: verdict}\n"
        "  - {name: fix, prompt: 'Mind {{verdict}}.', condition: \"verdict == 'bad'\","
        " checkpoint: true, checks: [make test], timeout: 90}\n"
        "  - {name: slow, prompt: '" + "x" * 90 + "', condition: not quick, output_var: more}\n"
        "  - {name: tell, prompt: Tell., condition: not defined(more), model: opus}\n"
    )
    assert plan_summary(load_pipeline(path)) == (
        "# Ship it\n\n4 steps\nVariables: area, quick\n\n"
        "1. review (build, sonnet)\n   - answer: stored in verdict\n"
        "   - prompt: Look at parser, then {{later}}.\n\n"
        "2. fix (build, sonnet) (if: verdict == 'bad') [checkpoint]\n"
        "   - unknown until `review` has run\n   - check: make test\n   - timeout: 90 s\n"
        "   - prompt: Mind {{verdict}}.\n\n"
        "3. slow (build, sonnet) (if: not quick)\n   - would be skipped\n"
        "   - answer: stored in more\n   - prompt: " + "x" * 80 + "…\n\n"
        "4. tell (build, opus) (if: not defined(more))\n   - would run\n   - prompt: Tell.\n"
    )


def test_a_missing_step_is_reported_with_the_nearest(write: Write) -> None:
    """A typing mistake in --from-step is an error; in Architect the exit code is 0 (A4 [run])."""
    pipeline = load_pipeline(write(STEP + "  - {name: deploy, prompt: b}\n"))
    assert unknown_step(pipeline, "deploy") is None
    problem = unknown_step(pipeline, "deplyo")
    assert problem.suggestion == "Did you mean 'deploy'?"
    problem = unknown_step(pipeline, "zzz")
    assert problem.suggestion == "Its steps are one, deploy."
