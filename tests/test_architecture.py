"""The house rules of DESIGN 3, read from the imports themselves."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parent.parent
SERVER = TOP / "server" / "hankweave_server"
PROTOCOL = TOP / "protocol"

ROWS: tuple[frozenset[str], ...] = (
    frozenset({"settings", "layout", "clock", "files", "logs", "errors", "companions"}),
    frozenset({"config"}),
    frozenset({"domain"}),
    frozenset({"workspace", "hanks"}),
    frozenset({"checkpoints", "agents", "sentinels", "ledger", "runtime_lock"}),
    frozenset({"execution"}),
    frozenset({"transport", "commands"}),
    frozenset({"cli", "app", "daemon", "architect"}),
)
"""Rooms from the bottom up: a row imports only rows below it, and no sibling."""

LIBRARY_ROOMS = {
    "pygit2": {
        "hankweave_server.git.repo",
        "hankweave_server.user_git.repository",
    },
    "websockets": {"hankweave_server.transport", "hankweave_client"},
}


def row_of(room: str) -> int:
    return next(number for number, rooms in enumerate(ROWS) if room in rooms)


def module_name(path: Path) -> str:
    base = SERVER.parent if SERVER in path.parents else PROTOCOL
    return ".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__init__")


def modules() -> list[Path]:
    return sorted([*SERVER.rglob("*.py"), *PROTOCOL.rglob("*.py")])


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)

    return found


def room_of(module: str) -> str | None:
    parts = module.split(".")
    if parts[0] != "hankweave_server" or len(parts) < 2:
        return None

    return parts[1] if any(parts[1] in rooms for rooms in ROWS) else None


@pytest.mark.parametrize("path", modules(), ids=module_name)
def test_a_room_imports_only_rows_below_it(path: Path) -> None:
    """No module imports a higher row or a sibling room."""
    room = room_of(module_name(path))
    if room is None:
        pytest.skip("not in a room")

    for module in imports_of(path):
        other = room_of(module)
        if other is None or other == room:
            continue

        top_row = row_of(room) == len(ROWS) - 1
        allowed = row_of(other) < row_of(room) or (top_row and row_of(other) == row_of(room))
        assert allowed, f"{module_name(path)} imports {module}"


@pytest.mark.parametrize("path", modules(), ids=module_name)
def test_the_protocol_knows_nothing_of_the_server(path: Path) -> None:
    """hankweave_protocol imports neither server nor client; the client imports no server."""
    name = module_name(path)
    forbidden = {
        "hankweave_protocol": ("hankweave_server", "hankweave_client", "asyncio", "anyio"),
        "hankweave_client": ("hankweave_server",),
    }.get(name.split(".")[0], ())
    for module in imports_of(path):
        assert module.split(".")[0] not in forbidden, f"{name} imports {module}"


@pytest.mark.parametrize("path", modules(), ids=module_name)
def test_a_library_stays_in_its_room(path: Path) -> None:
    """pygit2 is used in one module and websockets at the edges."""
    name = module_name(path)
    for module in imports_of(path):
        rooms = LIBRARY_ROOMS.get(module.split(".")[0])
        if rooms is not None:
            assert any(name == room or name.startswith(f"{room}.") for room in rooms), (
                f"{name} imports {module}"
            )


@pytest.mark.parametrize("path", modules(), ids=module_name)
def test_every_task_has_a_parent(path: Path) -> None:
    """Nobody calls asyncio's create_task, ensure_future or gather: tasks live in task groups."""
    naked = {"create_task", "ensure_future", "gather"}
    assert [
        f"{module_name(path)}:{node.lineno} calls {node.attr}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in naked
    ] == []


@pytest.mark.parametrize("path", sorted((SERVER / "domain").glob("*.py")), ids=module_name)
def test_the_domain_is_pure(path: Path) -> None:
    """domain/ has no await, no clock and no file in it."""
    forbidden = {"os", "time", "pathlib", "anyio", "asyncio", "subprocess", "socket", "shutil"}
    assert not {module.split(".")[0] for module in imports_of(path)} & forbidden
    for node in ast.walk(ast.parse(path.read_text())):
        assert not isinstance(node, ast.Await | ast.AsyncFunctionDef), module_name(path)
