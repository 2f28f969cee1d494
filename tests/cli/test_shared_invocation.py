"""Claims about Hankweave's own command line: it works here unchanged."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path

import click
import pytest

from hankweave_protocol.events import CodonStartedEvent, RigSetupFailed
from hankweave_server import config
from hankweave_server.agents.base import AgentLimits
from hankweave_server.cli.app import PLACES
from hankweave_server.cli.run import run
from hankweave_server.cli.shared.invocation import translated
from hankweave_server.cli.shared.run_settings import configured, export
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.features.exploration.command import explore
from hankweave_server.settings import RunSettings
from support.command_line import Done, hankweave
from support.running_server import journal
from support.scripted_hank import codon, write_hank, writes
from support.watching import events_of

RUN = ["run", "--as-hankweave"]


class Project:
    """A hank in a folder, a home without executions, and a shell in the folder."""

    def __init__(self, root: Path, **fields: object) -> None:
        self.root = root / "project"
        self.hank = write_hank(self.root, codon("one", writes("a.txt", "a"), **fields))
        self.executions = root / "executions"

    def __call__(self, *words: str, code: int = 0, answer: str = "", **env: str) -> Done:
        base = {"HANKWEAVE_RUNTIME_EXECUTION_BASE_DIR": str(self.executions)}
        home = {"HOME": str(self.root.parent)}
        return hankweave(*words, cwd=self.root, code=code, answer=answer, **(base | home | env))

    @property
    def made(self) -> list[Path]:
        return sorted(self.executions.iterdir()) if self.executions.exists() else []

    def data_of(self, execution: Path) -> Path:
        return (execution / "read_only_data_source").resolve()


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["pack"], "tar -czf ../hank.tar.gz -C . ."),
        (["pack", "my hank", "-o", "x"], "tar -czf hank.tar.gz -C 'my hank' ."),
        (["pack", "--check"], "hankweave validate ."),
    ],
)
def test_pack_is_refused_with_what_to_do_instead(words: list[str], hint: str) -> None:
    with pytest.raises(Stop) as stop:
        translated(words, PLACES)

    assert stop.value.exit_code is ExitCode.USAGE
    assert hint in (stop.value.hint or "")


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "inf"])
@pytest.mark.parametrize(
    ("command", "option"), [(run, "--max-cost"), (run, "--max-time"), (explore, "--max-cost")]
)
def test_a_budget_that_would_let_nothing_run_is_refused(
    command: click.Command, option: str, limit: str
) -> None:
    """As in a hank, a budget of 0 is an error, not a run that does nothing and succeeds."""
    with pytest.raises(click.BadParameter, match="a finite number above 0"):
        command.make_context("hankweave", [option, limit])


def test_hankweave_alone_runs_the_hank_of_the_directory_or_shows_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Hankweave, whose first example is that; a directory named hank.json is no hank."""
    monkeypatch.chdir(tmp_path)
    assert translated([], PLACES) == []
    (tmp_path / "hank.json").mkdir()
    assert translated([], PLACES) == []
    (tmp_path / "hank.json").rmdir()
    (tmp_path / "hank.json").write_text("{}")
    assert translated([], PLACES) == RUN
    assert translated(["--help"], PLACES) == ["--help"]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


# --- meaning --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["hank.json", "data"], [*RUN, "hank.json", "data"]),
        (["./my-project", "-n"], [*RUN, "./my-project", "-n"]),
        (["--data", "/my/project"], [*RUN, "--data", "/my/project"]),
        (["-e", "x", "--headless"], [*RUN, "-e", "x", "--headless"]),
        (["-e", "x", "status", "-v"], ["status", "-e", "x", "-v"]),
        (["-e", "x", "my-data"], [*RUN, "-e", "x", "my-data"]),
        (["h.json", "d", "--validate"], ["validate", "h.json", "d"]),
        (["-v", "--config", "h.json", "-m", "opus"], ["validate", "h.json", "--model", "opus"]),
        (["--init"], ["init"]),
        (["--cleanup", "-e", "x", "-y"], ["cleanup", "-e", "x", "--yes"]),
        (["--data", "d", "--cleanup"], ["cleanup", "--data", "d"]),
        (["--attach", "-p", "7777"], ["attach", "--readonly", "--port", "7777"]),
        (["run", "--validate"], ["run", "--validate"]),
        (["rolback"], ["rolback"]),
        (["--help"], ["--help"]),
        ([], []),
    ],
)
def test_its_arguments_become_ours(given: list[str], meant: list[str]) -> None:
    assert translated(given, PLACES) == meant


