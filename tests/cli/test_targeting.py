"""Claims about the execution that a command selects, and about actions it needs consent for."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from hankweave_client.client import connect
from hankweave_client.discovery import discover
from hankweave_client.errors import CommandRefused
from hankweave_protocol import codec
from hankweave_protocol.commands import ExecutionsList, GetExecutionAddress, GetServerStatus
from hankweave_protocol.events import Info
from hankweave_protocol.executions import ListedExecution
from hankweave_server.cli import remote
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.local import catalog, targeting
from support.command_line import aside, hankweave
from support.running_server import running_server, tree
from support.scripted_hank import codon, write_hank, writes
from support.waiting import eventually
from support.watching import events_of

ROOT = "HANKWEAVE_RUNTIME_EXECUTION_BASE_DIR"


def execution(root: Path, name: str, last_used: str) -> Path:
    """Create an execution that `ls` recognises."""
    path = root / name
    (path / ".hankweave").mkdir(parents=True)
    (path / "agentRoot").mkdir()
    meta = {
        "version": "1.0.0",
        "readOnlySourceDataPath": None,
        "readOnlySourceResolvedDataPath": None,
        "dataHash": None,
        "hankHash": None,
        "hankPath": None,
        "linkType": "none",
        "createdAt": last_used,
        "lastUsed": last_used,
    }
    (path / ".hankweave" / "execution-meta.json").write_text(json.dumps(meta))
    return path


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Return an older and a newer execution; the shell's directory is elsewhere."""
    root, elsewhere = tmp_path / "executions", tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv(ROOT, str(root))
    old = execution(root, "old", "2026-01-01T00:00:00.000Z")
    return old, execution(root, "new", "2026-02-01T00:00:00.000Z")


def serve(monkeypatch: pytest.MonkeyPatch, *living: Path) -> None:
    monkeypatch.setattr(
        targeting, "living_server", lambda layout: 1 if layout.root in living else None
    )


def test_without_a_server_the_execution_used_last_is_meant(two: tuple[Path, Path]) -> None:
    """The choice is marked as ambiguous."""
    chosen = targeting.choose(None)
    assert (chosen.root, chosen.is_ambiguous) == (two[1], True)


