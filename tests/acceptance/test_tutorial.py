"""The README and the tutorial, followed by a newcomer: in an empty home, and from a wheel."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.newcomer import README, TUTORIAL, follow, machine
from support.real_agents import STAND_IN


@pytest.mark.alone  # `hankweave run` ends with its plan where no client is connected.
@pytest.mark.story(
    "Every command of README and tutorial works and prints what they show.", of="docs/tutorial.md"
)
def test_a_newcomer_sees_what_readme_and_tutorial_show(tmp_path: Path) -> None:
    """One test for both: to make the machine takes longer than to follow the second page."""
    shell = machine(tmp_path)
    for page in (README, TUTORIAL):
        follow(page, tmp_path, STAND_IN, shell)
