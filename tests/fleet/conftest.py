"""For tests of Ray: a cluster on this machine, in an enclosure: Ray's ports do not leave it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from support import enclosure

QUICK = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "500",
    "RAY_health_check_failure_threshold": "3",
    "RAY_worker_niceness": "0",
}
"""A dead node is noticed after two seconds instead of a minute, and workers do not starve."""


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Skip without Ray; let Ray keep its token in a home of the test, and nothing in /tmp."""
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed; scripts/test --fleet installs it")

    if (reason := enclosure.why_not()) is not None:
        pytest.skip(reason)

    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)

    yield
    for left in ("/tmp/ray", f"/tmp/hankweave-{os.getuid()}"):
        shutil.rmtree(left, ignore_errors=True)


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Start a cluster with a node of two cores, its head."""
    from ray.cluster_utils import Cluster

    started = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 2, "include_dashboard": False},
        shutdown_at_exit=False,
    )
    try:
        yield started
    finally:
        started.shutdown()
        os.environ.pop("RAY_CLIENT_MODE", None)  # Ray leaves it there.
