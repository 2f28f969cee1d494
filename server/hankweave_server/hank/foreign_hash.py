"""The hashes by which the TypeScript Hankweave knows a hank.json (`hankHash`).

Until 0.11 it hashes the file's bytes. 0.12 hashes the file as its next validation will leave it:
with a `$schema` at the top if it has none, and then indented by two spaces.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

_SCHEMA = "https://unpkg.com/hankweave@latest/schemas/hank.schema.json"


def foreign_hashes(text: str) -> frozenset[str]:
    """Return every hash that a version of Hankweave records for the text of a hank.json."""
    return frozenset(map(_sha256, (text, _with_schema(text))))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _with_schema(text: str) -> str:
    """Return what `JSON.stringify(value, null, 2)` writes of the hank with a `$schema`."""
    try:
        hank = json.loads(text, parse_float=_number)
    except (ValueError, RecursionError):
        return text

    if not isinstance(hank, dict) or hank.get("$schema"):
        return text

    whole: dict[str, Any] = {"$schema": _SCHEMA} | hank
    whole["$schema"] = hank.get("$schema", _SCHEMA)
    return json.dumps(whole, ensure_ascii=False, indent=2) + "\n"


def _number(text: str) -> int | float:
    """JavaScript has one kind of number: it writes 2.0 as 2."""
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 1e21 else value
