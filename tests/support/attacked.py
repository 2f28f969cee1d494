"""A home, other executions and a real server for the attacks of `attacks.py`, and what they did."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

from hankweave_client.discovery import discover
from hankweave_protocol.state_directory import private_folder_of, state_directory_of
from support import attacks, enclosure
from support.fenced import snapshot

Layout = Literal["beside", "in place"]

NEED_A_STAND_IN = {
    "attach_its_shared_memory",
    "connect_to_its_abstract_socket",
    "connect_to_a_socket_at_home",
    "connect_to_a_socket_by_path",
    "write_shared_memory",
}
"""Attacks on things that the server does not have; `test_confinement.py` has a stand-in for it."""

HARMLESS = {"list_the_home", "write_to_a_terminal"}
"""The first shows folders that were made for the mounts alone. The second reaches the terminal that
an agent has made for its shell, if that has the same number; `Attacked` reads the real one."""


class Attacked:
    """The targets of the attacks: files below `base`, and the server of the execution in it."""

    def __init__(self, base: Path, layout: Layout, root: Path, tools: Path) -> None:
        """Make the files; `tools` is the folder, readable for the agent, with the attacks."""
        self.base = base
        self.home = base / "home"
        self.root = root
        self.tree = root if layout == "in place" else root / "agentRoot"
        self._tools = tools
        self._terminal = os.openpty()
        self._facts = self._made()
        self._before: dict[str, str] = {}
        self._standing: object = None

    def command(self, out: str) -> str:
        """Return the shell command that runs all attacks and leaves their outcomes in a file."""
        run = f"python3 {self._tools}/attacks.py {self._tools}/facts.json"
        return f"{run} > {out}.part; mv {out}.part {out}"

    def arm(self, pid: int) -> None:
        """Tell the attacks where the server is; what changes from now on is an attack's doing."""
        port = int(discover(self.root).url.rpartition(":")[2].partition("/")[0])
        linked = Path(self._facts["linked_tree"])
        if not linked.is_symlink():
            linked.symlink_to(self.tree)

        state = {"state": str(state_directory_of(self.root))}
        facts = self._facts | state | {"server": pid, "port": port}
        (self._tools / "attacks.py").write_text(Path(attacks.__file__).read_text())
        (self._tools / "facts.json").write_text(json.dumps(facts))
        self._before = self._outside()
        self._standing = _standing(pid)

    def judge(self, pid: int, report: Path, possible: Collection[str] = ()) -> None:
        """Assert that the attacks were stopped, and that nothing outside has changed.

        Attacks that are `possible` at this level may succeed, and change their own targets.
        """
        typed = self._typed()
        assert not typed or "write_to_a_terminal" in possible
        assert _standing(pid) == self._standing
        outcomes: dict[str, str] = json.loads(report.read_text())
        assert outcomes.keys() == attacks.ATTACKS.keys()
        broken = {name: result for name, result in outcomes.items() if result.startswith("broken")}
        assert broken == {}, broken
        succeeded = {name for name, result in outcomes.items() if result.startswith("open")}
        reached = succeeded - HARMLESS - NEED_A_STAND_IN - set(possible)
        assert reached == set(), {name: outcomes[name] for name in reached}
        before, after = self._before, self._outside()
        changed = {path for path in before | after if before.get(path) != after.get(path)}
        targets = succeeded & set(possible)
        assert {path for path in changed if not targets & set(Path(path).parts)} == set()

    def _typed(self) -> bytes:
        """Return what was written to the user's terminal, and close it."""
        primary, secondary = self._terminal
        os.set_blocking(primary, False)
        try:
            return os.read(primary, 1000)
        except BlockingIOError:
            return b""
        finally:
            os.close(primary)
            os.close(secondary)

    def _outside(self) -> dict[str, str]:
        """Return the state of the user's and the system's files, without the execution."""
        found: dict[str, str] = {}
        own = (self.root, private_folder_of(self.root))
        for folder in (self.home, self.base / "system"):
            for path, state in snapshot(folder, self.tree).items():
                if not any((folder / path).is_relative_to(each) for each in own):
                    found[str(folder / path)] = state

        return found

    def _made(self) -> dict[str, Any]:
        for name in attacks.ATTACKS:
            _write(self.home / "projects" / name / "precious", f"the user's file for {name}")

        _write(self.home / ".ssh" / "id", "a key")
        _write(self.home / ".ssh" / "authorized_keys", "the user's keys")
        other = self.home / "work" / "other" / ".hankweave"
        _write(other / "server.token", "a token")
        _write(other / "events" / "events.jsonl", "a journal")
        _write(self.base / "system" / "program", "a program")
        self._tools.mkdir(parents=True, exist_ok=True)
        return {
            "outside": enclosure.require(),
            "home": str(self.home),
            "system": str(self.base / "system"),
            "tree": str(self.tree),
            "other": str(other),
            "linked_tree": str(self.home / "linked tree"),
            "shared_memory": "/dev/shm/hankweave-none",
            "abstract": "hankweave-none",
            "memory_key": 1,
            "terminal": os.ttyname(self._terminal[1]),
            "socket": str(self.base / "none"),
            "socket_at_home": str(self.home / "none"),
            "address": 0x400000,
            "token_descriptor": 0,
            "open_port": 1,
        }


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _standing(pid: int) -> tuple[int, str, int]:
    """Return the priority, name and processors of a process; all are among what is attacked."""
    priority = os.getpriority(os.PRIO_PROCESS, pid)
    return priority, Path(f"/proc/{pid}/comm").read_text(), len(os.sched_getaffinity(pid))
