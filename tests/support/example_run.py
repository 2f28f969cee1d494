"""Run the example's programs in turn, as the daemon does, and keep their output."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.waiting import LIMIT

EXAMPLE = Path(__file__).parents[2] / "examples" / "earthquakes"
DATA_FILE = EXAMPLE / "data" / "earthquakes.json"
SCHEMA = "schema/earthquake.schema.json"


@dataclass(frozen=True, slots=True)
class Step:
    """One program's run: the files it left, by path, and the lines it printed."""

    program: str
    exit_code: int
    lines: list[dict[str, Any]]
    files: dict[str, bytes]

    def json(self, path: str) -> Any:
        return json.loads(self.files[path])

    @property
    def tool_uses(self) -> list[dict[str, Any]]:
        return [part for part in self._contents("assistant") if part["type"] == "tool_use"]

    @property
    def tool_results(self) -> list[dict[str, Any]]:
        return self._contents("user")

    def _contents(self, kind: str) -> list[dict[str, Any]]:
        messages = [line["message"] for line in self.lines if line["type"] == kind]
        return [part for message in messages for part in message["content"]]


@dataclass(frozen=True, slots=True)
class Execution:
    """A work tree with the example's tools in it, beside the data."""

    root: Path

    @classmethod
    def create(cls, root: Path, data: Path = EXAMPLE / "data") -> Execution:
        shutil.copytree(
            EXAMPLE / "tools",
            root / "agentRoot" / "tools",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        (root / "agentRoot" / "read_only_data_source").symlink_to(data, target_is_directory=True)
        return cls(root)

    @property
    def agent_root(self) -> Path:
        return self.root / "agentRoot"

    def run(self, program: str, **environment: str) -> Step:
        """Run one program; the report has a rig, which is archived afterwards."""
        kit = self.agent_root / "kit"
        if program == "report":
            shutil.copytree(EXAMPLE / "kit", kit)

        completed = subprocess.run(
            [sys.executable, "-B", f"tools/{program}.py"],
            cwd=self.agent_root,
            env=os.environ | {"HANKWEAVE_EXAMPLE_PACE": "0"} | environment,
            input="The prompt.",
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        shutil.rmtree(kit, ignore_errors=True)
        lines = [json.loads(line) for line in completed.stdout.splitlines()]
        return Step(program, completed.returncode, lines, self.files())

    def run_all(self) -> list[Step]:
        return [self.run(program) for program in programs()]

    def files(self) -> dict[str, bytes]:
        return {
            path.relative_to(self.agent_root).as_posix(): path.read_bytes()
            for path in sorted(self.agent_root.rglob("*"))
            if path.is_file()
        }


def hank() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((EXAMPLE / "hank.json").read_text(encoding="utf-8"))
    return loaded


def plan() -> list[dict[str, Any]]:
    """Return the codons in the order in which they run, loops unrolled."""
    codons: list[dict[str, Any]] = []
    for entry in hank()["hank"]:
        if entry.get("type") == "loop":
            codons += entry["codons"] * entry["terminateOn"]["limit"]
        else:
            codons.append(entry)

    return codons


def programs() -> list[str]:
    """Return the name of the program that each codon of the plan runs."""
    return [Path(codon["agent"]["command"][-1]).stem for codon in plan()]


def data_rows() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(DATA_FILE.read_text(encoding="utf-8"))["features"]
    return rows
