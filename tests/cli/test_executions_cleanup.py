"""Claims about `hankweave ls` and `hankweave cleanup`."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from hankweave_server.cli.app import main
from hankweave_server.clock import SystemClock
from hankweave_server.errors import Stop
from hankweave_server.local.removal import remove_execution
from hankweave_server.paths import Layout
from hankweave_server.runtime_lock.held import acquire
from hankweave_server.runtime_lock.lock_file import LockHeld
from support.running_server import command, environment
from support.scripted_hank import codon, write_hank, writes
from support.waiting import LIMIT

Done = subprocess.CompletedProcess[str]
CLOCK = SystemClock()


class Home:
    """A folder of executions, made by hand in the form that a server leaves."""

    def __init__(self, root: Path) -> None:
        self.root = root / "executions"
        self.root.mkdir()
        self.outside = root / "outside"
        self.outside.mkdir()
        (self.outside / "precious.txt").write_text("precious")

    def execution(
        self, number: int = 0, *, used: str = "2025-01-04T14:30:00.000Z", where: Path | None = None
    ) -> Path:
        path = where or self.root / f"{1736000000000 + number}-x7a2-abc123"
        state = path / ".hankweave"
        (state / "events").mkdir(parents=True)
        meta = {
            "version": "1.0.0",
            "readOnlySourceDataPath": str(self.outside),
            "readOnlySourceResolvedDataPath": str(self.outside),
            "dataHash": "abc123def456",
            "hankHash": "h",
            "hankPath": "/somewhere/hank.json",
            "linkType": "symlink",
            "createdAt": used,
            "lastUsed": used,
        }
        (state / "execution-meta.json").write_text(json.dumps(meta))
        (path / "agentRoot").mkdir()
        (path / "agentRoot" / "a.txt").write_text("a" * 5000)
        (path / "rigArchive").mkdir()
        (path / "read_only_data_source").symlink_to(self.outside)
        (path / "agentRoot" / "link").symlink_to(self.outside)
        return path

    def __call__(self, *words: str, code: int = 0, answer: str = "") -> Done:
        """Run a command: as a program if it serves, in this process if it only reads or removes."""
        variables = environment(HANKWEAVE_RUNTIME_EXECUTION_BASE_DIR=str(self.root))
        if words[0] == "run":
            done = subprocess.run(
                command(*words),
                env=variables,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=LIMIT,
                check=False,
            )
        else:
            done = _here(words, variables, answer)

        assert "Traceback" not in done.stdout + done.stderr
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def names(self) -> set[str]:
        return {path.name for path in self.root.iterdir()}

    def is_precious_there(self) -> bool:
        return (self.outside / "precious.txt").read_text() == "precious"


def _here(words: tuple[str, ...], variables: dict[str, str], answer: str) -> Done:
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.dict(os.environ, variables, clear=True),
        patch("sys.stdin", io.StringIO(answer)),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main(words)
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)

    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


# --- ls -------------------------------------------------------------------------------------------


@pytest.mark.story("`ls` lists all executions with their state and size.")
def test_ls_describes_a_real_execution(home: Home, tmp_path: Path) -> None:
    """JSON has everything; for people there are state and progress, and no ended server."""
    hank = write_hank(tmp_path / "hank", codon("one", writes("a.txt", "a")))
    home("run", str(hank), str(home.outside), "--headless")
    (one,) = json.loads(home("ls", "--json").stdout)
    assert (one["state"], one["codonsDone"], one["codonsPlanned"]) == ("completed", 1, 1)
    assert (one["lastCodon"], one["serverPid"]) == ("one", None)
    assert one["checkpoints"] == 3
    assert one["bytes"] > 10_000
    assert (one["hank"], one["data"]) == (str(hank), str(home.outside))
    words = home("ls").stdout
    assert "completed " in words
    assert "1 of 1" in words


def test_ls_names_the_execution_that_an_attempt_belongs_to(home: Home) -> None:
    """Its project, so that attempts of several explorations can be told apart."""
    path = home.execution()
    meta = path / ".hankweave" / "execution-meta.json"
    at = {"checkpointSha": "a" * 40, "eventSeq": 1, "runId": "run-1"}
    family = {
        "origin": {"executionPath": "/home/jo/census", "coordinate": at},
        "attempt": {"explorationId": "1f2e3d", "attemptId": "1f2e3d-2", "codonId": "one"},
    }
    meta.write_text(json.dumps(json.loads(meta.read_text()) | family))
    (one,) = json.loads(home("ls", "--json").stdout)
    assert (one["attempt"], one["attemptOf"]) == ("1f2e3d-2", "/home/jo/census")
    assert "\n  attempt 1f2e3d-2 of census\n" in home("ls").stdout


def test_ls_shows_what_cannot_be_read(home: Home) -> None:
    """Damaged metadata or state is one line among the others and affects no other execution."""
    good, bad, worse = (home.execution(number) for number in range(3))
    (bad / ".hankweave" / "execution-meta.json").write_text("{")
    (worse / ".hankweave" / "state.json").write_bytes(b"\xff\x00")
    (home.root / "no-execution").mkdir()
    (home.root / "link").symlink_to(good)
    found = {each["path"]: each for each in json.loads(home("ls", "--json").stdout)}
    assert found.keys() == {str(good), str(bad), str(worse)}
    assert [found[str(each)]["state"] for each in (good, bad, worse)] == [
        "new",
        "unreadable",
        "unreadable",
    ]
    assert "damaged" in found[str(bad)]["problem"]
    assert home("ls").stdout.count("unreadable") == 2


def test_ls_names_the_server_that_lives_and_not_the_dead_one(home: Home) -> None:
    """A lock file alone proves nothing."""
    alive, dead = home.execution(1), home.execution(2)
    lock = {"pid": 2**22 - 1, "runId": None, "startTime": "2025-01-04T12:00:00.000Z"}
    lock["lastHeartbeat"] = lock["startTime"]
    (dead / ".hankweave" / "runtime.lock").write_text(json.dumps(lock))
    held = acquire(Layout.of_execution(alive), CLOCK)
    try:
        found = {each["path"]: each for each in json.loads(home("ls", "--json").stdout)}
    finally:
        held.release()

    assert found[str(alive)]["serverPid"] == os.getpid()
    assert found[str(dead)]["serverPid"] is None


def test_ls_lists_five_hundred(home: Home) -> None:
    """Each of many executions is listed."""
    for number in range(500):
        home.execution(number)

    found = json.loads(home("ls", "--json").stdout)
    assert {each["path"] for each in found} == {str(path) for path in home.root.iterdir()}


# --- cleanup --------------------------------------------------------------------------------------


def test_cleanup_asks_and_without_a_terminal_the_answer_is_no(home: Home) -> None:
    """Cleanup lists the candidates; only y removes them, and the output has the freed size."""
    path = home.execution()
    for answer in ("", "n\n"):
        asked = home("cleanup", "-e", str(path), code=1, answer=answer)
        assert str(path) in asked.stdout
        assert "Nothing was removed" in asked.stderr

    assert (path / "agentRoot" / "a.txt").exists()
    assert "were freed" in home("cleanup", "-e", str(path), answer="y\n").stdout
    assert home.names() == set()
    assert home.is_precious_there()


def test_a_dry_run_removes_nothing(home: Home) -> None:
    """A dry run names the same executions that a cleanup would remove."""
    path = home.execution()
    dry = json.loads(home("cleanup", "--all", "--dry-run", "--json").stdout)
    assert [each["path"] for each in dry["removed"]] == [str(path)]
    assert (path / "agentRoot" / "a.txt").exists()
    done = json.loads(home("cleanup", "--all", "-y", "--json").stdout)
    assert [each["path"] for each in done["removed"]] == [str(path)]
    assert done["freedBytes"] > 5000


def test_age_and_number_choose_together(home: Home) -> None:
    """Only executions both old and not among the newest are removed; the others get a reason."""
    now = "2999-01-01T00:00:00.000Z"
    new, old, oldest = (
        home.execution(1, used=now),
        home.execution(2, used="2025-01-02T00:00:00.000Z"),
        home.execution(3, used="2025-01-01T00:00:00.000Z"),
    )
    done = json.loads(home("cleanup", "--older-than", "30d", "--keep", "2", "-y", "--json").stdout)
    assert [each["path"] for each in done["removed"]] == [str(oldest)]
    assert {each["path"] for each in done["kept"]} == {str(new), str(old)}
    assert home.names() == {new.name, old.name}


@pytest.mark.story("`cleanup` never removes an execution with a running server.")
def test_a_living_server_keeps_its_execution(home: Home) -> None:
    """If it is named, the exit code is 75; in bulk it is kept.

    A dead server's lock protects nothing.
    """
    alive, dead = home.execution(1), home.execution(2)
    crash = (
        "import os, sys; from pathlib import Path; from hankweave_server.paths import Layout;"
        "from hankweave_server.clock import SystemClock;"
        "from hankweave_server.runtime_lock import held;"
        "lock = held.acquire(Layout.of_execution(Path(sys.argv[1])), SystemClock());"
        "os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", crash, str(dead)], check=False).returncode == 9
    assert (dead / ".hankweave" / "runtime.lock").exists()
    held = acquire(Layout.of_execution(alive), CLOCK)
    try:
        with pytest.raises(LockHeld):
            remove_execution(alive, CLOCK, managed=True)

        home("cleanup", "-e", str(alive), "-y", code=75)
        done = json.loads(home("cleanup", "--all", "-y", "--json").stdout)
    finally:
        held.release()

    assert [each["path"] for each in done["removed"]] == [str(dead)]
    assert (alive / "agentRoot" / "a.txt").exists()


def test_what_is_no_execution_is_left_alone(home: Home, tmp_path: Path) -> None:
    """Other folders, other files, links, and folders that only look like one are left alone."""
    path = home.execution(where=tmp_path / "mine")
    (path / "notes.txt").write_text("mine")
    (tmp_path / "link").symlink_to(path)
    stranger = tmp_path / "stranger"
    (stranger / ".hankweave").mkdir(parents=True)
    home("cleanup", "-e", str(home.outside), "-y", code=66)
    home("cleanup", "-e", str(tmp_path / "link"), "-y", code=2)
    home("cleanup", "-e", str(stranger), "-y", code=65)
    home("cleanup", "--all", "-y")
    assert (path / "agentRoot").exists()

    done = home("cleanup", "-e", str(path), "-y")
    assert "notes.txt" in done.stdout
    assert [each.name for each in path.iterdir()] == ["notes.txt"]
    assert home.is_precious_there()


def test_a_project_in_place_keeps_its_own_files(home: Home, tmp_path: Path) -> None:
    """Only .hankweave is removed, even where the project has folders with the product's names."""
    project = home.execution(where=tmp_path / "project")
    meta = project / ".hankweave" / "execution-meta.json"
    meta.write_text(json.dumps(json.loads(meta.read_text()) | {"inPlace": True}))
    home("cleanup", "-e", str(project), "-y")
    assert {each.name for each in project.iterdir()} == {
        *("agentRoot", "rigArchive", "read_only_data_source")
    }


