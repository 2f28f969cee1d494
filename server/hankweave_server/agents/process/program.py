"""Run one program as an agent; every kind of agent comes down to this."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio.to_thread

from hankweave_server.agents.agent_log import AgentLog
from hankweave_server.agents.base import AgentNotFound, AgentStartFailed, AgentTask
from hankweave_server.agents.hook_server import HookServer
from hankweave_server.agents.process.child import AgentProcess, Launch
from hankweave_server.agents.process.environment import agent_environment
from hankweave_server.agents.session import Program, Session
from hankweave_server.clock import Clock
from hankweave_server.confinement.namespaces import is_below
from hankweave_server.confinement.policy import (
    Fence,
    environment_of,
    granting,
    program_files,
)
from hankweave_server.confinement.probe import own_programs
from hankweave_server.fsutil import append_private, is_broken, is_full


@asynccontextmanager
async def run_program(program: Program, task: AgentTask, clock: Clock) -> AsyncIterator[Session]:
    """Run a program for a task; leaving the context always ends all its processes.

    Raises AgentNotFound and AgentStartFailed, OSError if the log cannot be opened, and
    AgentUnkillable on leaving. A task's fence is opened for what this program needs: itself, its
    hooks and its notices.
    """
    mark = secrets.token_hex(16)
    moved = {} if task.fence is None else environment_of(task.fence)
    extra = {**program.extra_environment, **moved}
    environment = agent_environment(task, os.environ, mark=mark, extra=extra)
    found = [
        _find(needed, environment.get("PATH"), task.work_tree, program.hint)
        for needed in filter(None, (program.command[0], program.needs))
    ]
    with (
        AgentLog(task.log_path, limit=task.limits.log_bytes, redactor=task.redactor) as log,
        _hook_server(program.hook_socket) as hooks,
    ):
        launch = Launch(
            program.command,
            environment,
            task.work_tree,
            mark,
            task.run_id,
            task.codon_id,
            fence=_own_fence(program, task, found),
            records=task.processes_dir,
        )
        process = AgentProcess(launch)
        session = Session(process, log, task, clock, program, hooks)
        try:
            async with session.at_work():
                yield session
        finally:
            process.close()


@contextmanager
def _hook_server(path: Path | None) -> Iterator[HookServer | None]:
    if path is None:
        yield None
        return

    server = HookServer(path)
    try:
        yield server
    finally:
        server.close()


@asynccontextmanager
async def run_prepared(
    prepare: Callable[[AgentTask], Program], task: AgentTask, clock: Clock
) -> AsyncIterator[Session]:
    """Run a program that has to be prepared first; preparation reads files, so a thread does it.

    Raises AgentStartFailed if those files, some of which belong to the user, cannot be read,
    OSError if the disk is full or broken, and the exceptions of `run_program`.
    """
    program = await anyio.to_thread.run_sync(_ready, prepare, task)
    async with run_program(program, task, clock) as session:
        yield session


def _ready(prepare: Callable[[AgentTask], Program], task: AgentTask) -> Program:
    try:
        return prepare(task)
    except OSError as error:
        if is_full(error) or is_broken(error):
            raise

        raise AgentStartFailed(
            f"The agent could not be prepared: {error}",
            hint="Its home directory or login may belong to another user.",
        ) from error


def _find(program: str, search_path: str | None, work_tree: Path, hint: str) -> str:
    """Search where exec(3) will search; a name with a slash is relative to the work tree."""
    if "/" in program:
        found = shutil.which(os.path.normpath(work_tree / program))
    else:
        found = shutil.which(program, path=search_path)

    if found is None:
        raise AgentNotFound(f"{program!r} was not found.", hint=hint)

    return found


def files_named_in(command: Sequence[str]) -> tuple[Path, ...]:
    """Return the files that the arguments name, such as the script of an interpreter."""
    named = (word for word in command[1:] if word.startswith("/"))
    # Not of pathlib, which raises for a word that is too long for a path.
    return tuple(Path(word) for word in named if os.path.isfile(word))


def _own_fence(program: Program, task: AgentTask, found: Sequence[str]) -> Fence | None:
    if task.fence is None or task.fence.is_open:
        return None

    # Nothing can be granted that does not exist, and the first notice may come later.
    append_private(task.notices_path, b"")
    # What an agent can write is readable already, and may be a link that an agent has planted.
    writable = task.fence.policy.write
    foreign = (path for path in found if not any(is_below(path, folder) for folder in writable))
    files = (file for path in foreign for file in (path, *program_files(os.path.realpath(path))))
    hooks = () if program.hook_socket is None else (str(program.hook_socket),)
    return granting(task.fence, read=(*own_programs(), *files, str(task.notices_path)), write=hooks)
