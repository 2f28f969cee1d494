"""Claims about protocol/asyncapi.json and protocol/hankweave.d.ts: complete and up to date."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from codegen.catalogue import FILES, command_name, event_name, references, reply_name
from codegen.exports import EXPORTS, folded
from hankweave_protocol import codec
from hankweave_protocol.commands import COMMANDS
from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.events import EVENTS, EventData, HistoryBatch
from hankweave_protocol.replies import EventsPage
from hankweave_protocol.shapes import Typed
from hankweave_protocol.transitions import TRANSITIONS
from support.node_tools import node_modules
from support.protocol_values import json_values, often_enough, values_of
from support.readme_examples import Example, all_examples

TOP = Path(__file__).resolve().parents[2]
PROTOCOL = TOP / "protocol"
TOOLS = str(TOP / "tools")
DOCUMENT: dict[str, Any] = json.loads((PROTOCOL / "asyncapi.json").read_text())
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
OWN_TO_THE_SERVER = {"file runtime.lock.guard"}
EXAMPLES = [example for example in all_examples() if example.kind not in OWN_TO_THE_SERVER]


def validator(name: str) -> Draft7Validator:
    """Return a validator for one schema of the document, which may refer to the others."""
    root = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    return Draft7Validator(root)


def schema_of(example: Example) -> str:
    """Return the schema that an example on the page belongs to."""
    assert example.kind is not None
    kind, _, rest = example.kind.partition(" ")
    match kind, rest:
        case "command" | "event", "":
            return f"{kind}.{json.loads(example.text)['type']}"
        case "reply", command:
            return f"reply.{command}"
        case "file", "events.jsonl":
            return "AnyEvent"
        case "file", "websocket.log":
            return "TrafficRecord"
        case "file", name:
            return FILES[name].__name__
        case _:
            names = {
                "handshake": "Handshake",
                "handshake.response": "HandshakeResponse",
                "failure": "CommandFailed",
                "state": "CodonExecution",
            }
            return names[kind]


# --- up to date ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "file"),
    [("hank", "hank.schema.json"), ("asyncapi", "asyncapi.json"), ("typescript", "hankweave.d.ts")],
)
def test_a_file_in_the_repository_is_what_the_shapes_make(name: str, file: str) -> None:
    """`scripts/export-schema --update` would change nothing."""
    assert (PROTOCOL / file).read_text() == EXPORTS[name](), "run scripts/export-schema --update"


def test_the_same_shapes_make_the_same_bytes() -> None:
    """The output does not depend on the order in which a process iterates over its sets."""
    made = {
        subprocess.run(
            [sys.executable, "-m", "codegen.exports", name],
            env=os.environ | {"PYTHONPATH": TOOLS, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for name in ("asyncapi", "typescript")
        for seed in ("1", "2", "3")
    }
    assert len(made) == 2


def test_an_export_that_does_not_exist_is_refused() -> None:
    """For a misspelt name stdout is empty, and stderr lists the valid names."""
    asked = subprocess.run(
        [sys.executable, "-m", "codegen.exports", "typescrpt"],
        env=os.environ | {"PYTHONPATH": TOOLS},
        capture_output=True,
        check=False,
    )
    assert (asked.returncode, asked.stdout) == (2, b"")
    assert b"typescript" in asked.stderr


@given(json_values)
def test_folded_json_is_the_same_json(value: Any) -> None:
    """Formatting it for people changes only white space."""
    assert json.loads(folded(value)) == value


# --- AsyncAPI -----------------------------------------------------------------------------------


def pointed(target: str) -> Any:
    found: Any = DOCUMENT
    for step in target.removeprefix("#/").split("/"):
        found = found[step]

    return found


def test_every_reference_leads_somewhere() -> None:
    """No reference in the document is dangling or leaves the document."""
    targets = set(references(DOCUMENT))
    assert len(targets) > 300
    for target in targets:
        assert pointed(target), target


def test_every_message_has_a_schema_and_an_operation() -> None:
    """Every message is sent by some operation and has a payload."""
    messages = DOCUMENT["channels"]["wire"]["messages"]
    assert set(messages) == set(DOCUMENT["components"]["messages"])
    for message in DOCUMENT["components"]["messages"].values():
        assert message["payload"]["$ref"].startswith("#/components/schemas/")

    # A forced end has no reply.
    used = {target.rpartition("/")[2] for target in references(DOCUMENT["operations"])}
    assert set(messages) - used == {"reply.server.force_shutdown"}


def test_every_schema_is_used() -> None:
    """Besides the frames there are only shapes that a frame or a file consists of."""
    roots = {message["payload"]["$ref"] for message in DOCUMENT["components"]["messages"].values()}
    roots |= {f"#/components/schemas/{kind.__name__}" for kind in FILES.values()}
    roots.add("#/components/schemas/TrafficRecord")
    reached: set[str] = set()
    while roots:
        reached |= roots
        roots = {inner for target in roots for inner in references(pointed(target))} - reached

    unused = {name for name in SCHEMAS if f"#/components/schemas/{name}" not in reached}
    assert unused == {"ActiveCodon", "CodonStatus", "TerminalCodon"} & unused


def test_the_whole_protocol_is_in_the_document() -> None:
    """The document has every command with its reply, and every event, transition and error code."""
    messages, operations = DOCUMENT["components"]["messages"], DOCUMENT["operations"]
    assert set(operations) == {"handshake", "events", *COMMANDS.names}
    assert {command_name(member) for member in COMMANDS.members.values()} <= set(messages)
    assert {reply_name(member) for member in COMMANDS.members.values()} <= set(messages)
    assert {event_name(member) for member in EVENTS.members.values()} <= set(messages)
    assert set(SCHEMAS["ErrorCode"]["enum"]) == {code.value for code in ErrorCode}
    types = [part["properties"]["type"]["const"] for part in SCHEMAS["Transition"]["oneOf"]]
    assert types == list(TRANSITIONS.names)


def test_a_command_says_whether_it_changes_something() -> None:
    """An author of a user interface can see which commands a viewer may send."""
    for name, member in COMMANDS.members.items():
        operation = DOCUMENT["operations"][name]
        assert operation["x-changes"] is member.MUTATES
        assert operation["x-during-rollback"] is member.DURING_ROLLBACK


def test_nothing_of_the_house_is_in_the_document() -> None:
    """References to internal documents do not concern authors of clients."""
    for file in ("asyncapi.json", "hankweave.d.ts"):
        text = (PROTOCOL / file).read_text()
        assert "(DESIGN" not in text
        assert "(seed" not in text


def test_the_document_is_valid_by_its_own_rules() -> None:
    """The meta schema of AsyncAPI 3 accepts it, and does not accept everything."""
    meta_path = node_modules() / "@asyncapi" / "specs" / "schemas" / "3.0.0.json"
    meta = Draft7Validator(json.loads(meta_path.read_text()))
    assert [error.message for error in meta.iter_errors(DOCUMENT)] == []
    assert not meta.is_valid(DOCUMENT | {"operations": {"x": {"action": "fly"}}})


# --- schemas ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_one(name: str) -> None:
    """Draft 7, which AsyncAPI uses, accepts each of them."""
    Draft7Validator.check_schema(SCHEMAS[name])


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_an_example_of_the_page_fits_its_schema(example: Example) -> None:
    """The examples of protocol/README.md and the reference match the document."""
    assert_fits(schema_of(example), example.text)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_an_example_that_is_spoilt_fits_no_more(example: Example) -> None:
    """These tests can fail: without any one of its required keys, the example is refused."""
    value, check = json.loads(example.text), validator(schema_of(example))
    must = {"type", "mode", "status", "pid", "checkpointSha", "operationId", "version", "runs"}
    for key in must & set(value):
        spoilt = {name: part for name, part in value.items() if name != key}
        assert not check.is_valid(spoilt), key
        assert not check.is_valid(value | {key: ["none such"]}), key


@pytest.mark.parametrize(
    "member",
    [kind for kind in EVENTS.members.values() if kind is not HistoryBatch],
    ids=lambda kind: kind.TYPE,
)
@often_enough
@given(st.data())
def test_any_event_fits(member: type[EventData], data: st.DataObject) -> None:
    """For anything the codec writes as an event's data, its schema accepts it."""
    assert_fits(member.__name__, codec.encode(data.draw(values_of(member))))


