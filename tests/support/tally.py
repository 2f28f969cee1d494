"""The results of the campaigns: a row for each, and one table of them all."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, field

HEAD = ("campaign", "done", "acknowledged", "violations")


@dataclass
class Row:
    """One campaign."""

    done: int = 0
    of: str = "rounds"
    """The counted unit: rounds, points, cuts, cases, inputs."""
    acknowledged: int = 0
    """Replies and events that clients had received, each checked afterwards."""
    violations: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """Reasons why parts of it were not done here."""


@dataclass
class Tally:
    """All campaigns of one test run, in the order in which they began."""

    rows: dict[str, Row] = field(default_factory=dict)

    def add(
        self,
        campaign: str,
        *,
        rounds: int = 1,
        of: str = "rounds",
        acknowledged: int = 0,
        violations: Collection[str] = (),
    ) -> None:
        """Record completed rounds, whatever their result."""
        row = self.rows.setdefault(campaign, Row())
        row.done += rounds
        row.of = of
        row.acknowledged += acknowledged
        row.violations += violations

    def skip(self, campaign: str, reason: str) -> None:
        row = self.rows.setdefault(campaign, Row())
        if reason not in row.skipped:
            row.skipped.append(reason)

    @property
    def violations(self) -> list[str]:
        return [violation for row in self.rows.values() for violation in row.violations]

    def table(self) -> Iterator[str]:
        """Return the rows, their sum, the violations, and as the last line the number of these."""
        width = max(len(name) for name in [HEAD[0], "all", *self.rows])
        line = f"{{:{width}}}  {{:>14}}  {{:>12}}  {{:>10}}  {{}}"
        yield line.format(*HEAD, "skipped").rstrip()
        for name, row in self.rows.items():
            yield line.format(
                name,
                f"{row.done} {row.of}",
                row.acknowledged,
                len(row.violations),
                "; ".join(row.skipped),
            ).rstrip()

        rows = self.rows.values()
        done, acknowledged = (sum(row.done for row in rows), sum(row.acknowledged for row in rows))
        yield line.format("all", done, acknowledged, len(self.violations), "").rstrip()
        yield from self.violations
        yield f"violations: {len(self.violations)}"

    def as_json(self) -> str:
        return json.dumps(
            {
                "campaigns": [{"campaign": name} | asdict(row) for name, row in self.rows.items()],
                "violations": len(self.violations),
            },
            indent=2,
        )
