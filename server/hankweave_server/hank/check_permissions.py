"""What must hold in permissions of a hank beyond their shape: patterns, and who can be asked."""

from __future__ import annotations

from collections.abc import Iterator

from hankweave_server.domain import permission_patterns
from hankweave_server.domain.permission_patterns import MalformedPattern
from hankweave_server.domain.permissions import NEVER_ASK
from hankweave_server.hank.nodes import Node, codons_of, object_at, texts
from hankweave_server.hank.problems import Finding

_NEVER_ASK = frozenset(str(kind.__struct_config__.tag) for kind in NEVER_ASK)


def permission_findings(root: Node, steps: list[Node]) -> Iterator[Finding]:
    overrides = object_at(root, "overrides")
    common = None if overrides is None else object_at(overrides, "permissions")
    if common is not None:
        yield from of_patterns(common)

    for codon in (codon for step in steps for codon in codons_of(step)):
        own = object_at(codon, "permissions")
        if own is not None:
            yield from of_patterns(own)

        holding = own or common
        if holding is not None:
            yield from _of_who_asks(codon, holding)


def of_patterns(permissions: Node) -> Iterator[Finding]:
    """Finds the patterns of permissions that cannot be read."""
    for key in ("allow", "deny"):
        for text, path in texts(permissions, key):
            try:
                permission_patterns.parse(text)
            except MalformedPattern as fault:
                yield Finding(path, str(fault), fault.hint)


def _of_who_asks(codon: Node, permissions: Node) -> Iterator[Finding]:
    """Permissions that refuse something are worth nothing where nobody asks for them."""
    agent = object_at(codon, "agent")
    kind = None if agent is None else agent.raw.get("type")
    refuses = permissions.raw.get("otherwise", "ask") != "allow" or permissions.raw.get("deny")
    if kind in _NEVER_ASK and refuses:
        yield Finding(
            (*codon.path, "agent"),
            f"An agent of type {kind!r} asks nobody for leave: its permissions would not hold.",
            "Use another agent, or say 'permissions': {'otherwise': 'allow'} for this codon.",
        )
