"""Claims about `hankweave init`: its files run at once, and no existing file is overwritten."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from hankweave_server.cli.init import EXAMPLES, MODELS, SCHEMA_FILE
from support.command_line import Done, hankweave, on_the_path, pasted
from support.models.endpoint import scripted_models
from support.models.turns import Runs, Says
from support.real_agents import CLAUDE, STAND_IN


def init(folder: Path, *words: str) -> Done:
    return hankweave("init", *words, cwd=folder)


def next_lines(done: Done) -> list[str]:
    """Return the lines that are printed under "Next"."""
    assert done.returncode == 0, done.stderr
    lines = [line.strip() for line in done.stdout.partition("Next:\n")[2].splitlines()]
    assert len(lines) >= 3
    return lines


@pytest.mark.story("`init` writes a hank that runs as printed, and overwrites nothing.")
def test_the_hank_for_a_coding_agent_runs_as_printed(tmp_path: Path) -> None:
    """With Claude Code on the PATH, each line works; the check has the second codon tried again.

    A second `init` in the same directory writes nothing.
    """
    program, done = """echo "print('the summary')" > summarize.py""", Says("Done.")
    wrong, right = (
        Runs(f"{program}; echo {text} > summary.md") for text in ("none", "the summary")
    )
    with scripted_models() as endpoint:
        endpoint.script.on("Read every file", done)
        endpoint.script.on("Write summarize.py", wrong, done, right, done)
        endpoint.script.on("Review summarize.py", done)
        shell = on_the_path(tmp_path / "bin", **CLAUDE.environment(endpoint, tmp_path))
        shutil.copy(STAND_IN, tmp_path / "bin" / "claude")
        for line in next_lines(pasted("hankweave init 'my hank'", shell, tmp_path)):
            pasted(line, shell, tmp_path)

        assert endpoint.script.is_done
        assert not endpoint.script.has_run_over

    hank = tmp_path / "my hank" / "hank.json"
    hank.write_text("mine")
    assert init(tmp_path, "my hank").returncode == 73
    assert hank.read_text() == "mine"


@pytest.mark.parametrize("example", ["first-steps", "minimal"])
def test_the_next_commands_work_as_they_are_printed(tmp_path: Path, example: str) -> None:
    """Offline and without a key, each line printed under "Next" ends with exit code 0."""
    shell = on_the_path(tmp_path / "bin")
    for line in next_lines(init(tmp_path, "my hank", "--example", example)):
        pasted(line, shell, tmp_path)


def test_the_example_without_an_agent_does_what_its_page_says(tmp_path: Path) -> None:
    """The rig copies, the loop runs twice, and the data is read."""
    assert init(tmp_path, "my", "--agent", "scripted").returncode == 0
    hankweave("run", "my", "my/data", "-e", "execution", "--headless", cwd=tmp_path, code=0)
    root = tmp_path / "execution" / "agentRoot"
    assert (root / "page" / "rows.txt").read_text().strip() == "5"
    assert len((root / "reviews" / "log.md").read_text().splitlines()) == 2
    assert (root / "public" / "index.md").read_text().endswith("Made by a hank.\n")


@pytest.mark.parametrize("agent", MODELS)
def test_the_hank_is_for_the_agent_that_is_named(tmp_path: Path, agent: str) -> None:
    """Its model selects that agent for every codon, and is one that `validate` knows."""
    assert init(tmp_path, "my", "--agent", agent).returncode == 0
    done = hankweave("validate", "my", "--no-agent-check", "--json", cwd=tmp_path, code=0)
    report = json.loads(done.stdout)
    assert {step["agent"] for step in report["plan"]} == {agent}
    assert report["warnings"] == []
    assert {budget["maxDollars"] for budget in report["budgets"]} == {2}


def test_a_missing_agent_is_named_with_the_command_that_installs_it(tmp_path: Path) -> None:
    """The files are written all the same."""
    done = hankweave("init", "my", cwd=tmp_path, code=0, PATH="/usr/bin:/bin")
    assert "Before it can run:" in done.stdout
    assert "npm install -g @anthropic-ai/claude-code" in done.stdout


@pytest.mark.parametrize("words", [("minimal", "claude"), ("agent", "scripted")])
def test_an_example_that_is_not_for_an_agent_is_refused(
    tmp_path: Path, words: tuple[str, str]
) -> None:
    """The exit code is 2, and the message has the command that works instead."""
    example, agent = words
    done = hankweave("init", "--example", example, "--agent", agent, cwd=tmp_path, code=2)
    assert f"`hankweave init --agent {agent}`" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_schema_beside_the_hank_is_the_one_it_names(tmp_path: Path, example: str) -> None:
    """An editor that opens the new hank finds its schema there, and reports no problem."""
    assert init(tmp_path, "my", "--example", example).returncode == 0
    hank = json.loads((tmp_path / "my" / "hank.json").read_text())
    assert hank["$schema"] == f"./{SCHEMA_FILE}"
    schema = json.loads((tmp_path / "my" / SCHEMA_FILE).read_text())
    Draft202012Validator(schema).validate(hank)


@pytest.mark.parametrize("taken", ["hank.json", "README.md", "prompts/mine.md", "data"])
def test_nothing_is_overwritten_and_nothing_half_written(tmp_path: Path, taken: str) -> None:
    """If one name is taken, no file is written: the exit code is 73, and the names are listed."""
    mine = tmp_path / taken
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_text("mine")
    done = init(tmp_path)
    assert done.returncode == 73
    assert taken.partition("/")[0] in done.stderr
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [mine]
    assert mine.read_text() == "mine"


def test_a_dangling_link_is_a_name_that_is_taken(tmp_path: Path) -> None:
    """Writing through a dangling link would create its target."""
    (tmp_path / "hank.json").symlink_to(tmp_path / "elsewhere")
    assert init(tmp_path).returncode == 73
    assert not (tmp_path / "elsewhere").exists()


def test_other_files_of_a_directory_stay(tmp_path: Path) -> None:
    """A directory that holds other files is acceptable for a hank."""
    (tmp_path / "notes.txt").write_text("mine")
    assert init(tmp_path).returncode == 0
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_an_unknown_example_is_reported_with_the_known_ones(tmp_path: Path) -> None:
    """The exit code is 2, as for every usage error."""
    done = init(tmp_path, "--example", "none")
    assert done.returncode == 2
    assert "first-steps" in done.stderr
