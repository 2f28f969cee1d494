"""The report of a pipeline, as JSON, as Markdown or as a comment for a pull request."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never

import msgspec

from hankweave_protocol import codec
from hankweave_protocol.events import CheckCompleted
from hankweave_protocol.ids import CodonId
from hankweave_server.cli.output.document import markdown_table, markdown_text
from hankweave_server.domain.step_results import PipelineResult, StepResult
from hankweave_server.plain_text import counted, one_line

Format: TypeAlias = Literal["json", "markdown", "github"]

DIFF_LIMIT = 50_000
"""Maximum characters of the diff in a report (Architect: 50 KB)."""

_COLUMNS = ("step", "status", "checks", "cost", "time")


@dataclass(frozen=True, slots=True)
class Report:
    """The report of a pipeline that has ended, with or without success."""

    task: str
    result: PipelineResult
    duration_ms: int
    """Duration of this command, not of earlier ones that it continued."""
    files: tuple[tuple[str, str], ...]
    """Pairs of a path and `created`, `modified` or `deleted`, sorted by path."""
    checks: dict[CodonId, list[CheckCompleted]]
    warnings: tuple[str, ...]
    """Problems that did not fail a step."""
    diff: str
    """A unified diff of the changes that the steps of this command made."""

    @property
    def errors(self) -> list[str]:
        return [f"{step.name}: {step.error}" for step in self.result.steps if step.error]

    def written(self, form: Format) -> str:
        match form:
            case "json":
                return self._json()
            case "markdown":
                return self._markdown()
            case "github":
                return self._github()
            case _:
                assert_never(form)

    def _json(self) -> str:
        fields = {
            "task": self.task,
            "status": self.result.status,
            "duration": self.duration_ms / 1000,
            "cost": self.result.cost,
            "errors": self.errors,
            "warnings": self.warnings,
            "files_modified": [{"path": path, "action": action} for path, action in self.files],
            "timeline": [self._entry(step) for step in self.result.steps],
            "git_diff": _cut(self.diff),
        }
        return msgspec.json.format(codec.encode(fields), indent=2).decode() + "\n"

    def _entry(self, step: StepResult) -> dict[str, object]:
        checks = self.checks.get(step.name, [])
        return {
            "step": step.name,
            "status": step.status,
            "cost": step.cost,
            "duration": step.duration_ms / 1000,
            "attempts": step.attempts,
            "checks_passed": all(check.passed for check in checks) if checks else None,
            "checks": [
                {
                    "command": check.command,
                    "passed": check.passed,
                    "exit_code": check.exit_code,
                    "output": check.output,
                }
                for check in checks
            ],
            "error": step.error,
            "condition": step.condition,
            "checkpoint": step.checkpoint,
        }

    def _markdown(self) -> str:
        diff = _fenced(_cut(self.diff)) if self.diff else []
        return self._document(
            f"# {markdown_text(self.task)}",
            _section("Errors", [f"- {markdown_text(each)}" for each in self.errors]),
            _section("Warnings", [f"- {markdown_text(each)}" for each in self.warnings]),
            _section("Files", self._files()),
            _section("Diff", diff),
        )

    def _github(self) -> str:
        mark = {"success": "✅", "partial": "⚠️", "failed": "❌"}[self.result.status]
        diff = _fenced(_cut(self.diff)) if self.diff else []
        return self._document(
            f"## {mark} {markdown_text(self.task)}",
            [f"> {markdown_text(each)}" for each in self.errors],
            [f"> ⚠️ {markdown_text(each)}" for each in self.warnings],
            _folded(f"{counted(len(self.files), 'file')} changed", self._files()),
            _folded("Diff", diff),
        )

    def _document(self, title: str, *sections: list[str]) -> str:
        lines = [title, "", *self._summary(), "", *self._table()]
        for section in filter(None, sections):
            lines += ["", *section]

        return "\n".join(lines) + "\n"

    def _summary(self) -> list[str]:
        seconds = f"{self.duration_ms / 1000:.1f} s"
        return [f"**{self.result.status}** · {seconds} · ${self.result.cost:.4f}"]

    def _table(self) -> list[str]:
        rows = []
        for step in self.result.steps:
            checks = self.checks.get(step.name, [])
            passed = f"{sum(check.passed for check in checks)}/{len(checks)}" if checks else ""
            cells = [
                markdown_text(step.name),
                step.status,
                passed,
                f"${step.cost:.4f}",
                f"{step.duration_ms / 1000:.1f} s",
            ]
            rows.append(cells)

        return markdown_table(_COLUMNS, rows, frozenset({"cost", "time"}))

    def _files(self) -> list[str]:
        return [f"- {action}: {markdown_text(path)}" for path, action in self.files]


def _fenced(text: str) -> list[str]:
    """Return a code block with a fence longer than any run of backticks in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    # Control characters are escaped, since a report may be printed on a terminal; tabs stay.
    lines = ["\t".join(map(one_line, line.split("\t"))) for line in text.rstrip("\n").split("\n")]
    return [f"{fence}diff", *lines, fence]


def _section(title: str, lines: list[str]) -> list[str]:
    return [f"## {title}", "", *lines] if lines else []


def _folded(title: str, lines: list[str]) -> list[str]:
    return [f"<details><summary>{title}</summary>", "", *lines, "", "</details>"] if lines else []


def _cut(text: str) -> str:
    if len(text) <= DIFF_LIMIT:
        return text

    return f"{text[:DIFF_LIMIT]}\n… {len(text) - DIFF_LIMIT} more characters\n"
