"""Print measurements of the source tree: sizes, folders, importers, comments, names and cycles.

usage: tools/source_metrics.py [--list] [ROOT]

Measures the runtime packages (server and protocol) of the checkout at ROOT; by default, of the
checkout that contains this script. Source files are parsed, never imported, so that any commit can
be measured: `git worktree add /tmp/old COMMIT && tools/source_metrics.py /tmp/old`.

`--list` also names the modules behind the numbers: those with a single importer, each with the
reason in `tools/single_importers.toml` why it is a module of its own, the class names that several
modules define, and the members of each cycle.

What counts: a package's `__init__.py` and the modules of `tools/` are importers, but are not
counted as modules. `from package import name` counts as an import of the submodule `name` if there
is one, else of the module from which the package imports the name, else of the package. A module
that is only loaded by name (the commands of the CLI) has no importer. One with a `main` is also run
as a program of its own, and one that features have for the core is loaded by `installed.parts`:
these are not counted among those with a single importer.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import statistics
import tokenize
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PACKAGES = ("server/hankweave_server", "protocol/hankweave_protocol", "protocol/hankweave_client")
REASONS = "tools/single_importers.toml"
Graph = Mapping[str, set[str]]


def main() -> None:
    parser = argparse.ArgumentParser(description="Print measurements of the source tree.")
    parser.add_argument("--list", action="store_true", help="name the modules behind the numbers")
    parser.add_argument(
        "root", nargs="?", type=Path, default=Path(__file__).resolve().parent.parent
    )
    arguments = parser.parse_args()
    source = Source(arguments.root.resolve())
    if not source.counted:
        parser.error(f"{arguments.root} has none of {', '.join(PACKAGES)}")

    for label, value in table(source):
        print(f"{label:<36}{value}")

    if arguments.list:
        singles = (
            f"{name} <- {importer}: {source.reasons.get(name, 'no reason is given')}"
            for name, importer in source.single_importers.items()
        )
        print_list("Modules with a single importer", singles)
        classes = (f"{name}: {', '.join(where)}" for name, where in source.recurring.items())
        print_list("Recurring class names", classes)
        print_list("Import cycles", (", ".join(cycle) for cycle in cycles(source.imports)))


@dataclass(frozen=True, slots=True)
class Module:
    path: Path
    text: str
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def is_program(self) -> bool:
        """Return whether a process calls its `main`."""
        return any(
            isinstance(node, ast.FunctionDef) and node.name == "main" for node in self.tree.body
        )


_JOINED = re.compile(r'\bparts\("(\w+)"\)')


class Source:
    """The parsed modules of a checkout, by dotted name."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.modules: dict[str, Module] = {}
        for package in PACKAGES:
            self._read(root / package)

        self.counted = {
            name: module for name, module in self.modules.items() if not module.is_package
        }
        self._read(root / "tools")

    def _read(self, package: Path) -> None:
        for path in sorted(package.rglob("*.py")):
            name = ".".join(path.relative_to(package.parent).with_suffix("").parts)
            text = path.read_text(encoding="utf-8")
            module = Module(path, text, ast.parse(text, str(path)))
            self.modules[name.removesuffix(".__init__")] = module

    @cached_property
    def reasons(self) -> dict[str, str]:
        """Return the reasons for modules with a single importer, by dotted name."""
        table = self.root / REASONS
        return tomllib.loads(table.read_text(encoding="utf-8")) if table.exists() else {}

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """Return for each module the modules that it imports anywhere, functions included."""
        return self._graph(ast.walk)

    @cached_property
    def imports_on_load(self) -> dict[str, set[str]]:
        """Return for each module the modules that are imported while it is being imported."""
        return self._graph(statements_on_load)

    def _graph(self, walk: Callable[[ast.AST], Iterator[ast.AST]]) -> dict[str, set[str]]:
        return {
            name: {
                imported
                for node in walk(module.tree)
                for imported in self._imported(name, module, node)
                if imported != name
            }
            for name, module in self.modules.items()
        }

    def _imported(self, name: str, module: Module, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in self.modules)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = name.split(".")
                package = parts[: len(parts) + module.is_package - node.level]
                base = ".".join([*package, base] if base else package)

            for alias in node.names:
                full = f"{base}.{alias.name}"
                found = full if full in self.modules else self._exported.get(full, base)
                if found in self.modules:
                    yield found

    @cached_property
    def _exported(self) -> dict[str, str]:
        """Return the names that packages import from their own modules, with these modules."""
        return {
            f"{name}.{alias.asname or alias.name}": node.module
            for name, module in self.modules.items()
            if module.is_package
            for node in module.tree.body
            if isinstance(node, ast.ImportFrom) and node.module in self.counted
            for alias in node.names
        }

    @cached_property
    def single_importers(self) -> dict[str, str]:
        """Return the modules with exactly one importer that no process runs, with that importer."""
        importers: dict[str, list[str]] = defaultdict(list)
        for name, imported in self.imports.items():
            for each in imported:
                importers[each].append(name)

        return {
            name: importers[name][0]
            for name, module in self.counted.items()
            if len(importers[name]) == 1 and not module.is_program and name not in self.joined
        }

    @cached_property
    def joined(self) -> frozenset[str]:
        """Return the modules of features that the core asks for by their last names."""
        wanted = set().union(*(_JOINED.findall(each.text) for each in self.counted.values()))
        return frozenset(
            name
            for name in self.counted
            if ".features." in name and name.rpartition(".")[-1] in wanted
        )

    @cached_property
    def recurring(self) -> dict[str, list[str]]:
        """Return the public class names that several modules define, with those modules."""
        found: dict[str, list[str]] = defaultdict(list)
        for name, module in self.modules.items():
            if name.startswith("tools."):
                continue

            for node in module.tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(name)

        return {name: where for name, where in sorted(found.items()) if len(where) > 1}


