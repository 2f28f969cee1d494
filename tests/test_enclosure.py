"""The enclosure of dangerous tests, and that no test does without it."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from support import attacks, enclosure
from support.waiting import eventually_blocking

TESTS = Path(__file__).resolve().parent
PROGRAM = [sys.executable, str(TESTS / "support" / "enclosure.py")]

PROGRAMS = re.compile(
    r"(mkfs(\.\w+)?|u?mount|losetup|unshare|nsenter|chroot|pivot_root|chattr|sysctl"
    r"|swapon|swapoff|fallocate|dd|reboot|shutdown)"
)
CALLS = {"mount", "umount", "umount2", "unshare", "setns", "chroot", "pivot_root", "settimeofday"}
ATTACKS = {"support.attacks", "support.attacked", "support.fenced"}
MAKE_IT = {"support/enclosure.py", "support/attacks.py"}
"""The enclosure itself, and the program that compares the namespaces without a library."""


def inside(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in an enclosure of its own; skip the test where none can be made."""
    done = subprocess.run(
        [*PROGRAM, *command], cwd=TESTS.parent, capture_output=True, text=True, check=False
    )
    if done.returncode == enclosure.NOT_ALLOWED:
        pytest.skip(done.stderr)

    return done


def test_a_command_inside_has_namespaces_of_its_own_and_loopback_alone() -> None:
    """None of its namespaces is the machine's, the first process reaps, and `lo` is up."""
    source = (
        "import os, socket\n"
        "from support import enclosure\n"
        "print(enclosure.require() == eval(os.environ['OUTER']))\n"
        "print(len({*enclosure.namespaces(), *enclosure.require()}))\n"
        "print([name for _, name in socket.if_nameindex()], os.getppid())\n"
        "socket.create_server(('127.0.0.1', 0))\n"
    )
    environment = ["env", f"OUTER={enclosure.namespaces()}", f"PYTHONPATH={TESTS}"]
    done = inside(*environment, sys.executable, "-c", source)
    assert done.stdout.splitlines() == ["True", "6", "['lo'] 1"], done.stderr


@pytest.mark.enclosed
@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="needs a worker of xdist")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_worker_has_mounts_of_its_own() -> None:
    """So no process of another worker keeps alive what a test unmounts."""
    assert os.readlink("/proc/self/ns/mnt") != os.readlink("/proc/1/ns/mnt")


def test_outside_of_the_checkout_nothing_of_the_machine_can_be_changed(tmp_path: Path) -> None:
    """The root is read-only, and folders for temporary files are the command's own."""
    script = 'touch "$0" /tmp/own && rm /tmp/own; for each in / /etc ~; do touch $each/x; done'
    done = inside("sh", "-c", script, str(tmp_path / "of the machine"))
    assert done.stderr.count("Read-only file system") == 3
    assert list(tmp_path.iterdir()) == []


