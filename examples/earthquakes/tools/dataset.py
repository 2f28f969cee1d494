"""Read the data set; its rows are the events, the `features` of a GeoJSON collection."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Row = dict[str, Any]

FILE_NAME = "earthquakes.json"


def data_file() -> Path:
    """Return the path of the data, which is outside the work tree and read-only."""
    return Path(os.environ.get("HANKWEAVE_DATA_DIR", "read_only_data_source")) / FILE_NAME


def read_rows() -> list[Row]:
    rows: list[Row] = json.loads(data_file().read_text(encoding="utf-8"))["features"]
    return rows


def count(rows: list[Row]) -> str:
    return f"{len(rows):,} rows"


def leaves(value: object, pointer: str = "") -> Iterator[tuple[str, object]]:
    """Yield every scalar of a row with its JSON Pointer, such as `/geometry/coordinates/2`."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield from leaves(member, f"{pointer}/{name}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, f"{pointer}/{index}")
    else:
        yield pointer, value


def json_type(value: object) -> str:
    """Return the JSON Schema type of a value; a number with a fraction is a `number`."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"
