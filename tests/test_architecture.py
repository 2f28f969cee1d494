"""The layering rules of DESIGN 3, checked on the imports themselves."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from source_metrics import Source

TOP = Path(__file__).resolve().parent.parent
SERVER = TOP / "server" / "hankweave_server"
PROTOCOL = TOP / "protocol"

ROWS: tuple[frozenset[str], ...] = (
    frozenset({"config", "settings", "paths", "clock", "fsutil", "logs", "errors"})
    | {"background_tasks", "bounded_requests", "installed", "listing", "meter", "plain_text"}
    | {"redaction"},
    frozenset({"domain"}),
    frozenset({"confinement", "ledger", "runtime_lock", "wal", "worktree", "hank"}),
    frozenset({"git"}),
    frozenset({"checkpoints", "user_git", "agents", "sentinels"}),
    frozenset({"execution"}),
    frozenset({"api"}),
    frozenset({"transport", "local"}),
    frozenset({"app"}),
    frozenset({"daemon"}),
    frozenset({"cli"}),
    frozenset({"features"}),
    frozenset({"architect"}),
)
"""Packages and modules from the bottom up: a row imports only rows below it, and no sibling."""

MOST_SINGLE_IMPORTERS = 40

LIBRARY_ROOMS = {
    "pygit2": {
        "hankweave_server.features.mirror.contents",
        "hankweave_server.git.line_changes",
        "hankweave_server.git.line_merge",
        "hankweave_server.git.repo",
        "hankweave_server.user_git.repository",
    },
    "websockets": {"hankweave_server.transport", "hankweave_client"},
    "opentelemetry": {"hankweave_server.features.tracing.otlp"},
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
def test_a_package_imports_only_rows_below_it(path: Path) -> None:
    """No module imports a higher row, or another package of its own row."""
    room = room_of(module_name(path))
    if room is None:
        pytest.skip("not in the server")

    for module in imports_of(path):
        other = room_of(module)
        if other is None or other == room:
            continue

        lowest = row_of(room) == 0 == row_of(other)
        assert lowest or row_of(other) < row_of(room), f"{module_name(path)} imports {module}"


def test_every_package_has_its_row() -> None:
    """Every module and package of the server is in exactly one row."""
    found = {path.stem for path in SERVER.glob("*.py")} - {"__init__"}
    found |= {path.parent.name for path in SERVER.glob("*/__init__.py")}
    placed = [room for rooms in ROWS for room in rooms]
    assert sorted(placed) == sorted(found)


def modules_of(path: Path, names: Mapping[str, Path]) -> Iterator[str]:
    """Return the project's modules that one imports: a submodule itself, not its package."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found = ((node.module, f"{node.module}.{alias.name}") for alias in node.names)
            yield from (full if full in names else name for name, full in found)


def test_no_imports_go_in_circles() -> None:
    """No module imports itself by way of others, at its top level or in a function."""
    names = {module_name(path): path for path in modules()}
    graph = {name: set(modules_of(path, names)) - {name} for name, path in names.items()}
    left = {name: imported & names.keys() for name, imported in graph.items()}
    while ends := {name for name, imported in left.items() if not imported & left.keys()}:
        left = {name: imported for name, imported in left.items() if name not in ends}

    assert sorted(left) == []


def test_no_folder_holds_more_than_25_modules() -> None:
    """A folder stays small enough to read."""
    folders = Counter(path.parent for path in modules())
    assert {str(folder): count for folder, count in folders.items() if count > 26} == {}


def test_a_module_with_a_single_importer_has_a_reason() -> None:
    """There are at most 40, each with a reason in the table, which has no other entries."""
    source = Source(TOP)
    assert len(source.single_importers) <= MOST_SINGLE_IMPORTERS
    assert sorted(source.reasons) == sorted(source.single_importers)
    assert all(reason.strip() for reason in source.reasons.values())


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
    """pygit2 and OpenTelemetry stay in their modules, and websockets at the edges."""
    name = module_name(path)
    for module in imports_of(path):
        rooms = LIBRARY_ROOMS.get(module.split(".")[0])
        if rooms is not None:
            assert any(name == room or name.startswith(f"{room}.") for room in rooms), (
                f"{name} imports {module}"
            )


@pytest.mark.parametrize("path", modules(), ids=module_name)
def test_every_task_has_a_parent(path: Path) -> None:
    """asyncio's create_task, ensure_future and gather are not used: tasks live in task groups."""
    naked = {"create_task", "ensure_future", "gather"}
    assert [
        f"{module_name(path)}:{node.lineno} calls {node.attr}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in naked
    ] == []


@pytest.mark.parametrize("path", modules(), ids=module_name)
def test_an_error_that_may_have_no_text_is_shown_by_its_reason(path: Path) -> None:
    """Time limits and lost connections often have no text; `reason_of` names their kind."""
    textless = {"TimeoutError", "ConnectionError", "EOFError", "Exception", "BaseException"}
    for handler in ast.walk(ast.parse(path.read_text())):
        if not isinstance(handler, ast.ExceptHandler) or handler.type is None:
            continue

        if textless & {name.id for name in ast.walk(handler.type) if isinstance(name, ast.Name)}:
            shown = [line for node in handler.body for line in bare_texts(node, handler.name)]
            assert not shown, f"{module_name(path)}:{shown} shows an error that may have no text"


