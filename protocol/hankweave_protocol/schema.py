"""The JSON Schema of hank.json, made from the shapes themselves."""

from __future__ import annotations

import sys

import msgspec

from hankweave_protocol.hank import Hank


def hank_schema() -> dict[str, object]:
    """Returns a Draft 2020-12 schema that editors use for completion."""
    schema = msgspec.json.schema(Hank)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "hank.json",
        **schema,
    }


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(hank_schema())) + b"\n")
