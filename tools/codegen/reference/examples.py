"""The examples in examples.md, by what they show."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

_EXAMPLE = re.compile(r"<!-- example: (?P<kind>.+?) -->\n```json\n(?P<text>.*?)\n```", re.DOTALL)


def examples_of(kind: str, name: str) -> list[str]:
    """Return the blocks of a kind (`command`, `event`, `reply`, `state`) and a type or status."""
    return _examples().get((kind, name), [])


@cache
def _examples() -> Mapping[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for block in _EXAMPLE.finditer(Path(__file__).with_name("examples.md").read_text()):
        kind, _, name = block["kind"].partition(" ")
        value = json.loads(block["text"])
        name = name or value.get("type", value.get("status"))
        found.setdefault((kind, name), []).append(block[0])

    return found
