"""Claims about confined agents and commands on a real server, with a scripted agent."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from hankweave_protocol.commands import CodonNext, GetServerStatus
from hankweave_protocol.events import AgentConfined, CheckCompleted, ErrorEvent, RigOutput
from hankweave_protocol.replies import ConfinementStatus
from hankweave_server.cli.output.text import confinement_text
from hankweave_server.cli.shared import hank_loading
from hankweave_server.cli.validate import validate
from hankweave_server.confinement.policy import Level, Probe
from hankweave_server.confinement.probe import probe
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.settings import RunSettings
from support.running_server import (
    CONFINED,
    RunningServer,
    command,
    environment,
    running_server,
    served,
)
from support.scripted_hank import Step, codon, write_hank, writes
from support.waiting import LIMIT
from support.watching import events_of, idle

pytestmark = pytest.mark.skipif(
    probe().level not in (Level.NAMESPACE, Level.LANDLOCK),
    reason="this machine cannot confine agents with Landlock",
)


def runs(*commands: str) -> Step:
    return {"run": "; ".join(commands)}


async def done(
    folder: Path,
    *steps: Step,
    options: tuple[str, ...] = (),
    place: str = "--execution",
    overrides: Mapping[str, Any] | None = None,
    name: str = "execution",
    data: Path | None = None,
    path: str = os.environ["PATH"],
    **fields: Any,
) -> Path:
    """Run a plan of one confined codon to its end; return the execution."""
    own = {} if overrides is None else {"overrides": overrides}
    hank = write_hank(folder / f"hank-{name}", codon("one", *steps, **fields), **own)
    execution = folder / name
    execution.mkdir(exist_ok=place == "--workspace")
    env = CONFINED | {"HOME": str(folder / "home"), "PATH": path}
    async with (
        running_server(hank, data, execution, *options, env=env, place=place) as server,
        server.client(since_seq=0) as client,
    ):
        await idle(client)

    return execution


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder outside of /tmp, which the fence replaces, like the home of a user."""
    with tempfile.TemporaryDirectory(prefix="hankweave-", dir="/var/tmp") as name:
        yield Path(name)


def home_in(folder: Path) -> Path:
    home = folder / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id").write_text("a key")
    (home / "notes.txt").write_text("mine")
    return home


@pytest.mark.story("A confined agent changes its work tree and nothing else.", of="SECURITY.md")
async def test_an_agent_changes_its_work_tree_and_nothing_else(folder: Path) -> None:
    """Files of the user can be neither read nor changed; work, /tmp and caches are as usual.

    Each refused path is reported once, with the line of the hank that would allow it.
    """
    home = home_in(folder)
    execution = await done(
        folder,
        runs(
            f"rm {home}/notes.txt",
            f"cat {home}/.ssh/id",
            f"cat {home}/.ssh/id",
            f"echo x > {home}/new.txt",
            "echo scratch > /tmp/mine && cat /tmp/mine > fine.txt",
            'mkdir -p "$XDG_CACHE_HOME/x" && echo cached >> fine.txt',
        ),
    )
    assert (home / "notes.txt").read_text() == "mine"
    assert sorted(os.listdir(home)) == [".ssh", "notes.txt"]
    assert (execution / "agentRoot" / "fine.txt").read_text() == "scratch\ncached\n"
    events = events_of(execution, AgentConfined)
    assert [(each.path, each.operation) for each in events] == [
        (f"{home}/notes.txt", "write"),
        (f"{home}/.ssh/id", "read"),
        (f"{home}/new.txt", "write"),
    ]
    assert events[1].setting == (
        f'"overrides": {{"confinement": {{"extraRead": ["{home}/.ssh/id"]}}}}'
    )
    assert events[1].setting in events[1].message


