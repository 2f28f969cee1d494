"""A confined agent is confined from its first instruction, and ends like any other."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import anyio
import msgspec
import pytest

from hankweave_server.agents.base import AgentStartFailed, PlainOutput
from hankweave_server.agents.process import peers, process_table
from hankweave_server.agents.process.leftovers import sweep
from hankweave_server.agents.process.subprocess_task import SubprocessTasks
from hankweave_server.confinement import landlock
from hankweave_server.confinement.policy import Facts, Fence, Level, Policy, workspace_policy
from hankweave_server.confinement.probe import own_programs, try_level
from support.waiting import limited

LEVELS = [Level.NAMESPACE, Level.LANDLOCK]

# One process leaves the session and erases its environment.
DAEMONS = """
import os, sys, time
source = "import os, time; print('daemon', os.getpid(), flush=True); time.sleep(600)"
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", source], {})
    os._exit(0)

print("agent", os.getpid(), flush=True)
time.sleep(600)
"""
MARKED_DAEMONS = DAEMONS.replace(", {})", ", os.environ)")
"""Those that can be found without their keeper, whether or not there are control groups."""


@pytest.fixture(params=LEVELS, ids=lambda level: level.value)
def level(request: pytest.FixtureRequest) -> Level:
    reason = try_level(request.param)
    if reason is not None:
        pytest.skip(f"this level does not work here: {reason}")

    return request.param


@pytest.fixture
def fence(tmp_path: Path, level: Level) -> Fence:
    state = tmp_path / ".hankweave"
    facts = Facts(
        work_tree=str(tmp_path / "agentRoot"),
        state_directory=str(state),
        home=str(tmp_path / "home"),
        temporary=str(state / "temporary"),
        agent_read=own_programs(),
        is_root=os.geteuid() == 0,
    )
    return Fence(workspace_policy(facts), level)


async def test_an_agent_has_no_rights_to_gain(a_task, run_agent, python, fence: Fence) -> None:
    """It has no capabilities, cannot gain any, and its system calls are filtered."""
    run = await run_agent(python("print(open('/proc/self/status').read())"), a_task(fence=fence))
    lines = (signal.line.partition(":") for signal in run.of(PlainOutput))
    facts = {name: value.strip() for name, _, value in lines}
    capabilities = [int(facts[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")]
    assert capabilities == [0, 0, 0, 0]
    assert (facts["NoNewPrivs"], facts["Seccomp"]) == ("1", "2")
    assert os.geteuid() != 0 or int(facts["CapBnd"], 16) == 0


async def test_an_agent_keeps_what_it_needs(a_task, run_agent, python, fence: Fence) -> None:
    """The work tree, temporary files, its notices and its working directory are there."""
    source = """
import os, tempfile
open("made", "w").write("x")
tempfile.NamedTemporaryFile().write(b"x")
open(os.environ["HANKWEAVE_NOTICES"]).read()
os.makedirs(os.environ["XDG_CACHE_HOME"])
print(os.getcwd())
"""
    task = a_task(fence=fence)
    run = await run_agent(python(source), task)
    assert [each.line for each in run.of(PlainOutput)] == [str(task.work_tree)]
    assert (task.work_tree / "made").read_text() == "x"


async def test_nothing_confined_outlives_a_stop(
    a_task, python, printed_lines, lives, fence: Fence
) -> None:
    """The keeper is outside of the fence, so it ends what is inside."""
    with limited():
        async with python(DAEMONS).start(a_task(fence=fence)) as session:
            tree = {name: int(pid) for name, pid in await printed_lines(session, 2)}
            assert tree["agent"] == session.pid
            await session.stop()

    assert [name for name, pid in tree.items() if lives(pid)] == []


async def test_a_confined_agent_dies_with_its_keeper(
    a_task, python, printed_lines, lives, fence
) -> None:
    """The death signal survives the changes of credentials, and the daemon is found by its mark."""
    task = a_task(fence=fence)
    with limited():
        async with python(MARKED_DAEMONS).start(task) as session:
            tree = {name: int(pid) for name, pid in await printed_lines(session, 2)}
            agent = os.pidfd_open(session.pid)
            keeper = process_table.read(session.pid)
            assert keeper is not None
            os.kill(keeper.parent, signal.SIGKILL)
            await anyio.wait_readable(agent)
            os.close(agent)

    assert [name for name, pid in tree.items() if lives(pid)] == []


async def test_a_new_server_finds_a_confined_leftover(tmp_path, a_task, fence: Fence) -> None:
    """Marks in environments inside of the fence can be read from outside."""
    task = a_task(fence=fence)
    processes, elsewhere = tmp_path / "processes", tmp_path / "elsewhere"
    subprocess_tasks = SubprocessTasks(task.run_id, task.codon_id, processes, fence)
    with limited():
        async with subprocess_tasks.start(
            ["sleep", "600"], task.work_tree, {"PATH": os.environ["PATH"]}
        ) as child:
            (record,) = processes.iterdir()
            elsewhere.mkdir()
            (elsewhere / record.name).write_bytes(b"{torn")
            killed = await sweep(elsewhere)
            await child.ended()

    assert "sleep 600" in {one.command for one in killed if not one.survived}


async def test_an_agent_that_cannot_be_confined_does_not_run(
    tmp_path: Path, a_task, run_agent, python, level: Level
) -> None:
    """The error names the part of the fence and the reason."""
    (tmp_path / "agentRoot").mkdir()
    marker = tmp_path / "agentRoot" / "ran"
    policy = Policy(write=tuple(str(tmp_path / "agentRoot") for _ in range(2)), connect=(70_000,))
    task = a_task(fence=Fence(policy, level))
    with pytest.raises(AgentStartFailed, match=r"not be confined.*Landlock: Invalid argument"):
        await run_agent(python(f"open({str(marker)!r}, 'w')"), task)

    assert not marker.exists()


async def test_the_profile_none_confines_nothing(tmp_path: Path, a_task, run_agent, python) -> None:
    """It is the person's decision, and the agent runs as without a fence."""
    outside = tmp_path / "outside"
    fence = Fence(Policy(profile="none"), Level.NAMESPACE)
    await run_agent(python(f"open({str(outside)!r}, 'w')"), a_task(fence=fence))
    assert outside.exists()