@pytest.mark.parametrize(
    "given",
    [
        ["--replay", "x"],
        ["--diet-journal", "x"],
        ["--restore-journal", "x"],
        ["https://github.com/a/b"],
        ["git@github.com:a/b", "data"],
        ["plan.hank"],
    ],
)
def test_what_does_not_exist_here_is_refused_with_what_to_do_instead(given: list[str]) -> None:
    with pytest.raises(Stop) as stop:
        translated(given, PLACES)

    assert stop.value.exit_code is ExitCode.USAGE
    assert "`" in (stop.value.hint or "")


# --- effect ---------------------------------------------------------------------------------------


def test_a_project_directory_is_hank_and_data_and_found_again(project: Project) -> None:
    """`hankweave .` links the directory; the second call resumes the same execution."""
    project(".", "--headless")
    (execution,) = project.made
    assert project.data_of(execution) == project.root.resolve()
    assert "nothing to do" in project(".", "--headless").stdout
    assert project.made == [execution]
    project("--headless", "--start-new", "-y")
    assert len(project.made) == 2


def test_hank_and_data_may_be_options(project: Project) -> None:
    data = project.root.parent / "data"
    data.mkdir()
    project("--config", "hank.json", "--data", str(data), "--headless", "--without-proxy")
    (execution,) = project.made
    assert project.data_of(execution) == data.resolve()


def test_text_may_be_the_data(project: Project) -> None:
    """Text from an option or stdin is copied; the same text is the same data."""
    for words, answer in ((("-i", "some text"), ""), (("hank.json", "-"), "some text")):
        project(*words, "--headless", answer=answer)
        again = project(*words, "--headless", answer=answer)
        assert "nothing to do" in again.stdout

    first, second = project.made
    for execution in (first, second):
        data = execution / "read_only_data_source"
        (file,) = data.iterdir() if data.is_dir() else (data,)
        assert file.read_text() == "some text"
        assert not data.is_symlink()


@pytest.mark.story(
    "Hankweave's own command line runs an unmodified project.", of="docs/migration/hankweave.md"
)
def test_run_takes_the_hank_of_the_folder(project: Project) -> None:
    """No argument is needed, not even `run`; a folder without a hank is reported."""
    project("run", "--headless")
    assert len(project.made) == 1
    project()
    assert len(project.made) == 2
    project.hank.unlink()
    assert "There is no hank.json in this directory" in project("run", code=2).stderr
    assert "First steps: hankweave demo" in project(code=2).stderr


def test_validate_runs_nothing(project: Project) -> None:
    assert "is valid" in project("--validate", ".").stdout
    assert project.made == []


def test_there_is_no_proxy(project: Project) -> None:
    """`--proxy` is refused by name, with the reason."""
    assert "--proxy: there is no proxy here" in project(".", "--proxy", code=2).stderr


def test_cleanup_removes_the_newest_execution_of_the_data(project: Project) -> None:
    project(".", "--headless")
    project(".", "--headless", "-n")
    older, _ = project.made
    project("--cleanup", "-y")
    assert project.made == [older]


