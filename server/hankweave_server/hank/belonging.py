"""Where a field belongs that stands in the wrong place: a hint for its author.

A key of a codon in the root of the file, or the reverse, is the mistake that people make most
(Hankweave has a hint for it too); the names of old versions are the next one.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from msgspec import inspect

from hankweave_protocol import hank
from hankweave_server.hank.problems import did_you_mean

_PLACES: dict[type, str] = {
    hank.Hank: "the root of the file",
    hank.Codon: "a codon",
    hank.Loop: "a loop",
    hank.HankMeta: "'meta'",
    hank.Overrides: "'overrides'",
    hank.Requirements: "'requirements'",
    hank.RetryConfig: "a codon's 'retryConfig'",
    hank.CodonBudget: "a codon's 'budget'",
    hank.ContainerBudget: "the 'budget' of a loop or of 'overrides'",
    hank.RigCopy: "an item of 'rigSetup'",
    hank.CopySpec: "the 'copy' of a rig",
    hank.CommandSpec: "the 'command' of a rig",
    hank.IterationLimit: "a loop's 'terminateOn'",
    hank.SentinelEntry: "an item of 'sentinels'",
    hank.SentinelSettings: "the 'settings' of a sentinel",
    hank.SentinelOverrides: "the 'sentinel' of 'overrides'",
}

_FORMER_NAMES = {
    "recommendations": "overrides",
    "phases": "hank",
    "chroniclers": "sentinels",
    "chronicler": "sentinel",
    "workspaceSetup": "rigSetup",
    "trackFiles": "trackedFiles",
}
"""Of Hankweave's earlier versions, and what the word is now."""

_MOST = 3
"""Of more places than that, naming them is no hint."""


def hint(name: str, here: type, fields: Iterable[str]) -> str:
    """Says what was probably meant by a field that is not known here."""
    known = list(fields)
    now = _FORMER_NAMES.get(name)
    if now in known:
        return f"It is called {now!r} now."

    places = [place for place in _places_of().get(name, ()) if place != _PLACES.get(here)]
    if places and len(places) <= _MOST:
        return f"It belongs to {' or to '.join(places)}."

    return did_you_mean(name, known) or f"Known fields: {', '.join(known)}."


@cache
def _places_of() -> dict[str, list[str]]:
    places: dict[str, list[str]] = {}
    for kind, place in _PLACES.items():
        described = inspect.type_info(kind)
        if isinstance(described, inspect.StructType):
            for field in described.fields:
                places.setdefault(field.encode_name, []).append(place)

    return places
