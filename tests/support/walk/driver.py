"""Performs the acts of a walk on a real server, and compares it with the model.

After each act that leaves the server idle, the files are compared with the model, which follows the
reports in the journal. The server's own records are checked as well: the intent of a rollback is
gone, no command was answered with INTERNAL_ERROR, nothing has printed a traceback, and now and then
the whole execution is checked with `support.invariants`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Container, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from hankweave_client.client import Client
from hankweave_client.errors import CommandRefused
from hankweave_protocol.codec import decode_event, decode_transition
from hankweave_protocol.commands import (
    CheckpointCreate,
    CodonNext,
    GetServerStatus,
    RollbackRedo,
    RollbackToCheckpoint,
    RollbackUndo,
)
from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.events import (
    AssistantAction,
    CheckpointRollback,
    CodonRetrying,
    Event,
    EventData,
    RollbackCompleted,
    ServerIdle,
    StateTransition,
)
from hankweave_protocol.records import RollbackReport
from hankweave_protocol.transitions import CheckpointCreated
from hankweave_server.paths import Layout
from support.git_facts import GitWitness
from support.invariants import Acknowledged, violations
from support.nth_call import Strike
from support.running_server import RunningServer, command, running_server
from support.scripted_hank import Step as Played
from support.scripted_hank import codon, waits_for, write_hank, writes
from support.struck import Lost, ends_rollback, process_of, session
from support.waiting import LIMIT, eventually_blocking, limited
from support.walk.acts import (
    HELD,
    IGNORED,
    LOG,
    MAPPED,
    Act,
    Back,
    Checkpoint,
    Delete,
    Edit,
    Fault,
    Hold,
    Kill,
    Lift,
    Log,
    Map,
    Op,
    Redo,
    Round,
    Start,
    Step,
    Undo,
    script,
    text,
)
from support.walk.model import Content, Files, Model, Restored, shown
from support.walk.world import World

CODONS = 60
CHECKED_EVERY = 5
"""Rounds between two checks of the whole execution."""

_AT_THE_GATE = "At gate"
_ENDS = ("codon-completed", "codon-failed", "all-codons-completed", "stopped")
_OVERLOADED: tuple[Played, ...] = ({"stderr": "overloaded"}, {"exit": 7})
_AFTER_A_CRASH = "The server ended while the codon was running."

T = TypeVar("T")
Journey = CheckpointRollback | RollbackCompleted
Done = tuple[Content, Content] | None
"""What a path had before and has after an act of the world; None if nothing was done."""


class Wrong(Exception):
    """The walk has met violations, and cannot go on."""

    def __init__(self, *found: str) -> None:
        super().__init__("\n".join(found))
        self.found = found


@dataclass
class Records:
    """The journal and the shadow repository of an execution."""

    execution: Path
    checkpoints: list[str] = field(default_factory=list)
    retries: int = 0
    lines_of_log: set[bytes] = field(default_factory=set)
    _read: int = 0
    """Bytes of the journal."""
    _saved: set[tuple[str, str]] = field(default_factory=set)
    """Each path in a checkpoint, with the name of its blob."""
    _trees: dict[str, dict[str, str]] = field(default_factory=dict)
    _blobs: dict[str, bytes] = field(default_factory=dict)

    def new_journeys(self) -> Iterator[Journey]:
        """Read the rest of the journal; yield the rollbacks in it, the automatic ones too."""
        path = Layout.of_execution(self.execution).journal
        with path.open("rb") as file:
            file.seek(self._read)
            lines = file.read().rpartition(b"\n")[0].splitlines(keepends=True)

        for line in lines:
            event = decode_event(line)
            self._receive(event)
            self._read += len(line.rstrip(b"\n")) + 1
            if ends_rollback(event.data):
                assert isinstance(event.data, CheckpointRollback | RollbackCompleted)
                yield event.data

    def _receive(self, event: Event) -> None:
        self.retries += isinstance(event.data, CodonRetrying)
        if isinstance(event.data, StateTransition):
            made = decode_transition(event.data)
            if isinstance(made, CheckpointCreated):
                sha = made.checkpoint.sha
                self.checkpoints.append(sha)
                self._saved |= set(self._tree(sha).items())
                if LOG in self._tree(sha):
                    self.lines_of_log |= set(self._blob(self._tree(sha)[LOG]).splitlines(True))

    def __contains__(self, saved: object) -> bool:
        assert isinstance(saved, tuple)
        path, content = saved
        return (path, _name_of(content)) in self._saved

    def files(self, sha: str) -> dict[str, bytes]:
        return {path: self._blob(name) for path, name in self._tree(sha).items()}

    def _tree(self, sha: str) -> dict[str, str]:
        if sha not in self._trees:
            listed = GitWitness(self.execution).run("ls-tree", "-r", "-z", sha).split("\0")[:-1]
            pairs = (each.split("\t", 1) for each in listed)
            self._trees[sha] = {path: words.split()[2] for words, path in pairs}

        return self._trees[sha]

    def _blob(self, name: str) -> bytes:
        if name not in self._blobs:
            content = GitWitness(self.execution).run("cat-file", "blob", name)
            self._blobs[name] = content.encode("utf-8", "surrogateescape")

        return self._blobs[name]


def _name_of(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0%s" % (len(content), content)).hexdigest()


class Walk:
    """One walk on one execution."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.execution = folder / "execution"
        self.acknowledged = Acknowledged()
        self.rounds = 0
        """Rounds that have begun."""
        self.refusals: Counter[str] = Counter()
        self.acts: Counter[str] = Counter()
        self._folder = folder
        self._script = folder / "script.json"
        self._gates = 0
        self._where = ""
        self._keeps_edits = self._has_rivals = False
        """How the newest rollback was asked for."""
        self._held: frozenset[str] = frozenset()
        """What another program had open after the newest act."""
        work_tree = self.execution / "agentRoot"
        self._world = World(work_tree, folder)
        self._model = Model(elsewhere=(LOG,), untracked=(IGNORED,))
        self._records = Records(self.execution)
        self._followed: list[Restored] = []
        """Reports since the last comparison."""
        self._reports: list[Restored] = []
        """Reports before the last comparison, since the one before it."""
        self._within: tuple[str, ...] = ()
        """A command that executes each server."""
        self._server: RunningServer | None = None
        self._client: Client | None = None
        self._stack = AsyncExitStack()

    async def run(self, rounds: Sequence[Round]) -> list[str]:
        """Perform the rounds; return the violations of the first that has any."""
        if "sticky" in script(rounds):
            self._within = ("setpriv", "--bounding-set", "-fowner")

        codons = (
            codon(
                f"c{number}",
                promptText="Work.",
                onFailure="retry",
                retryConfig={"maxAttempts": 10, "delayMs": 0},
                env={"HANKWEAVE_SCRIPT": str(self._script)},
            )
            for number in range(CODONS)
        )
        self._hank = write_hank(self._folder / "hank", *codons)
        try:
            await self._start()
            await self._begin()
            for number, acts in enumerate(rounds):
                self.rounds += 1
                for act in acts:
                    self._where = f"round {number}, {type(act).__name__}"
                    self.acts[type(act).__name__] += 1
                    await self._perform(act)

                self._where = f"round {number}, its end"
                self._check()
                if (number + 1) % CHECKED_EVERY == 0 or number == len(rounds) - 1:
                    await self._check_everything()
        except Wrong as wrong:
            return [f"{self._where}: {each}" for each in wrong.found]
        finally:
            self._world.close()
            await self._stack.aclose()

        return []

    async def _begin(self) -> None:
        """Make the first checkpoints, with what is to be ignored; rollbacks go to later ones."""
        self._around(Edit(".gitignore", "ignored/"))
        await self._step(Step((Op("write", "b.txt", "begun"),)))
        self._records.checkpoints[:] = self._records.checkpoints[-1:]

    # --- the server -----------------------------------------------------------------------------

    async def _start(self) -> None:
        serving = running_server(
            self._hank, None, self.execution, "--no-autostart", within=self._within
        )
        try:
            self._server = await self._stack.enter_async_context(serving)
            self._client = await self._stack.enter_async_context(session(self.execution))
        except (AssertionError, ExceptionGroup, *Lost) as problem:
            raise Wrong(f"the server does not start: {_reason(problem)}") from problem

    async def _ended(self) -> None:
        """Leave the connection and the process of a server that has ended."""
        server = self._server
        assert server is not None
        with contextlib.suppress(*Lost):
            await self._stack.aclose()

        self._stack, self._server, self._client = AsyncExitStack(), None, None
        await self._world.is_left_alone()
        _refuse_traceback(server.output)

    async def _kill(self) -> None:
        assert self._server is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._server.pid, signal.SIGKILL)

        await self._server.ended()
        await self._ended()

    async def _stop(self) -> None:
        assert self._server is not None
        code, output = await self._server.stop(), self._server.output
        await self._ended()
        if code != 0:
            raise Wrong(f"the server stopped with exit code {code}: {_ours(output)}")

    async def _struck_start(self, group: str, at: int) -> None:
        argv = command("run", str(self._hank), "--execution", str(self.execution), "--json")
        argv += ("--no-autostart", "--no-exit-on-complete")
        strike = self._strike(group, at)
        async with process_of([*strike.argv(), "--", *self._within, *argv]) as server:
            await server.until('"server.ready"')
            if server.process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(server.process.pid, signal.SIGTERM)

            await server.to_its_end()
            with limited():
                await server.process.wait()

            _refuse_traceback(server.lines)

    def _strike(self, group: str, at: int) -> Strike:
        report = str(self._folder / "report.json")
        return Strike(group=group, below=str(self.execution), report=report, at=at)

    # --- acts -----------------------------------------------------------------------------------

    async def _perform(self, act: Act) -> None:
        match act:
            case Start():
                await self._start_again(act)
            case Kill():
                await self._kill_during(act)
            case Step():
                await self._step(act)
            case Checkpoint() | Back() | Undo() | Redo():
                await self._command(act)
            case _:
                self._around(act)
                return

        self._compare()

    def _around(self, act: Act, avoided: frozenset[str] = frozenset()) -> None:
        """Perform what needs no server; faults avoid paths that the agent is about to write."""
        match act:
            case Edit() if not self._world.is_faulty(act.path):
                self._by_person(act.path, self._world.edit(act))
            case Delete() if not self._world.is_faulty(act.path):
                self._by_person(act.path, self._world.delete(act))
            case Map() if not self._world.is_faulty(MAPPED):
                self._by_person(MAPPED, self._world.map(act))
            case Hold() if not self._world.is_faulty(HELD):
                self._by_person(HELD, self._world.hold(act))
            case Log(runs=True):
                self._world.log.start()
            case Log(runs=False):
                self._world.log.stop()
            case Fault() if not (avoided and act.kind == "read-only") and act.path not in avoided:
                self._world.fault(act)
            case Lift():
                self._world.lift()
            case _:
                pass

        self._held = self._world.held()

    def _by_person(self, path: str, done: Done) -> None:
        if done is not None:
            before, after = done
            self._model.person(path, before, after, self._where)

    async def _command(self, act: Checkpoint | Back | Undo | Redo) -> None:
        client = self._client
        assert client is not None
        if isinstance(act, Checkpoint):
            if record := await self._answer(client.send(CheckpointCreate())):
                self.acknowledged.checkpoints.append(record)

            return

        before = self._world.files()
        self._keeps_edits, self._has_rivals = act.keep_edits, False
        report: RollbackReport | None = None
        match act:
            case Back():
                report = await self._roll_back(act, client)
            case Undo():
                report = await self._answer(client.send(RollbackUndo(keep_edits=act.keep_edits)))
            case Redo():
                report = await self._answer(client.send(RollbackRedo(keep_edits=act.keep_edits)))

        if report is None:
            return

        self.acknowledged.rollbacks.append(report)
        self._compare()
        if isinstance(act, Back) and act.undone and not act.meanwhile:
            await self._undo_and_redo("the rollback", before)

    async def _roll_back(self, act: Back, client: Client) -> RollbackReport | None:
        for _ in self._records.new_journeys():
            raise AssertionError("a rollback was not compared")

        shas = self._records.checkpoints
        asked = client.send(
            RollbackToCheckpoint(
                checkpoint_sha=shas[act.to % len(shas)],
                keep_edits=act.keep_edits,
                paths=act.paths or None,
            )
        )
        if not act.meanwhile:
            return await self._answer(asked)

        done: list[tuple[str, Done]] = []
        problem: Exception | None = None
        report: RollbackReport | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.to_thread.run_sync, self._rival, act.meanwhile, done)
            try:
                report = await self._answer(asked)
            except (Wrong, *Lost) as error:
                problem = error

        for path, edit in done:
            self._by_person(path, edit)

        self._has_rivals = True
        if problem is not None:
            raise problem

        return report

    def _rival(self, edits: Sequence[Edit], done: list[tuple[str, Done]]) -> None:
        """Edit while a rollback runs."""
        possible = (edit for edit in edits if not self._world.is_faulty(edit.path))
        done.extend((edit.path, self._world.edit(edit)) for edit in possible)

    async def _undo_and_redo(self, what: str, before: Files, others: Container[str] = ()) -> None:
        """Check that an undo brings back the files, and that a redo takes them away again.

        Nothing is known about `others`.
        """
        client, after = self._client, self._world.files()
        assert client is not None
        if _without_log(before) == _without_log(after):
            return

        for name, order, expected in (
            ("undo", RollbackUndo(), before),
            ("redo", RollbackRedo(), after),
        ):
            self._keeps_edits = self._has_rivals = False
            try:
                report = await client.send(order)
            except CommandRefused as refusal:
                raise Wrong(f"{what} cannot be {name}ne: {refusal}") from refusal

            self.acknowledged.rollbacks.append(report)
            self._compare()
            named = {path for each in self._reports for path in each.named}
            files = self._world.files()
            wrong = [
                f"the {name} of {what} leaves {path} as {shown(files.get(path))}, "
                f"not {shown(expected.get(path))}"
                for path in sorted({*files, *expected} - named - {LOG})
                if path not in others and files.get(path) != expected.get(path)
            ]
            if wrong:
                raise Wrong(*wrong)

    async def _answer(self, asked: Coroutine[Any, Any, T]) -> T | None:
        try:
            with limited():
                return await asked
        except CommandRefused as refusal:
            self.refusals[refusal.code] += 1
            if refusal.code == ErrorCode.INTERNAL_ERROR:
                raise Wrong(f"INTERNAL_ERROR: {refusal}") from refusal

            return None

    # --- ends and starts ------------------------------------------------------------------------

    async def _start_again(self, act: Start) -> None:
        if act.how == "stopped":
            await self._stop()
        else:
            await self._kill()

        await self._start_after(act)

    async def _start_after(self, act: Start) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):  # Until the start repairs it.
            self._follow()

        for each in act.between:
            self._around(each)

        before, earlier = self._world.files(), len(self._followed)
        if act.struck is not None:
            await self._struck_start(*act.struck)

        await self._start()
        self._compare()
        match self._reports[earlier:]:
            case [Restored(is_asked=False) as report] if act.undone:
                # Files that were restored before the server died go back as well.
                gone = {path for path in before if before[path] == report.target.get(path)}
                done = gone if report.is_finished_late else set()
                await self._undo_and_redo("what the start took back", before, done)
            case _:
                pass

    async def _kill_during(self, act: Kill) -> None:
        assert self._server is not None
        argv = [*self._strike(act.group, act.at).argv(), str(self._server.pid)]
        async with process_of(argv) as tracer:
            assert await tracer.until("attached"), tracer.lines
            try:
                match act.act:
                    case Step():
                        await self._step(act.act)
                    case Checkpoint() | Back() | Undo() | Redo():
                        await self._command(act.act)
                    case _:
                        self._around(act.act)
            except (ConnectionError, OSError, TimeoutError):
                pass

            if self._server is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._server.pid, signal.SIGKILL)

                with limited():
                    await self._server.process.wait()

            with limited():
                await tracer.process.wait()

        if self._server is not None:
            await self._ended()

        await self._start_after(act.start)

    # --- the agent ------------------------------------------------------------------------------

    async def _step(self, act: Step) -> None:
        client = self._client
        assert client is not None
        begins, goes_on, again = map(self._possible, (act.begins, act.goes_on, act.again))
        self._gates += 1
        gate = self._folder / f"gate-{self._gates}"
        self._write_scripts(act, gate, (begins, goes_on, again))
        begun = (await client.send(GetServerStatus())).last_event_seq
        if not await self._begins(client):
            return

        waiting, retries = [begins, goes_on], self._records.retries
        try:
            event = await self._gate_or_end(client, begun)
            self._follow()  # A step that has failed before is retried: its files went back.
            self._model.step_begins()
            if isinstance(event, AssistantAction):
                self._apply(waiting.pop(0))
                avoided = frozenset(path for op in (*goes_on, *again) for path in _paths(op))
                for each in act.meanwhile:
                    await self._beside_step(each, avoided)

                if act.end == "killed":
                    assert act.start is not None
                    if not act.at_once and act.meanwhile:
                        await self._world.grows_old()

                    self._model.step_is_killed(at_once=act.at_once)
                    await self._start_again(act.start)
                    return

                gate.touch()
                ended = await client.until(
                    ServerIdle, lambda event: event.seq > begun and _ends_step(event), timeout=LIMIT
                )
                event = ended.data
                self._apply(waiting.pop(0))
        except Lost:
            for ops in (*waiting, again):
                self._apply(ops, surely=False)

            self._model.step_is_killed(at_once=True)

            raise

        is_refused = "cannot be retried" in str(event) and "was changed" not in str(event)
        if waiting and not is_refused:
            raise Wrong(f"the step ended before its gate: {event}")

        self._follow()
        if self._records.retries > retries and not is_refused:
            self._apply(again)

        self._compare()
        if act.end != "fails":
            self._model.step_ends()

    def _possible(self, ops: Sequence[Op]) -> tuple[Op, ...]:
        """Return those of the agent's calls that no fault makes fail."""
        return tuple(op for op in ops if not any(map(self._world.is_faulty, _paths(op))))

    def _write_scripts(
        self, act: Step, gate: Path, parts: tuple[Sequence[Op], Sequence[Op], Sequence[Op]]
    ) -> None:
        begins, goes_on, again = ([_played(op) for op in ops] for ops in parts)
        second = self._folder / "second.json"
        ends: Sequence[Played] = ({"say": "Done."},)
        if act.end == "fails":
            ends = ({"fail": {"message": "Unauthorized."}},)
        elif act.end == "retried":
            ends = ({"run": f"cp {quote(str(second))} {quote(str(self._script))}"}, *_OVERLOADED)

        message = {"say": f"{_AT_THE_GATE}."}
        steps = [*begins, message, waits_for(gate), *goes_on, *ends]
        self._script.write_text(json.dumps({"steps": steps}))
        second.write_text(json.dumps({"steps": [*again, {"say": "Done."}]}))

    async def _begins(self, client: Client) -> bool:
        """Start the next codon, or the one that failed."""
        try:
            await client.send(CodonNext())
        except CommandRefused as refusal:
            self.refusals[refusal.code] += 1
            if refusal.code == ErrorCode.INTERNAL_ERROR:
                raise Wrong(f"INTERNAL_ERROR: {refusal}") from refusal

            return False

        return True

    async def _gate_or_end(self, client: Client, begun: int) -> EventData:
        """Wait until the agent reports that it waits, or the step ends."""

        def is_either(event: Event) -> bool:
            is_at_gate = isinstance(event.data, AssistantAction) and event.data.content.startswith(
                _AT_THE_GATE
            )
            return event.seq > begun and (is_at_gate or _ends_step(event))

        return (await client.until(EventData, is_either, timeout=LIMIT)).data

    async def _beside_step(self, act: Act, avoided: frozenset[str]) -> None:
        if isinstance(act, Checkpoint):
            assert self._client is not None
            if record := await self._answer(self._client.send(CheckpointCreate())):
                self.acknowledged.checkpoints.append(record)
        else:
            self._around(act, avoided)

    def _apply(self, ops: Sequence[Op], *, surely: bool = True) -> None:
        for op in ops:
            match op:
                case Op(tool="write" | "shell"):
                    self._model.agent(op.path, text(op.word).encode(), surely=surely)
                case Op(tool="delete") if self._model.may_be.get(op.path, {None}) != {None}:
                    self._model.agent(op.path, None, surely=surely)
                case Op(tool="rename") if op.path != op.word:
                    self._model.agent_moves(op.path, op.word, surely=surely)
                case _:
                    pass

    # --- comparison -----------------------------------------------------------------------------

    def _follow(self) -> None:
        """Let the model follow the new reports."""
        for journey in self._records.new_journeys():
            report = journey.report
            assert report is not None
            paths = journey.paths if isinstance(journey, CheckpointRollback) else None
            is_after_crash = (journey.reason or "").startswith(_AFTER_A_CRASH)
            named = frozenset(
                each.path
                for each in (*report.kept, *report.skipped, *getattr(report, "cannot_restore", ()))
                if getattr(each, "content_differs", True)
            )
            restored = Restored(
                self._records.files(report.target.checkpoint_sha),
                is_asked=journey.direction != "retry" and not is_after_crash,
                keeps_edits=self._keeps_edits,
                is_finished_late=report.recovered or self._has_rivals,
                paths=None if paths is None else frozenset(paths),
                named=named,
            )
            changed = {each.path for each in (*report.updated, *report.removed)}
            if not restored.is_asked and (taken := changed & self._held):
                raise Wrong(f"{taken} was replaced although another program has it open")

            self._followed.append(restored)
            self._model.restored(restored)

    def _compare(self) -> None:
        """Compare the files with the model; then `_reports` has what the server reported."""
        self._follow()
        self._reports, self._followed = self._followed, []
        self._held = self._world.held()
        if found := self._model.violations(self._world.files(), self._records):
            raise Wrong(*found)

    def _check(self) -> None:
        """Check what costs little; the server is idle."""
        found = []
        layout = Layout.of_execution(self.execution)
        try:
            # It is removed while the reply is on its way.
            eventually_blocking(lambda: not layout.rollback_intent.exists())
        except TimeoutError:
            found.append("the intent of a rollback is left")

        _, begins, traceback = layout.server_log.read_text().partition("Traceback")
        if begins:
            found.append(f"server.log has a traceback: {traceback[:2000]}")

        with self._world.log.pausing():
            content = self._world.content(LOG) or b""
            self._follow()
            kept = {*content.splitlines(keepends=True), *self._records.lines_of_log}
            lost = [line for line in self._world.log.written if line not in kept]
            if lost:
                found.append(f"{len(lost)} lines of the log are lost, such as {lost[0]!r}")

        if found:
            raise Wrong(*found)

    async def _check_everything(self) -> None:
        await self._stop()
        if found := violations(self.execution, self.acknowledged):
            raise Wrong(*found)

        await self._start()
        self._compare()


