"""Compose an agent's environment: an allow list and the codon's `env`, not all of the server's."""

from __future__ import annotations

import os
from collections.abc import Mapping

from hankweave_server.agents.base import AgentTask

MARK = "HANKWEAVE_AGENT_MARK"
"""The variable that identifies one agent in the environment of all its processes.

`leftovers` finds escaped processes by it.
"""

AGENT_SOCKET = "HANKWEAVE_AGENT_SOCKET"
"""The variable with the socket on which the agent may send commands to the server."""

TRACEPARENT = "TRACEPARENT"
"""The variable with the span that the agent's own spans are children of."""

_INHERITED = frozenset({"PATH", "HOME", "USER", "SHELL", "TMPDIR", "LANG", "TERM"})
_PREFIX = "HANKWEAVE_"
_REMOVES = "unset"

# HANKWEAVE_X reaches agents as X, as in Hankweave. Exceptions: variables that configure the server,
# its tokens, and the names that this module sets itself.
_NEVER_UNWRAPPED_PREFIXES = ("RUNTIME_", "SENTINEL_", "AGENT_")
_NEVER_UNWRAPPED = frozenset(
    {"TOKEN", "SERVER_TOKEN", "VIEWER_TOKEN", "DATA_DIR", "RUN_ID", "CODON_ID", "RESUME_SESSION"}
    | {"MODEL", "SCRIPT"}
)


def agent_environment(
    task: AgentTask, host: Mapping[str, str], *, mark: str, extra: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of one agent, from the server's (`host`) and its task.

    Later sources win: inherited variables, those of this kind of agent (`extra`), HANKWEAVE_X as X
    (the value `unset` removes X), the `HANKWEAVE_…` names set here, and the codon's `env`. Only the
    mark cannot be overridden.
    """
    return {**common(host, extra), **_own_names(task), **task.environment, MARK: mark}


def data_directory(task: AgentTask) -> str | None:
    """Return the real path of the data, or None if it is not a directory.

    Agents compare paths after resolving links, and `data_dir` is usually a link.
    """
    data = os.path.realpath(task.data_dir)
    return data if os.path.isdir(data) else None


def common(host: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that all agents of a kind get, independent of their task."""
    inherited = {name: value for name, value in host.items() if _is_inherited(name)}
    unwrapped = _unwrapped(host)
    composed = {**inherited, **extra, **unwrapped}
    return {name: value for name, value in composed.items() if unwrapped.get(name) != _REMOVES}


def _is_inherited(name: str) -> bool:
    return name in _INHERITED or name.startswith("LC_")


def _unwrapped(host: Mapping[str, str]) -> dict[str, str]:
    wrapped = (name for name in host if name.startswith(_PREFIX))
    return {
        short: host[name]
        for name in wrapped
        if (short := name.removeprefix(_PREFIX))
        and short not in _NEVER_UNWRAPPED
        and not short.startswith(_NEVER_UNWRAPPED_PREFIXES)
    }


def _own_names(task: AgentTask) -> dict[str, str]:
    names = {
        "HANKWEAVE_AGENT_ROOT": str(task.work_tree),
        "HANKWEAVE_DATA_DIR": str(task.data_dir),
        "HANKWEAVE_RUN_ID": task.run_id,
        "HANKWEAVE_CODON_ID": task.codon_id,
        "HANKWEAVE_MODEL": task.model,
        "HANKWEAVE_NOTICES": str(task.notices_path),
    }
    if task.socket is not None:
        names[AGENT_SOCKET] = str(task.socket)

    if task.resume_session is not None:
        names["HANKWEAVE_RESUME_SESSION"] = task.resume_session

    if task.traceparent is not None:
        names[TRACEPARENT] = task.traceparent

    return names