@pytest.mark.story(
    "Where the fence refuses a path, the run names the line of the hank that would allow it."
)
async def test_data_that_is_a_single_file_can_be_read_and_not_what_lies_beside_it(
    folder: Path,
) -> None:
    """The data is a link in a folder; the fence opens the file that it leads to."""
    (folder / "reports").mkdir()
    (folder / "reports" / "may.txt").write_text("data")
    (folder / "reports" / "june.txt").write_text("mine")
    here = "read_only_data_source/may.txt"
    execution = await done(
        folder,
        runs(f"cp {here} seen.txt", f"cat {folder}/reports/june.txt > other.txt", f"echo > {here}"),
        data=folder / "reports" / "may.txt",
    )
    assert (execution / "agentRoot" / "seen.txt").read_text() == "data"
    assert (execution / "agentRoot" / "other.txt").read_text() == ""
    assert (folder / "reports" / "may.txt").read_text() == "data"


async def test_the_line_that_a_report_names_allows_the_path(folder: Path) -> None:
    """With the settings of the reports in the hank, the same agent succeeds, and none is made."""
    home = home_in(folder)
    (home / "data").mkdir()
    steps = [runs(f"cat {home}/notes.txt", f"echo more > {home}/data/new.txt")]
    execution = await done(folder, *steps, name="refused")
    found = [json.loads(f"{{{each.setting}}}") for each in events_of(execution, AgentConfined)]
    confinement: dict[str, Any] = {}
    for each in found:
        confinement |= each["overrides"]["confinement"]

    assert confinement == {"extraRead": [f"{home}/notes.txt"], "extraWrite": [f"{home}/data"]}
    execution = await done(folder, *steps, overrides={"confinement": confinement}, name="allowed")
    assert events_of(execution, AgentConfined) == []
    assert (home / "data" / "new.txt").read_text() == "more\n"


async def test_rigs_and_checks_are_confined_like_agents(folder: Path) -> None:
    """Their commands work in the work tree, and are refused what the agent would be refused."""
    home = home_in(folder)
    refused = f"rm {home}/notes.txt"
    execution = await done(
        folder,
        writes("a.txt", "a"),
        rigSetup=[
            {"type": "command", "command": {"run": "echo rig > rig.txt"}},
            {"type": "command", "command": {"run": refused}, "allowFailure": True},
        ],
        checks=[{"run": "cat rig.txt a.txt"}, {"run": f"cat {home}/.ssh/id", "allowFailure": True}],
    )
    assert (home / "notes.txt").exists()
    assert [each.passed for each in events_of(execution, CheckCompleted)] == [True, False]
    paths = [each.path for each in events_of(execution, AgentConfined)]
    assert paths == [f"{home}/notes.txt", f"{home}/.ssh/id"]
    assert any("notes.txt" in each.line for each in events_of(execution, RigOutput))


async def test_a_program_behind_a_link_below_tmp_runs_again_and_again(
    folder: Path, tmp_path: Path
) -> None:
    """The private /tmp, where the fence makes the link once more, is that of the last program."""
    home_in(folder)
    program, linked = tmp_path / "real" / "bin" / "tool", tmp_path / "linked"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho used >> used.txt\n")
    program.chmod(0o755)
    linked.symlink_to(tmp_path / "real")
    execution = await done(
        folder,
        runs("tool"),
        checks=[{"run": "tool"}],
        path=f"{linked}/bin:{os.environ['PATH']}",
    )
    assert (execution / "agentRoot" / "used.txt").read_text() == "used\n" * 2


async def test_in_a_project_the_state_is_out_of_reach_and_the_socket_is_not(
    folder: Path,
) -> None:
    """In place, the agent sees of `.hankweave` only what it is given, and its socket works."""
    if probe().level is not Level.NAMESPACE:
        pytest.skip("only mounts can hide a folder of the work tree")

    home_in(folder)
    project = folder / "project"
    project.mkdir()
    call = (
        "import os, socket; s = socket.socket(socket.AF_UNIX); "
        "os.chdir(os.path.dirname(os.environ['HANKWEAVE_AGENT_SOCKET'])); "
        "s.connect('agent.sock'); print('connected')"
    )
    await done(
        folder,
        runs(
            "ls -A .hankweave > seen.txt",
            "cat .hankweave/server.token .hankweave/events/events.jsonl >> seen.txt",
            "rm -rf .hankweave/checkpoints; mv .hankweave elsewhere; touch .hankweave/x",
            f'python3 -c "{call}" >> seen.txt',
        ),
        place="--workspace",
        name="project",
    )
    seen = (project / "seen.txt").read_text().split()
    assert "connected" in seen
    assert set(seen) <= {"access", "cache", "sessions", "tmp", "connected"}
    assert (project / ".hankweave" / "checkpoints" / ".hankweavecheckpoints").is_dir()
    assert not (project / "elsewhere").exists()


