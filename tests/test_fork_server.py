"""Claims about the fork server: a forked `hankweave` is as one that was executed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from hankweave_server.errors import ExitCode
from support.fork_server import ForkServer
from support.running_server import IS_MEASURED, SCRIPT, command, environment
from support.scripted_hank import codon, write_hank

pytestmark = [
    pytest.mark.executed,  # by the fork server of the tests; each claim has its own
    pytest.mark.skipif(IS_MEASURED or not SCRIPT.exists(), reason="no console script is started"),
]

SIGNALS = ("SigBlk", "SigIgn", "SigCgt", "Umask")


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkServer]:
    server = ForkServer(SCRIPT, environment())
    with server.serving():
        yield server


@pytest.fixture(params=["forked", "executed"])
def way(request: pytest.FixtureRequest, forks: ForkServer) -> str:
    """How the programs of a test start; it holds for both."""
    forks.is_used = request.param == "forked"
    return str(request.param)


def is_forked(process: subprocess.Popen[Any]) -> bool:
    return b"fork_server" in Path(f"/proc/{process.pid}/cmdline").read_bytes()


@contextmanager
def a_server(place: Path, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    hank = write_hank(place / "hank", codon("one"))
    words = command("run", str(hank), "-e", str(place / "execution"), "--json", "--no-autostart")
    program = subprocess.Popen(
        words, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options
    )
    with program as server:
        assert server.stdout is not None
        assert any(b'"server.ready"' in line for line in server.stdout)
        yield server
        server.kill()


def facts(server: subprocess.Popen[bytes], place: Path) -> dict[str, Any]:
    """Return what the kernel says of a server, without what differs between any two."""
    proc = Path(f"/proc/{server.pid}")
    status = dict(line.split(":\t", 1) for line in (proc / "status").read_text().splitlines())
    streams = [(proc / "fd" / str(number)).readlink() for number in range(3)]
    others = {link for pid in (os.getpid(), *children()) for link in sockets(int(pid), server.pid)}
    return {
        "parent": int(status["PPid"]) == os.getpid(),
        "session": os.getsid(server.pid) in (server.pid, os.getsid(0)),
        "leads": (os.getsid(server.pid) == server.pid, os.getpgid(server.pid) == server.pid),
        "folder": (proc / "cwd").readlink() == place,
        "streams": [stream.name.partition(":")[0] for stream in streams],
        "inherited": others & sockets(server.pid),
        "same_output": streams[1] == streams[2],
        **{name: status[name] for name in SIGNALS},
    }


@pytest.mark.parametrize(
    "options", [{}, {"start_new_session": True}, {"process_group": 0}], ids=str
)
def test_the_kernel_shows_the_same_of_a_forked_server(
    tmp_path: Path, forks: ForkServer, options: dict[str, Any]
) -> None:
    seen = {}
    for way in ("forked", "executed"):
        place = tmp_path / way
        place.mkdir()
        forks.is_used = way == "forked"
        with a_server(place, cwd=place, stdin=subprocess.DEVNULL, **options) as server:
            assert is_forked(server) == (way == "forked")
            seen[way] = facts(server, place)

    assert seen["forked"] == seen["executed"]
    assert seen["forked"]["parent"]
    assert seen["forked"]["folder"]


def test_it_is_killed_and_waited_for_as_a_child(way: str, tmp_path: Path) -> None:
    with a_server(tmp_path) as server:
        server.kill()
        assert server.wait() == -signal.SIGKILL

    with a_server(tmp_path) as server:
        server.terminate()
        assert server.wait() == 0


def test_arguments_variables_streams_and_exit_codes_arrive(way: str, tmp_path: Path) -> None:
    def run(*words: str, **env: str) -> tuple[int, bytes, bytes]:
        done = subprocess.run(
            command(*words),
            env=environment(**env),
            cwd=tmp_path,
            capture_output=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    code, output, errors = run("--version")
    assert (code, output[:10], errors) == (0, b"hankweave,", b"")

    code, output, errors = run("validate", "none\udcff.json", HANKWEAVE_ODD="\udcff")
    assert (code, output) == (ExitCode.NO_INPUT, b"")
    assert b"none" in errors

    write_hank(tmp_path, codon("one"))
    assert run("validate", "hank.json")[0] == 0

    code, output, _ = run(_HANKWEAVE_COMPLETE="bash_source")
    assert (code, b"complete" in output) == (0, True)


def test_a_closed_pipe_ends_it_with_the_code_of_sigpipe(way: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            command("--help"),
            env=environment(),
            stdout=writing,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writing)

    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("prefix", "options"),
    [
        (["env"], {}),
        ([], {"env": environment(LD_PRELOAD="")}),
        ([], {"env": environment(PYTHONPATH="/nowhere")}),
        ([], {"user": os.getuid()}),
        ([], {"preexec_fn": os.getpid}),
        ([], {"close_fds": False}),
    ],
    ids=["prefix", "preload", "path", "user", "hook", "descriptors"],
)
def test_what_is_not_a_plain_start_is_executed(prefix: list[str], options: dict[str, Any]) -> None:
    options = {"env": environment(), "capture_output": True, "check": True} | options
    before = children()
    with ForkServer(SCRIPT, environment()).serving():
        subprocess.run([*prefix, *command("--version")], **options)
        assert children() == before, "no fork server was needed"


def test_a_missing_folder_raises_as_always(way: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        subprocess.run(command("--version"), cwd=tmp_path / "nowhere", check=False)


def test_it_ends_when_it_is_no_longer_used() -> None:
    before = set(children())
    with ForkServer(SCRIPT, environment()).serving():
        subprocess.run(command("--version"), env=environment(), check=True, capture_output=True)
        assert set(children()) > before

    assert set(children()) == before


def sockets(pid: int, but: int = 0) -> set[str]:
    """Return the sockets that a process has open, unless it is the one excepted."""
    folder = Path(f"/proc/{pid}/fd")
    found = set()
    for name in os.listdir(folder) if pid != but else []:
        with suppress(FileNotFoundError):  # closed in the meantime
            found.add(os.readlink(folder / name))

    return {link for link in found if link.startswith("socket:")}


def children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
