"""Golden pipelines: malformed ones with one fault each, and valid ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from hankweave_server.cli.shared import hank_loading
from hankweave_server.features.architect.yaml.load import (
    compile_pipeline,
    load_pipeline,
    write_compiled,
)
from hankweave_server.hank.problems import HankInvalid
from support.golden import GOLDEN
from support.golden_files import GoldenFiles

PIPELINES = GOLDEN / "pipelines"
INVALID = sorted((PIPELINES / "invalid").glob("*.yaml"))
VALID = sorted((PIPELINES / "valid").glob("*.yaml"))


@pytest.mark.parametrize("file", INVALID, ids=lambda path: path.stem)
def test_a_malformed_pipeline_yields_exactly_its_fault(file: Path, golden: GoldenFiles) -> None:
    """Only the fault in the file's name is reported, once, with its place and a hint."""
    with pytest.raises(HankInvalid) as caught:
        load_pipeline(file)

    [problem] = caught.value.problems
    at = None if problem.line is None else f"{problem.line}:{problem.column}"
    golden.check_entry("pipelines/expected.json", file.stem, {"at": at, "path": problem.path})
    prose = {"message": problem.message, "suggestion": problem.suggestion}
    golden.check_entry("pipelines/messages.json", file.stem, prose)


def test_every_expectation_has_its_pipeline(golden: GoldenFiles) -> None:
    """Every expected fault has its pipeline, and there are enough pipelines."""
    golden.check_keys("pipelines/expected.json", {path.stem for path in INVALID})
    golden.check_keys("pipelines/messages.json", {path.stem for path in INVALID})
    assert len(INVALID) >= 60


@pytest.mark.parametrize("file", VALID, ids=lambda path: path.stem)
def test_a_compiled_pipeline_is_a_hank_like_any_other(file: Path, tmp_path: Path) -> None:
    """The written hank loads without a problem, from its own folder alone, and is equal."""
    pipeline = load_pipeline(file)
    assert not pipeline.warnings
    loaded = hank_loading.read(write_compiled(pipeline, tmp_path / "compiled"))
    assert loaded.hank == compile_pipeline(pipeline)
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "compiled").rglob("*")} == {0}
    again = write_compiled(pipeline, tmp_path / "again")
    assert hank_loading.read(again).hank_hash == loaded.hank_hash
