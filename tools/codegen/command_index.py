"""Write the indexes of the terminal's commands, from which they are imported on demand.

`scripts/test --update-golden` runs it after a command was added, renamed or described anew. Each
feature has an index of its own, so that its commands come and go with its folder.
"""

from __future__ import annotations

import json
import pkgutil
from importlib import import_module
from pathlib import Path

import click

from documents import TOP
from hankweave_server.installed import FEATURES

SERVER = TOP / "server" / "hankweave_server"


def places() -> dict[str, Path]:
    """Return the file of each index, by the package of which it lists the commands."""
    features = {f"features.{name}": SERVER / "features" / name for name in FEATURES}
    return {
        package: folder / "commands.json"
        for package, folder in {"cli": SERVER / "cli", **features}.items()
    }


def index(package: str) -> dict[str, dict[str, str]]:
    """Return the module and the first sentence of each command of a package."""
    found: dict[str, dict[str, str]] = {}
    whole = import_module(f"hankweave_server.{package}")
    for module in pkgutil.walk_packages(whole.__path__, f"{whole.__name__}."):
        commands: tuple[click.Command, ...] = getattr(import_module(module.name), "COMMANDS", ())
        place = module.name.removeprefix("hankweave_server.")
        for command in commands:
            assert command.name is not None, "a command has a name"
            summary = command.get_short_help_str(1000)
            found[command.name] = {"module": place, "summary": summary}

    return dict(sorted(found.items()))


def text(package: str) -> str | None:
    """Return the content of an index; None for a package without commands."""
    found = index(package)
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n" if found else None


if __name__ == "__main__":
    for package, path in places().items():
        if (content := text(package)) is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(content, encoding="utf-8")
