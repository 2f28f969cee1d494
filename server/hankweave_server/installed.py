"""The features: parts of Hankweave that everything else works without.

Each is a folder below `features/`. To take one out, remove its line here, and the folder.

No other module imports a feature. Where features may join in, the core asks for their modules of
one name (`parts`), and declares in a protocol what it calls there.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

FEATURES: Final = (
    "answers",
    "architect",
    "exploration",
    "map",
    "mcp",
    "mirror",
    "notifications",
    "redaction",
    "reports",
    "tracing",
)


def parts(name: str) -> Iterator[Any]:
    """Yield the modules of this name, in the order of the features that have one."""
    for feature in FEATURES:
        place = f"{__package__}.features.{feature}.{name}"
        if find_spec(place) is not None:
            yield import_module(place)


def feature_of(part: ModuleType) -> str:
    """Return the name of the feature that a module is of."""
    return part.__name__.removeprefix(f"{__package__}.features.").partition(".")[0]


def folders(name: str) -> Iterator[tuple[str, Traversable]]:
    """Yield the features that have a folder of this name, each with that folder."""
    for feature in FEATURES:
        folder = files(f"{__package__}.features") / feature / name
        if folder.is_dir():
            yield feature, folder
