"""Claims about the codec: values survive a round trip, and unknown parts are kept."""

from __future__ import annotations

import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hankweave_protocol import codec
from hankweave_protocol.commands import COMMANDS, Command, CommandData, RollbackToCodon
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import (
    EVENTS,
    Event,
    EventData,
    ResultingState,
    StateTransition,
    TransitionBody,
)
from hankweave_protocol.ids import CodonId, CommandId, EventSeq, RunId, Sha
from hankweave_protocol.records import (
    CheckpointRecord,
    ExecutionMeta,
    RollbackIntent,
    RollbackReport,
    RuntimeLock,
    SkippedFile,
    TrafficMetadata,
    TrafficRecord,
)
from hankweave_protocol.replies import (
    CheckpointPage,
    CommandFailed,
    EventsPage,
    Failure,
    Handshake,
    HandshakeData,
    HandshakeResponse,
    ServerStatus,
)
from hankweave_protocol.shapes import Registry, Typed
from hankweave_protocol.state import State
from hankweave_protocol.transitions import TRANSITIONS, InitialCheckpointSet, Transition
from support.outcomes import outcome
from support.protocol_values import often_enough, refusal, texts, values_of

NOTHING_YET = ResultingState(current_run_id=None, run_count=0, total_cost=0.0, current_run_cost=0.0)

causes = st.lists(st.integers(1, 2**53) | texts, max_size=3).map(tuple)


@pytest.mark.parametrize("member", COMMANDS.members.values(), ids=lambda member: member.TYPE)
@often_enough
@given(data=st.data())
def test_a_command_comes_back_as_it_was_sent(
    member: type[CommandData], data: st.DataObject
) -> None:
    """decode(encode(x)) == x for every command with any content."""
    sent = Command(
        id=CommandId(data.draw(texts)), type=member.TYPE, data=data.draw(values_of(member))
    )
    assert codec.decode_command(codec.encode_command(sent.data, sent.id)) == sent
    assert codec.decode_command(codec.encode(sent).decode()) == sent


@pytest.mark.parametrize("member", EVENTS.members.values(), ids=lambda member: member.TYPE)
@often_enough
@given(data=st.data())
def test_an_event_comes_back_as_it_was_written(
    member: type[EventData], data: st.DataObject
) -> None:
    """decode(encode(x)) == x for every event with any content, and the encoding is one line."""
    written = Event(
        id=data.draw(texts),
        seq=EventSeq(data.draw(st.integers(1, 2**53)) if member.JOURNALED else 0),
        timestamp=data.draw(texts),
        type=member.TYPE,
        data=data.draw(values_of(member)),
        run_id=data.draw(st.none() | texts.map(RunId)),
        codon_id=data.draw(st.none() | texts.map(CodonId)),
        causes=data.draw(causes),
    )
    line = codec.encode(written)
    assert codec.decode_event(line) == written
    assert b"\n" not in line


@pytest.mark.parametrize("member", TRANSITIONS.members.values(), ids=lambda member: member.TYPE)
@often_enough
@given(data=st.data())
def test_a_transition_comes_back_as_it_was_written(
    member: type[Transition], data: st.DataObject
) -> None:
    """decode(encode(x)) == x for every transition, so the state can be folded again."""
    written = data.draw(values_of(member))
    assert codec.decode_transition_body(codec.transition_body(written)) == written


@pytest.mark.parametrize(
    "shape",
    [
        State,
        RuntimeLock,
        ExecutionMeta,
        RollbackIntent,
        CheckpointRecord,
        RollbackReport,
        CheckpointPage,
        EventsPage,
        ServerStatus,
        TrafficRecord,
        Handshake,
        HandshakeResponse,
        CommandFailed,
    ],
)
@often_enough
@given(data=st.data())
def test_a_file_or_reply_comes_back_as_it_was_written(shape: type, data: st.DataObject) -> None:
    """decode(encode(x)) == x for the content of files and for the server's replies."""
    written = data.draw(values_of(shape))
    assert codec.decode_value(shape, codec.encode(written)) == written


