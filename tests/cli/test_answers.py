"""Claims about `blame`, `why`, `pickaxe` and `bisect` on real executions, without a server."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.git_facts import GitWitness
from support.running_server import command, environment
from support.scripted_hank import codon, write_hank, writes
from support.waiting import LIMIT

HANK = (
    codon("build", writes("src/a.py", "one\ntwo\n"), writes("src/a.py", "one\ntwo\nthree\n")),
    codon("review", {"run": "mv src/a.py src/b.py && echo four >> src/b.py"}),
)


def hankweave(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*command(), *map(str, arguments)],
        env=environment(),
        cwd=cwd,
        capture_output=True,
        timeout=LIMIT,
        check=False,
        text=True,
    )
    assert "Traceback" not in done.stdout + done.stderr
    return done


def printed(*arguments: str | Path, cwd: Path | None = None) -> Any:
    done = hankweave(*arguments, "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(name="execution", scope="module")
def _execution(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an execution whose server has ended, with an edit by a person."""
    top = tmp_path_factory.mktemp("answers")
    hank, execution = write_hank(top / "hank", *HANK), top / "execution"
    done = hankweave("run", hank, "-e", execution, "--headless")
    assert done.returncode == 0, done.stderr
    with (execution / "agentRoot" / "src" / "b.py").open("a") as file:
        file.write("five\n")

    assert hankweave("checkpoint", "mine", "-e", execution).returncode == 0
    return execution


def test_blame_names_the_calls_and_the_person(execution: Path) -> None:
    """The lines are those of `git blame`, and the answer is the same from inside a folder."""
    rows = printed("blame", "src/b.py", "-e", execution)
    assert rows == printed("blame", "b.py", cwd=execution / "agentRoot" / "src")
    found = [(row["from"], row["to"], row["by"], row["codonId"], row["call"]) for row in rows]
    assert found == [
        (1, 2, "agent", "build", "Write src/a.py"),
        (3, 3, "agent", "build", "Write src/a.py"),
        (4, 4, "agent", "review", "Bash mv src/a.py src/b.py && echo four >> src/b.py"),
        (5, 5, "person", None, None),
    ]
    lines = GitWitness(execution).run("blame", "-s", "HEAD", "--", "src/b.py").splitlines()
    ours = [row["checkpointSha"][:8] for row in rows for _ in range(row["from"], row["to"] + 1)]
    assert [line.split()[0].lstrip("^")[:8] for line in lines] == ours


def test_blame_takes_lines_and_a_moment(execution: Path) -> None:
    """Both are refused with a hint if there is nothing of that name or number."""
    (row,) = printed("blame", "src/a.py", "-L", "3,+1", "--at", "build", "-e", execution)
    assert (row["from"], row["to"], row["path"]) == (3, 3, "src/a.py")
    for words, message in (
        (("src/a.py",), "has no file src/a.py"),
        (("src/b.py", "-L", "9,10"), "has only 5 lines"),
        (("src/b.py", "--at", "ffffffff"), "No checkpoint begins with ffffffff"),
        (("/etc/passwd",), "is not in the work tree"),
    ):
        done = hankweave("blame", *words, "-e", execution)
        assert done.returncode in (1, 66)
        assert message in done.stderr
        assert "hint:" in done.stderr


def test_blame_shows_each_line_beside_its_author(execution: Path) -> None:
    """The author is named once for each group of lines."""
    done = hankweave("blame", "src/b.py", "-e", execution)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert [line.split()[-2:] for line in lines] == [
        [str(number), word]
        for number, word in enumerate(("one", "two", "three", "four", "five"), 1)
    ]
    assert sum("build · Write src/a.py" in line for line in lines) == 2
    assert "a person" in lines[-1]


def test_why_tells_the_story_of_a_line(execution: Path) -> None:
    """It has the prompt, the call, its change, what came later, and the way to the transcript."""
    story = printed("why", "src/b.py:3", "-e", execution)
    assert (story["text"], story["author"]["call"]) == ("three", "Write src/a.py")
    assert "steps" in story["prompt"]
    assert "+three" in story["patch"].splitlines()
    assert [each["by"] for each in story["later"]] == ["person", "agent"]

    done = hankweave("why", "src/b.py:3", "-e", execution)
    assert done.returncode == 0
    assert "2 later changes of the file; last: a person" in done.stdout
    (line,) = [line for line in done.stdout.splitlines() if "transcript" in line]
    seq = line.split("--seq ")[1].split()[0]
    events = hankweave("replay", "--seq", seq, "--events", "-e", execution).stdout
    assert events.splitlines()[-1].split()[-1] == "assistant.action"


def test_why_refuses_what_is_no_line(execution: Path) -> None:
    """A place without a number, and a number beyond the end."""
    for place, message in (("src/b.py", "does not name a line"), ("src/b.py:6", "only 5 lines")):
        done = hankweave("why", place, "-e", execution)
        assert done.returncode in (2, 66)
        assert message in done.stderr


def test_pickaxe_finds_where_a_text_came(execution: Path) -> None:
    """The renamed file does not count; a text that is nowhere is said to be nowhere."""
    (row,) = printed("pickaxe", "three", "-e", execution)
    assert (row["path"], row["before"], row["after"]) == ("src/a.py", 0, 1)
    assert row["call"] == "Write src/a.py"
    done = hankweave("pickaxe", "six", "-e", execution)
    assert done.returncode == 0
    assert "No checkpoint of this timeline" in done.stdout


def test_nothing_of_the_execution_changes(execution: Path) -> None:
    """The questions are answered by reading alone."""

    def everything() -> dict[str, tuple[int, int]]:
        found = (path for path in sorted(execution.rglob("*")))
        return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_size) for path in found}

    before = everything()
    printed("blame", "src/b.py", "-e", execution)
    printed("pickaxe", "o", "--all", "-e", execution)
    assert everything() == before
    assert os.path.lexists(execution / "agentRoot" / "src" / "b.py")