def test_an_attempt_is_meant_only_by_its_name(
    two: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an exploration, commands mean the execution that was explored."""
    path = two[1] / ".hankweave" / "execution-meta.json"
    attempt = {"explorationId": "abc", "attemptId": "abc-1", "codonId": "one"}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"attempt": attempt}))
    chosen = targeting.choose(None)
    assert (chosen.root, chosen.is_ambiguous) == (two[0], False)
    serve(monkeypatch, *two)
    assert targeting.choose(None).root == two[0]
    assert targeting.choose(two[1]).root == two[1]
    assert catalog.listed(two[1]).attempt == "abc-1"


def test_the_only_living_server_is_meant(
    two: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The age of its execution does not matter."""
    serve(monkeypatch, two[0])
    chosen = targeting.choose(None)
    assert (chosen.root, chosen.is_ambiguous) == (two[0], False)
    serve(monkeypatch, *two)
    assert targeting.choose(None).is_ambiguous


def test_the_execution_that_the_shell_stands_in_is_meant(
    two: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The execution of the current directory takes precedence over any server."""
    serve(monkeypatch, two[1])
    monkeypatch.chdir(two[0] / "agentRoot")
    assert targeting.choose(None).root == two[0]


@pytest.mark.story("Without a terminal, a command refuses to choose among several executions.")
def test_among_several_none_is_changed_without_a_terminal(two: tuple[Path, Path]) -> None:
    """The exit code is 2, and the hint names an option that works; a named one is announced."""
    with pytest.raises(Stop) as stop:
        targeting.root_to_change(None)

    assert stop.value.exit_code is ExitCode.USAGE
    assert f"-e {two[1]}" in (stop.value.hint or "")
    assert targeting.root_to_change(two[0]) == two[0]


def test_in_a_folder_of_an_execution_its_root_is_named(two: tuple[Path, Path]) -> None:
    with pytest.raises(Stop) as stop:
        targeting.root_to_change(two[0] / "agentRoot")

    assert f"-e {two[0]}" in (stop.value.hint or "")


def test_a_hint_names_its_execution_unless_it_is_the_default(two: tuple[Path, Path]) -> None:
    """The hint works when it is pasted."""
    assert remote.command("checkpoints", two[1]) == "`hankweave checkpoints`"
    assert remote.command("checkpoints", two[0]) == f"`hankweave checkpoints -e {two[0]}`"


async def test_a_rollback_in_a_pipe_needs_a_yes_and_says_where(tmp_path: Path) -> None:
    """Without it nothing changes; with it the only living server is taken, and named."""
    root, shell = tmp_path / "executions", tmp_path / "shell"
    shell.mkdir()
    hank = write_hank(tmp_path / "hank", codon("one", writes("a.txt", "a")))
    other = root / "other"
    hankweave("run", str(hank), "-e", str(other), "--headless", "-y", code=0)
    served = root / "served"
    async with running_server(hank, None, served, "--no-autostart"):
        os.utime(other / ".hankweave" / "state.json")
        (served / "agentRoot" / "mine.txt").write_text("mine")
        before = tree(served / "agentRoot")

        async def bare(*words: str, code: int) -> str:
            done = await aside(*words, cwd=shell, code=code, **{ROOT: str(root)})
            return done.stdout + done.stderr

        assert str(served) in await bare("status", code=0)
        for verb in ("rollback", "undo", "redo"):
            output = await bare(verb, code=2)
            assert f"execution {served}\n" in output
            assert "--yes" in output

        assert "--yes" in await bare("gc", "--max-count", "0", code=2)
        assert tree(served / "agentRoot") == before
        assert f"execution {served}\n" in await bare("checkpoint", "now", code=0)


async def test_a_server_outside_of_the_usual_folder_is_found(tmp_path: Path) -> None:
    """`status` takes the only one with a server, `ls` lists it, and a cleanup of all keeps it."""
    root, shell, outside = tmp_path / "executions", tmp_path / "shell", tmp_path / "project" / "out"
    shell.mkdir()
    hank = write_hank(tmp_path / "hank", codon("one", writes("a.txt", "a")))
    async with running_server(hank, None, outside, "--no-autostart"):

        async def bare(*words: str) -> str:
            done = await aside(*words, cwd=shell, code=0, **{ROOT: str(root)})
            return done.stdout

        assert str(outside) in await bare("status")
        (row,) = json.loads(await bare("ls", "--json"))
        assert (row["path"], row["state"]) == (str(outside), "running")
        assert row["pageUrl"].startswith("http://127.0.0.1:")
        await bare("cleanup", "--all", "-y")

    (row,) = json.loads(await bare("ls", "--json"))
    assert (row["serverPid"], row["pageUrl"]) == (None, None)
    assert outside.exists()


async def test_a_register_that_cannot_be_written_does_not_prevent_a_start(tmp_path: Path) -> None:
    """The journal has a warning, and `ls` lists what is in the usual folder."""
    (tmp_path / "state").write_text("a file in its place")
    hank = write_hank(tmp_path / "hank", codon("one", writes("a.txt", "a")))
    env = {"XDG_STATE_HOME": str(tmp_path / "state")}
    execution = tmp_path / "executions" / "one"
    async with running_server(hank, None, execution, "--headless", env=env, may_end=True) as server:
        assert await server.ended() == 0

    warnings = [each.message for each in events_of(execution, Info)]
    assert any("`hankweave ls` may not list this execution" in each for each in warnings)
    env[ROOT] = str(execution.parent)
    (row,) = json.loads(hankweave("ls", "--json", code=0, **env).stdout)
    assert row["state"] == "completed"


@pytest.mark.command("executions.list", "executions.address")
async def test_a_client_receives_the_other_executions_and_the_addresses_of_their_pages(
    tmp_path: Path,
) -> None:
    """The same rows as of `ls --json`, and an address that opens; a viewer is told nothing."""
    hank = write_hank(tmp_path / "hank", codon("one", writes("a.txt", "a")))
    one, other = tmp_path / "one", tmp_path / "elsewhere" / "other"
    env = {ROOT: str(tmp_path / "executions")}
    async with (
        running_server(hank, None, one, "--no-autostart", env=env) as server,
        running_server(hank, None, other, "--no-autostart", env=env),
        server.client() as client,
    ):

        async def idle() -> ListedExecution | None:
            """Return the row of the other execution as soon as its server waits."""
            page = await client.send(ExecutionsList(search="elsewhere"))
            (row,) = page.executions
            return row if row.is_idle else None

        row = await eventually(idle)
        assert row is not None
        ls = await aside("ls", "--json", code=0, **env)
        (listed,) = [each for each in json.loads(ls.stdout) if each["path"] == str(other)]
        assert codec.encode(row) == codec.encode(
            msgspec.convert(listed | {"bytes": None, "checkpoints": None}, ListedExecution)
        )
        address = await client.send(GetExecutionAddress(execution_path=str(other)))
        assert address.page_url == row.page_url
        url = f"{address.page_url.replace('http', 'ws')}ws"
        async with connect(url, token=address.token) as there:
            assert (await there.send(GetServerStatus())).execution_path == str(other)

        token = (one / ".hankweave" / "server.viewer-token").read_text().strip()
        async with connect(discover(one).url, token=token, mode="readonly") as viewer:
            for command in (ExecutionsList(), GetExecutionAddress(execution_path=str(other))):
                with pytest.raises(CommandRefused, match="readonly"):
                    await viewer.send(command)

        log = one / ".hankweave" / "logs" / "websocket.log"  # Written a moment later.

        def replies() -> list[str]:
            lines = log.read_text().splitlines() if log.exists() else []
            return [line for line in lines if '"token":"[redacted]"' in line]

        await eventually(lambda: any(str(address.page_url) in line for line in replies()))
        assert str(address.token) not in log.read_text()
