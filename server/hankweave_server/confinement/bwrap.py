"""The command line of bubblewrap, which some systems allow to mount where others may not.

It shows the process nothing but the folders of its policy, and no other processes. Inside, the
command that `fence` adds Landlock with.

Standard library only: the keeper imports this module in an isolated interpreter.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from hankweave_server.confinement import seccomp
from hankweave_server.confinement.namespaces import MountContent, Step

PROGRAM = "bwrap"


def wrap(
    program: str, mounts: Sequence[Step], temporary: str | None, command: Sequence[str]
) -> list[str]:
    """Return the command that runs a command in bubblewrap; leaves an inheritable descriptor.

    `program` is bubblewrap's path: the PATH of an agent is not to be trusted with it.
    """
    system_calls = os.memfd_create("seccomp", 0)
    os.write(system_calls, seccomp.program())
    os.lseek(system_calls, 0, os.SEEK_SET)
    return [
        *(program, "--die-with-parent", "--unshare-user-try", "--unshare-ipc", "--unshare-pid"),
        *("--cap-drop", "ALL", "--seccomp", str(system_calls)),
        *("--dev", "/dev", "--proc", "/proc"),
        *(word for step in mounts for word in _mount(step, temporary)),
        *("--chdir", os.getcwd(), "--", *command),
    ]


def _mount(step: Step, temporary: str | None) -> Iterator[str]:
    path = step.path
    is_made_by_bwrap = path == "/proc" or (path.startswith("/dev/") and path != "/dev/shm")
    if is_made_by_bwrap or not os.path.lexists(path):
        return

    match step.content:
        case MountContent.READABLE | MountContent.PROTECTED | MountContent.WRITABLE if (
            os.path.islink(path)
        ):
            yield from ("--symlink", os.readlink(path), path)
        case MountContent.READABLE | MountContent.PROTECTED:
            yield from ("--ro-bind", path, path)
        case MountContent.WRITABLE:
            yield from ("--bind", path, path)
        case MountContent.SCRATCH:
            yield from ("--tmpfs", path)
        case MountContent.TEMPORARY:
            yield from ("--bind", temporary or path, path)
        case MountContent.HIDDEN | MountContent.CONCEALED if os.path.isdir(path):
            yield from ("--tmpfs", path)
        case MountContent.HIDDEN:
            yield from ("--ro-bind", os.devnull, path)
