"""Small hanks for tests, whose agents follow their script exactly."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Step = Mapping[str, Any]


def codon(
    name: str, /, *steps: Step, tracked: Sequence[str] = ("**",), **fields: Any
) -> dict[str, Any]:
    """Return one codon with a scripted agent."""
    return {
        "id": name,
        "name": f"Codon {name}",
        "model": "scripted",
        "continuationMode": "fresh",
        "promptText": json.dumps({"steps": list(steps)}),
        "agent": {"type": "scripted"},
        "trackedFiles": list(tracked),
        **fields,
    }


def plain_codon(name: str, /, **fields: Any) -> dict[str, Any]:
    """Return one codon of the agent that its model selects."""
    return {
        "id": name,
        "name": f"Codon {name}",
        "model": "sonnet",
        "continuationMode": "fresh",
        "promptText": f"Do {name}.",
        "trackedFiles": ["**"],
        **fields,
    }


def loop(
    name: str, /, *codons: Mapping[str, Any], limit: int | None = None, **fields: Any
) -> dict[str, Any]:
    """Return a loop that ends after a number of iterations, or once the context is full."""
    end = {"type": "contextExceeded"}
    if limit is not None:
        end = {"type": "iterationLimit", "limit": limit}  # type: ignore[dict-item]

    return {
        "type": "loop",
        "id": name,
        "name": f"Loop {name}",
        "terminateOn": end,
        "codons": list(codons),
        **fields,
    }


def shell(line: str) -> dict[str, Any]:
    """Return the agent of a codon, to be merged with it: a plain program that runs this line."""
    return {"agent": {"type": "command", "command": ["sh", "-c", line]}}


def rig_command(line: str, **fields: Any) -> dict[str, Any]:
    return {"type": "command", "command": {"run": line}, **fields}


def writes(path: str, text: str) -> Step:
    return {"write": {"path": path, "text": text}}


def waits_for(path: Path) -> Step:
    """Return a step in which the agent waits until the test creates the file."""
    return {"waitForFile": str(path)}


def write_hank(folder: Path, *codons: Mapping[str, Any], **fields: Any) -> Path:
    """Write hank.json into a folder and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "hank.json"
    path.write_text(json.dumps({"hank": list(codons), **fields}, indent=2))
    return path
