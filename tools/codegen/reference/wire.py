"""Sections of commands and events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from codegen import catalogue
from codegen.reference.declared import required
from codegen.reference.examples import examples_of
from codegen.reference.shapes import Field, of_page
from hankweave_protocol.commands import COMMANDS, CommandData
from hankweave_protocol.events import EVENTS
from hankweave_protocol.shapes import Typed


@dataclass(frozen=True, slots=True)
class Message:
    """A command or an event."""

    name: str
    text: str
    fields: list[Field]
    examples: list[str]


@dataclass(frozen=True, slots=True)
class Command(Message):
    """A command, with who may send it, and its reply."""

    mutates: bool
    during_rollback: bool
    reply: str | None
    """The name of the shape of the reply's data."""


def commands() -> Iterator[Command]:
    for name, member in COMMANDS.members.items():
        yield Command(
            name,
            _text(member),
            of_page("wire").fields(member.__name__),
            [*examples_of("command", name), *examples_of("reply", name)],
            member.MUTATES or member.BEYOND,
            member.DURING_ROLLBACK,
            _reply(member),
        )


def event(name: str) -> Message:
    """Return the event of a type."""
    member = EVENTS.members[name]
    fields = of_page("events").fields(member.__name__)
    return Message(name, _text(member), fields, examples_of("event", name))


def _text(member: type[Typed]) -> str:
    schema = catalogue.shapes()[member.__name__]
    return required(schema.get("description"), member.__name__)


def _reply(member: type[CommandData]) -> str | None:
    return None if member.REPLY is None else member.REPLY.__name__
