"""Sections of commands and events, with the examples in examples.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from codegen import catalogue
from codegen.reference.declared import required
from codegen.reference.shapes import Field, of_page
from documents import blocks
from hankweave_protocol.commands import COMMANDS
from hankweave_protocol.events import EVENTS
from hankweave_protocol.shapes import Typed


@dataclass(frozen=True, slots=True)
class Section:
    """A section on a command or an event."""

    member: type[Typed]
    text: str
    fields: list[Field]
    examples: list[str]


def commands() -> list[Section]:
    """Return all commands, with examples of each and of its reply."""
    return [_section(each, "wire", "command", "reply") for each in COMMANDS.members.values()]


def event(name: str) -> Section:
    """Return the event of a type."""
    return _section(EVENTS.members[name], "events", "event")


def _section(member: type[Typed], page: str, *kinds: str) -> Section:
    name = member.__name__
    text = required(catalogue.shapes()[name].get("description"), name)
    examples = [each for kind in kinds for each in _examples().get((kind, member.TYPE), ())]
    return Section(member, text, of_page(page).fields(name), examples)


@cache
def _examples() -> Mapping[tuple[str, str], list[str]]:
    """Return the examples by kind (`command`, `event`, `reply`) and type, with their labels."""
    found: dict[tuple[str, str], list[str]] = {}
    for block in blocks(Path(__file__).with_name("examples.md")):
        label = block.above.removeprefix("<!-- example: ").removesuffix(" -->")
        kind, _, name = label.partition(" ")
        key = kind, name or json.loads(block.text)["type"]
        found.setdefault(key, []).append(f"{block.above}\n```json\n{block.text}```")

    return found