@pytest.mark.parametrize("registry", [COMMANDS, EVENTS, TRANSITIONS])
def test_every_subclass_is_in_its_registry(registry: Registry[Typed]) -> None:
    """No command, event or transition can be written that could not be read back."""
    base = {COMMANDS: CommandData, EVENTS: EventData, TRANSITIONS: Transition}[registry]
    named = {kind for kind in _subclasses(base) if "TYPE" in vars(kind)}
    assert named - {codec.UnknownEvent} == set(registry.members.values())


def test_there_are_hankweaves_fourteen_commands_and_ours() -> None:
    """Every command of a Hankweave client is known."""
    hankweaves = {
        "codon.start",
        "codon.next",
        "codon.skip",
        "codon.redo",
        "codon.forceStop",
        "checkpoint.list",
        "rollback.toCheckpoint",
        "rollback.toCodon",
        "rollback.toLastSuccess",
        "ping",
        "ping.broadcast",
        "history.sync",
        "server.shutdown",
        "server.force_shutdown",
    }
    assert len(hankweaves) == 14
    assert hankweaves < set(COMMANDS.names)


def test_two_members_of_a_union_cannot_share_a_type() -> None:
    """A registry refuses two members with the same type."""

    class Twin(InitialCheckpointSet):
        pass

    with pytest.raises(ValueError, match="share a type"):
        Registry(InitialCheckpointSet, Twin)


def test_a_command_without_data_has_its_defaults() -> None:
    """`data` may be omitted where none of its fields is required."""
    command = codec.decode_command('{"id": "1", "type": "rollback.toLastSuccess"}')
    assert command.data == COMMANDS.members["rollback.toLastSuccess"]()


def test_a_commands_unknown_keys_are_ignored() -> None:
    """A newer client can talk to an older server."""
    frame = '{"id": "1", "type": "ping", "data": {"later": true}, "x": 1}'
    assert codec.decode_command(frame) == codec.decode_command('{"id": "1", "type": "ping"}')


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        ("rollback.toCodons", "rollback.toCodon"),
        ("codon.forcestop", "codon.forceStop"),
        ("checkpoints.list", "checkpoint.list"),
        ("server.shutdwn", "server.shutdown"),
    ],
)
def test_an_unknown_command_is_refused_with_the_nearest_one(sent: str, meant: str) -> None:
    """The error suggests the known type that is most similar."""
    refused = refusal(f'{{"id": "1", "type": "{sent}"}}')
    assert (refused.code, refused.path) == (ErrorCode.UNKNOWN_COMMAND, "$.type")
    assert refused.hint == f"Did you mean '{meant}'?"


def test_a_command_like_no_other_is_refused_with_all_there_are() -> None:
    """Without a similar type, the error lists all of them."""
    hint = refusal('{"id": "1", "type": "zzzzz"}').hint
    assert hint is not None
    assert all(name in hint for name in COMMANDS.names)


@pytest.mark.parametrize(
    ("frame", "path"),
    [
        ('{"type": "ping"}', "$.id"),
        ('{"id": 1, "type": "ping"}', "$.id"),
        ('{"id": "1"}', "$"),
        ('{"id": "1", "type": 4}', "$.type"),
        ('{"id": "1", "type": "ping", "data": []}', "$.data"),
        ('{"id": "1", "type": "ping", "data": null}', "$.data"),
        ('{"id": "1", "type": "codon.start", "data": {}}', "$.data"),
        ('{"id": "1", "type": "codon.start", "data": {"codonId": 7}}', "$.data.codonId"),
        (
            '{"id": "1", "type": "rollback.toCodon", '
            '"data": {"codonId": "a", "checkpointType": "middle"}}',
            "$.data.checkpointType",
        ),
        (
            '{"id": "1", "type": "checkpoint.list", "data": {"kinds": ["completed", "good"]}}',
            "$.data.kinds[1]",
        ),
        ('{"id": "1", "type": "checkpoint.list", "data": {"limit": 0}}', "$.data.limit"),
        ('{"id": "1", "type": "history.sync", "data": {"sinceSeq": -1}}', "$.data.sinceSeq"),
        ("[]", "$"),
        ("null", "$"),
        ('"ping"', "$"),
    ],
)
def test_a_wrong_command_is_refused_with_the_path_of_the_fault(frame: str, path: str) -> None:
    """The sender learns which field is wrong."""
    refused = refusal(frame)
    assert (refused.code, refused.path) == (ErrorCode.INVALID_COMMAND, path)


