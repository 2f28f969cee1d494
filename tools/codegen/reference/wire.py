"""Sections of commands and events, with examples: those of commands, and those in examples.md."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from codegen import catalogue
from codegen.reference.declared import required
from codegen.reference.shapes import Field, of_page
from documents import blocks
from hankweave_protocol.commands import COMMANDS, CommandData
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
    """Return all commands, with an example of each, and of some replies."""
    return [
        _section(each, "wire", "reply", examples=list(_examples_of(each)))
        for each in COMMANDS.members.values()
    ]


def _examples_of(command: type[CommandData]) -> Iterator[str]:
    for data in command.EXAMPLES:
        frame = {"id": "c-1", "type": command.TYPE, "data": data}
        yield f"<!-- example: command -->\n```json\n{json.dumps(frame, ensure_ascii=False)}\n```"


def event(name: str) -> Section:
    """Return the event of a type."""
    return _section(EVENTS.members[name], "events", "event")


def _section(member: type[Typed], page: str, kind: str, examples: Sequence[str] = ()) -> Section:
    name = member.__name__
    text = required(catalogue.shapes()[name].get("description"), name)
    more = _examples().get((kind, member.TYPE), ())
    return Section(member, text, of_page(page).fields(name), [*examples, *more])


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
