"""Print the table of the source tree: sizes, folders, importers, comments, names and cycles.

usage: tools/source_metrics.py [--list]

Counts the runtime packages (server and protocol), from the files alone: nothing is imported. With
`--list` the modules behind the numbers are named: those with a single importer, the names that
several modules define, and the cycles.
"""

from __future__ import annotations

import ast
import io
import statistics
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
PACKAGES = (
    TOP / "server" / "hankweave_server",
    TOP / "protocol" / "hankweave_protocol",
    TOP / "protocol" / "hankweave_client",
)


def main() -> None:
    modules = {name_of(path): path for path in sources()}
    trees = {name: ast.parse(path.read_text()) for name, path in modules.items()}
    imports = {name: set(imports_of(name, trees[name], modules)) for name in modules}
    eager = {name: set(imports_of(name, trees[name], modules, eager=True)) for name in modules}
    importers: dict[str, set[str]] = defaultdict(set)
    for name, imported in imports.items():
        for each in imported:
            importers[each].add(name)

    counted = [name for name, path in modules.items() if path.name != "__init__.py"]
    lines = sorted(len(modules[name].read_text().splitlines()) for name in counted)
    folders = Counter(modules[name].parent for name in counted)
    single = sorted(name for name in counted if len(importers[name]) == 1)
    names = {name: found for name, found in recurring(trees).items() if len(found) > 1}
    circles = cycles(eager)
    widest, files = folders.most_common(1)[0]
    rows = (
        ("modules", len(counted)),
        ("lines", sum(lines)),
        ("median lines of a module", statistics.median(lines)),
        ("p90 lines of a module", lines[int(len(lines) * 0.9)]),
        ("modules below 100 lines", f"{100 * sum(n < 100 for n in lines) // len(lines)} %"),
        ("files in the largest folder", f"{files} ({widest.relative_to(TOP)})"),
        ("modules with a single importer", len(single)),
        ("comments per 1,000 lines", comments(modules.values()) * 1000 // sum(lines)),
        ("file names that recur", sum(n > 1 for n in file_names(modules).values())),
        ("class names that recur", len(names)),
        ("import cycles", len(circles)),
    )
    for label, value in rows:
        print(f"{label:<34}{value:>12}")

    if "--list" in sys.argv:
        print_list("Single importer", (f"{name} <- {min(importers[name])}" for name in single))
        print_list("Recurring classes", (f"{n}: {', '.join(m)}" for n, m in sorted(names.items())))
        print_list("Cycles", (" -> ".join(circle) for circle in circles))


def sources() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted(package.rglob("*.py"))


def name_of(path: Path) -> str:
    base = next(package for package in PACKAGES if package in path.parents)
    parts = path.relative_to(base.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def imports_of(
    name: str, tree: ast.Module, modules: Mapping[str, Path], *, eager: bool = False
) -> Iterator[str]:
    """Return the modules of ours that a module imports; `eager` skips those in functions."""
    for node in ast.walk(tree) if not eager else at_import(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found = full if full in modules else node.module
                if found in modules and found != name:
                    yield found
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in modules)


def at_import(tree: ast.Module) -> Iterator[ast.AST]:
    """Return the statements that run when the module is imported."""
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue

        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue

        yield node
        waiting.extend(ast.iter_child_nodes(node))


def recurring(trees: Mapping[str, ast.Module]) -> dict[str, list[str]]:
    """Return each public class name with the modules that define it."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(name)

    return found


def file_names(modules: Mapping[str, Path]) -> Counter[str]:
    return Counter(path.stem for path in modules.values() if path.name != "__init__.py")


def comments(paths: object) -> int:
    """Count comment lines; docstrings are not comments."""
    count = 0
    for path in paths:  # type: ignore[attr-defined]
        reader = io.StringIO(path.read_text()).readline
        count += sum(token.type == tokenize.COMMENT for token in tokenize.generate_tokens(reader))

    return count


def cycles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one module (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for each in sorted(imports[name]):
            if each not in index:
                visit(each)
                low[name] = min(low[name], low[each])
            elif each in stack:
                low[name] = min(low[name], index[each])

        if low[name] == index[name]:
            circle = stack[stack.index(name) :]
            del stack[-len(circle) :]
            if len(circle) > 1:
                found.append(sorted(circle))

    sys.setrecursionlimit(10_000)
    for name in sorted(imports):
        if name not in index:
            visit(name)

    return found


def print_list(title: str, lines: Iterator[str]) -> None:
    print(f"\n{title}")
    for line in lines:
        print(f"  {line}")


if __name__ == "__main__":
    main()