@given(texts, st.binary(max_size=40))
def test_anything_at_all_is_decoded_or_refused(text: str, data: bytes) -> None:
    """For any frame, the codec raises no exception but Refused."""
    for frame in (text, data):
        for decode in (codec.decode_command, codec.decode_event, codec.decode_handshake):
            decoded = outcome(Refused, decode, frame)
            assert not isinstance(decoded, Refused) or decoded.message


@given(st.data())
def test_a_command_cut_off_anywhere_is_refused(data: st.DataObject) -> None:
    """Half a frame is never accepted as a whole one."""
    member = data.draw(st.sampled_from(list(COMMANDS.members.values())))
    frame = codec.encode_command(data.draw(values_of(member)), CommandId("1"))
    with pytest.raises(Refused):
        codec.decode_command(frame[: data.draw(st.integers(0, len(frame) - 1))])


# --- unknown types --------------------------------------------------------------------------------

NEWER = b'{"id":"e","seq":7,"timestamp":"t","type":"moon.rose","data":{"full":true},"causes":[3]}'


def test_an_unknown_event_is_kept_as_it_came() -> None:
    """A newer server's event reaches the reader whole, under its own name."""
    event = codec.decode_event(NEWER)
    assert (event.type, event.seq, event.causes) == ("moon.rose", 7, (3,))
    assert isinstance(event.data, codec.UnknownEvent)
    assert bytes(event.data.raw) == b'{"full":true}'


def test_an_unknown_event_is_written_as_it_came() -> None:
    """A program that forwards events forwards those of a newer server too."""
    assert codec.encode(codec.decode_event(NEWER)) == NEWER


def test_an_unknown_transition_is_refused() -> None:
    """A state must not be folded from an incomplete set of changes."""
    body = TransitionBody(type="MoonRose", data=msgspec.Raw(b"{}"))
    with pytest.raises(Refused, match="newer version"):
        codec.decode_transition_body(body)


def test_an_event_without_a_seq_is_written_without_one() -> None:
    """A reply to one client is not in the journal, so it has no seq."""
    frame = b'{"id":"e","timestamp":"t","type":"pong","data":{"message":"pong","timestamp":"t"}}'
    event = codec.decode_event(frame)
    assert event.seq == 0
    assert codec.encode(event) == frame


def test_a_transition_in_an_event_is_read_in_two_steps() -> None:
    """A reader that does not fold need not decode the transition's data."""
    transition = InitialCheckpointSet(checkpoint_sha=Sha("a" * 40))
    line = codec.encode(
        Event(
            id="e",
            seq=EventSeq(1),
            timestamp="t",
            type=StateTransition.TYPE,
            data=StateTransition(
                transition_type=transition.TYPE,
                transition=codec.transition_body(transition),
                resulting_state=NOTHING_YET,
            ),
        )
    )
    data = codec.decode_event(line).data
    assert isinstance(data, StateTransition)
    assert codec.decode_transition(data) == transition


# --- file names -----------------------------------------------------------------------------------


@given(st.binary(min_size=1, max_size=12))
def test_any_file_name_can_be_written(name: bytes) -> None:
    """A file's name is bytes, and every name can be part of an event or a report."""
    skipped = SkippedFile(path=os.fsdecode(name), reason="unreadable")
    shown = json.loads(codec.encode(skipped))["path"]
    assert shown == name.decode("utf-8", "backslashreplace")