def test_a_rig_may_fail_where_that_is_asked_for(tmp_path: Path) -> None:
    """An option, a variable, or hankweave.json allows a rig to fail."""
    rig = [{"type": "command", "command": {"run": "false"}}]
    project = Project(tmp_path, rigSetup=rig)
    project(".", "--headless", code=1)
    project(".", "--headless", "-n", "--ignore-rig-failures")
    project(".", "--headless", "-n", HANKWEAVE_RUNTIME_IGNORE_RIG_FAILURES="true")
    (project.root / "hankweave.json").write_text('{"ignoreRigFailures": true}')
    project(".", "--headless", "-n")
    failed = [each.ignored for path in project.made for each in events_of(path, RigSetupFailed)]
    assert failed == [False, True, True, True]


def test_settings_reach_the_run(tmp_path: Path) -> None:
    """Each setting with an effect is passed on.

    Where a limit was set decides whether it overrides the hank's.
    """
    file = config.of_file(
        tmp_path / "hankweave.json",
        {
            "port": 7777,
            "autostart": False,
            "exitOnComplete": True,
            "model": "opus",
            "anthropicBaseUrl": "http://localhost:1",
            "outputDirectory": str(tmp_path),
            "dataHashTimeLimit": 1500,
            "shimIdleTimeout": 44,
            "ignoreRigFailures": True,
            "budget": {"maxDollars": 2, "maxTimeSeconds": 60},
            "sentinel": {"enablePersistence": False},
            "toolResultTruncateLength": 100,
            "safePoints": "tool",
            "noAgentCheck": True,
        },
    ).layer
    bare = RunSettings(hank=None, data=None)
    expected = RunSettings(
        hank=None,
        data=None,
        port=7777,
        autostart=False,
        exit_on_complete=True,
        model="opus",
        output=tmp_path,
        data_hash_seconds=1.5,
        default_idle_seconds=44,
        ignore_rig_failures=True,
        max_cost=2.0,
        max_time=60.0,
        sentinel_persistence=False,
        tool_result_limit=100,
        safe_points=frozenset({"tool"}),
        agent_check=False,
    )
    assert configured(bare, config.resolve([file])) == expected

    above = config.of_environment({"HANKWEAVE_RUNTIME_SHIM_IDLE_TIMEOUT": "55"}).layer
    limits = configured(bare, config.resolve([above, file]))
    assert (limits.idle_seconds, limits.default_idle_seconds) == (55, 55)
    hank = config.of_hank(tmp_path / "hank.json", {"model": "haiku"})
    assert configured(bare, config.resolve([hank, file])).model is None, "the hank has it already"


def test_the_endpoint_of_a_setting_reaches_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    """They, their checks and sentinels read it from the environment."""
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://localhost:1")
    given = config.of_environment({"HANKWEAVE_RUNTIME_ANTHROPIC_BASE_URL": "http://localhost:2"})
    export(config.resolve([given.layer]))
    assert os.environ["ANTHROPIC_BASE_URL"] == "http://localhost:2"


