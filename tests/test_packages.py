"""Claims about the files in sdist and wheel, by hatch's configuration; nothing is built.

`scripts/build` builds them, and installs and runs each.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

TOP = Path(__file__).resolve().parent.parent
NEEDED_TO_BUILD = {"hatch_build.py", "README.md", "LICENSE"}


def files(builder: SdistBuilder | WheelBuilder) -> set[str]:
    return {file.distribution_path for file in builder.recurse_included_files()}


def committed(*places: str) -> set[str]:
    listed = subprocess.run(
        ["git", "ls-files", *places], cwd=TOP, capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout, or no git program")

    return set(listed.stdout.splitlines())


def test_the_wheel_has_the_packages_and_the_example() -> None:
    """It has each committed file of the packages, and the example, once; no test, and no cache."""
    packages = ("protocol/hankweave_protocol", "protocol/hankweave_client", "server")
    own = {path.partition("/")[2] for path in committed(*packages)}
    example = {
        path.replace("examples", "hankweave_server/cli/starters", 1)
        for path in committed("examples/earthquakes")
    }
    found = files(WheelBuilder(str(TOP)))
    assert own | example <= found
    assert {path.partition("/")[0] for path in found} == {
        *("hankweave_protocol", "hankweave_client", "hankweave_server")
    }
    assert [path for path in found if path.endswith((".pyc", ".so"))] == []


def test_the_sdist_has_all_that_the_wheel_is_built_from() -> None:
    """A wheel can be built from it without the repository: sources, helpers, example and hook."""
    found = files(SdistBuilder(str(TOP)))
    needed = committed("protocol/hankweave_protocol", "protocol/hankweave_client", "server")
    assert needed | committed("examples/earthquakes") | NEEDED_TO_BUILD <= found
    assert [path for path in found if path.startswith(("tests/", "tools/"))] == []