def test_a_strange_name_is_written_wherever_it_stands() -> None:
    """Nested values, keys, and values beside ones that are encoded already may hold such a name."""
    record = TrafficRecord(
        logged_at="caf\udce9",
        direction="in",
        message=msgspec.Raw(b'{"a":[1,"x"]}'),
        metadata=TrafficMetadata(size=1),
    )
    assert json.loads(codec.encode({"\udcff": (record, "\ud83d")})) == {
        "\\xff": [
            {
                "loggedAt": "caf\\xe9",
                "direction": "in",
                "message": {"a": [1, "x"]},
                "metadata": {"size": 1},
            },
            "�",
        ]
    }


def test_what_is_no_value_is_not_written() -> None:
    """A value that JSON cannot hold is an error, with or without an unusual file name."""
    for value in (object(), {"\udcff": object()}):
        with pytest.raises(TypeError):
            codec.encode(value)


# --- on the wire ----------------------------------------------------------------------------------


def test_keys_are_camel_case_and_defaults_are_left_out() -> None:
    """The encoding is as in the README: short, and with Hankweave's spelling."""
    command = RollbackToCodon(codon_id=CodonId("a"), checkpoint_type="end", auto_restart=True)
    assert json.loads(codec.encode_command(command, CommandId("1"))) == {
        "id": "1",
        "type": "rollback.toCodon",
        "data": {"autoRestart": True, "codonId": "a", "checkpointType": "end"},
    }


def test_a_required_null_is_written() -> None:
    """A required field is written even if it is null."""
    lock = RuntimeLock(pid=1, run_id=None, start_time="t", last_heartbeat="t")
    assert json.loads(codec.encode(lock)) == {
        "pid": 1,
        "runId": None,
        "startTime": "t",
        "lastHeartbeat": "t",
    }


def test_a_handshake_needs_nothing_but_a_mode() -> None:
    """Hankweave's clients send only a mode, without an id."""
    hello = codec.decode_handshake('{"type": "handshake", "data": {"mode": "readonly"}}')
    assert hello.data == HandshakeData(mode="readonly")


def test_a_handshake_with_another_mode_is_refused() -> None:
    """There are two modes, and a third is never granted by accident."""
    with pytest.raises(Refused) as caught:
        codec.decode_handshake('{"type": "handshake", "data": {"mode": "admin"}}')

    assert caught.value.path == "$.data.mode"


def test_a_failure_carries_its_code_as_text() -> None:
    """Programs branch on the code; it is the same on the wire and in the enumeration."""
    failed = CommandFailed(
        in_reply_to=None,
        timestamp="t",
        data=Failure(code=ErrorCode.STALE_RUN, message="m"),
    )
    assert json.loads(codec.encode(failed))["data"] == {"code": "STALE_RUN", "message": "m"}
    assert all(code.name == code.value for code in ErrorCode)


def test_values_cannot_be_changed() -> None:
    """All readers of a value see the same content."""
    lock = RuntimeLock(pid=1, run_id=RunId("r"), start_time="t", last_heartbeat="t")
    with pytest.raises(AttributeError):
        lock.pid = 2


def _subclasses(kind: type) -> set[type]:
    direct: list[type] = kind.__subclasses__()
    return {*direct, *(deeper for each in direct for deeper in _subclasses(each))}


def test_threads_examine_types_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads that make the first decoders of a type at the same time crash the process."""
    kinds: list[Any] = [msgspec.defstruct(f"Kind{number}", [("x", int)]) for number in range(8)]
    make, inside, together, made = msgspec.json.Decoder, [0], [], []
    ready = threading.Barrier(16)

    def watched(kind: Any) -> msgspec.json.Decoder[Any]:
        inside[0] += 1
        for _ in range(100):
            time.sleep(0)  # Let others come.
            together.append(inside[0])

        made.append(kind)
        inside[0] -= 1
        return make(kind)

    def decoded(kind: Any) -> int:
        ready.wait()
        return int(codec.decode_value(kind, b'{"x": 1}').x)

    monkeypatch.setattr(msgspec.json, "Decoder", watched)
    with ThreadPoolExecutor(16) as threads:
        assert list(threads.map(decoded, kinds * 2)) == [1] * 16

    assert set(together) == {1}
    assert sorted(kind.__name__ for kind in made) == [kind.__name__ for kind in kinds]
