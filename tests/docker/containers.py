"""Containers of the image that `scripts/test --docker` has built, run by crun.

The root is read-only, as with `docker run --read-only`: what a container writes lies in its volumes
or is lost with it. All containers share the network namespace of the enclosure, which has loopback
and one more address and leads nowhere.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import enclosure

IMAGE = "HANKWEAVE_IMAGE"
"""Names the folder with the image: `root`, `config.json` and `sizes.json`."""

OUTSIDE = "192.0.2.7"
"""An address of the network namespace beyond loopback."""

_DOCKERS = (
    *("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW"),
    *("CAP_SETGID", "CAP_SETUID", "CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE"),
    *("CAP_SYS_CHROOT", "CAP_KILL", "CAP_AUDIT_WRITE"),
)
"""The capabilities that Docker leaves to a container; an ordinary user in it has none of them."""

_MASKED = (
    *("/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats"),
    *("/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/firmware"),
)
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")

_FAILS = {"action": "SCMP_ACT_ERRNO", "errnoRet": errno.EPERM}
_NEW_USER = 0x10000000
_NO_NAMESPACES: tuple[Mapping[str, Any], ...] = (
    {
        "names": [
            *("unshare", "setns", "mount", "umount2", "pivot_root", "mount_setattr"),
            *("move_mount", "open_tree", "fsopen", "fsmount"),
        ],
        **_FAILS,
    },
    {
        "names": ["clone"],
        "args": [
            {"index": 0, "value": _NEW_USER, "valueTwo": _NEW_USER, "op": "SCMP_CMP_MASKED_EQ"}
        ],
        **_FAILS,
    },
    {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS},
)
SECCOMP: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "default": _NO_NAMESPACES,
    "unconfined": (),
    "without landlock": (*_NO_NAMESPACES, {"names": ["landlock_create_ruleset"], **_FAILS}),
}
"""Calls that fail, by profile. `default` is the part of Docker's profile that matters here."""


@dataclass(frozen=True)
class Image:
    """A built image: its root, its configuration, and the bytes of it and its base."""

    root: Path
    config: Mapping[str, Any]
    sizes: Mapping[str, int]

    @classmethod
    def built(cls) -> Image:
        folder = Path(os.environ[IMAGE])
        config, sizes = (
            json.loads((folder / f"{name}.json").read_text()) for name in ("config", "sizes")
        )
        return cls((folder / "root").resolve(), config, sizes)

    @property
    def user(self) -> int:
        """The number of the image's user."""
        lines = (self.root / "etc/passwd").read_text().splitlines()
        entries = (line.split(":") for line in lines)
        return next(int(entry[2]) for entry in entries if entry[0] == self.config["User"])


@dataclass
class Container:
    """A container that runs; leaving `running` kills it."""

    image: Image
    process: subprocess.Popen[bytes]
    name: str
    folder: Path

    @property
    def output(self) -> str:
        return (self.folder / "output").read_text()

    def stop(self) -> int:
        """Send what `docker stop` sends to process 1; return the container's exit code."""
        _crun(self.folder, "kill", self.name, "TERM")
        return self.process.wait()

    def do(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in it, as `docker exec` does."""
        who, where = f"{self.image.user}:{self.image.user}", self.image.config["WorkingDir"]
        return _crun(self.folder, "exec", "--user", who, "--cwd", where, self.name, *command)


def _crun(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*_command(folder), *words], capture_output=True, text=True, check=False)


def _command(folder: Path) -> list[str]:
    return ["crun", "--cgroup-manager=disabled", "--root", str(folder / "state")]


@contextlib.contextmanager
def running(
    image: Image,
    folder: Path,
    *arguments: str,
    volumes: Mapping[str, Path],
    seccomp: str = "default",
) -> Iterator[Container]:
    """Run the image's entry point with these arguments, or its own; kill it at the end."""
    enclosure.require()
    folder.mkdir(parents=True, exist_ok=True)
    command = [*image.config["Entrypoint"], *(arguments or image.config["Cmd"])]
    bundle = _bundle(image, command, volumes, seccomp)
    (folder / "config.json").write_text(json.dumps(bundle))
    name = f"hankweave-{uuid.uuid4().hex[:8]}"
    words = [*_command(folder), "run", "--bundle", str(folder), name]
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    try:
        yield Container(image, process, name, folder)
    finally:
        _crun(folder, "delete", "--force", name)
        process.wait()


def _bundle(
    image: Image,
    command: Sequence[str],
    volumes: Mapping[str, Path],
    seccomp: str,
) -> Mapping[str, Any]:
    rules = SECCOMP[seccomp]
    mounts = [_mount(name, "bind", "rbind", "rw", source=str(volumes[name])) for name in volumes]
    filters = {"seccomp": {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules}} if rules else {}
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": image.user, "gid": image.user},
            "args": [*command],
            "env": [*image.config["Env"], f"HOME=/home/{image.config['User']}"],
            "cwd": image.config["WorkingDir"],
            "capabilities": {"bounding": _DOCKERS},
            "noNewPrivileges": True,
        },
        "root": {"path": str(image.root), "readonly": True},
        "hostname": "container",
        "mounts": [*_MOUNTS, *mounts],
        "linux": {
            "namespaces": [{"type": each} for each in ("pid", "ipc", "uts", "mount")],
            "maskedPaths": _MASKED,
            "readonlyPaths": _READ_ONLY,
            **filters,
        },
    }


def _mount(target: str, kind: str, *options: str, source: str = "") -> Mapping[str, Any]:
    return {"destination": target, "type": kind, "source": source or kind, "options": [*options]}


_MOUNTS = (
    _mount("/proc", "proc"),
    _mount("/dev", "tmpfs", "nosuid", "mode=755", "size=65536k"),
    _mount("/dev/pts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"),
    _mount("/dev/shm", "tmpfs", "nosuid", "noexec", "nodev", "mode=1777"),
    _mount("/sys", "sysfs", "nosuid", "noexec", "nodev", "ro"),
    _mount("/tmp", "tmpfs", "mode=1777"),
    _mount("/home/hankweave", "tmpfs", "mode=1777"),
)
