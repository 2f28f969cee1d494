"""Claims about the hashes by which the TypeScript Hankweave knows a hank.json."""

from __future__ import annotations

import hashlib

from hankweave_server.hank.load import foreign_hashes

BARE = '{"hank":[{"id":"ä","env":{},"retry":[],"n":2.0,"share":0.25}]}'

WITH_SCHEMA = """\
{
  "$schema": "https://unpkg.com/hankweave@latest/schemas/hank.schema.json",
  "hank": [
    {
      "id": "ä",
      "env": {},
      "retry": [],
      "n": 2,
      "share": 0.25
    }
  ]
}
"""


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_a_hank_without_schema_is_known_with_and_without_it() -> None:
    """0.12 hashes what it will have written into the file, earlier versions what stands there."""
    assert foreign_hashes(BARE) == {sha256(BARE), sha256(WITH_SCHEMA)}


def test_a_hank_with_a_schema_is_known_as_it_stands() -> None:
    """It is not formatted anew."""
    text = '{"$schema":"./hank.schema.json","hank":[]}'
    assert foreign_hashes(text) == {sha256(text)}


def test_what_is_no_object_is_known_as_it_stands() -> None:
    """There is nothing to add a schema to."""
    assert foreign_hashes("[]") == {sha256("[]")}
    assert foreign_hashes("{") == {sha256("{")}
