"""The environment an agent gets: a short list, what its codon says, and never the daemon's own."""

from __future__ import annotations

import os
from collections.abc import Mapping

from hankweave_server.agents.base import AgentTask

MARK = "HANKWEAVE_AGENT_MARK"
"""Names one agent in the environment of all its processes; `leftovers` finds escapees by it."""

_INHERITED = frozenset({"PATH", "HOME", "USER", "SHELL", "TMPDIR", "LANG", "TERM"})
_PREFIX = "HANKWEAVE_"
_REMOVES = "unset"

# HANKWEAVE_X reaches agents as X (facts of Hankweave, "How agents are started"), but for what
# configures the server, what opens it, and the names this module gives to agents itself.
_NEVER_UNWRAPPED_PREFIXES = ("RUNTIME_", "SENTINEL_", "AGENT_")
_NEVER_UNWRAPPED = frozenset(
    {"TOKEN", "SERVER_TOKEN", "VIEWER_TOKEN", "DATA_DIR", "RUN_ID", "CODON_ID", "RESUME_SESSION"}
    | {"MODEL", "SCRIPT"}
)


def agent_environment(
    task: AgentTask, host: Mapping[str, str], *, mark: str, extra: Mapping[str, str]
) -> dict[str, str]:
    """Composes the environment of one agent from the daemon's (`host`) and its task.

    Later ones win: the inherited list, what the kind of agent needs (`extra`), HANKWEAVE_X as X
    (`unset` removes it), our own names, the codon's `env`. Only the mark cannot be overridden.
    """
    return {**common(host, extra), **_own_names(task), **task.environment, MARK: mark}


def data_directory(task: AgentTask) -> str | None:
    """Return the real path of the data, if it is a directory.

    Agents compare paths after following links, and `data_dir` is a link as a rule.
    """
    data = os.path.realpath(task.data_dir)
    return data if os.path.isdir(data) else None


def common(host: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """Composes what all agents of a kind get, whatever they work on."""
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
    if task.resume_session is not None:
        names["HANKWEAVE_RESUME_SESSION"] = task.resume_session

    return names
