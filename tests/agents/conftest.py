"""Run each test of this folder with each kind of agent that is available on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.models.endpoint import Endpoint, scripted_models
from support.real_agents import KINDS, Grounds, Kind, why_not


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kind" in metafunc.fixturenames and "kind" not in _named_by_the_test(metafunc):
        metafunc.parametrize("kind", KINDS, ids=str, scope="function")


def _named_by_the_test(metafunc: pytest.Metafunc) -> set[str]:
    marks = metafunc.definition.iter_markers("parametrize")
    named = (mark.args[0] for mark in marks)
    lists = (each.split(",") if isinstance(each, str) else each for each in named)
    return {name.strip() for names in lists for name in names}


@pytest.fixture
def kinds(request: pytest.FixtureRequest) -> tuple[Kind, ...]:
    """Return the agents of a test: one kind, unless the test names more itself."""
    return (request.getfixturevalue("kind"),)


@pytest.fixture(autouse=True)
def _can_be_tried(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> None:
    """Skip with a reason, before anything is started, when the agent cannot run here."""
    if not {"kind", "kinds"} & set(request.fixturenames):
        return

    asked_for = bool(pytestconfig.getoption("--agents"))
    for kind in request.getfixturevalue("kinds"):
        if (reason := why_not(kind, asked_for=asked_for)) is not None:
            pytest.skip(reason)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with scripted_models() as endpoint:
        yield endpoint


@pytest.fixture
def grounds(endpoint: Endpoint, kinds: tuple[Kind, ...], tmp_path: Path) -> Grounds:
    return Grounds(endpoint, tmp_path, kinds)
