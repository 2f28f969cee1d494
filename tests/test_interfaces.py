"""Golden tests of the interfaces that must not change by accident.

Each test records one interface as lines of text and compares them with a file in
tests/golden/interfaces: `cli.txt` (commands, options, settings, exit codes), `protocol.txt` (names
and fields of the wire and of files), `execution.txt` (the output of one execution on disk: files,
journal, refs, commits, log formats) and `prose.txt` (messages, hints and log texts, which may be
reworded). `scripts/test --update-golden` rewrites them; the diff then shows what changed.
docs/reference/commands.md pins the help texts, protocol/asyncapi.json the types.
"""

from __future__ import annotations

import json
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from codegen.catalogue import FILES
from hankweave_client.client import Client
from hankweave_client.errors import CommandRefused
from hankweave_protocol import commands
from hankweave_protocol.commands import (
    COMMANDS,
    CheckpointCreate,
    CheckpointPin,
    RollbackToCodon,
    RollbackUndo,
)
from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.events import EVENTS
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.shapes import Typed, Value
from hankweave_protocol.transitions import TRANSITIONS
from hankweave_server import config
from hankweave_server.cli.app import PLACES, cli
from hankweave_server.errors import ExitCode
from support.command_line import hankweave
from support.git_facts import GitWitness
from support.golden_files import GoldenFiles, Normaliser
from support.running_server import running_server
from support.scripted_hank import codon, write_hank, writes
from support.watching import idle


