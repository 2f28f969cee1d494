"""Dispatch each command to its handler: one `match` over all commands.

A handler that refuses a command raises `Refused` before it changes anything. The transport checks
the client's rights, the command's shape and its idempotence; the ledger orders what is written.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from hankweave_protocol.commands import (
    BisectStart,
    BisectStop,
    CheckpointCreate,
    CheckpointDiff,
    CheckpointPin,
    CheckpointReadFile,
    CodonForceStop,
    CodonNext,
    CodonReadPrompt,
    CodonReadResult,
    CodonRedo,
    CodonSkip,
    CodonStart,
    Command,
    CommandData,
    EventsQuery,
    ExecutionBranch,
    ExecutionsList,
    ExplorationAdopt,
    ExplorationCompare,
    ExplorationDiscard,
    ExplorationList,
    ExplorationShow,
    ExplorationStart,
    FileBlame,
    FilePickaxe,
    FileWhy,
    GetExecutionAddress,
    GetServerStatus,
    GetState,
    HistorySync,
    ListCheckpoints,
    PermissionAnswer,
    Ping,
    PingBroadcast,
    ReplayView,
    RollbackCommand,
    RollbackPreview,
    RollbackRedo,
    RollbackToCheckpoint,
    RollbackToCodon,
    RollbackToLastSuccess,
    RollbackUndo,
    ServerForceShutdown,
    ServerShutdown,
    StoreFsck,
    StoreGc,
)
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import EventData, Pong
from hankweave_protocol.ids import ClientId, CommandId, RunId
from hankweave_protocol.reference import LISTED_KINDS
from hankweave_protocol.replies import CodonChosen, LineStory, PastView
from hankweave_server.api.answers import Answers
from hankweave_server.api.caller import Caller, CommandAnswer, refuse_agent
from hankweave_server.api.control import Branches, Control
from hankweave_server.api.executions import Executions
from hankweave_server.api.explorations import Explorer
from hankweave_server.api.inspect import Inspect, Queries, listed
from hankweave_server.api.lookup import faults_refused
from hankweave_server.api.maintenance import Store
from hankweave_server.api.past import Looks
from hankweave_server.api.rollback import Rollbacks
from hankweave_server.execution.bisection.bisections import Bisections
from hankweave_server.execution.codon.environment import granted
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.execution.maintenance.quiet import Quiet
from hankweave_server.git.errors import code_of, refusal_of
from hankweave_server.ledger.disk_space import Space
from hankweave_server.logs import logger

log = logger(__name__)

_NEED_ROOM = (
    BisectStart,
    CheckpointCreate,
    CheckpointPin,
    CodonNext,
    CodonRedo,
    CodonStart,
    ExecutionBranch,
    ExplorationAdopt,
    ExplorationStart,
    RollbackCommand,
    RollbackRedo,
    RollbackUndo,
)
"""Refused while the disk is full. Commands that stop something or free space (gc) are not."""


class Dispatch:
    """The dispatcher of commands to their handlers."""

    def __init__(
        self,
        ctx: ExecutionContext,
        *,
        control: Control,
        rollbacks: Rollbacks,
        inspect: Inspect,
        queries: Queries,
        looks: Looks,
        answers: Answers,
        store: Store,
        branches: Branches,
        explorer: Explorer,
        bisections: Bisections,
        executions: Executions,
        space: Space,
        quiet: Quiet,
        broadcast: Callable[[EventData], None],
    ) -> None:
        self._ctx = ctx
        self._space = space
        self._quiet = quiet
        self._control = control
        self._rollbacks = rollbacks
        self._inspect = inspect
        self._queries = queries
        self._looks = looks
        self._answers = answers
        self._store = store
        self._branches = branches
        self._explorer = explorer
        self._bisections = bisections
        self._executions = executions
        self._broadcast = broadcast

    async def handle(self, command: Command, caller: Caller) -> CommandAnswer:
        """Execute one command; raise Refused if it cannot be done."""
        data = command.data
        if caller.is_agent:
            refuse_agent(data, granted(self._ctx))

        if not data.DURING_ROLLBACK:
            self._ctx.guard.refuse_command(command.type)

        self._expect_run(getattr(data, "expected_run_id", None))
        if self._space.is_short and isinstance(data, _NEED_ROOM):
            raise _no_room()

        try:
            with faults_refused(), self._quiet.serving():
                return await self._do(data, command.id, caller)
        except Refused:
            raise
        except Exception as error:
            match code_of(error):
                case ErrorCode.INTERNAL_ERROR:
                    raise
                case ErrorCode.INSUFFICIENT_SPACE:
                    self._space.note(error)
                    raise _no_room() from error
                case _:
                    refusal = refusal_of(error, self._ctx.layout.root)
                    log.warning("%s failed: %s", command.type, refusal.message)
                    raise refusal from error

    def _expect_run(self, expected: RunId | None) -> None:
        """Refuse a command that was meant for a run that another one has followed.

        If no run is current, the newest one counts.
        """
        newest = next((run.run_id for run in self._ctx.state.runs), None)
        current = self._ctx.state.current_run_id or newest
        if expected is not None and expected != current:
            raise Refused(
                ErrorCode.STALE_RUN,
                f"The current run is {current or 'none'}, not {expected}.",
                path="$.data.expectedRunId",
                hint="Check the current state, then send the command again.",
            )

    async def _do(
        self, command: CommandData, command_id: CommandId, caller: Caller
    ) -> CommandAnswer:
        causes = (command_id,)
        match command:
            case CodonStart():
                self._control.start(command)
            case CodonNext():
                return CommandAnswer(CodonChosen(codon_id=self._control.next()))
            case CodonSkip():
                await self._control.skip()
            case CodonRedo():
                return CommandAnswer(CodonChosen(codon_id=self._control.redo()))
            case CodonForceStop():
                await self._control.force_stop(command)
            case PermissionAnswer():
                await self._control.answer_permission(command, caller.client_id, causes)
            case CheckpointCreate():
                return CommandAnswer(await self._control.checkpoint(command, causes))
            case CheckpointPin():
                return CommandAnswer(await self._store.pin(command, causes))
            case StoreGc():
                return CommandAnswer(await self._store.gc(command, causes))
            case StoreFsck():
                return CommandAnswer(await self._store.fsck(command, causes))
            case RollbackToCheckpoint() | RollbackToCodon() | RollbackToLastSuccess():
                return CommandAnswer(await self._rollbacks.perform(command, causes))
            case RollbackUndo() | RollbackRedo():
                return CommandAnswer(await self._rollbacks.undo_or_redo(command, causes))
            case ExecutionBranch():
                return CommandAnswer(await self._branches.make(command, causes))
            case ExplorationStart():
                return CommandAnswer(await self._explorer.start(command, causes))
            case ExplorationList():
                return CommandAnswer(self._explorer.list())
            case ExplorationShow():
                return CommandAnswer(self._explorer.show(command))
            case ExplorationCompare():
                return CommandAnswer(await self._explorer.compare(command))
            case ExplorationAdopt():
                return CommandAnswer(await self._explorer.adopt(command, causes))
            case ExplorationDiscard():
                return CommandAnswer(await self._explorer.discard(command, causes))
            case BisectStart():
                return CommandAnswer(await self._bisections.start(command, causes))
            case BisectStop():
                self._bisections.stop()
            case RollbackPreview():
                return CommandAnswer(await self._rollbacks.preview(command, causes))
            case ListCheckpoints():
                return await self._list_checkpoints(command, caller)
            case CheckpointDiff():
                return CommandAnswer(await self._looks.diff(command))
            case CheckpointReadFile():
                return CommandAnswer(await self._looks.read_file(command))
            case FileBlame():
                return CommandAnswer(await self._answers.blame(command))
            case FileWhy():
                story = await self._answers.why(command)
                return CommandAnswer(_without_prompt(story) if caller.is_agent else story)
            case FilePickaxe():
                return CommandAnswer(await self._answers.pickaxe(command))
            case CodonReadResult():
                return CommandAnswer(await self._inspect.result(command))
            case CodonReadPrompt():
                return CommandAnswer(self._inspect.prompt(command))
            case ReplayView():
                past = await self._looks.replay(command)
                return CommandAnswer(_without_plan(past) if caller.is_agent else past)
            case EventsQuery():
                return CommandAnswer(await self._queries.answer(command))
            case GetState():
                return CommandAnswer(self._inspect.state())
            case GetServerStatus():
                return CommandAnswer(await self._inspect.status())
            case ExecutionsList():
                return CommandAnswer(await self._executions.list(command))
            case GetExecutionAddress():
                return CommandAnswer(await self._executions.address(command))
            case HistorySync():
                return CommandAnswer(history_since=command.since_seq)
            case Ping():
                return CommandAnswer(events=(self._pong(None),))
            case PingBroadcast():
                self._broadcast(self._pong(caller.client_id))
            case ServerShutdown():
                self._control.shut_down(command.reason)
            case ServerForceShutdown():
                self._control.force_shut_down(command.reason)
            case _:
                # Mypy cannot check the registry; test_dispatch checks that no command is missing.
                raise AssertionError(f"no handler for {command.TYPE}")

        return CommandAnswer()

    async def _list_checkpoints(self, command: ListCheckpoints, caller: Caller) -> CommandAnswer:
        """List checkpoints; clients of Hankweave get the list as an event.

        The event goes to all clients, or to the sender alone if it is a viewer. These clients know
        four kinds of checkpoints, and get only those unless they ask for others by name.
        """
        if not caller.wants_replies and command.kinds is None:
            command = msgspec.structs.replace(command, kinds=LISTED_KINDS)

        may_tell = caller.mode == "readandwrite" and not self._space.is_short
        tell_all = not caller.wants_replies and may_tell
        page = await self._inspect.checkpoints(command, tell_all=tell_all)
        if caller.wants_replies or tell_all:
            return CommandAnswer(page)

        return CommandAnswer(page, events=(listed(command, page, self._ctx.state),))

    def _pong(self, client_id: ClientId | None) -> Pong:
        return Pong(message="pong", timestamp=self._ctx.now_text(), client_id=client_id)


def _without_plan(past: PastView) -> PastView:
    """Remove the plan, which has the prompts and the environment of other codons."""
    if past.state is None:
        return past

    state = msgspec.structs.replace(past.state, execution_plan=())
    return msgspec.structs.replace(past, state=state)


def _without_prompt(story: LineStory) -> LineStory:
    """Remove the prompt, which may be that of another codon."""
    return msgspec.structs.replace(story, prompt=None)


def _no_room() -> Refused:
    return Refused(
        ErrorCode.INSUFFICIENT_SPACE,
        "The disk is full.",
        hint="Free some space, and send the command again after server.recovered.",
    )