@pytest.mark.parametrize(
    ("overrides", "fields", "options", "changes"),
    [
        ({"confinement": "readonly"}, {}, (), set()),
        ({"confinement": "readonly"}, {"confinement": "workspace"}, (), {"tree"}),
        ({"confinement": "none"}, {}, (), {"tree", "home"}),
        (None, {"confinement": {"profile": "none"}}, (), {"tree", "home"}),
        ({"confinement": "none"}, {}, ("--confinement", "workspace"), {"tree"}),
        (None, {"confinement": "workspace"}, ("--confinement", "none"), {"tree", "home"}),
    ],
)
async def test_the_profile_of_a_codon_comes_from_the_command_line_the_codon_or_the_hank(
    folder: Path,
    overrides: Mapping[str, Any] | None,
    fields: Mapping[str, Any],
    options: tuple[str, ...],
    changes: set[str],
) -> None:
    """The command line comes first, then the codon, then the hank's overrides."""
    home = home_in(folder)
    execution = await done(
        folder,
        runs("touch made.txt", f"touch {home}/made.txt", "true"),
        overrides=overrides,
        options=options,
        **fields,
    )
    assert (execution / "agentRoot" / "made.txt").exists() == ("tree" in changes)
    assert (home / "made.txt").exists() == ("home" in changes)


async def test_ports_can_be_limited_and_the_servers_is_never_open(folder: Path) -> None:
    """An agent cannot connect to the server's port, and with `connect` only to the named ones."""
    home_in(folder)
    attempt = (
        "import json, socket, sys; "
        "port = json.load(open('port.json')); s = socket.socket(); s.connect(('127.0.0.1', port)); "
        "s.send(b'GET /healthz HTTP/1.1\\r\\nHost: localhost:%d\\r\\n\\r\\n' % port); "
        "sys.exit(not s.recv(1))"
    )
    steps = runs(f'python3 -c "{attempt}"; echo "exit $?" > said.txt')
    hank = write_hank(folder / "hank", codon("one", steps))
    execution = folder / "execution"
    async with served(hank, execution, "--no-autostart", env=CONFINED, since_seq=0) as (_, client):
        (execution / "agentRoot" / "port.json").write_text(str(client.ready.port))
        await client.send(CodonNext())
        await idle(client)

    assert (execution / "agentRoot" / "said.txt").read_text() == "exit 1\n"


async def test_a_path_that_the_fence_replaces_is_reported_too(folder: Path, tmp_path: Path) -> None:
    """A file of the user in /tmp seems to be missing; other missing files are not reported."""
    if probe().level is not Level.NAMESPACE:
        pytest.skip("only mounts replace /tmp")

    home = home_in(folder)
    assert tmp_path.is_relative_to("/tmp")
    (tmp_path / "mine.txt").write_text("mine")
    execution = await done(
        folder, runs(f"cat {tmp_path}/mine.txt", f"cat {home}/no.txt", "cat no.txt /tmp/no.txt")
    )
    assert [each.path for each in events_of(execution, AgentConfined)] == [f"{tmp_path}/mine.txt"]


async def test_a_door_of_another_program_is_closed_with_a_reason(folder: Path) -> None:
    """A hidden place is reported without a setting, because none can open it."""
    home_in(folder)
    steps = runs(
        "echo 'Cannot connect to the Docker daemon at unix:///run/docker.sock. Is it running?'",
        f"cat {folder}/execution/.hankweave/server.token",
    )
    execution = await done(folder, steps)
    events = events_of(execution, AgentConfined)
    assert [each.setting for each in events] == [None] * len(events)
    assert events[-1].path.endswith("server.token")
    assert "belongs to the server" in events[-1].message
    if os.path.lexists("/run/docker.sock"):
        assert '"confinement": "none"' in events[0].message


