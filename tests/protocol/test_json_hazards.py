"""Claims about malicious or damaged JSON (DESIGN 13, "Traps")."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hankweave_protocol import codec
from hankweave_protocol.commands import ListCheckpoints, Ping, ServerShutdown
from hankweave_protocol.errors import ErrorCode, Refused
from support.protocol_values import json_values, refusal

PING = '{"id": "1", "type": "ping"}'


def ping_with(value: str) -> str:
    return f'{{"id": "1", "type": "ping", "data": {{"x": {value}}}}}'


def list_with(limit: str) -> str:
    return f'{{"id": "1", "type": "checkpoint.list", "data": {{"limit": {limit}}}}}'


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param("", id="nothing"),
        pytest.param(" \n", id="blanks"),
        pytest.param("{", id="half an object"),
        pytest.param(PING + " x", id="something after it"),
        pytest.param(PING + PING, id="two values"),
        pytest.param(PING + "\n" + PING, id="two lines"),
        pytest.param("{'id': '1', 'type': 'ping'}", id="single quotes"),
        pytest.param('{"id": "1", "type": "ping",}', id="trailing comma"),
        pytest.param('{"id": "1", "type": "ping"} // go', id="comment"),
        pytest.param('{"id": "1", "type": "pi\nng"}', id="newline in a string"),
        pytest.param('{"id": "1", "type": "pi\x00ng"}', id="NUL in a string"),
        pytest.param(ping_with("NaN"), id="NaN"),
        pytest.param(ping_with("Infinity"), id="Infinity"),
        pytest.param(ping_with("-Infinity"), id="minus Infinity"),
        pytest.param(ping_with("01"), id="leading zero"),
        pytest.param(ping_with("+1"), id="plus"),
        pytest.param(ping_with("0x10"), id="hexadecimal"),
        pytest.param("\ufeff" + PING, id="byte order mark"),
        pytest.param(b"\xef\xbb\xbf" + PING.encode(), id="byte order mark in bytes"),
        pytest.param(PING.encode("utf-16"), id="UTF-16"),
        pytest.param(b'{"id": "\xff", "type": "ping"}', id="bad UTF-8"),
        pytest.param(b'{"id": "\xed\xa0\x80", "type": "ping"}', id="surrogate in UTF-8"),
        pytest.param(b'{"id": "\xc0\xaf", "type": "ping"}', id="overlong UTF-8"),
        pytest.param('{"id": "\ud800", "type": "ping"}', id="lone surrogate"),
        pytest.param('{"id": "\\ud800", "type": "ping"}', id="lone surrogate, escaped"),
        pytest.param('{"id": "\\udc00\\ud800", "type": "ping"}', id="surrogates the wrong way"),
    ],
)
def test_what_is_no_json_is_refused_as_such(frame: str | bytes) -> None:
    """The sender is told that it is not JSON, with no other effect."""
    with pytest.raises(Refused) as caught:
        codec.decode_command(frame)

    assert caught.value.code == ErrorCode.MALFORMED_JSON
    assert caught.value.message.startswith("This is not JSON")


@pytest.mark.parametrize("limit", ["9" * 5_000, "1e400", "-1e400", "1.5", "2.0", '"2"', "true"])
def test_a_number_of_the_wrong_kind_is_refused_where_it_stands(limit: str) -> None:
    """A huge, broken or quoted number is a fault of its field, and no crash."""
    with pytest.raises(Refused) as caught:
        codec.decode_command(list_with(limit))

    assert caught.value.code == ErrorCode.INVALID_COMMAND
    assert caught.value.path == "$.data.limit"


def test_a_number_beyond_64_bits_is_a_number() -> None:
    """Python's integers are unbounded, and msgspec decodes them."""
    data = codec.decode_command(list_with(str(10**30))).data
    assert data == ListCheckpoints(limit=10**30)


def test_the_last_of_two_equal_keys_counts() -> None:
    """A duplicate key is not refused: the last one counts, for `type` too."""
    command = codec.decode_command(
        '{"id": "1", "type": "ping", "type": "server.shutdown", "id": "2", '
        '"data": {"reason": "a"}, "data": {"reason": "b", "reason": "c"}}'
    )
    assert (command.id, command.data) == ("2", ServerShutdown(reason="c"))


@pytest.mark.parametrize("opener", ["[", '{"a":'])
def test_nesting_is_allowed_up_to_the_limit(opener: str) -> None:
    """The limit is exactly the documented one."""
    closer = "]" if opener == "[" else "}"
    for depth, fits in ((codec.MAX_DEPTH, True), (codec.MAX_DEPTH + 1, False)):
        inner = depth - 2  # The frame and its data are two.
        frame = ping_with(opener * inner + "1" + closer * inner)
        if fits:
            codec.decode_command(frame)
        else:
            assert refusal(frame).message == "The frame nests deeper than 64 levels."


@pytest.mark.parametrize("depth", [1_000, 100_000, 500_000])
def test_deep_nesting_is_refused_however_deep(depth: int) -> None:
    """Nested brackets exhaust neither stack nor time, closed or not."""
    for frame in (ping_with("[" * depth + "]" * depth), ping_with("[" * depth), "[" * depth):
        assert refusal(frame).code == ErrorCode.MALFORMED_JSON


@pytest.mark.parametrize(
    "text",
    ["[" * 200, "{" * 200, '\\"[' * 100, "\\\\" * 50 + "[" * 200, "\\u005b" * 200 + "[" * 100],
)
def test_brackets_inside_a_string_are_no_nesting(text: str) -> None:
    """A command's text may contain any number of brackets."""
    command = codec.decode_command(
        f'{{"id": "1", "type": "server.shutdown", "data": {{"reason": "{text}"}}}}'
    )
    assert command.data == ServerShutdown(reason=json.loads(f'"{text}"'))


def test_many_brackets_side_by_side_are_no_nesting() -> None:
    """The limit applies to the depth, not to the number."""
    assert codec.decode_command(ping_with("[" + ",".join(["[]"] * 5_000) + "]")).data == Ping()


@given(json_values, st.integers(0, 70))
def test_the_depth_that_is_counted_is_the_depth_that_is_there(value: object, ctx: int) -> None:
    """The scan that guards the parser agrees with the parser."""
    for _ in range(ctx):
        value = [value]

    text = json.dumps({"id": "1", "type": "ping", "data": {"x": value}})
    if _depth(value) + 2 <= codec.MAX_DEPTH:
        codec.decode_command(text)
    else:
        assert refusal(text).code == ErrorCode.MALFORMED_JSON


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('"' + "\\\\" * 500_000 + '"', id="backslashes"),
        pytest.param('"' + '\\"' * 500_000 + '"', id="quotes"),
        pytest.param('"' + "x" * 1_000_000, id="a string without an end"),
        pytest.param("[" + ",".join(["{}"] * 300_000) + "]", id="brackets"),
        pytest.param("\\" * 1_000_000, id="backslashes outside a string"),
    ],
)
def test_a_full_frame_is_read_once(text: str) -> None:
    """No frame of a megabyte makes the scan quadratic, which would take many minutes."""
    assert refusal(ping_with(text + ", " + "[" * 100)).code == ErrorCode.MALFORMED_JSON


def _depth(value: object) -> int:
    match value:
        case list():
            return 1 + max(map(_depth, value), default=0)
        case dict():
            return 1 + max(map(_depth, value.values()), default=0)
        case _:
            return 0
