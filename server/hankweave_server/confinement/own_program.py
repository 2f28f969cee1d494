"""Run a module of this package as a separate program, independent of its environment."""

from __future__ import annotations

import json
import sys
from importlib.metadata import distribution
from pathlib import Path

import hankweave_protocol
import hankweave_server

_BOOTSTRAP = (
    "import importlib, sys; sys.path.insert(0, sys.argv[1]); "
    "sys.exit(importlib.import_module(sys.argv[2]).main(sys.argv[3:]))"
)


def own_program(module: str) -> tuple[str, ...]:
    """Return the command line that calls the module's `main`; append its arguments.

    The interpreter is isolated (no PYTHON… variables, no site packages), so a codon's environment
    cannot change what runs, and it starts in about 20 ms. The module may therefore only import the
    standard library and modules that do the same.
    """
    root = Path(hankweave_server.__file__).parent.parent
    return (sys.executable, "-I", "-S", "-X", "utf8", "-c", _BOOTSTRAP, str(root), module)


_BOOTSTRAP_WITH_LIBRARIES = (
    "import importlib, json, sys; ours, theirs = json.loads(sys.argv[1]); "
    "sys.path[:0] = ours; sys.path += theirs; "
    "sys.exit(importlib.import_module(sys.argv[2]).main(sys.argv[3:]))"
)


def own_program_with(libraries: tuple[str, ...], module: str) -> tuple[str, ...]:
    """Return the command line that calls the `main` of a module that needs these distributions.

    The interpreter is isolated except for its site packages; it finds them and the locations from
    which this server imports each library. Raises PackageNotFoundError if one is not installed.
    """
    packages = (hankweave_server, hankweave_protocol)
    ours = [str(Path(package.__file__ or "").parent.parent) for package in packages]
    theirs = [str(distribution(library).locate_file("")) for library in libraries]
    places = json.dumps([ours, theirs])
    isolated = (sys.executable, "-I", "-X", "utf8", "-c", _BOOTSTRAP_WITH_LIBRARIES)
    return (*isolated, places, module)