def dying_at(fatal: int) -> Callable[..., None]:
    """Return an unlink that ends the process at its n-th call."""
    real, calls = os.unlink, itertools.count(1)

    def unlink(name: str, *, dir_fd: int | None = None) -> None:
        if dir_fd is not None and next(calls) == fatal:
            raise KeyboardInterrupt

        real(name, dir_fd=dir_fd)

    return unlink


def test_a_crash_in_the_middle_is_finished_by_a_second_cleanup(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it dies, no start resumes the rest, and another cleanup removes all of it."""
    for fatal in range(1, 40):
        path = home.execution(fatal)
        with monkeypatch.context() as dying:
            dying.setattr(os, "unlink", dying_at(fatal))
            try:
                remove_execution(path, CLOCK, managed=True)
            except KeyboardInterrupt:
                assert not (path / ".hankweave").exists()
            else:
                assert fatal > 3
                break

        remove_execution(path, CLOCK, managed=True)
        assert not path.exists()

    assert home.names() == set()
    assert home.is_precious_there()


def test_a_start_refuses_what_is_half_removed(home: Home, tmp_path: Path) -> None:
    """The message names the command that completes the removal; ls shows the state."""
    path = home.execution()
    (path / ".hankweave").rename(path / ".hankweave.removing")
    hank = write_hank(tmp_path / "hank", codon("one"))
    refused = home("run", str(hank), "-e", str(path), "--headless", code=2)
    assert "cleanup" in refused.stderr
    assert json.loads(home("ls", "--json").stdout)[0]["state"] == "removing"
    home("cleanup", "--all", "-y")
    assert home.names() == set()


def test_locked_and_deep_folders_go_too(home: Home) -> None:
    """Agents make folders of mode 000, read-only copies, and trees of 1,200 levels."""
    path = home.execution()
    locked = path / "agentRoot" / "locked"
    locked.mkdir()
    (locked / "x").write_text("x")
    locked.chmod(0)
    here = os.open(path / "agentRoot", os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner

    os.close(here)
    remove_execution(path, CLOCK, managed=True)
    assert home.names() == set()


def test_a_usage_that_names_nothing_is_refused(home: Home) -> None:
    """A bare `cleanup` removes nothing; with `--json`, which cannot ask, `-y` is required."""
    home.execution()
    home("cleanup", code=2)
    home("cleanup", "--all", "--json", code=2)
    assert len(home.names()) == 1
    with pytest.raises(Stop):
        remove_execution(home.outside, CLOCK, managed=False)