def test_an_exit_code_is_passed_on() -> None:
    """A signal becomes 128 and its number, as in a shell; a missing program is 127."""
    codes = [inside("sh", "-c", script).returncode for script in ("exit 0", "exit 7", "kill -9 $$")]
    assert codes == [0, 7, 137]
    assert inside("/no such program").returncode == 127


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_everything_inside_ends_with_the_program(number: int, tmp_path: Path) -> None:
    """SIGTERM reaches the command; with SIGKILL, the first process ends with the program."""
    words = [*PROGRAM, "sh", "-c", "setsid sleep 600 & echo begun; exec sleep 600"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as program:
        assert program.stdout is not None
        if program.stdout.readline() != "begun\n":
            pytest.skip("no enclosure can be made here")

        below = psutil.Process(program.pid).children(recursive=True)
        assert len(below) >= 2
        program.send_signal(number)
        assert program.wait() == (143 if number == signal.SIGTERM else -signal.SIGKILL)
        eventually_blocking(lambda: not any(each.is_running() for each in below))
        if number == signal.SIGKILL:  # The program could not tidy up.
            for group in Path("/sys/fs/cgroup").glob(f"**/hankweave-tests-{program.pid}"):
                group.rmdir()


def test_a_signal_during_its_start_ends_it(tmp_path: Path) -> None:
    """It waits until there is a command that it can be passed on to."""
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen([*PROGRAM, "sleep", "600"], env=environment) as program:
        caught = Path(f"/proc/{program.pid}/status")
        is_term_caught = 1 << (signal.SIGTERM - 1)
        eventually_blocking(
            lambda: int(caught.read_text().partition("SigCgt:")[2].split()[0], 16) & is_term_caught
        )
        program.send_signal(signal.SIGTERM)
        if (code := program.wait()) == enclosure.NOT_ALLOWED:
            pytest.skip("no enclosure can be made here")

        assert code == 143


GROUP = (
    "$(sed -n 's/.* \\(\\S*\\) \\S* - cgroup2 .*/\\1/p' /proc/self/mountinfo | tail -1)/hankweave-x"
)
PLANTED = {
    "process": "setsid sleep 600 >/dev/null 2>&1 &",
    "mount": "mount -t tmpfs none /mnt",
    "loop device": "truncate -s 1M /tmp/pytest-of-x; losetup --find --show /tmp/pytest-of-x",
    "control group": f"mkdir {GROUP}",
    "file: /tmp/left": "touch /tmp/left",
    "file: /var/tmp/hankweave-left": "touch /var/tmp/hankweave-left",
    "file: /dev/shm/left": "touch /dev/shm/left",
    "shared memory": "ipcmk -M 100 >/dev/null",
    "change of the checkout": "touch left",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Make a checkout with nothing but the program."""
    support = tmp_path / "checkout" / "tests" / "support"
    support.mkdir(parents=True)
    shutil.copy(PROGRAM[-1], support)
    subprocess.run(["git", "init", "--quiet", tmp_path / "checkout"], check=True)
    return tmp_path / "checkout"


@pytest.mark.enclosed
@pytest.mark.parametrize("kind", PLANTED)
def test_what_a_command_leaves_behind_is_named_and_fails_it(checkout: Path, kind: str) -> None:
    """Each kind of leftover alone makes exit code 1; without one, it is that of the command."""
    words = [sys.executable, checkout / "tests/support/enclosure.py", "--grace", "0.1", "sh", "-ec"]
    run = partial(subprocess.run, cwd=checkout, capture_output=True, text=True, check=False)
    assert run([*words, "true"]).returncode == 0
    done = run([*words, PLANTED[kind]])
    if device := done.stdout.strip():
        subprocess.run(["losetup", "--detach", device], check=True)

    assert done.returncode == 1, done.stderr
    assert re.findall("left behind: (.*)", done.stderr)[0].startswith(kind)
    assert done.stderr.count("left behind") == 1


# No test does without it.


@pytest.mark.enclosed
@pytest.mark.parametrize("outside", [[], None], ids=["unknown", "the machine"])
def test_the_attacks_refuse_to_run_on_the_machine(tmp_path: Path, outside: list[str]) -> None:
    """Nothing is attacked in the namespaces that are said to be outside, or if none are named."""
    named = enclosure.namespaces() if outside is None else outside
    facts = tmp_path / "facts.json"
    facts.write_text(json.dumps({"outside": named}))
    words = [sys.executable, "-I", "-S", attacks.__file__, str(facts)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "inside an enclosure only" in done.stderr


def test_the_environment_alone_does_not_make_an_enclosure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The namespaces named in it must be others than those of this process."""
    for outside in ("", "a b", " ".join(enclosure.namespaces())):
        monkeypatch.setenv(enclosure.OUTSIDE, outside)
        with pytest.raises(enclosure.NotEnclosed):
            enclosure.require()


def dangers(source: str) -> list[str]:
    """Return the dangerous programs, calls and imports in a module."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case (
                ast.List(elts=[ast.Constant(value=str(word)), *_])
                | ast.Tuple(elts=[ast.Constant(value=str(word)), *_])
            ) if PROGRAMS.fullmatch(word):
                found.append(word)
            case ast.Call(func=ast.Attribute(attr=name)) if name in CALLS:
                found.append(f"{name}()")
            case ast.Call(func=ast.Attribute(attr="kill" | "killpg"), args=[number, *_]) if (
                isinstance(number, ast.UnaryOp | ast.Constant)
            ):
                found.append("kill() of a stranger")
            case ast.ImportFrom(module=str(module), names=names):
                found += ATTACKS & {module, *(f"{module}.{each.name}" for each in names)}
            case ast.Constant(value=str(text)) if "drop_caches" in text or "sysrq" in text:
                found.append(text)
            case _:
                pass

    return found


def is_guarded(source: str) -> bool:
    return (
        "enclosure.require()" in source
        or "enclosure.why_not()" in source
        or "mark.enclosed" in source
    )


def modules() -> Iterator[Path]:
    return (path for path in TESTS.rglob("*.py") if "node_modules" not in path.parts)


def test_no_test_mounts_or_attacks_outside_of_the_enclosure() -> None:
    """A module that does asks the enclosure first, or marks its tests as `enclosed`."""
    found = {
        str(path.relative_to(TESTS)): danger
        for path in modules()
        if (danger := dangers(path.read_text())) and not is_guarded(path.read_text())
    }
    assert found.keys() == MAKE_IT, found


@pytest.mark.parametrize(
    "source",
    [
        'subprocess.run(["mount", "-t", "tmpfs", "none", place])',
        'subprocess.run(["umount", place])',
        'subprocess.run(["mkfs.ext4", image])',
        'WORDS = ("unshare", "--pid")',
        "libc.umount2(path, 2)",
        "os.chroot(path)",
        "os.kill(1, 15)",
        "os.kill(-1, 15)",
        "from support import attacks",
        "from support.attacked import Attacked",
        'Path("/proc/sys/vm/drop_caches").write_text("3")',
    ],
)
def test_each_kind_of_danger_is_found(source: str) -> None:
    """So that the test above finds the next one."""
    assert dangers(source) != []
