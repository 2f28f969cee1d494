"""Codon 1: profile the data.

Writes notes/profile.json (for the next steps) and notes/observations.md (for people).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from dataset import FILE_NAME, Row, count, data_file, json_type, leaves, read_rows
from transcript import Transcript

Profile = dict[str, Any]

COMMON_VALUES = 5  # how many of a field's most frequent values are kept as examples


def profile_of(rows: list[Row]) -> dict[str, Profile]:
    """Return a profile of each field over all rows, by JSON Pointer, in the data's order."""
    values: dict[str, list[object]] = {}
    for row in rows:
        for pointer, value in leaves(row):
            values.setdefault(pointer, []).append(value)

    return {pointer: _field(found, len(rows)) for pointer, found in values.items()}


def _field(values: list[object], rows: int) -> Profile:
    frequencies = Counter(json.dumps(value) for value in values)
    field: Profile = {
        "present": len(values),
        "missing": rows - len(values),
        "types": dict(sorted(Counter(json_type(value) for value in values).items())),
        "distinct": len(frequencies),
        "common": [
            {"value": json.loads(text), "count": count}
            for text, count in frequencies.most_common(COMMON_VALUES)
        ],
    }
    numbers = [
        value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)
    ]
    if numbers:
        field |= {"minimum": min(numbers), "maximum": max(numbers)}

    return field


REMARKS: list[tuple[str, Callable[[Profile], bool]]] = [
    ("Mostly null", lambda field: _nulls(field) > field["present"] / 2),
    ("Null now and then", lambda field: 0 < _nulls(field) <= field["present"] / 2),
    ("Whole numbers and fractions mixed", lambda field: {"integer", "number"} <= {*field["types"]}),
    ("Absent from some rows", lambda field: field["missing"] > 0),
    ("One value only", lambda field: field["distinct"] == 1),
    ("A different value in every row", lambda field: field["distinct"] == field["present"]),
]
"""Remarks: a sentence, and whether it applies to a field."""


def observations(fields: dict[str, Profile], rows: int) -> str:
    lines = [
        f"# Observations on {FILE_NAME}",
        "",
        f"{rows:,} rows, {len(fields)} fields.",
        "",
        "| Field | Types | Null | Distinct | From | To |",
        "|---|---|---:|---:|---:|---:|",
    ]
    lines += [
        f"| `{pointer}` | {', '.join(field['types'])} | {_nulls(field):,} | {field['distinct']:,} "
        f"| {field.get('minimum', '')} | {field.get('maximum', '')} |"
        for pointer, field in fields.items()
    ]
    lines += ["", "## Worth knowing", ""]
    for sentence, is_true_of in REMARKS:
        pointers = [f"`{pointer}`" for pointer, field in fields.items() if is_true_of(field)]
        if pointers:
            lines.append(f"- {sentence}: {', '.join(pointers)}.")

    return "\n".join(lines) + "\n"


def _nulls(field: Profile) -> int:
    count: int = field["types"].get("null", 0)
    return count


def main() -> None:
    with Transcript("observe") as transcript:
        transcript.say(f"I will look at every row of {FILE_NAME} and count what is there.")
        rows = transcript.use("Read", {"file_path": str(data_file())}, read_rows, count)
        fields = profile_of(rows)
        content = data_file().read_bytes()
        profile = {
            "source": FILE_NAME,
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "rows": len(rows),
            "fields": fields,
        }
        transcript.write("notes/profile.json", json.dumps(profile, indent=2) + "\n")
        transcript.write("notes/observations.md", observations(fields, len(rows)))
        with_nulls = sum(_nulls(field) > 0 for field in fields.values())
        transcript.say(
            f"{len(rows):,} rows with {len(fields)} fields; {with_nulls} fields hold nulls."
        )


if __name__ == "__main__":
    main()
