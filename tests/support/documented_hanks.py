"""The hanks that documents print, and the parts of hanks, which are completed to hanks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hankweave_protocol.hank import Codon, Hank, Variant

CODON = {
    "id": "a",
    "name": "A",
    "model": "sonnet",
    "continuationMode": "fresh",
    "promptText": "Do it.",
}
SENTINEL = {
    "id": "a",
    "name": "A",
    "model": "scripted/any",
    "trigger": {"type": "event", "on": ["tool.result"]},
    "execution": {"strategy": "immediate"},
    "userPromptText": "What happened?",
}


def completed(printed: Any) -> dict[str, Any] | None:
    """Return the hank that an object is, or is a part of: a codon, a variant, or its settings."""
    if not isinstance(printed, dict):
        return None

    fields = {name: value for name, value in printed.items() if name != "..."}
    if "hank" in fields:
        return fields

    names = fields.keys()
    if "trigger" in names:
        return {"hank": [{**CODON, "sentinels": [{"sentinelConfig": fields}]}]}

    if names <= {*Variant.__struct_encode_fields__} and "name" in names:
        return {"hank": [{**CODON, "attempts": {"variants": [fields]}}]}

    if names <= {*Codon.__struct_encode_fields__}:
        return {"hank": [{**CODON, **fields}]}

    if names <= {*Hank.__struct_encode_fields__}:
        return {**fields, "hank": [CODON]}

    return None


def write(hank: dict[str, Any], folder: Path) -> Path:
    """Write a hank and, as far as they are missing, the files that it refers to."""
    for name in _files(hank):
        file = folder / name
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(SENTINEL) if name.endswith(".json") else "Text.")
    path = folder / "hank.json"
    path.write_text(json.dumps(hank))
    return path


def _files(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _files(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            if name.lower().endswith("promptfile"):
                yield from [each] if isinstance(each, str) else each
            elif name == "from" or (name == "sentinelConfig" and isinstance(each, str)):
                yield each
            else:
                yield from _files(each)