def test_the_limit_of_silence_that_config_shows_is_the_one_that_agents_get(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a setting it is ten minutes, as the documents say."""
    monkeypatch.chdir(tmp_path)
    shown = config.resolve([])["shimIdleTimeout"].value
    base = RunSettings(hank=None, data=None)
    assert configured(base, config.resolve([])).default_idle_seconds == shown == 600
    assert base.default_idle_seconds == shown
    assert AgentLimits().idle == timedelta(seconds=600)


def test_the_file_says_where_executions_are_made(project: Project) -> None:
    """Every command that looks for executions reads the directory from the file."""
    elsewhere = project.root.parent / "elsewhere"
    settings = {"executionBaseDir": str(elsewhere), "shimIdleTimeout": 99, "withoutProxy": True}
    (project.root / "hankweave.json").write_text(json.dumps(settings))
    done = project("run", "--headless", HANKWEAVE_RUNTIME_EXECUTION_BASE_DIR="")
    assert done.stderr == ""
    (execution,) = elsewhere.iterdir()
    assert [each.codon_id for each in events_of(execution, CodonStartedEvent)] == ["one"]
    listed = project("ls", "--json", HANKWEAVE_RUNTIME_EXECUTION_BASE_DIR="").stdout
    assert str(execution) in listed


@pytest.mark.story("`config` shows each setting and where its value comes from.")
def test_config_says_where_each_value_comes_from(project: Project) -> None:
    """The output is a table or JSON; a bad value is refused by name."""
    write_hank(project.root, codon("one"), overrides={"shimIdleTimeout": 33})
    (project.root / "hankweave.json").write_text('{"model": "opus", "shimIdleTimeout": 44}')
    shown = json.loads(project("config", "--json", HANKWEAVE_RUNTIME_PORT="7777").stdout)
    found = {each["key"]: (each["value"], each["source"], each["name"]) for each in shown}
    file = str(project.root / "hankweave.json")
    assert found["port"] == (7777, "the environment", "HANKWEAVE_RUNTIME_PORT")
    assert found["shimIdleTimeout"][:1] == (33,)
    assert found["shimIdleTimeout"][2] == "overrides.shimIdleTimeout"
    assert found["model"] == ("opus", file, "model")
    assert found["autostart"] == (True, "default", None)
    assert "7777" in project("config", HANKWEAVE_RUNTIME_PORT="7777").stdout
    assert "HANKWEAVE_RUNTIME_PORT is" in project("run", code=78, HANKWEAVE_RUNTIME_PORT="x").stderr


# --- directories ----------------------------------------------------------------------------------


def test_a_name_among_the_managed_executions_is_refused(project: Project) -> None:
    """Only `--yes`, or an execution that exists already, allows a name there."""
    place = project.executions / "mine"
    refused = project("run", "-e", str(place), "--headless", code=2)
    assert "creates and names itself" in refused.stderr
    assert not place.exists()
    project("run", "-e", str(place), "--headless", "--yes")
    project("run", "-e", str(place), "--headless")


def test_a_directory_with_files_is_taken_only_by_consent(project: Project) -> None:
    """The files stay unchanged beside the execution."""
    place = project.root.parent / "mine"
    place.mkdir()
    (place / "notes.txt").write_text("mine")
    assert "is not empty" in project("run", "-e", str(place), code=2).stderr
    project("run", "-e", str(place), "--headless", "-y")
    assert (place / "notes.txt").read_text() == "mine"


def test_a_new_execution_may_keep_the_files_of_the_former(project: Project) -> None:
    """The files are kept by `--no-wipe` with `--new --force`; alone, `--no-wipe` is wrong usage."""
    place = project.root.parent / "execution"
    at = ("run", "-e", str(place), "--headless")
    project(*at)
    (place / "agentRoot" / "kept.txt").write_text("kept")
    project(*at, "--no-wipe", code=2)
    project(*at, "--new", "--force", "--no-wipe")
    assert (place / "agentRoot" / "kept.txt").read_text() == "kept"
    assert [path.name for path in place.glob("agentRoot.backup-*")] == []
    assert len(list(place.glob(".hankweave.backup-*"))) == 1
    assert journal(place)


def test_a_script_may_offer_a_hank_for_want_of_another(project: Project) -> None:
    """As in scripts/run, the options and their values are parsed here, not by the script."""
    shell, place = project.root.parent / "shell", project.root.parent / "place"
    shell.mkdir()
    offer = ("--default-hank", str(project.hank), "--default-data", str(project.root))
    words = ("run", *offer, "--headless", "--execution", str(place))
    hankweave(*words, cwd=shell, code=0)
    assert [each.codon_id for each in events_of(place, CodonStartedEvent)] == ["one"]
    assert project.data_of(place) == project.root.resolve()

    other = write_hank(project.root.parent / "other", codon("mine"))
    mine = project.root.parent / "mine"
    hankweave("run", *offer, str(other), "--headless", "-e", str(mine), cwd=shell, code=0)
    assert [each.codon_id for each in events_of(mine, CodonStartedEvent)] == ["mine"]
