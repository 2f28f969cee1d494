"""Claims about `blame`, `why`, `changes`, `pickaxe` and `bisect`, without a server."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support import command_line
from support.command_line import Done
from support.git_facts import GitWitness
from support.running_server import command, environment
from support.scripted_hank import codon, write_hank, writes
from support.waiting import LIMIT, eventually_blocking

pytestmark = pytest.mark.feature("answers")

HANK = (
    codon("build", writes("src/a.py", "one\ntwo\n"), writes("src/a.py", "one\ntwo\nthree\n")),
    codon("review", {"run": "mv src/a.py src/b.py && echo four >> src/b.py"}),
)


def hankweave(*arguments: str | Path, **how: Any) -> Done:
    return command_line.hankweave(*map(str, arguments), **how)


def printed(*arguments: str | Path, cwd: Path | None = None) -> Any:
    done = hankweave(*arguments, "--json", cwd=cwd, code=0)
    return json.loads(done.stdout)


@pytest.fixture(name="execution", scope="module")
def _execution(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an execution whose server has ended, with an edit by a person."""
    top = tmp_path_factory.mktemp("answers")
    hank, execution = write_hank(top / "hank", *HANK), top / "execution"
    hankweave("run", hank, "-e", execution, "--headless", code=0)
    with (execution / "agentRoot" / "src" / "b.py").open("a") as file:
        file.write("five\n")

    hankweave("checkpoint", "mine", "-e", execution, code=0)
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
    done = hankweave("blame", "src/b.py", "-e", execution, code=0)
    lines = done.stdout.splitlines()
    assert [line.split()[-2:] for line in lines] == [
        [str(number), word]
        for number, word in enumerate(("one", "two", "three", "four", "five"), 1)
    ]
    assert sum("build · Write src/a.py" in line for line in lines) == 2
    assert "a person" in lines[-1]


def test_why_shows_the_history_of_a_line(execution: Path) -> None:
    """It has the prompt, the call, its change, what came later, and the way to the transcript."""
    story = printed("why", "src/b.py:3", "-e", execution)
    assert (story["text"], story["author"]["call"]) == ("three", "Write src/a.py")
    assert "steps" in story["prompt"]
    assert "+three" in story["patch"].splitlines()
    assert [each["by"] for each in story["later"]] == ["person", "agent"]

    done = hankweave("why", "src/b.py:3", "-e", execution, code=0)
    assert "2 later changes of the file; last: a person" in done.stdout
    (line,) = [line for line in done.stdout.splitlines() if "transcript" in line]
    seq = line.split("--seq ")[1].split()[0]
    events = hankweave("replay", "--seq", seq, "--events", "-e", execution).stdout
    assert "assistant.action" in events.splitlines()[-1].split()


def test_why_refuses_what_is_no_line(execution: Path) -> None:
    """A place without a number, and a number beyond the end."""
    for place, message in (
        ("src/b.py", "add its number: src/main.py:13"),
        ("src/b.py:6", "only 5 lines"),
    ):
        done = hankweave("why", place, "-e", execution)
        assert done.returncode in (2, 66)
        assert message in done.stderr


def test_changes_of_a_file_are_listed_through_its_names(execution: Path) -> None:
    """Each names its author, and the path that the file had then."""
    rows = printed("changes", "src/b.py", "-e", execution)
    found = [(row["by"], row["path"], row["linesAdded"], row["linesRemoved"]) for row in rows]
    assert found == [
        ("person", "src/b.py", 1, 0),
        ("agent", "src/b.py", 1, 0),
        ("agent", "src/a.py", 1, 0),
        ("agent", "src/a.py", 2, 0),
    ]
    assert printed("changes", "src/b.py", "-n", "1", "-e", execution) == rows[:1]
    done = hankweave("changes", "src/b.py", "-n", "2", "-e", execution, code=0)
    assert len(done.stdout.splitlines()) == 2
    assert "older ones" in done.stderr
    done = hankweave("changes", "src/none.py", "-e", execution)
    assert done.returncode != 0
    assert "has no file src/none.py" in done.stderr


def test_pickaxe_finds_where_a_text_came(execution: Path) -> None:
    """The renamed file does not count; a text that is nowhere is said to be nowhere."""
    (row,) = printed("pickaxe", "three", "-e", execution)
    assert (row["path"], row["before"], row["after"]) == ("src/a.py", 0, 1)
    assert row["call"] == "Write src/a.py"
    done = hankweave("pickaxe", "six", "-e", execution, code=0)
    assert "No checkpoint of this timeline" in done.stdout


