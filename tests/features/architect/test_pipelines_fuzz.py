"""Arbitrary bytes as a pipeline or its configuration raise only HankInvalid."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hankweave_server.cli.shared import hank_loading
from hankweave_server.features.architect.yaml.load import (
    compile_pipeline,
    load_pipeline,
    plan_summary,
    write_compiled,
)
from hankweave_server.features.architect.yaml.model import Pipeline
from hankweave_server.hank.problems import HankInvalid
from support.golden import GOLDEN
from support.outcomes import outcome

ORIGINALS = [path.read_bytes() for path in sorted((GOLDEN / "pipelines" / "valid").glob("*"))]

NASTY = [
    b"\0", b"\xff", b"\xed\xa0\x80", b'"\\ud800"', b'"\\0"', b"\t", b"\r", b"\xe2\x80\xa8", b"&a ",
    b"*a", b"*all", b"<<: ", b"<<: *usual\n", b"? ", b"- ", b"{", b"}", b"[", b"[" * 70, b"---\n",
    b"...\n", b"!!python/object:os.system ", b"!!binary ", b"!!int ", b"!!bool ", b"!!set ", b"!",
    b"%YAML 9.9\n", b"0x" + b"f" * 6_000, b"9" * 5_000, b".inf", b".nan", b"1e999", b"null", b"~",
    b"=", b"2024-01-31", b"|\n", b">-\n", b"{{a}}", b"'", b'"', b"#", b":", b"steps:\n",
]  # fmt: skip

often = settings(
    max_examples=250,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@st.composite
def spoiled(draw: st.DrawFn) -> bytes:
    """Return one of the originals with parts removed, repeated, overwritten or inserted."""
    data = bytearray(draw(st.sampled_from(ORIGINALS)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        until = min(len(data), at + draw(st.integers(0, 12)))
        match draw(st.sampled_from(["cut", "double", "put", "end"])):
            case "cut":
                del data[at:until]
            case "double":
                data[at:at] = data[at:until]
            case "put":
                data[at:at] = draw(st.sampled_from(NASTY) | st.binary(max_size=8))
            case "end":
                del data[at:]

    return bytes(data)


def read(path: Path, config: Path | None = None) -> Pipeline | HankInvalid:
    return outcome(HankInvalid, load_pipeline, path, config=config)


def assert_loaded_or_rejected(found: Pipeline | HankInvalid, folder: Path) -> None:
    """Check that the pipeline loads as a hank, or that each fault has a message and a path."""
    if isinstance(found, HankInvalid):
        assert found.problems
        assert all(problem.message and problem.path for problem in found.problems)
        str(found).encode()
        return

    assert plan_summary(found)
    assert hank_loading.read(write_compiled(found, folder)).hank == compile_pipeline(found)


@often
@given(content=spoiled() | st.binary(max_size=200))
@example(content=b"a: " + b"[" * 100_000)
@example(content=b"- " * 20_000)
@example(content=b"? " * 20_000)
@example(content=b"steps: &a\n  <<: *a\n")
@example(content=b"steps: &a [<<: *a, *a]\n")
@example(content=b"a: " + b"{a: " * 200 + b"}" * 200)
@example(content=b"#" * 2_000_000)
def test_a_pipeline_is_loaded_or_its_problems_are_reported(tmp_path: Path, content: bytes) -> None:
    """Any bytes compile to a hank that loads, or raise HankInvalid."""
    path = tmp_path / "p.yaml"
    path.write_bytes(content)
    assert_loaded_or_rejected(read(path), tmp_path / "compiled")


@often
@given(content=spoiled() | st.binary(max_size=200))
def test_a_configuration_is_read_or_its_problems_are_reported(
    tmp_path: Path, content: bytes
) -> None:
    """Any bytes as a configuration are read, or raise HankInvalid."""
    path, config = tmp_path / "p.yaml", tmp_path / "c.yaml"
    path.write_bytes(ORIGINALS[-1])
    config.write_bytes(content)
    assert_loaded_or_rejected(read(path, config), tmp_path / "compiled")


@pytest.mark.parametrize("name", ["text-alias-bomb", "text-nested-too-deeply"])
def test_an_ambiguous_value_is_reported(name: str) -> None:
    """A page of YAML references is refused before it expands to gigabytes."""
    assert isinstance(read(GOLDEN / "pipelines" / "invalid" / f"{name}.yaml"), HankInvalid)
