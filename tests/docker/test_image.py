"""Claims about the image: its size, and the exposure, confinement and stop of a container."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from docker.containers import OUTSIDE, Container, Image, running
from support.scripted_hank import codon, write_hank
from support.waiting import eventually

PORT = 7777

COUNTS = "echo once >> first.txt"
WAITS = "echo began >> second.txt; while [ ! -e go ]; do sleep 0.05; done; echo done >> second.txt"


@pytest.fixture
def volume(image: Image, tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that makes a folder which the container's user owns."""

    def made(name: str) -> Path:
        path = tmp_path / name
        path.mkdir()
        os.chown(path, image.user, image.user)
        return path

    for above in (tmp_path, *tmp_path.parents):  # pytest makes them for root alone.
        if above.is_relative_to("/tmp") and above != Path("/tmp"):
            above.chmod(0o755)

    return made


@contextmanager
def example(
    image: Image, folder: Path, volume: Callable[[str], Path], seccomp: str = "default"
) -> Iterator[Container]:
    volumes = {"/executions": volume("executions"), "/state": volume("state")}
    with running(image, folder / "container", volumes=volumes, seccomp=seccomp) as container:
        yield container


async def ready(container: Container) -> None:
    ended = container.process.poll
    await eventually(lambda: "watch it: " in container.output or ended() is not None)
    assert container.process.poll() is None, container.output


def ask(path: str, host: str) -> int:
    """Send a request to the container's address, as a published port passes it on."""
    connection = http.client.HTTPConnection(OUTSIDE, PORT)
    connection.putrequest("GET", path, skip_host=True)
    connection.putheader("Host", host)
    connection.endheaders()
    status = connection.getresponse().status
    connection.close()
    return status


def test_the_image_is_small(image: Image) -> None:
    """It takes at most 200 MB above its base, without compiler, pip's cache, byte code or tests."""
    above = image.sizes["image"] - image.sizes["base"]
    assert above <= 200_000_000
    unwanted = [
        *image.root.glob("usr/bin/*gcc*"),
        *image.root.glob("root/.cache/*"),
        *image.root.glob("opt/hankweave/**/__pycache__"),
        *image.root.glob("opt/hankweave/**/site-packages/**/tests"),
        *image.root.glob("opt/hankweave/**/site-packages/pip"),
    ]
    assert unwanted == []


async def test_the_page_is_reached_from_outside_by_the_published_name_alone(
    image: Image, tmp_path: Path, volume: Callable[[str], Path]
) -> None:
    """The port is open beyond loopback; a rebound name gets nothing; the health check passes."""
    with example(image, tmp_path, volume) as container:
        await ready(container)
        assert ask("/", f"127.0.0.1:{PORT}") == 200
        assert ask("/", f"localhost:{PORT}") == 200
        assert ask("/", f"evil.example:{PORT}") == 403
        assert ask("/", f"{OUTSIDE}:{PORT}") == 403
        assert f"http://127.0.0.1:{PORT}/#token=" in container.output
        assert "note: The port is open beyond this machine" in container.output
        kind, *check = image.config["Healthcheck"]["Test"]
        assert kind == "CMD"
        assert container.do(*check).returncode == 0


@pytest.mark.parametrize(
    ("seccomp", "level", "warned"),
    [
        ("default", "landlock", "warning: Agents are confined at the level landlock"),
        ("unconfined", "namespace", None),
        ("without landlock", "none", "warning: Agents are not confined on this machine"),
    ],
)
async def test_the_confinement_depends_on_the_engines_options(
    image: Image,
    tmp_path: Path,
    volume: Callable[[str], Path],
    seccomp: str,
    level: str,
    warned: str | None,
) -> None:
    """docs/how-to/docker.md says which options give which level; a start warns of a weaker one."""
    with example(image, tmp_path, volume, seccomp) as container:
        await ready(container)
        status = json.loads(container.do("hankweave", "status", "--json").stdout)
        assert status["confinement"]["level"] == level
        if warned is not None:
            await eventually(lambda: warned in container.output)

        container.stop()
        assert ("warning: Agents are" in container.output) == (warned is not None)


async def test_a_stop_loses_nothing(
    image: Image, tmp_path: Path, volume: Callable[[str], Path]
) -> None:
    """SIGTERM to process 1 ends in order in mid-step, and another container continues."""
    steps = [
        codon(name, tracked=(), agent={"type": "command", "command": ["sh", "-c", script]})
        for name, script in (("first", COUNTS), ("second", WAITS))
    ]
    volumes = {f"/{name}": volume(name) for name in ("project", "hank", "state", "executions")}
    write_hank(volumes["/hank"], *steps)
    project = volumes["/project"]
    run = ("run", "/hank/hank.json", "--workspace", "/project")
    began = project / "second.txt"
    with running(image, tmp_path / "1", *run, "--no-exit-on-complete", volumes=volumes) as stopped:
        await eventually(lambda: began.exists() or stopped.process.poll() is not None)
        assert stopped.process.poll() is None, stopped.output
        assert stopped.do("sh", "-c", "(true &)").returncode == 0
        await eventually(lambda: "Z" not in states(stopped))  # Process 1 reaps what is orphaned.
        assert stopped.stop() == 0, stopped.output

    assert "The server stopped: SIGTERM." in stopped.output
    with running(image, tmp_path / "2", *run, "--headless", volumes=volumes) as continued:
        await ready(continued)
        assert "second" in continued.do("hankweave", "status").stdout
        (project / "go").touch()
        assert continued.process.wait() == 0, continued.output

    assert (project / "first.txt").read_text() == "once\n"
    assert began.read_text().endswith("done\n")
    look = ("-e", "/project")
    with running(image, tmp_path / "3", "events", *look, volumes=volumes) as events:
        assert events.process.wait() == 0, events.output

    assert "server.stopping" in events.output
    with running(image, tmp_path / "4", "fsck", *look, volumes=volumes) as fsck:
        assert fsck.process.wait() == 0, fsck.output


def states(container: Container) -> str:
    """Return the states of all processes in a container, a letter for each."""
    listed = container.do("sh", "-c", "cat /proc/[0-9]*/stat").stdout
    return "".join(line.rpartition(")")[2].split()[0] for line in listed.splitlines())