async def test_a_status_says_what_holds_here(folder: Path) -> None:
    """`server.status` names level, ABI, profile and what is not covered."""
    hank = write_hank(folder / "hank", codon("one"), overrides={"confinement": "readonly"})
    async with running_server(hank, None, folder / "execution", env=CONFINED) as server:
        status = await status_of(server)

    found = probe()
    assert status["level"] == found.level.value
    assert status["landlockAbi"] == found.landlock_abi
    assert status["profile"] == "readonly"
    assert "UDP is not restricted." in status["notCovered"]
    assert events_of(folder / "execution", ErrorEvent) == []


async def status_of(server: RunningServer) -> Any:
    async with server.client() as client:
        return msgspec.to_builtins(await client.send(GetServerStatus()))["confinement"]


@pytest.mark.parametrize("options", [("--confinement", "none"), ()])
def test_required_confinement_that_is_not_wanted_ends_with_78(
    folder: Path, options: tuple[str, ...]
) -> None:
    """A codon that would run unconfined ends the start; the hint says what to change."""
    hank = write_hank(folder / "hank", codon("one", confinement="none"))
    ended = subprocess.run(
        command("run", str(hank), "-e", str(folder / "e"), "--require-confinement", *options),
        env=environment(**CONFINED),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert ended.returncode == ExitCode.CONFIGURATION
    assert "Codon one" in ended.stderr
    assert "--confinement workspace" in ended.stderr
    assert not (folder / "e").exists()


@pytest.mark.story(
    "`--require-confinement` refuses to start where nothing can confine.", of="SECURITY.md"
)
def test_where_nothing_confines_required_confinement_ends_with_78(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal names each level with the reason why it does not work here."""
    reasons = {"namespace": "no namespaces", "landlock": "no Landlock", "bwrap": "not installed"}
    monkeypatch.setattr(hank_loading, "probe", lambda: Probe(Level.NONE, reasons=reasons))
    loaded = hank_loading.read(write_hank(folder / "hank", codon("one")))
    settings = RunSettings(hank=None, data=None)
    hank_loading.require_confinement(loaded, settings)
    with pytest.raises(Stop) as stop:
        hank_loading.require_confinement(loaded, replace(settings, require_confinement=True))

    assert stop.value.exit_code is ExitCode.CONFIGURATION
    assert all(f"{level}: {why}" in stop.value.message for level, why in reasons.items())


def test_validation_shows_what_each_codon_can_reach(folder: Path) -> None:
    """The confinement of every codon is shown, alike ones on one line; as JSON for each codon."""
    own = {"extraRead": ["~/x"], "extraWrite": ["/y"], "connect": [443]}
    hank = write_hank(
        folder / "hank",
        codon("one"),
        codon("two"),
        codon("three", confinement=own),
        overrides={"confinement": "readonly"},
    )
    shown = validated(hank)
    assert "  one, two: readonly\n" in shown
    three = "workspace; also reads ~/x; also changes /y; connects to ports 443"
    assert f"  three: {three}\n" in shown
    plan = json.loads(validated(hank, "--json"))["plan"]
    assert [each["confinement"] for each in plan] == ["readonly", "readonly", "workspace"]
    assert (plan[2]["extraRead"], plan[2]["connect"]) == (["~/x"], [443])


def validated(hank: Path, *options: str) -> str:
    done = CliRunner().invoke(validate, [str(hank), "--no-agent-check", *options])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.story("`status` says what the fence holds on this machine.", of="SECURITY.md")
def test_a_status_is_shown_as_text() -> None:
    """Profile, level and ABI on one line; a machine without any level is named as such."""
    status = ConfinementStatus(
        level="namespace", landlock_abi=7, profile="workspace", not_covered=()
    )
    assert confinement_text(status) == "workspace, level namespace, Landlock ABI 7"
    nothing = ConfinementStatus(level="none", landlock_abi=0, profile="workspace", not_covered=())
    assert "no way to confine" in confinement_text(nothing)