def _ends_step(event: Event) -> bool:
    return isinstance(event.data, ServerIdle) and event.data.reason in _ENDS


def _paths(op: Op) -> tuple[str, ...]:
    return (op.path, op.word) if op.tool == "rename" else (op.path,)


def _played(op: Op) -> Played:
    """Return the step of the scripted agent."""
    path, folder = quote(op.path), quote(str(Path(op.path).parent))
    match op.tool:
        case "write":
            return writes(op.path, text(op.word))
        case "shell":
            return {"run": f"mkdir -p {folder}; printf %s {text(op.word)} > {path}"}
        case "delete":
            return {"run": f"rm -f {path}"}
        case "rename":
            to, folder = quote(op.word), quote(str(Path(op.word).parent))
            return {"run": f"mkdir -p {folder}; [ ! -f {path} ] || mv -f {path} {to}"}


def _without_log(files: Files) -> dict[str, bytes]:
    return {path: content for path, content in files.items() if path != LOG}


def kind_of(violation: str) -> str:
    """Return what kind of violation it is, whatever path or moment it names."""
    for words in ("neither on disk", "last written by", "INTERNAL_ERROR", "does not start"):
        if words in violation:
            return words

    return " ".join(violation.partition(": ")[2].split()[:2])


def _reason(problem: BaseException) -> str:
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]

    return str(problem)


def _refuse_traceback(lines: Sequence[str]) -> None:
    if "Traceback" in (ours := _ours(lines)):  # An event may have that of an agent.
        raise Wrong(f"the server has printed a traceback:\n{ours}")


def _ours(lines: Sequence[str]) -> str:
    """Return the end of what a server printed that is no event."""
    return "\n".join([line for line in lines if not line.startswith('{"')][-40:])