async def test_a_reviewer_reads_the_work_tree_and_writes_nothing_there(
    a_task, run_agent, python, fence: Fence
) -> None:
    """With the profile `readonly` only its own folders are writable."""
    task = a_task()
    (task.work_tree / "code").write_text("content")
    tree = str(task.work_tree)
    policy = msgspec.structs.replace(
        fence.policy,
        profile="readonly",
        write=tuple(path for path in fence.policy.write if path != tree),
    )
    source = """
import tempfile
tempfile.NamedTemporaryFile().write(b"x")
print(open("code").read())
try:
    open("made", "w")
except OSError:
    print("refused")
"""
    task = a_task(fence=Fence(policy, fence.level))
    run = await run_agent(python(source), task)
    assert [each.line for each in run.of(PlainOutput)] == ["content", "refused"]
    assert not (task.work_tree / "made").exists()


@pytest.mark.parametrize("is_listed", [True, False])
async def test_ports_can_be_listed_or_denied(
    a_task, run_agent, python, fence: Fence, is_listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of ports is the end of it; without one, all but the server's can be reached.

    This is how the port is denied where the server cannot recognize its agents' connections.
    """
    if not landlock.knows_ports(landlock.version()):
        pytest.skip("this kernel has no rules of ports")

    monkeypatch.setattr(peers, "can_recognize", lambda: False)
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
    ):
        ports = [listener.getsockname()[1] for listener in (one, two)]
        limited = (
            msgspec.structs.replace(fence.policy, connect=(ports[0],))
            if is_listed
            else msgspec.structs.replace(fence.policy, denied_ports=(ports[1],))
        )
        source = f"""
import socket
for port in {ports}:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
        print("connected")
    except PermissionError:
        print("refused")
"""
        run = await run_agent(python(source), a_task(fence=Fence(limited, fence.level)))

    assert [each.line for each in run.of(PlainOutput)] == ["connected", "refused"]


async def test_an_agent_that_could_not_be_recognized_does_not_run(
    tmp_path: Path, a_task, run_agent, python, fence: Fence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without rules of ports, an agent runs in its control group or not at all."""
    missing = tmp_path / "no such folder" / "group"
    monkeypatch.setattr(peers, "can_recognize", lambda: True)
    monkeypatch.setattr(process_table, "place", lambda _mark, *, is_confined: missing)
    with pytest.raises(AgentStartFailed, match="its control group did not accept it"):
        await run_agent(python("open('ran', 'w')"), a_task(fence=fence))

    assert not (tmp_path / "agentRoot" / "ran").exists()


async def test_a_command_is_confined_like_an_agent(tmp_path: Path, a_task, fence: Fence) -> None:
    """Rigs and checks run inside the same fence."""
    task = a_task()
    outside = tmp_path / "outside"
    subprocess_tasks = SubprocessTasks(task.run_id, task.codon_id, tmp_path / "processes", fence)
    command = ["sh", "-c", f"touch inside; touch {outside}"]
    with limited():
        async with subprocess_tasks.start(command, task.work_tree, dict(os.environ)) as child:
            await child.ended()

    assert (task.work_tree / "inside").exists()
    assert not outside.exists()
