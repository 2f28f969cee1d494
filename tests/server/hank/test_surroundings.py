"""A hank's requirements on the machine, its overrides, its advice, and its loading cost."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hankweave_protocol.hank import Codon, Hank, Loop, Requirements
from hankweave_server.cli.shared import hank_loading
from hankweave_server.domain.plan import initial_plan
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.hank.advice import advice
from hankweave_server.hank.load import LoadedHank, load
from hankweave_server.hank.references import requirements_of
from support.scripted_hank import loop, plain_codon, write_hank


def codons_of(loaded: LoadedHank) -> list[Codon]:
    return [
        codon
        for step in loaded.hank.hank
        for codon in (step.codons if isinstance(step, Loop) else (step,))
    ]


# --- Requirements ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "is_met"),
    [
        ({}, False),
        ({"KEY": "x"}, True),
        ({"HANKWEAVE_KEY": "x"}, True),
        ({"KEY": ""}, False),
        ({"KEY": "x", "HANKWEAVE_KEY": "unset"}, False),
    ],
)
def test_a_variable_counts_as_agents_would_get_it(
    environment: dict[str, str], is_met: bool
) -> None:
    """HANKWEAVE_X satisfies X, `unset` removes it, and an empty variable does not count."""
    hank = Hank(hank=(), requirements=Requirements(env=("KEY",)))
    [requirement] = requirements_of(hank, environment)
    assert requirement.is_met is is_met


def test_a_tool_is_a_program_on_the_path(tmp_path: Path) -> None:
    """A file that is not executable is no tool; the given PATH is the one searched."""
    (tmp_path / "there").write_text("#!/bin/sh\n")
    (tmp_path / "there").chmod(0o755)
    (tmp_path / "no-program").write_text("")
    hank = Hank(hank=(), requirements=Requirements(tools=("there", "no-program", "none")))
    found = requirements_of(hank, {"PATH": str(tmp_path)})
    assert [each.is_met for each in found] == [True, False, False]


def test_all_missing_requirements_are_reported_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first start names every missing requirement, not only the first."""
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    wanted = {"env": ["NO_SUCH_KEY"], "tools": ["no-such-tool"]}
    loaded = hank_loading.read(write_hank(tmp_path, plain_codon("a"), requirements=wanted))
    with pytest.raises(Stop) as stop:
        hank_loading.refuse(requirements_of(loaded.hank, os.environ))

    assert stop.value.exit_code is ExitCode.CONFIGURATION
    assert "NO_SUCH_KEY" in stop.value.message
    assert "no-such-tool" in stop.value.message


# --- Overrides ------------------------------------------------------------------------------------


def test_the_model_of_the_overrides_is_every_codons(tmp_path: Path) -> None:
    """It applies inside loops too; the idle timeout applies only to codons without their own."""
    short = loop("l", plain_codon("b", shimIdleTimeout=5), limit=2)
    overrides = {"model": "theirs", "shimIdleTimeout": 60}
    loaded = load(write_hank(tmp_path, plain_codon("a"), short, overrides=overrides))
    found = [(each.model, each.shim_idle_timeout) for each in codons_of(loaded)]
    assert found == [("theirs", 60), ("theirs", 5)]


def test_without_overrides_a_codon_keeps_its_own(tmp_path: Path) -> None:
    """An empty `overrides` changes nothing."""
    loaded = load(write_hank(tmp_path, plain_codon("a"), overrides={}))
    assert [(each.model, each.shim_idle_timeout) for each in codons_of(loaded)] == [
        ("sonnet", None)
    ]


# --- Advice ---------------------------------------------------------------------------------------


def test_probable_mistakes_are_reported(tmp_path: Path) -> None:
    """An unused text, an unknown variable, `lastCopied` without a copy, and empty tracked files."""
    (tmp_path / "p.md").write_text("Read <%DATA_ROOT%> and <%DATA_DIR%>.")
    command = {"type": "command", "command": {"run": "ls", "workingDirectory": "lastCopied"}}
    codon = plain_codon("a", promptFile="p.md", rigSetup=[command], trackedFiles=[])
    found = list(advice(load(write_hank(tmp_path, codon))))
    assert len(found) == 4
    assert "promptFile is used" in found[0]
    assert "<%DATA_ROOT%> is not a known variable" in found[1]
    assert "nothing is copied before it" in found[2]
    assert "contain no files" in found[3]


@pytest.mark.parametrize(
    ("agent", "permissions", "has_advice"),
    [
        ({"type": "acp", "command": ["goose", "acp"]}, {}, True),
        ({"type": "acp", "command": ["gemini"], "mode": "yolo"}, {"otherwise": "deny"}, True),
        ({"type": "acp", "command": ["gemini"]}, {}, False),
        ({"type": "acp", "command": ["goose", "acp"]}, {"otherwise": "allow"}, False),
        (None, {}, False),
    ],
)
def test_permissions_of_an_agent_that_may_not_ask_are_reported(
    tmp_path: Path, agent: dict[str, Any] | None, permissions: dict[str, Any], has_advice: bool
) -> None:
    """Permissions of the hank or the codon are reported, because the codon would fail."""
    for path in (
        write_hank(tmp_path, plain_codon("a", agent=agent, permissions=permissions)),
        write_hank(tmp_path, plain_codon("a", agent=agent), overrides={"permissions": permissions}),
    ):
        expected = [
            "a: Its agent is not known to ask for permission, so the codon would fail with these."
        ]
        assert list(advice(load(path))) == (expected if has_advice else [])


# --- Many codons ----------------------------------------------------------------------------------


def test_ten_thousand_codons_load_and_are_planned_in_order(tmp_path: Path) -> None:
    """Shapes, rules, prompts and rigs of ten thousand codons are checked."""
    (tmp_path / "p.md").write_text("Do it.")
    (tmp_path / "t").mkdir()
    rig = [{"type": "copy", "copy": {"from": "t", "to": "t"}}]
    codons = [
        plain_codon(f"c{number}", promptFile="p.md", rigSetup=rig) for number in range(10_000)
    ]
    for codon in codons:
        del codon["promptText"]

    path = write_hank(tmp_path, *codons)
    plan = initial_plan(hank_loading.read(path).hank)
    assert [entry.codon_id for entry in plan] == [f"c{number}" for number in range(10_000)]
