"""A newcomer's machine, and the answers of a model to the prompts of README and tutorial."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from support.models.endpoint import scripted_models
from support.models.turns import Reads, Runs, Says, Turn, Writes
from support.reader import Reader
from support.real_agents import CLAUDE, TOP
from support.running_server import environment

README, TUTORIAL = TOP / "README.md", TOP / "docs" / "tutorial.md"

Turns = Mapping[str, tuple[Turn, ...]]
"""Turns of the model, by words of the prompts."""


def follow(page: Path, folder: Path, claude: Path, machine: Mapping[str, str]) -> None:
    """Follow a page in an empty home, with a program as Claude Code."""
    home = folder / page.stem
    own = home / ".local" / "bin"
    own.mkdir(parents=True)
    shutil.copy(claude, own / "claude")
    with scripted_models() as endpoint:
        for words, turns in _TURNS[page](home).items():
            endpoint.script.on(words, *turns)

        variables = {**CLAUDE.environment(endpoint, home), "PATH": f"{own}:{machine['PATH']}"}
        Reader(home, {**machine, **variables}).follow(page)
        assert endpoint.script.is_done
        assert not endpoint.script.has_run_over


def machine(folder: Path) -> dict[str, str]:
    """Return the environment of a shell with Python and pip, whose package index is a folder.

    The packages that Hankweave needs are those of the tests' own environment, so that nothing is
    downloaded; Hankweave itself is not among them.
    """
    wheels, programs, packages = folder / "wheels", folder / "programs", folder / "packages"
    _build_wheel(folder / "checkout", wheels)
    venv.create(programs, with_pip=True)
    packages.mkdir()
    for entry in Path(pytest.__file__).parents[1].iterdir():
        if "hankweave" not in entry.name:
            (packages / entry.name).symlink_to(entry)

    return {
        "PATH": f"{programs}/bin:/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": str(packages),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_QUIET": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
    }


def _build_wheel(checkout: Path, wheels: Path) -> None:
    """Build the pure wheel of this checkout, where there is no compiler."""
    checkout.mkdir()
    for name in ("protocol", "server", "examples", "docs"):
        shutil.copytree(TOP / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))

    for path in (*TOP.glob("*.md"), *TOP.glob("*.py"), *TOP.glob("*.toml"), TOP / "LICENSE"):
        shutil.copy(path, checkout)

    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "-d", str(wheels)],
        cwd=checkout,
        env=environment(PATH="/nonexistent"),
        stdout=subprocess.PIPE,
        check=True,
    )
    (wheel,) = wheels.iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")


def _project(home: Path) -> Turns:
    """Make a project that a newcomer may have; return the turns of the model in it."""
    folder = home / "my-project"
    folder.mkdir()
    (folder / "shop.py").write_text("def total(amounts):\n    return sum(amounts)\n")
    test = (
        "import unittest\n\nfrom shop import total\n\n\nclass TotalTest(unittest.TestCase):\n"
        "    def test_total(self):\n        self.assertEqual(total([1, 2]), 3)\n"
    )
    return {"Write unit tests": (Writes(folder / "test_shop.py", test), Says("Done."))}


def _orders(home: Path) -> Turns:
    """Return the turns of the model in the tutorial."""
    shop = home / "shop"
    orders, clean, report = shop / "data" / "orders.csv", shop / "clean.csv", shop / "report.md"
    done = Says("Done.")
    return {
        "uniform dates": (Reads(orders), Writes(clean, _table("12.50 8.00 1200.00 4.75")), done),
        "in cents": (Reads(clean), Writes(clean, _table("1250 800 120000 475")), done),
        "for the owner": (Writes(report, "# Orders\n\nFour orders, 1225.25 in all.\n"), done),
        # Each attempt has a work tree of its own.
        "in three sentences": (Runs("printf 'Ada made two of the four orders.' > report.md"), done),
        "for each customer": (Runs(f"printf '{_TOTALS}' > report.md"), done),
    }


_TOTALS = """# Orders

| customer | total |
|---|---|
| Ada | 1212.50 |
| Ben | 8.00 |
| Cleo | 4.75 |
"""


def _table(amounts: str) -> str:
    rows = zip(("Ada", "Ben", "Ada", "Cleo"), amounts.split(), strict=True)
    lines = (f"2026-03-0{day},{name},{amount}\n" for day, (name, amount) in enumerate(rows, 2))
    return "".join(("date,customer,amount\n", *lines))


_TURNS: Mapping[Path, Callable[[Path], Turns]] = {README: _project, TUTORIAL: _orders}