def table(source: Source) -> Iterator[tuple[str, object]]:
    modules = source.counted.values()
    lines = sorted(len(module.text.splitlines()) for module in modules)
    folders = Counter(module.path.parent for module in modules)
    largest, files = folders.most_common(1)[0]
    file_names = Counter(module.path.name for module in modules)
    comments = sum(count_comments(module.text) for module in modules)
    yield "modules", len(lines)
    yield "lines", sum(lines)
    yield "lines per module, median", statistics.median_low(lines)
    yield "lines per module, p90", lines[int(len(lines) * 0.9)]
    yield "modules below 100 lines", f"{100 * sum(n < 100 for n in lines) // len(lines)} %"
    yield "files in the largest folder", f"{files} ({largest.relative_to(source.root)})"
    yield "modules with a single importer", len(source.single_importers)
    yield "comments per 1,000 lines", comments * 1000 // max(sum(lines), 1)
    yield "recurring file names", sum(count > 1 for count in file_names.values())
    yield "recurring class names", len(source.recurring)
    yield "import cycles", summary(cycles(source.imports))
    yield "import cycles on load", summary(cycles(source.imports_on_load))


def summary(found: list[list[str]]) -> str:
    modules = f" ({sum(map(len, found))} modules)" if found else ""
    return f"{len(found)}{modules}"


def statements_on_load(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that run when a module is imported."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue

        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            pending.extend(node.orelse)
            continue

        yield node
        pending.extend(ast.iter_child_nodes(node))


def count_comments(text: str) -> int:
    """Count the comments of a module; docstrings are not comments."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(token.type == tokenize.COMMENT for token in tokens)


def cycles(graph: Graph) -> list[list[str]]:
    """Return the strongly connected components that have more than one module, sorted."""
    reach = {name: reachable(graph, name) for name in graph}
    found = {
        tuple(sorted(other for other in reach[name] if name in reach[other]))
        for name in graph
        if name in reach[name]
    }
    return [list(members) for members in sorted(found)]


def reachable(graph: Graph, start: str) -> set[str]:
    """Return what `start` imports, directly or through others; `start` itself if in a cycle."""
    found: set[str] = set()
    pending = [start]
    while pending:
        new = graph[pending.pop()] - found
        found |= new
        pending.extend(new)

    return found


def print_list(title: str, lines: Iterable[str]) -> None:
    print(f"\n{title}")
    for line in lines:
        print(f"  {line}")


if __name__ == "__main__":
    main()