@pytest.mark.parametrize("member", COMMANDS.members.values(), ids=lambda kind: kind.TYPE)
@often_enough
@given(st.data())
def test_any_command_fits(member: type[Typed], data: st.DataObject) -> None:
    """For anything the codec writes as a command's data, its schema accepts it."""
    assert_fits(member.__name__, codec.encode(data.draw(values_of(member))))


REPLIES = [
    member.REPLY
    for member in COMMANDS.members.values()
    if member.REPLY is not None and member.REPLY is not EventsPage
]


@pytest.mark.parametrize(
    "kind",
    list(dict.fromkeys(REPLIES)),
    ids=lambda kind: kind.__name__,
)
@often_enough
@given(st.data())
def test_any_answer_fits(kind: type, data: st.DataObject) -> None:
    """For anything the codec writes as a reply's data, its schema accepts it."""
    assert_fits(kind.__name__, codec.encode(data.draw(values_of(kind))))


def assert_fits(schema: str, encoded: str | bytes) -> None:
    faults = validator(schema).iter_errors(json.loads(encoded))
    assert [error.message for error in faults] == []


# --- TypeScript ---------------------------------------------------------------------------------


def compiled(folder: Path, *files: str, options: tuple[str, ...] = ()) -> list[str]:
    """Run tsc --strict over files of a folder; return its errors."""
    modules = node_modules()
    (folder / "node_modules").symlink_to(modules)
    done = subprocess.run(
        [modules / ".bin" / "tsc", "--noEmit", "--strict", "--pretty", "false", *options, *files],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 or done.stdout, done.stderr
    return done.stdout.splitlines()


def type_of(example: Example) -> str:
    """Return the type that an example on the page belongs to."""
    name = schema_of(example)
    kind, _, rest = name.partition(".")
    match kind:
        case "command":
            return f'wire.CommandOf<"{rest}">'
        case "event":
            return f'wire.EventOf<"{rest}">'
        case "reply":
            return f'wire.ReplyTo<"{rest}">'
        case _:
            return f"wire.{name}"


def test_the_types_accept_every_example_of_the_page(tmp_path: Path) -> None:
    """`tsc --strict` reports no error for the page's examples, key for key."""
    shutil.copy(PROTOCOL / "hankweave.d.ts", tmp_path)
    constants = [
        f"export const {example.page.lower().partition('.')[0]}{example.line}: "
        f"{type_of(example)} = {example.text};"
        for example in EXAMPLES
    ]
    page = 'import type * as wire from "./hankweave";\n' + "\n".join(constants)
    (tmp_path / "page.ts").write_text(page)
    assert compiled(tmp_path, "page.ts", "hankweave.d.ts") == []


def test_a_sample_program_compiles_and_a_wrong_one_does_not(tmp_path: Path) -> None:
    """Unions narrow by `type` and `status`, replies follow their commands, mistakes are found."""
    shutil.copy(PROTOCOL / "hankweave.d.ts", tmp_path)
    (tmp_path / "sample.ts").write_text(SAMPLE)
    (tmp_path / "wrong.ts").write_text(WRONG)
    complaints = compiled(tmp_path, "sample.ts", "wrong.ts")
    assert [line.partition("(")[0] for line in complaints if not line.startswith(" ")] == [
        "wrong.ts"
    ] * WRONG.count("// wrong")


def test_the_javascript_example_is_typed(tmp_path: Path) -> None:
    """`tsc --checkJs` reports no error for examples/clients/follow.mjs."""
    for folder in ("protocol", "examples/clients"):
        (tmp_path / folder).mkdir(parents=True)

    shutil.copy(PROTOCOL / "hankweave.d.ts", tmp_path / "protocol")
    shutil.copy(TOP / "examples" / "clients" / "follow.mjs", tmp_path / "examples" / "clients")
    options = ("--checkJs", "--target", "es2022", "--module", "nodenext", "--types", "node")
    assert compiled(tmp_path, "examples/clients/follow.mjs", options=options) == []


SAMPLE = """\
import type {
  AnyEvent, ClientFrame, CodonExecution, Commands, CommandType, Replies, ServerFrame, State,
  Transition,
} from "./hankweave";

export const hello: ClientFrame = {
  type: "handshake", data: { mode: "readonly", protocolVersion: 1, sinceSeq: 0 },
};
export const ask: ClientFrame = { id: "c-1", type: "state.get" };

export function sentence(event: AnyEvent): string {
  switch (event.type) {
    case "codon.completed":
      return event.data.success ? "done" : (event.data.failureReason?.message ?? "failed");
    case "rollback.completed":
      return event.data.checkpoint;
    default:
      return event.type;
  }
}

export function cost(codon: CodonExecution): number {
  switch (codon.status) {
    case "running":
    case "completing-sentinels":
      return codon.currentCost;
    case "completed":
      return codon.finalCost;
    case "failed":
    case "skipped":
      return codon.partialCost;
    case "preparing":
    case "starting":
    case "initializing":
      return 0;
    default: {
      const none: never = codon;
      return none;
    }
  }
}

export function take(frame: ServerFrame): string {
  if (frame.type === "handshake.response") return frame.data.clientId;
  if (frame.type === "command.failed") return frame.data.hint ?? frame.data.code;
  if (frame.type === "command.succeeded") return frame.inReplyTo;
  return sentence(frame);
}

export function folded(state: State, change: Transition): State {
  if (change.type !== "RunStarted") return state;
  return { ...state, runs: [change.data.run, ...state.runs], currentRunId: change.data.run.runId };
}

declare function send<T extends CommandType>(type: T, data: Commands[T]): Promise<Replies[T]>;

export async function undone(): Promise<string[]> {
  const report = await send("rollback.undo", {});
  const state: State = await send("state.get", {});
  return [state.runs[0].runId, ...report.added.map((file) => file.path)];
}
"""

WRONG = """\
import type { AnyEvent, ClientFrame, CodonExecution } from "./hankweave";
const a: ClientFrame = { id: "c", type: "codon.begin" }; // wrong
const b: ClientFrame = { id: "c", type: "rollback.toCodon" }; // wrong
const c: ClientFrame = { id: "c", type: "store.gc", data: { dryRum: true } }; // wrong
function d(event: AnyEvent) { return event.data.codonId; } // wrong
function e(event: AnyEvent) { return event.type === "codon.begun"; } // wrong
function f(codon: CodonExecution) { return codon.finalCost; } // wrong
"""
