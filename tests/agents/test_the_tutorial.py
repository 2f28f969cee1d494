"""Claude Code does the work of the tutorial, and everything else is as the tutorial shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.newcomer import TUTORIAL, follow, machine
from support.real_agents import CLAUDE, Kind


@pytest.mark.alone
@pytest.mark.parametrize("kind", [CLAUDE], ids=str)
def test_claude_code_does_the_tutorial(tmp_path: Path, kind: Kind) -> None:
    program = kind.find()
    assert program is not None
    follow(TUTORIAL, tmp_path, program, machine(tmp_path))