def bisected(execution: Path, folder: Path, *words: str) -> Done:
    """Bisect with a folder of its own for temporary files, which must be empty afterwards."""
    folder.mkdir(exist_ok=True)
    done = hankweave("bisect", *words, "-e", execution, TMPDIR=str(folder))
    assert list(folder.iterdir()) == []
    return done


def test_bisect_names_the_call_that_broke_it(execution: Path, tmp_path: Path) -> None:
    """The command runs in copies; the way back leads to just before the call."""
    check = "! grep -qs three src/*.py"
    done = bisected(execution, tmp_path / "t", check, "--json", "--no-confinement")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["codonId"], found["call"], found["skipped"]) == ("build", "Write src/a.py", 0)
    assert found["suspects"] == [found["checkpointSha"]]
    (row,) = printed("pickaxe", "three", "-e", execution)
    assert row["checkpointSha"] == found["checkpointSha"]

    done = bisected(execution, tmp_path / "t", check, "--parallel", "3", "--no-confinement")
    assert done.returncode == 0, done.stderr
    assert "+three" in done.stdout.splitlines()
    before = done.stdout.split("rollback --to ")[1].split()[0]
    parent = GitWitness(execution).run("rev-parse", f"{found['checkpointSha']}^").strip()
    assert parent.startswith(before)


def test_bisect_confines_the_command(execution: Path, tmp_path: Path) -> None:
    """It writes where it runs, and nowhere else."""
    mark = execution / "agentRoot" / "mark"
    check = f"touch here; touch {mark} 2>/dev/null; ! grep -qs three src/*.py"
    done = bisected(execution, tmp_path / "t", check, "--json")
    assert done.returncode == 0, done.stderr
    if "cannot be confined" not in done.stderr:
        assert not mark.exists()


def test_bisect_says_why_there_is_no_result(execution: Path, tmp_path: Path) -> None:
    """Each refusal says what to name or to mend."""
    for words, message, hint in (
        (("false",), "already", "at which it passes with --good."),
        (("true",), "does not fail", "at which it fails with --bad."),
        (("exit 125",), "cannot judge", "with --good and --bad."),
        (("kill -9 $$",), "That is no verdict", "125 to skip a checkpoint."),
        (("true", "--good", "review", "--bad", "build"), "does not come before", "`hankweave runs"),
    ):
        done = bisected(execution, tmp_path / "t", *words, "--no-confinement")
        assert done.returncode in (1, 2), done.stderr
        assert message in done.stderr
        assert hint in done.stderr.partition("hint:")[2]


def test_a_killed_bisect_leaves_nothing_behind(execution: Path, tmp_path: Path) -> None:
    """Neither the copy nor the command survives `kill -9`."""
    folder, started = tmp_path / "t", tmp_path / "started"
    folder.mkdir()
    check = f"echo $$ > {started}.new && mv {started}.new {started}; sleep 1000"
    process = subprocess.Popen(
        [*command(), "bisect", check, "--no-confinement", "-e", str(execution)],
        env=environment(TMPDIR=str(folder)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    eventually_blocking(started.exists)
    assert list(folder.iterdir())
    process.kill()
    process.wait(LIMIT)
    eventually_blocking(lambda: not list(folder.iterdir()))
    eventually_blocking(lambda: not Path(f"/proc/{started.read_text().strip()}").exists())


def test_nothing_of_the_execution_changes(execution: Path, tmp_path: Path) -> None:
    """The questions are answered by reading alone: no file, no time and no name differs."""

    def everything() -> dict[str, tuple[int, bytes]]:
        found = sorted(execution.rglob("*"))
        return {
            str(path): (path.lstat().st_mtime_ns, _content(path))
            for path in found
            if not path.is_socket()
        }

    before = everything()
    printed("blame", "src/b.py", "-e", execution)
    printed("pickaxe", "o", "--all", "-e", execution)
    printed("why", "src/b.py:3", "-e", execution)
    assert everything() == before
    check = "touch new; rm -rf src/a.py; ! grep -qs three src/*.py"
    done = bisected(execution, tmp_path / "t", check, "--parallel", "2", "--no-confinement")
    assert done.returncode == 0, done.stderr
    assert everything() == before


def _content(path: Path) -> bytes:
    if path.is_symlink():
        return os.fsencode(os.readlink(path))

    return hashlib.sha256(path.read_bytes()).digest() if path.is_file() else b""
