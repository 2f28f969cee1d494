"""Golden files: the expected results in tests/golden, and how to rewrite them."""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


@dataclass(frozen=True)
class GoldenFiles:
    """Compare results with the files in tests/golden, or write these (`--update-golden`)."""

    update: bool

    def check(self, name: str, found: str) -> None:
        """Compare a text with a whole file."""
        path = GOLDEN / name
        if self.update:
            path.parent.mkdir(exist_ok=True)
            path.write_text(found, encoding="utf-8")

        expected = path.read_text(encoding="utf-8") if path.exists() else ""
        if found != expected:
            lines = difflib.unified_diff(
                expected.splitlines(),
                found.splitlines(),
                f"tests/golden/{name}",
                "found",
                "",
                "",
                1,
            )
            hint = "If this change is meant, run scripts/test --update-golden."
            raise AssertionError("\n".join([hint, *lines]))

    def check_entry(self, name: str, key: str, found: Any) -> None:
        """Compare a value with one entry of a JSON file."""
        entries = self.entries(name)
        if self.update:
            entries[key] = found
            self._write(name, entries)

        hint = "if this is meant, run scripts/test --update-golden"
        assert entries.get(key) == found, f"{name}, {key}: {found!r}; {hint}"

    def check_keys(self, name: str, found: set[str]) -> None:
        """Compare the keys of a JSON file with those that have been found."""
        if self.update:
            entries = self.entries(name)
            self._write(name, {key: entries[key] for key in found & set(entries)})

        assert set(self.entries(name)) == found

    def entries(self, name: str) -> dict[str, Any]:
        path = GOLDEN / name
        entries: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return entries

    def _write(self, name: str, entries: dict[str, Any]) -> None:
        text = json.dumps(dict(sorted(entries.items())), indent=2, ensure_ascii=False)
        (GOLDEN / name).write_text(text + "\n", encoding="utf-8")


class Normaliser:
    """Replace values that differ from one run to the next; ids are numbered as they appear."""

    NUMBERED = (
        ("run", r"\d{13}-[0-9a-f]{6}-[0-9a-f]{6}"),
        ("uuid", r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    )
    STAMP = r"\d{4}-\d\d-\d\dT[\d:.]+Z"
    REPLACED = (
        ("<time>", STAMP),
        ("<sha>", r"\b[0-9a-f]{40}\b"),
        ("<id>", r"\b[0-9a-f]{32}\b"),
        ("<short-sha>", r"\b(?=[0-9a-f]*\d)[0-9a-f]{12}\b"),
        ("in <n> s", r"in \d+\.\d s"),
        ("<n>ms", r"\d+ms"),
        ("Event-Seq: <n>", r"Event-Seq: \d+"),
        ("on port <n>", r"on port \d+"),
        ("as pid <n>", r"as pid \d+"),
    )

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._seen: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        text = text.replace(self._folder, "<folder>")
        for kind, pattern in self.NUMBERED:
            for found in dict.fromkeys(re.findall(pattern, text)):
                text = text.replace(found, self._number(kind, found))

        for name, pattern in self.REPLACED:
            text = re.sub(pattern, name, text)

        return text

    def _number(self, kind: str, found: str) -> str:
        count = sum(name.startswith(f"<{kind}-") for name in self._seen.values())
        return self._seen.setdefault(found, f"<{kind}-{count + 1}>")
