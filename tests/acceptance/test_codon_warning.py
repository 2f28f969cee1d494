"""A codon whose agent was refused every call is completed with a visible warning."""

from __future__ import annotations

from pathlib import Path

import pytest

from hankweave_protocol.events import CodonCompletedEvent, CodonWarning
from hankweave_protocol.state import CompletedCodon
from support.command_line import hankweave
from support.running_server import state
from support.scripted_hank import codon, write_hank, writes
from support.watching import events_of

WARNING = "The agent was refused every tool that it asked for: Write (2)."


@pytest.mark.story("A codon whose agent was denied every tool completes with a warning.")
def test_a_refused_agents_codon_carries_a_warning_wherever_it_is_shown(tmp_path: Path) -> None:
    """The warning is in every view of the codon; a codon beside it that could work has none.

    The views are the event, the state, the console (with the codon and at the end of the run), the
    log, and the runs view.
    """
    denied = {"permissions": {"otherwise": "deny"}}
    hank = write_hank(
        tmp_path / "hank",
        codon("one", writes("a.txt", "a"), writes("b.txt", "b"), **denied),
        codon("two", writes("c.txt", "c")),
    )
    execution = tmp_path / "execution"
    done = hankweave("run", str(hank), "-e", str(execution), "--headless", code=0)
    (warning,) = events_of(execution, CodonWarning)
    assert (warning.codon_id, warning.kind, warning.tools) == ("one", "tools-refused", ("Write",))
    assert warning.message.startswith(WARNING)
    one, two = state(execution).runs[0].codons
    assert isinstance(one, CompletedCodon)
    assert isinstance(two, CompletedCodon)
    assert (one.warnings, two.warnings) == ((warning.message,), ())
    assert [each.warnings for each in events_of(execution, CodonCompletedEvent)] == [
        (warning.message,),
        (),
    ]
    assert f"warning: {WARNING}" in done.stdout
    assert "completed with a warning: one\n" in done.stdout
    assert WARNING in hankweave("log", "-e", str(execution)).stdout
    assert "with a warning: one" in hankweave("runs", "-e", str(execution)).stdout
    assert WARNING in (execution / ".hankweave" / "logs" / "server.log").read_text()


def test_permissions_that_let_something_pass_leave_no_warning(tmp_path: Path) -> None:
    """One call was denied, and another one succeeded."""
    partly = {"permissions": {"allow": ["Write(a.txt)"], "otherwise": "deny"}}
    hank = write_hank(
        tmp_path / "hank", codon("one", writes("a.txt", "a"), writes("b.txt", "b"), **partly)
    )
    execution = tmp_path / "execution"
    done = hankweave("run", str(hank), "-e", str(execution), "--headless", code=0)
    assert events_of(execution, CodonWarning) == []
    assert "warning" not in done.stdout
