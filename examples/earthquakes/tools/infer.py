"""Codon 2: infer a JSON Schema (draft 2020-12) from the first rows.

It reads only the top of the file, as a person or a model would: cheap, and wrong in the usual ways.
The schema lacks values, ranges and nulls that first occur further down. The review loop, which
checks every row, finds them.

An argument sets the number of rows; `variants/` tries two others.

Writes schema/earthquake.schema.json.
"""

from __future__ import annotations

import json
import sys
from decimal import ROUND_CEILING, Decimal
from typing import Any

from dataset import Row, count, data_file, json_type, read_rows
from transcript import Transcript

Schema = dict[str, Any]

SCHEMA_FILE = "schema/earthquake.schema.json"
SAMPLE_ROWS = 200
VOCABULARY_LIMIT = 12  # text with more distinct values than this is free text, not a vocabulary


def schema_of(rows: list[Row]) -> Schema:
    heading = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Earthquake",
        "description": f"One seismic event, as far as {len(rows)} rows tell.",
    }
    return heading | describe(rows)


def describe(values: list[Any]) -> Schema:
    """Return a schema that allows all these values of a field, and little more."""
    types = sorted_types({json_type(value) for value in values})
    schema: Schema = {"type": types[0] if len(types) == 1 else types}
    vocabulary = {value for value in values if isinstance(value, str)}
    numbers = [value for value in values if json_type(value) in {"integer", "number"}]
    objects = [value for value in values if isinstance(value, dict)]
    arrays = [value for value in values if isinstance(value, list)]

    if vocabulary and len(vocabulary) <= VOCABULARY_LIMIT:
        schema["enum"] = sorted(vocabulary) + [None] * ("null" in types)
    if numbers:
        schema |= {"minimum": lower_bound(min(numbers)), "maximum": upper_bound(max(numbers))}
    if objects:
        schema |= _describe_members(objects)
    if arrays:
        schema |= _describe_positions(arrays)

    return schema


def sorted_types(types: set[str]) -> list[str]:
    """Sort types with `null` last; `number` includes `integer`."""
    if "number" in types:
        types = types - {"integer"}

    return sorted(types, key=lambda name: (name == "null", name))


def upper_bound(value: float) -> float:
    """Round up to one digit, because a bound describes the field, not the rows seen.

    853 becomes 900 and 0.31 becomes 0.4; a negative bound becomes zero.
    """
    if value <= 0:
        return 0

    exact = Decimal(repr(value))
    exponent = exact.adjusted()
    bound = exact.scaleb(-exponent).to_integral_value(ROUND_CEILING).scaleb(exponent)
    return int(bound) if bound == int(bound) else float(bound)


def lower_bound(value: float) -> float:
    return -upper_bound(-value)


def _describe_members(objects: list[dict[str, Any]]) -> Schema:
    names = list(dict.fromkeys(name for each in objects for name in each))
    return {
        "properties": {
            name: describe([each[name] for each in objects if name in each]) for name in names
        },
        "required": [name for name in names if all(name in each for each in objects)],
        "additionalProperties": False,
    }


def _describe_positions(arrays: list[list[Any]]) -> Schema:
    """Describe arrays of one length, item by item: a coordinate is a longitude or a depth."""
    positions = [describe(list(column)) for column in zip(*arrays, strict=True)]
    return {
        "prefixItems": positions,
        "items": False,
        "minItems": len(positions),
    }


def main() -> None:
    limit = int(sys.argv[1]) if sys.argv[1:] else SAMPLE_ROWS
    with Transcript("infer") as transcript:
        transcript.be_overloaded_once()
        transcript.say(f"I will draw the schema from the first {limit:,} rows.")
        reading = {"file_path": str(data_file()), "limit": limit}
        sample = transcript.use("Read", reading, lambda: read_rows()[:limit], count)
        schema = schema_of(sample)
        transcript.write(SCHEMA_FILE, json.dumps(schema, indent=2) + "\n")
        transcript.say(f"The schema holds for the {len(sample)} rows it was drawn from.")


if __name__ == "__main__":
    main()
