"""Runs a module of ours as a program of its own, whatever environment it is given."""

from __future__ import annotations

import sys
from pathlib import Path

import hankweave_server

_BOOTSTRAP = (
    "import importlib, sys; sys.path.insert(0, sys.argv[1]); "
    "sys.exit(importlib.import_module(sys.argv[2]).main(sys.argv[3:]))"
)


def own_program(module: str) -> tuple[str, ...]:
    """Returns the command line that calls the module's `main`, to be followed by its arguments.

    The interpreter is isolated (no PYTHON… variable, no site packages): a codon's environment
    cannot change what runs, and it starts in some 20 ms. So the module may import the standard
    library and its own kind only.
    """
    root = Path(hankweave_server.__file__).parent.parent
    return (sys.executable, "-I", "-S", "-X", "utf8", "-c", _BOOTSTRAP, str(root), module)
