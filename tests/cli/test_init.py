"""Claims about `hankweave init`: its files run at once, and no existing file is overwritten."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from hankweave_server.cli.init import EXAMPLES, SCHEMA_FILE
from support.command_line import Done, hankweave
from support.running_server import command, environment
from support.waiting import LIMIT


def init(folder: Path, *words: str) -> Done:
    return hankweave("init", *words, cwd=folder)


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a user who has `hankweave` on the PATH."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    words = " ".join(map(shlex.quote, command()))
    program = bin_folder / "hankweave"
    program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    program.chmod(0o755)
    path = os.pathsep.join([str(bin_folder), str(Path(sys.executable).parent), os.environ["PATH"]])
    root = str(tmp_path / "executions")
    return environment(PATH=path, HANKWEAVE_RUNTIME_EXECUTION_BASE_DIR=root)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_next_commands_work_as_they_are_printed(
    tmp_path: Path, shell: dict[str, str], example: str
) -> None:
    """Offline and without a key, each line printed under "Next" ends with exit code 0."""
    done = init(tmp_path, "my hank", "--example", example)
    assert done.returncode == 0, done.stderr
    _, _, after = done.stdout.partition("Next:\n")
    lines = [line.strip() for line in after.splitlines()]
    assert len(lines) >= 3
    for line in lines:
        ran = subprocess.run(
            ["sh", "-c", line],
            env=shell,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert ran.returncode == 0, f"{line}: {ran.stdout}{ran.stderr}"


@pytest.mark.story("`init` writes a hank that runs at once, offline.")
def test_what_is_written_does_what_its_page_says(tmp_path: Path, shell: dict[str, str]) -> None:
    """The rig copies, the loop runs twice, the data is read: the example's page is there."""
    assert init(tmp_path, "my").returncode == 0
    ran = subprocess.run(
        ["hankweave", "run", "my", "my/data", "-e", "execution", "--headless"],
        env=shell,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    root = tmp_path / "execution" / "agentRoot"
    assert (root / "page" / "rows.txt").read_text().strip() == "5"
    assert len((root / "reviews" / "log.md").read_text().splitlines()) == 2
    assert (root / "public" / "index.md").read_text().endswith("Made by a hank.\n")


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_schema_beside_the_hank_is_the_one_it_names(tmp_path: Path, example: str) -> None:
    """An editor that opens the new hank finds its schema there, and reports no problem."""
    assert init(tmp_path, "my", "--example", example).returncode == 0
    hank = json.loads((tmp_path / "my" / "hank.json").read_text())
    assert hank["$schema"] == f"./{SCHEMA_FILE}"
    schema = json.loads((tmp_path / "my" / SCHEMA_FILE).read_text())
    Draft202012Validator(schema).validate(hank)


@pytest.mark.parametrize("taken", ["hank.json", "README.md", "prompts/mine.md", "data"])
@pytest.mark.story("`init` overwrites nothing.", cases=("hank.json",))
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


def test_an_unknown_example_is_told_with_those_that_there_are(tmp_path: Path) -> None:
    """The exit code is 2, as for every usage error."""
    done = init(tmp_path, "--example", "none")
    assert done.returncode == 2
    assert "first-steps" in done.stderr
