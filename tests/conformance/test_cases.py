"""Every hazard, through a client of the real server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance import cases
from conformance.case import Case, assert_restores, skip_what_cannot_be_made
from support.checkpointing import ServerAccess
from support.privileges import programs_can_be_ordinary

of_everything = pytest.mark.parametrize("case", cases.OF_EVERYTHING, ids=lambda case: case.claim)
of_some = pytest.mark.parametrize("case", cases.OF_SOME, ids=lambda case: case.claim)


@of_everything
@pytest.mark.story(
    "Links, modes, empty folders and unusual names are restored exactly.",
    cases=(
        "all_permissions_at_once",
        "a_folder_replaced_by_a_link_outwards",
        "names_that_are_no_utf8",
    ),
)
async def test_the_server_restores(case: Case, server_of_everything: ServerAccess) -> None:
    """A client gets the same, in a work tree that all earlier cases have used."""
    await _assert_restores_on(server_of_everything, case)


@of_some
async def test_the_server_restores_what_is_tracked(
    case: Case, server_of_some: ServerAccess
) -> None:
    """The same holds over WebSocket where a hank tracks only some files."""
    await _assert_restores_on(server_of_some, case)


async def _assert_restores_on(server: ServerAccess, case: Case) -> None:
    if case.needs_root and not programs_can_be_ordinary():
        pytest.skip("root reads everything, and there is no setpriv to stop it")

    skip_what_cannot_be_made(case)
    server.tree.wipe()
    await server.track()
    await assert_restores(case, server)


@pytest.fixture(scope="module")
def server_of_everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerAccess]:
    yield from _server(tmp_path_factory.mktemp("everything"), cases.EVERYTHING)


@pytest.fixture(scope="module")
def server_of_some(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerAccess]:
    yield from _server(tmp_path_factory.mktemp("some"), cases.SOME)


def _server(folder: Path, patterns: tuple[str, ...]) -> Iterator[ServerAccess]:
    store = ServerAccess(folder / "place" / "execution", patterns)
    asyncio.run(store.begin())
    yield store
    store.close()
