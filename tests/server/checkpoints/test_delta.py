"""A delta makes its target from its base, for all bytes, and is small where little changed."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hankweave_server.git import delta as git_delta
from hankweave_server.git.delta import Base

ANY = 1 << 30


def applied(base: bytes, delta: bytes) -> bytes:
    """Return what the instructions of a delta make, as gitformat-pack describes them."""
    source = iter(delta)

    def number() -> int:
        value = shift = 0
        while True:
            byte = next(source)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    assert number() == len(base)
    size = number()
    made = bytearray()
    for code in source:
        assert code, "reserved"
        if code & 0x80:
            read = [next(source) if code >> bit & 1 else 0 for bit in range(7)]
            offset = int.from_bytes(bytes(read[:4]), "little")
            length = int.from_bytes(bytes(read[4:]), "little") or 0x10000
            assert offset + length <= len(base)
            made += base[offset : offset + length]
        else:
            made += bytes(next(source) for _ in range(code))

    assert len(made) == size
    return bytes(made)


pieces = st.lists(
    st.one_of(
        st.sampled_from([b"\n", b"\0" * 40, b"the same line again and again\n", b"};"]),
        st.binary(max_size=60),
    ),
    max_size=40,
)


@given(pieces, st.data())
@settings(max_examples=300, deadline=None)
def test_a_delta_makes_its_target(parts: list[bytes], data: st.DataObject) -> None:
    """Whatever was inserted, removed, replaced or moved."""
    changed = list(parts)
    for _ in range(data.draw(st.integers(0, 6))):
        at = data.draw(st.integers(0, len(changed)))
        match data.draw(st.integers(0, 2)):
            case 0:
                changed[at:at] = [data.draw(st.binary(max_size=200))]
            case 1:
                del changed[at : at + 2]
            case _:
                changed[at:at] = parts[: data.draw(st.integers(0, len(parts)))]

    base, target = b"".join(parts), b"".join(changed)
    delta = Base(base).delta(target, ANY)
    assert delta is not None
    assert applied(base, delta) == target == git_delta.applied(delta, base)


def test_what_is_no_delta_to_that_base_is_refused() -> None:
    """Another base, a delta that was cut off, and any changed byte make no other target."""
    base, target = b"a line\n" * 50, b"a line\n" * 20 + b"another\n" + b"a line\n" * 30
    delta = Base(base).delta(target, ANY)
    assert delta is not None
    for wrong, source in [(delta, base[1:]), *((delta[:size], base) for size in range(len(delta)))]:
        with pytest.raises((IndexError, ValueError)):
            git_delta.applied(wrong, source)


def lines(count: int, seed: int) -> list[bytes]:
    chance = random.Random(seed)  # Reproducible, not secret.
    return [b"%048x\n" % chance.getrandbits(192) for _ in range(count)]


@pytest.mark.parametrize("seed", range(5))
def test_few_changed_lines_make_a_small_delta(seed: int) -> None:
    """Three of two thousand lines, one inserted and one removed: some hundred bytes."""
    old, new = lines(2000, seed), lines(3, -1 - seed)
    changed = list(old)
    for line in new:
        changed[random.Random(line).randrange(2000)] = line

    changed.insert(100, b"inserted\n")
    del changed[900]
    delta = Base(b"".join(old)).delta(b"".join(changed), ANY)
    assert delta is not None
    assert len(delta) < 400


def test_changed_pages_of_a_database_make_a_small_delta() -> None:
    """Bytes that are replaced in their place are found, also where there is no line."""
    chance = random.Random(3)  # Reproducible, not secret.
    old = bytes(chance.choices(range(1, 9), k=200_000))
    changed = bytearray(old)
    for page in (3, 17, 40):
        changed[page * 4096 : page * 4096 + 100] = chance.randbytes(100)

    delta = Base(old).delta(bytes(changed), ANY)
    assert delta is not None
    assert len(delta) < 1000


def test_what_is_too_different_has_no_delta() -> None:
    """The comparison ends as soon as the result would be too long."""
    old, new = b"".join(lines(2000, 1)), b"".join(lines(2000, 2))
    assert Base(old).delta(new, len(new) // 2) is None


def test_a_copy_of_more_than_64_kilobytes_is_divided() -> None:
    """Pack version 2 has sixteen bits for the length of a copy."""
    old = b"".join(lines(5000, 1))
    delta = Base(old).delta(old + b"end\n", ANY)
    assert delta is not None
    assert len(delta) < 60
    assert applied(old, delta) == old + b"end\n"
