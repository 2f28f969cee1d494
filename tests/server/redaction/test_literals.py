"""The search for literals: the helper in C and Python's `re` find the same."""

from __future__ import annotations

import random

import pytest

from hankweave_server.redaction.redactor import NOTHING_KNOWN, LiteralSearch, native


@pytest.mark.skipif(native is None, reason="the helper in C was not built")
def test_the_helper_finds_what_python_finds() -> None:
    """Both return the first place, for any start, at the ends of a text as well."""
    source = random.Random(7)
    search = LiteralSearch((b"abc", b"abca", b"cab", b"bbb", b"\x00\xffa", b"\xff\xff\xff"))
    for _ in range(3_000):
        text = bytes(source.choices(b"abbc\x00\xff", k=source.randrange(40)))
        start = source.randrange(45)
        assert search.find(text, start) == search.find_in_python(text, start)


@pytest.mark.skipif(native is None, reason="the helper in C was not built")
def test_the_helper_refuses_what_it_cannot_search_for() -> None:
    """A literal of one byte, and wrong arguments, raise instead of reading beyond memory."""
    assert native is not None
    for start, pairs, literals in (
        (0, b"", (b"abc",)),
        (-1, bytes(768), (b"abc",)),
        (0, bytes(768), (b"ab",)),
        (0, bytes(768), (b"abc",) * 600),
    ):
        with pytest.raises(ValueError, match=r"literal|tables"):
            native.find(b"text", start, pairs, literals)

    with pytest.raises(TypeError):
        native.find(b"text", 0, bytes(768), ("abc",))


def test_without_the_helper_the_same_is_found() -> None:
    """Python's `re` is only slower."""
    search = LiteralSearch((b"sk-", b"ghp_"), None)
    assert search.find(b"a key: ghp_1 sk-2") == 7
    assert search.find(b"a key: ghp_1 sk-2", 8) == 13
    assert search.find(b"nothing") == -1
    assert NOTHING_KNOWN.is_needed(b"ghp_" + b"a1" * 18)
