"""Codon 5: write a summary for people, reading the rows through the generated types.

Writes reports/summary.md: the findings of the reviews, the strongest events, a data dictionary.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from dataset import FILE_NAME, count, data_file, read_rows
from generate import generated_code, read_schema
from infer import Schema
from transcript import Transcript

HEADING = "kit/heading.md"  # The codon's rig copies it, and it is archived after success.
STRONGEST = 5


def summary_of(reviews: list[dict[str, Any]], events: list[Any], schema: Schema) -> str:
    heading = Path(HEADING).read_text(encoding="utf-8").format(file=FILE_NAME)
    lines = [heading, "## Reviews", ""]
    for review in reviews:
        lines.append(
            f"- Iteration {review['iteration']}: {review['failures']:,} of {review['rows']:,} "
            "rows failed."
        )
        lines += [_finding(finding) for finding in review["findings"]]
    lines += ["", "## The strongest events", "", "| Magnitude | Time (UTC) | Place | Depth |"]
    lines += ["|---:|---|---|---:|"]
    lines += [_event(event) for event in _strongest(events)]
    lines += ["", "## The fields", "", "| Field | Type | Allowed |", "|---|---|---|"]
    lines += [_field(pointer, node) for pointer, node in _leaves(schema)]
    return "\n".join(lines) + "\n"


def _finding(finding: dict[str, Any]) -> str:
    outcome = "mended" if finding["mended"] else "for a person to look at"
    return f"  - `{finding['pointer']}`: {finding['rule']}, {finding['count']:,} times, {outcome}."


def _strongest(events: list[Any]) -> list[Any]:
    return sorted(events, key=lambda event: (-event.properties.mag, event.id))[:STRONGEST]


def _event(event: Any) -> str:
    _, _, depth = event.geometry.coordinates
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=event.properties.time)
    return (
        f"| {event.properties.mag} {event.properties.mag_type} | {moment:%Y-%m-%d %H:%M} "
        f"| {event.properties.place} | {depth} km |"
    )


def _leaves(schema: Schema, pointer: str = "") -> Iterator[tuple[str, Schema]]:
    for name, node in schema.get("properties", {}).items():
        yield from _leaves(node, f"{pointer}/{name}")

    for index, node in enumerate(schema.get("prefixItems", [])):
        yield from _leaves(node, f"{pointer}/{index}")

    if not {"properties", "prefixItems"} & schema.keys():
        yield pointer, schema


def _field(pointer: str, node: Schema) -> str:
    types = [node["type"]] if isinstance(node["type"], str) else node["type"]
    allowed = ""
    if "minimum" in node:
        allowed = f"{node['minimum']} to {node['maximum']}"
    if "enum" in node:
        allowed = ", ".join(f"`{json.dumps(word)}`" for word in node["enum"])

    return f"| `{pointer}` | {' or '.join(types)} | {allowed} |"


def main() -> None:
    with Transcript("report") as transcript:
        rows = transcript.use("Read", {"file_path": str(data_file())}, read_rows, count)
        reviews = [
            json.loads(path.read_text(encoding="utf-8"))
            for path in sorted(Path("reports").glob("review-*.json"))
        ]
        code = generated_code()
        valid = [code.parse(row) for row in rows if not code.problems_of(row)]
        transcript.write("reports/summary.md", summary_of(reviews, valid, read_schema()))
        transcript.say(f"{len(valid):,} of {len(rows):,} rows are valid; see reports/summary.md.")


if __name__ == "__main__":
    main()
