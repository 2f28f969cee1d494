"""Write the index of the terminal's commands, from which they are imported on demand.

`scripts/test --update-golden` runs it after a command was added, renamed or described anew.
"""

from __future__ import annotations

import json
import pkgutil
from importlib import import_module

import click

from documents import TOP
from hankweave_server import cli

PATH = TOP / "server" / "hankweave_server" / "cli" / "commands.json"


def index() -> dict[str, dict[str, str]]:
    """Return the module and the first sentence of each command."""
    found: dict[str, dict[str, str]] = {}
    for module in pkgutil.walk_packages(cli.__path__, f"{cli.__name__}."):
        commands: tuple[click.Command, ...] = getattr(import_module(module.name), "COMMANDS", ())
        place = module.name.removeprefix(f"{cli.__name__}.")
        for command in commands:
            assert command.name is not None, "a command has a name"
            summary = command.get_short_help_str(1000)
            found[command.name] = {"module": place, "summary": summary}

    return dict(sorted(found.items()))


if __name__ == "__main__":
    PATH.write_text(json.dumps(index(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
