"""Tests of tools/source_metrics.py on a small tree with known cycles and importers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "tools" / "source_metrics.py"
FILES = {
    "server/hankweave_server/__init__.py": "",
    "server/hankweave_server/one.py": (
        "import hankweave_server.two\n\nclass Shared: ...\n\n# A comment.\n"
    ),
    "server/hankweave_server/two.py": (
        "from hankweave_server import one\nfrom hankweave_protocol.ids import RUN\n"
        "class Shared: ...\n"
    ),
    "server/hankweave_server/late/__init__.py": "from hankweave_server.late.a import A\n",
    "server/hankweave_server/late/a.py": "def f():\n    from . import b\n\nclass A: ...\n",
    "server/hankweave_server/late/b.py": "from .a import A\nclass _Private: ...\n",
    "server/hankweave_server/typed.py": (
        "import typing\nif typing.TYPE_CHECKING:\n    import hankweave_server.uses_typed\n"
    ),
    "server/hankweave_server/uses_typed.py": (
        "from hankweave_server.typed import typing\nimport hankweave_server.one\n"
        "class _Private: ...\n"
    ),
    "protocol/hankweave_protocol/__init__.py": "",
    "protocol/hankweave_protocol/ids.py": "RUN = 1  # A trailing comment.\n",
    "tools/uses_ids.py": "from hankweave_protocol.ids import RUN\n\nclass Shared: ...\n",
    "tools/single_importers.toml": '"hankweave_server.late.b" = "loaded late"\n',
}


def measured(root: Path, *options: str) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Run the script; return its rows and its lists."""
    done = subprocess.run(
        [sys.executable, SCRIPT, *options, root], capture_output=True, text=True, check=True
    )
    table, *lists = done.stdout.split("\n\n")
    rows = {line[:36].strip(): line[36:] for line in table.splitlines()}
    titles = (part.splitlines() for part in lists)
    return rows, {title: [line.strip() for line in lines] for title, *lines in titles}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    return tmp_path


def test_the_rows_count_what_the_tree_has(tree: Path) -> None:
    """Packages are not modules; a cycle through a function or TYPE_CHECKING is none on load."""
    rows, lists = measured(tree)
    assert rows == {
        "modules": "7",
        "lines": "21",
        "lines per module, median": "3",
        "lines per module, p90": "5",
        "modules below 100 lines": "100 %",
        "files in the largest folder": "4 (server/hankweave_server)",
        "modules with a single importer": "4",
        "comments per 1,000 lines": "95",
        "recurring file names": "0",
        "recurring class names": "1",
        "import cycles": "3 (6 modules)",
        "import cycles on load": "1 (2 modules)",
    }
    assert lists == {}


def test_the_lists_name_the_modules(tree: Path) -> None:
    """`--list` names single importers, recurring classes, and the members of each cycle."""
    _, lists = measured(tree, "--list")
    assert lists == {
        "Modules with a single importer": [
            "hankweave_server.late.b <- hankweave_server.late.a: loaded late",
            "hankweave_server.two <- hankweave_server.one: no reason is given",
            "hankweave_server.typed <- hankweave_server.uses_typed: no reason is given",
            "hankweave_server.uses_typed <- hankweave_server.typed: no reason is given",
        ],
        "Recurring class names": ["Shared: hankweave_server.one, hankweave_server.two"],
        "Import cycles": [
            "hankweave_server.late.a, hankweave_server.late.b",
            "hankweave_server.one, hankweave_server.two",
            "hankweave_server.typed, hankweave_server.uses_typed",
        ],
    }


def test_a_directory_without_the_packages_is_refused(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, SCRIPT, tmp_path], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (2, b"")


def test_this_checkout_can_be_measured() -> None:
    """Without a root, the script measures the checkout that it is part of."""
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("modules ")