@pytest.mark.parametrize("path", modules(), ids=module_name)
def test_only_a_defect_is_logged_with_a_traceback(path: Path) -> None:
    """An expected failure, such as an error of the disk or a cancelled wait, is one line."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ExceptHandler(type=kind) if kind is None or ast.unparse(kind) != "Exception":
                called = [each.func for each in ast.walk(node) if isinstance(each, ast.Call)]
                levels = {each.attr for each in called if isinstance(each, ast.Attribute)}
                assert "exception" not in levels, f"{module_name(path)}:{node.lineno}"
            case ast.Call(func=ast.Attribute(attr=level)) if level != "error":
                shown = "exc_info" in {each.arg for each in node.keywords}
                assert not shown, f"{module_name(path)}:{node.lineno}"
            case _:
                pass


def bare_texts(body: ast.AST, error: str | None) -> Iterator[int]:
    """Yield the lines that show the text of an error alone, without its kind."""
    for node in ast.walk(body):
        match node:
            case ast.JoinedStr(values=values):
                shown = [part.value for part in values if isinstance(part, ast.FormattedValue)]
                if any(ast.unparse(part) == error for part in shown) and not any(
                    "type(" in ast.unparse(part) for part in shown
                ):
                    yield node.lineno
            case ast.Call(func=ast.Name(id="str"), args=[ast.Name(id=name)]) if name == error:
                yield node.lineno
            case _:
                pass


@pytest.mark.parametrize("path", modules(), ids=module_name)
def test_a_temporary_file_is_made_where_it_is_said(path: Path) -> None:
    """Without `dir`, `tempfile` tries a folder with a file that a killed process leaves there."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("tempfile."):
            assert any(word.arg == "dir" for word in node.keywords), ast.unparse(node)


@pytest.mark.parametrize("path", sorted((SERVER / "domain").rglob("*.py")), ids=module_name)
def test_the_domain_is_pure(path: Path) -> None:
    """domain/ contains no await, no clock and no file access."""
    forbidden = {"os", "time", "pathlib", "anyio", "asyncio", "subprocess", "socket", "shutil"}
    assert not {module.split(".")[0] for module in imports_of(path)} & forbidden
    for node in ast.walk(ast.parse(path.read_text())):
        assert not isinstance(node, ast.Await | ast.AsyncFunctionDef), module_name(path)


TWICE = frozenset({"Checkpoint"})
"""Names that published interfaces have given to two things.

`Checkpoint` is a class of `hankweave_server.architect`, and a type in the schemas of the MCP tools.
"""

REFERENCE_SHAPES = PROTOCOL / "hankweave_protocol" / "reference_shapes.py"
"""Its classes are named after the events of Hankweave that they describe."""


def test_a_public_class_name_has_one_meaning() -> None:
    """A search for a name finds one class."""
    places: dict[str, list[str]] = {}
    for path in set(modules()) - {REFERENCE_SHAPES}:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(module_name(path))

    public = {name: found for name, found in places.items() if name[0] != "_"}
    assert {name for name, found in public.items() if len(found) > 1} == TWICE


OF_LIBRARIES = frozenset({"args", "deadline", "raw", "resume"})
"""Attributes that are set of objects of libraries, and that some class of ours has as well."""


def attributes_set_in(path: Path) -> Iterator[tuple[str, ast.Attribute]]:
    """Yield the class around, or nothing, and the target of each assignment to an attribute."""

    def walk(node: ast.AST, owner: str) -> Iterator[tuple[str, ast.Attribute]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store):
                yield owner, child

            yield from walk(child, child.name if isinstance(child, ast.ClassDef) else owner)

    yield from walk(ast.parse(path.read_text()), "")


def attributes_declared_in(path: Path) -> set[str]:
    """Return the attributes of a module's classes."""
    declared = {node.attr for owner, node in attributes_set_in(path) if owner and is_own(node)}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef):
            for each in node.body:
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                    declared.add(each.target.id)
                elif isinstance(each, ast.FunctionDef):
                    declared.add(each.name)  # It may be a property with a setter.

    return declared


def is_own(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def test_no_code_sets_an_attribute_of_an_object_of_another_package() -> None:
    """An object has a method for what others may change of it."""
    declared = {path: attributes_declared_in(path) for path in modules()}
    every = frozenset[str]().union(*declared.values())
    packages: dict[Path, set[str]] = {}
    for path, names in declared.items():
        packages.setdefault(path.parent, set()).update(names)

    foreign = [
        f"{module_name(path)}:{node.lineno}: {ast.unparse(node)}"
        for path in modules()
        for _, node in attributes_set_in(path)
        if not is_own(node) and node.attr in every - packages[path.parent] - OF_LIBRARIES
    ]
    assert foreign == []


QUESTION = re.compile(r'^ *"""(?:What|Who|Whose|Whom)\b', re.MULTILINE)
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def test_no_docstring_begins_with_what_or_who() -> None:
    """A function is described by a verb, anything else by a noun; ruff's D401 finds other verbs."""
    folders = ("server", "protocol", "tools", "tests", "examples")
    for path in sorted(path for folder in folders for path in (TOP / folder).rglob("*.py")):
        text = path.read_text()
        # A string below a field may begin so, and few files are worth parsing.
        for node in ast.walk(ast.parse(text)) if QUESTION.search(text) else ():
            doc = (ast.get_docstring(node) or "") if isinstance(node, DOCUMENTED) else ""
            assert not QUESTION.match(f'"""{doc}'), f"{path.relative_to(TOP)}: {doc[:60]}"
