"""Connect a client of Hankweave 0.12 to every server of the acceptance tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.reference_client import Received, ReferenceClients


@pytest.fixture(autouse=True)
def reference_clients(
    tmp_path: Path, reference_client_tally: Received, request: pytest.FixtureRequest
) -> Iterator[None]:
    """Fail a test in which such a client received a message it cannot parse.

    A test that counts clients or connections is marked `alone`.
    """
    if request.node.get_closest_marker("alone") is not None:
        yield
        return

    clients = ReferenceClients(tmp_path)
    try:
        with clients:
            yield
    finally:
        reference_client_tally.add(clients.received)

    assert clients.received.faults == []
