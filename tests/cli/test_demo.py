"""Claims about `hankweave demo`: it runs offline, and what it prints works."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hankweave_server.cli.shared.starter_files import files_of
from support.command_line import hankweave, on_the_path, pasted
from support.example_run import EXAMPLE

FAST = {"HANKWEAVE_EXAMPLE_PACE": "0"}


@pytest.mark.story("`demo` runs the example offline, and each line that it prints next works.")
def test_the_demo_runs_and_its_lines_work_when_pasted(tmp_path: Path) -> None:
    """After the last codon, each indented line ends with exit code 0, in this order."""
    shell = on_the_path(tmp_path / "bin", **FAST)
    printed = pasted("hankweave demo 'my demo'", shell, tmp_path).stdout
    lines = [line for line in printed.partition("Try next")[2].splitlines() if line[:2] == "  "]
    assert {line.split()[1] for line in lines} >= {"log", "rollback", "undo", "run", "init"}
    for line in lines:
        pasted(line, shell, tmp_path)

    reviews = tmp_path / "my demo" / "execution" / "agentRoot" / "reports"
    assert json.loads((reviews / "review-1.json").read_text())["failures"] == 0


def test_a_directory_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    """The exit code is 73, nothing is written, and the hint names a command that works."""
    (tmp_path / "hankweave-demo").mkdir()
    mine = tmp_path / "hankweave-demo" / "mine"
    mine.write_text("mine")
    done = hankweave("demo", cwd=tmp_path, code=73)
    assert "hankweave demo another-demo" in done.stderr
    assert list(mine.parent.iterdir()) == [mine]


def test_the_demo_is_the_example() -> None:
    """Its files are those of examples/, byte for byte."""
    assert files_of("earthquakes") == {
        path.relative_to(EXAMPLE).as_posix(): path.read_bytes()
        for path in EXAMPLE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def normalized(text: str) -> list[str]:
    """Return sorted lines without what differs: times, ids, and costs, which depend on paths."""
    text = re.sub(
        r"\d\d:\d\d:\d\d  |\d+\.\d s|\$\d+\.\d+|\d{13}-\w{6}-\w{6}|\b[0-9a-f]{8,12}\b", "", text
    )
    return sorted(re.sub(r"event \d+", "event", text).strip().splitlines())


def test_what_the_page_about_reuse_shows_is_what_its_commands_print(tmp_path: Path) -> None:
    """After a change of one prompt, the step before it is kept, and the last one is reused."""
    page = (EXAMPLE.parent.parent / "docs" / "how-to" / "reuse.md").read_text()
    lines = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)[0].splitlines()
    shown, answers = re.findall(r"```text\n(.*?)```", page, re.DOTALL)[:2]
    shell = on_the_path(tmp_path / "bin", **FAST)
    printed = [pasted(line, shell, tmp_path).stdout for line in lines]
    steps = printed[-1][printed[-1].index(" infer ") :]
    assert normalized(steps) == normalized(shown[shown.index(" infer ") :])
    for answer in answers.split("$ ")[1:]:
        line, _, text = answer.partition("\n")
        assert normalized(pasted(line, shell, tmp_path).stdout) == normalized(text)