def text_of(lines: Iterator[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def test_a_change_is_reported_with_what_to_do() -> None:
    """The difference is shown line by line, and nothing is written."""
    with pytest.raises(AssertionError, match=r"--update-golden") as caught:
        GoldenFiles(update=False).check("interfaces/cli.txt", "exit code 0: DONE\nno more\n")

    assert "+no more" in str(caught.value).splitlines()
    assert "-exit code 1: FAILED" in str(caught.value).splitlines()


# --- command line -------------------------------------------------------------------------------


def test_commands_options_settings_and_exit_codes(golden: GoldenFiles) -> None:
    golden.check("interfaces/cli.txt", text_of(command_line()))


def command_line() -> Iterator[str]:
    yield from (f"exit code {code.value}: {code.name}" for code in ExitCode)
    context = click.Context(cli, info_name="hankweave")
    for name in sorted(PLACES):
        command = cli.get_command(context, name)
        assert command is not None
        yield f"\nhankweave {name}"
        yield from (f"  {line}" for line in map(parameter_line, command.params))

    yield ""
    for each in config.SETTINGS.values():
        option = f" {each.option}" if each.option else ""
        yield f"setting {each.key} {each.variable}{option} default={each.default!r}"


def parameter_line(parameter: click.Parameter) -> str:
    """Describe an option or argument: names, type, default and flags, but no help text."""
    facts = parameter.to_info_dict()
    names = " ".join([*facts["opts"], *facts["secondary_opts"]])
    kind = "flag" if facts.get("is_flag") else facts["type"]["name"]
    if choices := facts["type"].get("choices"):
        kind = "|".join(map(str, choices))

    marks = [mark for mark in ("required", "multiple", "hidden") if facts.get(mark)]
    nargs = [f"nargs={facts['nargs']}"] if facts["nargs"] != 1 else []
    default = facts.get("default")
    defaults = [f"default={default}"] if isinstance(default, str | int | Path) and default else []
    return " ".join([facts["param_type_name"], names, kind, *marks, *nargs, *defaults])


# --- protocol -----------------------------------------------------------------------------------


def test_names_and_fields_of_the_protocol(golden: GoldenFiles) -> None:
    """Fields are in wire order; one with `?` is left out where it has its default."""
    golden.check("interfaces/protocol.txt", text_of(protocol()))


def protocol() -> Iterator[str]:
    yield f"error codes: {' '.join(code.value for code in ErrorCode)}"
    for name, command in COMMANDS.members.items():
        marks = " changes" * command.MUTATES + " beyond" * command.BEYOND
        marks += " during-rollback" * command.DURING_ROLLBACK + " needs-room" * command.NEEDS_ROOM
        marks += "" if command.AGENTS == "no" else f" agents={command.AGENTS}"
        reply = "null" if command.REPLY is None else command.REPLY.__name__
        yield f"command {name}: {fields(command)} -> {reply}{marks}"

    for name, event in EVENTS.members.items():
        yield f"event {name}: {fields(event)}{'' if event.JOURNALED else ' (not journaled)'}"

    yield from (f"transition {name}: {fields(kind)}" for name, kind in TRANSITIONS.members.items())
    yield from (f"file {name}: {kind.__name__}" for name, kind in FILES.items())
    yield from sorted(f"shape {shape_name(kind)}: {fields(kind)}" for kind in shapes(Value))


def fields(kind: type[Any]) -> str:
    settings = kind.__struct_config__
    tag = [f"{settings.tag_field}={settings.tag}"] if settings.tag_field else []
    named = (
        field.encode_name + ("" if field.required else "?")
        for field in msgspec.structs.fields(kind)
    )
    return " ".join([*tag, *named])


def shapes(kind: type) -> Iterator[type]:
    """Yield every named struct of the protocol that is not listed by its `type`."""
    for child in kind.__subclasses__():
        public = not child.__name__.startswith("_")
        if child.__module__.startswith("hankweave_protocol.") and child is not Typed:
            if public:
                yield child

            yield from shapes(child)


def shape_name(kind: type) -> str:
    """Name a struct; those for clients of Hankweave itself share names with the others."""
    family = "reference " if kind.__module__.endswith("reference_shapes") else ""
    return f"{family}{kind.__name__}"


# --- one execution ------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git program")
async def test_one_execution_and_its_messages(tmp_path: Path, golden: GoldenFiles) -> None:
    """Two codons (one fails), a labelled checkpoint, a pin, a rollback, and its undo."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", {"say": "Hello."}, writes("notes/a.txt", "one\n")),
        codon("two", writes("b.txt", "two\n"), {"fail": {"message": "no more paper"}}),
    )
    execution = tmp_path / "execution"
    async with (
        running_server(hank, None, execution) as server,
        server.client(since_seq=0) as client,
    ):
        await idle(client, "codon-failed")
        (execution / "agentRoot" / "private.txt").write_text("x\n")
        (execution / "agentRoot" / "private.txt").chmod(0o600)
        made = await client.send(CheckpointCreate(label="by hand"))
        await client.send(CheckpointPin(checkpoint_sha=made.sha, name="here", pinned=True))
        await client.send(RollbackToCodon(codon_id=CodonId("one"), checkpoint_type="completed"))
        await client.send(RollbackUndo())
        lock = json.loads((execution / ".hankweave" / "runtime.lock").read_text())
        refused = [await refusal(client, command) for command in REFUSED]
        assert await server.stop() == 0

    plain = Normaliser(tmp_path)
    plain(" ".join(ids(execution)))
    structure = [*files(execution, plain), f"runtime.lock: {' '.join(lock)}", *formats(execution)]
    structure += [*journal(execution), *refs(execution, plain), *commits(execution)]
    structure += [f"refused {code} {path}" for code, path, _, _ in refused]
    prose = [f"refused: {message} [{hint}]" for _, _, message, hint in refused]
    prose += [f"server.log: {level} {text}" for level, text in log_lines(execution)]
    for words in FAILING:
        done = hankweave(*words, cwd=execution)
        structure.append(f"hankweave {' '.join(words)}: exit code {done.returncode}")
        prose += [f"hankweave {' '.join(words)}: {line}" for line in done.stderr.splitlines()]

    golden.check("interfaces/execution.txt", plain(text_of(iter(structure))))
    golden.check("interfaces/prose.txt", plain(text_of(iter(prose))))


REFUSED: tuple[commands.CommandData, ...] = (
    commands.CodonSkip(),
    commands.CodonStart(codon_id=CodonId("none")),
    commands.CodonNext(expected_run_id=RunId("1-a-b")),
    commands.CheckpointPin(checkpoint_sha="0" * 40, pinned=True),
    commands.RollbackToCodon(codon_id=CodonId("one"), checkpoint_type="rig-setup"),
    commands.RollbackToLastSuccess(paths=("../outside",)),
    commands.StoreFsck(mirror="/nowhere"),
    commands.PermissionAnswer(request_id="none", decision="allow"),
)
FAILING = (
    ("status",),
    ("show", "none"),
    ("rollback", "--codon", "none", "--yes"),
    ("checkpoints", "-e", "/nowhere"),
    ("none",),
)


async def refusal(client: Client, command: commands.CommandData) -> tuple[str, str, str, str]:
    with pytest.raises(CommandRefused) as caught:
        await client.send(command)

    error = caught.value
    return (
        error.code,
        f"{command.TYPE} {error.path or ''}".rstrip(),
        error.message,
        error.hint or "",
    )


def ids(execution: Path) -> Iterator[str]:
    """Yield the ids of runs and sessions as the journal names them."""
    for line in lines_of(execution / ".hankweave" / "events" / "events.jsonl"):
        event = json.loads(line)
        yield event.get("runId", "")
        yield event["data"].get("sessionId", "")


def files(execution: Path, plain: Normaliser) -> list[str]:
    """List the modes and names of files, without those of objects."""
    below = (path.relative_to(execution) for path in (execution / ".hankweave").rglob("*"))
    shown = [path for path in below if not {"objects", "pack"} & set(path.parent.parts)]
    lines = {f"{path} {stat.filemode((execution / path).lstat().st_mode)}" for path in shown}
    return sorted(set(map(plain, lines)))


def formats(execution: Path) -> Iterator[str]:
    """Yield the keys of JSON files, and the beginnings of log lines."""
    for name in ("state.json", "execution-meta.json"):
        yield f"{name}: {' '.join(json.loads((execution / '.hankweave' / name).read_text()))}"

    logs = execution / ".hankweave" / "logs"
    first = json.loads(lines_of(logs / "websocket.log")[0])
    yield f"websocket.log: {' '.join(first)}; metadata: {' '.join(first['metadata'])}"
    levels = {level for level, _ in log_lines(execution)}
    (stamp,) = {re.sub(Normaliser.STAMP, "", line[:24]) for line in lines_of(logs / "server.log")}
    yield f"server.log: <time>{stamp} [LEVEL] text, with LEVEL in {sorted(levels)}"


def journal(execution: Path) -> Iterator[str]:
    """Yield the order of events with their fields; transitions with the fields of their data."""
    for line in lines_of(execution / ".hankweave" / "events" / "events.jsonl"):
        event = json.loads(line)
        data = event["data"]
        if event["type"] in ("server.resumed", "clock.jumped"):
            continue  # The machine was busy or asleep.

        yield f"journal {event['type']}: {' '.join(data)}; in {' '.join(event)}"
        if inner := data.get("transition"):
            yield f"  transition {inner['type']}: {' '.join(inner['data'])}"


def refs(execution: Path, plain: Normaliser) -> list[str]:
    git = GitWitness(execution)
    found = git.run("for-each-ref", "--format=%(refname) %(objecttype)").splitlines()
    head = git.run("rev-parse", "--symbolic-full-name", "HEAD").strip()
    return [f"HEAD: {head}", *dict.fromkeys(map(plain, found))]


def commits(execution: Path) -> Iterator[str]:
    """Yield authors, messages and notes of the checkpoints in the order of their Event-Seq."""
    git = GitWitness(execution)
    options = "--format=commit by %an <%ae>, committed by %cn <%ce>%n%B%nnote: %N"
    shas = git.run("rev-list", "--all").split()
    texts = [git.run("log", "-1", "--notes=refs/notes/hankweave", options, sha) for sha in shas]
    yield from (text.rstrip() for text in sorted(texts, key=event_seq))


def event_seq(message: str) -> int:
    found = re.search(r"^Event-Seq: (\d+)$", message, re.MULTILINE)
    assert found is not None, message
    return int(found[1])


def log_lines(execution: Path) -> Iterator[tuple[str, str]]:
    """Yield the level and the text of each line, without those about pauses of the machine."""
    for line in lines_of(execution / ".hankweave" / "logs" / "server.log"):
        head, _, text = line.partition("] ")
        if not text.startswith(
            ("The machine was suspended", "The server did not run", "The clock was set")
        ):
            yield head.partition(" [")[2], text


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()
