"""The README and the tutorial, followed by a newcomer: an empty home, and a wheel."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from support.documents import Reader
from support.models.endpoint import scripted_models
from support.models.turns import Reads, Runs, Says, Turn, Writes
from support.real_agents import CLAUDE, STAND_IN
from support.running_server import environment

TOP = Path(__file__).resolve().parents[2]
README, TUTORIAL = TOP / "README.md", TOP / "docs" / "tutorial.md"


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """Return a folder with the pure wheel of this checkout, built where there is no compiler."""
    checkout, wheels = tmp_path / "checkout", tmp_path / "wheels"
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
    return wheels


@pytest.fixture
def machine(tmp_path: Path, wheels: Path) -> dict[str, str]:
    """Return the environment of a shell with Python, pip and Claude Code, whose PyPI is a folder.

    The packages that Hankweave needs are those of the tests' own environment, so that nothing is
    downloaded; Hankweave itself is not among them.
    """
    programs, packages = tmp_path / "programs", tmp_path / "packages"
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


@pytest.mark.alone  # `hankweave run` ends with its plan where no client is connected.
@pytest.mark.story(
    "Every command of README and tutorial works and prints what they show.", of="docs/tutorial.md"
)
def test_a_newcomer_gets_what_is_shown(tmp_path: Path, machine: dict[str, str]) -> None:
    """Each in an empty home, from the wheel; the model that Claude Code asks is one of the tests.

    In one test, because the machine costs more than the second newcomer on it.
    """
    for page, scripted in ((README, project), (TUTORIAL, orders)):
        home = tmp_path / page.stem
        own = home / ".local" / "bin"
        own.mkdir(parents=True)
        shutil.copy(STAND_IN, own / "claude")
        with scripted_models() as endpoint:
            for words, turns in scripted(home).items():
                endpoint.script.on(words, *turns)

            path = {"PATH": f"{own}:{machine['PATH']}"}
            Reader(home, machine | CLAUDE.environment(endpoint, home) | path).follow(page)
            assert endpoint.script.is_done
            assert not endpoint.script.has_run_over


def project(home: Path) -> dict[str, tuple[Turn, ...]]:
    """Make a project that a newcomer may have; return what the model does in it."""
    folder = home / "my-project"
    folder.mkdir()
    (folder / "shop.py").write_text("def total(amounts):\n    return sum(amounts)\n")
    test = (
        "import unittest\n\nfrom shop import total\n\n\nclass TotalTest(unittest.TestCase):\n"
        "    def test_total(self):\n        self.assertEqual(total([1, 2]), 3)\n"
    )
    return {"Write unit tests": (Writes(folder / "test_shop.py", test), Says("Done."))}


def orders(home: Path) -> dict[str, tuple[Turn, ...]]:
    """Return what the model does in the tutorial, by words of each prompt."""
    shop = home / "shop"
    orders, clean, report = shop / "data" / "orders.csv", shop / "clean.csv", shop / "report.md"
    done = Says("Done.")
    return {
        "uniform dates": (Reads(orders), Writes(clean, _table("12.50 8.00 1200.00 4.75")), done),
        "in cents": (Reads(clean), Writes(clean, _table("1250 800 120000 475")), done),
        "for the owner": (Writes(report, "# Orders\n\nFour orders, 1225.25 in all.\n"), done),
        # Each attempt has a work tree of its own.
        "in three sentences": (Runs("printf 'Ada made two of the four orders.' > report.md"), done),
        "for each customer": (Runs(f"printf '{TOTALS}' > report.md"), done),
    }


TOTALS = """# Orders

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
