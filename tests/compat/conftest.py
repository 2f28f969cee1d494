"""Run the hanks with a stand-in for Claude Code, or with the real program under `--agents`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.models.endpoint import Endpoint, scripted_models
from support.real_agents import CLAUDE, STANDING_IN, Grounds, Kind, why_not


@pytest.fixture(params=[STANDING_IN, CLAUDE], ids=str)
def kind(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> Kind:
    found: Kind = request.param
    reason = why_not(found, asked_for=bool(pytestconfig.getoption("--agents")))
    if reason is not None:
        pytest.skip(reason)

    return found


@pytest.fixture
def grounds(kind: Kind, tmp_path: Path) -> Iterator[Grounds]:
    with scripted_models() as endpoint:
        yield Grounds(endpoint, tmp_path, (kind,), extra=_sentinels_ask(endpoint))


def _sentinels_ask(endpoint: Endpoint) -> dict[str, str]:
    return {
        "HANKWEAVE_SENTINEL_ANTHROPIC_API_KEY": "key-of-sentinels",
        "HANKWEAVE_SENTINEL_ANTHROPIC_BASE_URL": endpoint.url,
    }
