"""Golden hanks: malformed ones with one fault each, and one that runs under Hankweave."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from hankweave_protocol.hank import ContextExceededEnd, IterationLimit, Loop, RigCopy
from hankweave_protocol.sentinels import SentinelConfig, SequenceTrigger
from hankweave_server.cli.shared import hank_loading
from hankweave_server.domain.plan import initial_plan, tracked_patterns
from hankweave_server.hank.prompts import HankFiles
from hankweave_server.sentinels.config import load_config
from hankweave_server.sentinels.templates.javascript import QuickJs
from support.golden import GOLDEN, INVALID, VALID, hank_directory, problems_of
from support.golden_files import GoldenFiles

REAL = GOLDEN / "valid" / "schema-from-data"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hank_directory(tmp_path_factory.mktemp("golden"))


@pytest.mark.parametrize("text", INVALID, ids=lambda path: path.stem)
def test_a_malformed_hank_yields_exactly_its_fault(
    directory: Path, text: Path, golden: GoldenFiles
) -> None:
    """Only the fault in the file's name is reported, once, with its place and a hint."""
    [problem] = problems_of(text, directory)
    at = None if problem.line is None else f"{problem.line}:{problem.column}"
    golden.check_entry("expected.json", text.stem, {"at": at, "path": problem.path})
    prose = {"message": problem.message, "suggestion": problem.suggestion}
    golden.check_entry("messages.json", text.stem, prose)


def test_every_expectation_has_its_hank(golden: GoldenFiles) -> None:
    """Every expected fault has its hank, and there are enough hanks."""
    golden.check_keys("expected.json", {path.stem for path in INVALID})
    golden.check_keys("messages.json", {path.stem for path in INVALID})
    assert len(INVALID) >= 60


@pytest.mark.parametrize("folder", VALID, ids=lambda path: path.name)
def test_a_hank_of_hankweave_loads_unchanged(folder: Path) -> None:
    """A complete Hankweave directory loads without a problem, and none of its bytes change."""
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    loaded = hank_loading.read(folder)
    assert loaded.hank.hank
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_nothing_of_a_real_hank_is_lost() -> None:
    """Loops, rigs, archives, budgets, retries and prompts are loaded as written."""
    loaded = hank_loading.read(REAL)
    observe, generate, review, until_full = loaded.hank.hank
    assert isinstance(review, Loop)
    assert isinstance(until_full, Loop)
    assert not isinstance(observe, Loop)
    assert not isinstance(generate, Loop)
    assert (review.terminate_on, until_full.terminate_on) == (
        IterationLimit(limit=3),
        ContextExceededEnd(),
    )
    rig = generate.rig_setup[0]
    assert isinstance(rig, RigCopy)
    assert rig.archive_on_success
    assert generate.archive_on_success == ("src/scratch", "tmp/*.log")
    assert generate.retry_config is not None
    assert generate.retry_config.max_attempts == 5
    assert (observe.shim_idle_timeout, generate.shim_idle_timeout) == (600, 900)
    prompt = loaded.prompts["observe"]
    assert prompt.metadata is not None
    assert (prompt.metadata.version, prompt.metadata.tags) == ("2.1", ("data", "sample"))
    assert "internal" not in prompt.text
    assert prompt.system_prompt == "You work in <%AGENT_ROOT%>.\n\n\nBe brief.\n"
    plan = initial_plan(loaded.hank)
    assert tracked_patterns(plan, plan[-1].codon_id)[-2:] == ("reviews/**", "findings.md")


def test_the_sentinels_of_a_real_hank_can_be_started() -> None:
    """Event and sequence triggers, conversation, Zod and enums load without a fault."""
    files = HankFiles(REAL)
    with closing(QuickJs()) as quickjs:
        configs: list[SentinelConfig] = [
            load_config(entry, files, quickjs).config
            for step in hank_loading.read(REAL).hank.hank
            for codon in (step.codons if isinstance(step, Loop) else (step,))
            for entry in codon.sentinels
        ]

    assert [config.id for config in configs] == ["narrator", "error-grader", "counter"]
    assert configs[0].conversational is not None
    assert isinstance(configs[1].trigger, SequenceTrigger)
