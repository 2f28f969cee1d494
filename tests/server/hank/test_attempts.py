"""The hank that an attempt runs: the variant's, up to the explored codon or to the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hankweave_protocol.attempts import AS_THE_HANK, SCORE_CODON, Attempt
from hankweave_protocol.hank import ClaudeAgentSpec, CodexAgentSpec, Codon, Loop, Variant
from hankweave_protocol.ids import CodonId
from hankweave_server.domain.attempts import attempt_plan
from hankweave_server.domain.plan import initial_plan
from hankweave_server.hank.attempts import VariantInvalid, agent_of, attempted
from hankweave_server.hank.load import LoadedHank, load
from support.scripted_hank import loop, plain_codon, write_hank


def a_hank(folder: Path) -> LoadedHank:
    again = loop("again", plain_codon("write"), plain_codon("check"), limit=3)
    steps = plain_codon("plan"), plain_codon("build"), again, plain_codon("publish")
    write_hank(folder, *steps, variables={"tone": "dry"})
    (folder / "other.md").write_text("from a file")
    return load(folder / "hank.json")


def attempt_of(codon_id: str, variant: Variant = AS_THE_HANK, **fields: Any) -> Attempt:
    return Attempt(
        exploration_id="e",
        attempt_id="e-1",
        codon_id=CodonId(codon_id),
        variant=variant,
        **fields,
    )


def steps_of(hank: LoadedHank) -> list[str]:
    return [step.id for step in hank.hank.hank]


def the(hank: LoadedHank, name: str) -> Codon:
    return next(step for step in hank.hank.hank if isinstance(step, Codon) and step.id == name)


def test_one_codon_is_tried_or_the_rest_of_the_plan(tmp_path: Path) -> None:
    """Codons before the explored one stay; those after it only with `rest`."""
    hank = a_hank(tmp_path)
    assert steps_of(attempted(hank, attempt_of("build"))) == ["plan", "build"]
    rest = attempted(hank, attempt_of("build", rest=True))
    assert steps_of(rest) == ["plan", "build", "again", "publish"]


def test_a_single_codon_of_a_loop_is_tried_without_the_loop(tmp_path: Path) -> None:
    """The codons of the loop stay, so that what has run has a prompt; no iteration follows."""
    hank = attempted(a_hank(tmp_path), attempt_of("write#1"))
    assert steps_of(hank) == ["plan", "build", "write", "check"]
    assert not any(isinstance(step, Loop) for step in hank.hank.hank)


def test_the_prompt_is_that_of_the_variant_for_one_codon(tmp_path: Path) -> None:
    """A text or a file replaces what the hank says; other codons keep their prompts."""
    hank = a_hank(tmp_path)
    text = attempted(hank, attempt_of("build", Variant(prompt_text="otherwise"), rest=True))
    assert text.prompts["build"].text == "otherwise"
    assert text.prompts["publish"].text == "Do publish."
    file = attempted(hank, attempt_of("build", Variant(prompt_file="other.md")))
    assert file.prompts["build"].text == "from a file"


@pytest.mark.parametrize(
    ("reference", "fault"),
    [
        ("{outside}/secret.md", "is absolute"),
        ("../outside/secret.md", "leads outside"),
        ("sub/../../outside/secret.md", "leads outside"),
        ("link.md", "goes through a symbolic link"),
        ("linked/secret.md", "goes through a symbolic link"),
        ("gone.md", "There is no"),
        (".", "is not a file"),
    ],
)
def test_a_prompt_of_a_variant_is_a_file_of_the_hank(
    tmp_path: Path, reference: str, fault: str
) -> None:
    """A command may not name a file that a hank may not name: it would reach a confined agent."""
    outside, folder = tmp_path / "outside", tmp_path / "hank"
    for each in (outside, folder, folder / "sub"):
        each.mkdir()

    (outside / "secret.md").write_text("a secret")
    hank = a_hank(folder)
    (folder / "link.md").symlink_to(outside / "secret.md")
    (folder / "linked").symlink_to(outside)
    variant = Variant(prompt_file=reference.format(outside=outside))
    with pytest.raises(VariantInvalid, match=fault):
        attempted(hank, attempt_of("build", variant))


def test_model_agent_and_variables_hold_for_all_that_is_tried(tmp_path: Path) -> None:
    """Codons that ran before are not changed; those inside of loops are."""
    variant = Variant(model="gpt-5", agent="codex", variables={"tone": "warm"})
    hank = attempted(a_hank(tmp_path), attempt_of("build", variant, rest=True))
    assert hank.hank.variables == {"tone": "warm"}
    assert (the(hank, "plan").model, the(hank, "plan").agent) == ("sonnet", None)
    assert (the(hank, "publish").model, the(hank, "publish").agent) == ("gpt-5", CodexAgentSpec())
    loop = hank.hank.hank[2]
    assert isinstance(loop, Loop)
    assert {each.model for each in loop.codons} == {"gpt-5"}


def test_a_variant_names_an_agent_or_describes_one() -> None:
    """A name is one that the command line knows."""
    spec = ClaudeAgentSpec(permission_mode="plan")
    assert agent_of(Variant(agent=spec)) is spec
    assert agent_of(Variant(agent="codex")) == CodexAgentSpec()
    with pytest.raises(VariantInvalid, match="There is no agent 'nobody'"):
        agent_of(Variant(agent="nobody"))


def test_the_score_is_a_codon_of_its_own_at_the_end(tmp_path: Path) -> None:
    """It runs the command in a shell, and its answer is kept."""
    hank = attempted(a_hank(tmp_path), attempt_of("build", score="make score"))
    score = the(hank, SCORE_CODON)
    assert hank.hank.hank[-1] is score
    assert score.agent is not None
    assert score.output_var is not None
    assert hank.prompts[SCORE_CODON].text == ""


def test_the_hash_changes_with_the_hank_and_with_the_variant(tmp_path: Path) -> None:
    """So a changed hank is noticed in an attempt, too, and attempts are not taken for changed."""
    hank = a_hank(tmp_path)
    one, two = (attempt_of("build", Variant(prompt_text=text)) for text in ("one", "two"))
    hashes = {hank.hank_hash, attempted(hank, one).hank_hash, attempted(hank, two).hank_hash}
    assert len(hashes) == 3
    assert attempted(hank, one).hank_hash == attempted(a_hank(tmp_path), one).hank_hash


def test_the_plan_keeps_what_ran_and_ends_with_the_score(tmp_path: Path) -> None:
    """The explored entry has the variant's prompt; nothing after it but the score."""
    plan = initial_plan(a_hank(tmp_path).hank)
    attempt = attempt_of("build", Variant(prompt_text="otherwise"), score="make score")
    tried = attempt_plan(plan, attempt, None)
    assert [entry.codon_id for entry in tried] == ["plan", "build", SCORE_CODON]
    assert tried[0] is plan[0]
    assert tried[1].codon.prompt_text == "otherwise"


def test_attempts_of_a_codon_are_not_explored_again(tmp_path: Path) -> None:
    """The `attempts` of the hank are not those of an attempt, or there would be no end."""
    path = write_hank(tmp_path, plain_codon("build", attempts={"n": 2}))
    hank = attempted(load(path), attempt_of("build"))
    assert the(hank, "build").attempts is None


def test_a_codon_that_has_left_the_hank_is_an_error(tmp_path: Path) -> None:
    """The attempt cannot continue then, and says so."""
    with pytest.raises(VariantInvalid, match="no codon gone"):
        attempted(a_hank(tmp_path), attempt_of("gone"))
