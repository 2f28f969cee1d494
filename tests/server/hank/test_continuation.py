"""Hanks that continue a conversation: which ones load, and with which warnings.

Hanks that are refused are in `tests/golden/invalid`: continues-*, full-context-loop-*.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hankweave_server.hank.advice import advice
from hankweave_server.hank.load import HankInvalid, load
from support.scripted_hank import loop, plain_codon, rig_command, write_hank

CONTINUE = "continue-previous"


def warnings(folder: Path, *steps: dict[str, Any], **root: Any) -> list[str]:
    return list(advice(load(write_hank(folder, *steps, **root))))


def test_a_first_codon_that_continues_loads_with_a_warning(tmp_path: Path) -> None:
    """Hankweave and this loader warn about it at the top level; the codon itself would fail."""
    found = warnings(tmp_path, plain_codon("one", continuationMode=CONTINUE), plain_codon("two"))
    [sentence] = found
    assert sentence.startswith("one: The first codon has 'continue-previous'")


def test_a_loop_may_begin_with_a_codon_that_continues(tmp_path: Path) -> None:
    """In a loop after a codon, the first iteration continues that codon, so there is no warning."""
    body = plain_codon("two", continuationMode=CONTINUE, onFailure="ignore")
    assert warnings(tmp_path, plain_codon("one"), loop("improve", body, limit=2)) == []


def test_the_failure_loop_of_hankweaves_own_tests_loads(tmp_path: Path) -> None:
    """A loop at the very beginning whose only codon continues is accepted (Hankweave's
    test-failure-loop-ignore.hank.json); a warning says that iteration 0 will fail."""
    body = plain_codon("loop-codon", continuationMode=CONTINUE, onFailure="ignore")
    [sentence] = warnings(tmp_path, loop("test-loop", body, limit=3))
    assert "will fail in iteration 0" in sentence


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("sonnet", "Sonnet"),
        ("sonnet", "anthropic/claude-sonnet-5-5"),
        ("claude-sonnet-4-5", "anthropic/claude-sonnet-4-5-20250929"),
        ("sonnet", "claude-sonnet-4-5"),
        ("openai/unheard-of", "unheard-of"),
    ],
)
def test_two_names_of_one_model_continue_each_other(tmp_path: Path, one: str, other: str) -> None:
    """Short names, full names and dated names are equal if they stand for the same model."""
    steps = (
        plain_codon("one", model=one),
        plain_codon("two", model=other, continuationMode=CONTINUE),
    )
    assert warnings(tmp_path, *steps) == []


def test_a_model_for_all_codons_settles_which_conversations_fit(tmp_path: Path) -> None:
    """With `overrides.model`, or a model on the command line, all codons have one model."""
    steps = plain_codon("one"), plain_codon("two", model="opus", continuationMode=CONTINUE)
    path = write_hank(tmp_path, *steps)
    with pytest.raises(HankInvalid):
        load(path)

    assert load(path, model_override="haiku").hank.hank
    assert load(write_hank(tmp_path, *steps, overrides={"model": "haiku"})).hank.hank


def test_a_full_context_loop_of_continuing_codons_loads(tmp_path: Path) -> None:
    """The context grows, so the loop ends; the codon after it starts a new conversation."""
    body = plain_codon("grow", continuationMode=CONTINUE, onFailure="ignore")
    steps = plain_codon("one"), loop("fill", body), plain_codon("report")
    assert warnings(tmp_path, *steps) == []


def test_continuing_past_an_ignored_failure_is_warned_of(tmp_path: Path) -> None:
    """The conversation ends with the ignored failure, so the next codon would fail as well."""
    steps = plain_codon("one", onFailure="ignore"), plain_codon("two", continuationMode=CONTINUE)
    [sentence] = warnings(tmp_path, *steps)
    assert sentence.startswith("one: Its failure is ignored")


def test_a_codon_of_a_long_loop_that_aborts_is_warned_of(tmp_path: Path) -> None:
    """One transient failure, or a rig that cannot run twice, would end hours of work."""
    rig = [rig_command("mkdir out")]
    found = warnings(tmp_path, loop("improve", plain_codon("two", rigSetup=rig), limit=20))
    assert [sentence.partition(":")[0] for sentence in found] == ["two", "two"]
    assert "'allowFailure'" in found[0]
    assert "onFailure 'abort'" in found[1]


def test_a_plan_without_its_hank_has_nothing_to_warn_about(tmp_path: Path) -> None:
    """A server that resumes a recorded plan starts without warnings or the hank file."""
    loaded = load(write_hank(tmp_path, plain_codon("one", continuationMode=CONTINUE)))
    assert list(advice(loaded))
    assert list(advice(replace(loaded, prompts={}))) == []
