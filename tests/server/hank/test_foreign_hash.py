"""The hashes by which the TypeScript Hankweave identifies a hank.json."""

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
    """Version 0.12 hashes the file with the schema added, earlier versions the original."""
    assert foreign_hashes(BARE) == {sha256(BARE), sha256(WITH_SCHEMA)}


def test_a_hank_with_a_schema_is_known_as_it_stands() -> None:
    """A file with a schema is hashed without reformatting."""
    text = '{"$schema":"./hank.schema.json","hank":[]}'
    assert foreign_hashes(text) == {sha256(text)}


def test_what_is_no_object_is_known_as_it_stands() -> None:
    """A file that is not a JSON object is hashed unchanged, since no schema can be added."""
    assert foreign_hashes("[]") == {sha256("[]")}
    assert foreign_hashes("{") == {sha256("{")}
