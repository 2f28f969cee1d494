"""The JSON Schema of hank.json, made from the shapes themselves."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from hankweave_protocol.hank import Codon, Hank


def hank_schema() -> dict[str, Any]:
    """Returns a Draft 2020-12 schema that editors use for completion."""
    schema = msgspec.json.schema(Hank, schema_hook=_anything)
    # A step of the hank that does not say what it is, is a codon; the loader puts it in.
    schema["$defs"][Codon.__name__]["required"].remove("type")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "hank.json",
        **schema,
    }


def _anything(kind: type) -> dict[str, Any]:
    """Describes what is not ours to describe: a sentinel's own configuration."""
    if kind is object:
        return {"description": "Any JSON value."}

    raise NotImplementedError(f"{kind.__name__} has no place in a hank.json")


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(hank_schema())) + b"\n")
