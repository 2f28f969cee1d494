// The wire format and files of Hankweave, generated from the types of the protocol by
// `scripts/export-schema --update`. It has no imports: copy it to where you need it.
//
// Fields with a default value may be omitted, so they are `?` here. A newer server may send events,
// fields and values that are not listed here: ignore or preserve them.

/** A frame from a client. */
export type ClientFrame = Handshake | AnyCommand;

/** A frame from a server, discriminated by `type`. */
export type ServerFrame = HandshakeResponse | AnyReply | CommandFailed | AnyEvent;

export type CommandType = keyof Commands;

/** A command; `data` may be omitted if it is empty. */
export type CommandOf<T extends CommandType> = { id: string; type: T } & ({} extends Commands[T]
  ? { data?: Commands[T] }
  : { data: Commands[T] });

export type AnyCommand = { [T in CommandType]: CommandOf<T> }[CommandType];

/** The reply to a command that succeeded. */
export interface ReplyTo<T extends CommandType> {
  type: "command.succeeded";
  /** The id of the command. */
  inReplyTo: string;
  timestamp: string;
  data: Replies[T];
}

export type AnyReply = { [T in CommandType]: ReplyTo<T> }[CommandType];

export type EventType = keyof Events;

/** An event, on the wire and in the journal. */
export interface EventOf<T extends EventType> {
  /** A UUID. */
  id: string;
  /** The position in the journal; absent if the event is for one client only. */
  seq?: number;
  /** UTC, milliseconds, `Z`. */
  timestamp: string;
  type: T;
  data: Events[T];
  runId?: string;
  codonId?: string;
  /** Seqs of the events, or the id of the command, that caused this one. */
  causes?: (number | string)[];
}

export type AnyEvent = { [T in EventType]: EventOf<T> }[EventType];

export type TransitionType = keyof Transitions;

/** One change of the state; state.json is the fold of all of these. */
export interface TransitionOf<T extends TransitionType> {
  type: T;
  data: Transitions[T];
}

export type Transition = { [T in TransitionType]: TransitionOf<T> }[TransitionType];

/** The data of each command. */
export interface Commands {
  "codon.start": CodonStart;
  "codon.next": CodonNext;
  "codon.skip": CodonSkip;
  "codon.redo": CodonRedo;
  "codon.forceStop": CodonForceStop;
  "permission.answer": PermissionAnswer;
  "checkpoint.list": ListCheckpoints;
  "checkpoint.create": CheckpointCreate;
  "checkpoint.pin": CheckpointPin;
  "store.gc": StoreGc;
  "store.fsck": StoreFsck;
  "checkpoint.diff": CheckpointDiff;
  "checkpoint.readFile": CheckpointReadFile;
  "file.blame": FileBlame;
  "file.why": FileWhy;
  "file.pickaxe": FilePickaxe;
  "file.changes": ListFileChanges;
  "codon.readResult": CodonReadResult;
  "codon.readPrompt": CodonReadPrompt;
  "replay.view": ReplayView;
  "rollback.toCheckpoint": RollbackToCheckpoint;
  "rollback.toCodon": RollbackToCodon;
  "rollback.toLastSuccess": RollbackToLastSuccess;
  "rollback.undo": RollbackUndo;
  "rollback.redo": RollbackRedo;
  "rollback.preview": RollbackPreview;
  "execution.branch": ExecutionBranch;
  "exploration.start": ExplorationStart;
  "exploration.list": ExplorationList;
  "exploration.show": ExplorationShow;
  "exploration.compare": ExplorationCompare;
  "exploration.adopt": ExplorationAdopt;
  "exploration.discard": ExplorationDiscard;
  "bisect.start": BisectStart;
  "bisect.stop": BisectStop;
  "mirror.status": GetMirrorStatus;
  "mirror.now": MirrorNow;
  "mirror.off": MirrorOff;
  "ping": Ping;
  "ping.broadcast": PingBroadcast;
  "history.sync": HistorySync;
  "events.query": EventsQuery;
  "state.get": GetState;
  "server.status": GetServerStatus;
  "executions.list": ExecutionsList;
  "executions.address": GetExecutionAddress;
  "server.shutdown": ServerShutdown;
  "server.force_shutdown": ServerForceShutdown;
}

/** The data of the reply to each command. */
export interface Replies {
  "codon.start": null;
  "codon.next": CodonChosen;
  "codon.skip": null;
  "codon.redo": CodonChosen;
  "codon.forceStop": null;
  "permission.answer": null;
  "checkpoint.list": CheckpointPage;
  "checkpoint.create": CheckpointRecord;
  "checkpoint.pin": CheckpointRecord;
  "store.gc": GcReport;
  "store.fsck": FsckReport;
  "checkpoint.diff": DiffPage;
  "checkpoint.readFile": FileRange;
  "file.blame": BlamedFile;
  "file.why": LineStory;
  "file.pickaxe": TextHistory;
  "file.changes": ChangesOfFile;
  "codon.readResult": ToolOutput;
  "codon.readPrompt": PromptText;
  "replay.view": PastView;
  "rollback.toCheckpoint": RollbackReport;
  "rollback.toCodon": RollbackReport;
  "rollback.toLastSuccess": RollbackReport;
  "rollback.undo": RollbackReport;
  "rollback.redo": RollbackReport;
  "rollback.preview": RollbackReport;
  "execution.branch": BranchMade;
  "exploration.start": Exploration;
  "exploration.list": ExplorationPage;
  "exploration.show": Exploration;
  "exploration.compare": DiffPage;
  "exploration.adopt": RollbackReport;
  "exploration.discard": Exploration;
  "bisect.start": BisectionBegun;
  "bisect.stop": null;
  "mirror.status": MirrorStatus;
  "mirror.now": MirrorStatus;
  "mirror.off": MirrorEnded;
  "ping": null;
  "ping.broadcast": null;
  "history.sync": null;
  "events.query": EventsPage;
  "state.get": State;
  "server.status": ServerStatus;
  "executions.list": ExecutionPage;
  "executions.address": ExecutionAddress;
  "server.shutdown": null;
  "server.force_shutdown": null;
}

/** The data of each event. */
export interface Events {
  "server.ready": ServerReady;
  "server.idle": ServerIdle;
  "server.started": ServerStarted;
  "server.stopping": ServerStopping;
  "server.degraded": ServerDegraded;
  "server.recovered": ServerRecovered;
  "server.resumed": ServerResumed;
  "clock.jumped": ClockJumped;
  "journal.repaired": JournalRepaired;
  "state.recovered": StateRecovered;
  "hank.changed": HankChanged;
  "history.identified": HistoryIdentified;
  "data.changed": DataChanged;
  "info": Info;
  "error": ErrorEvent;
  "state.snapshot": StateSnapshot;
  "state.transition": StateTransition;
  "codon.keyed": CodonKeyed;
  "codon.started": CodonStartedEvent;
  "codon.completed": CodonCompletedEvent;
  "codon.extended": CodonExtended;
  "codon.retrying": CodonRetrying;
  "codon.waiting": CodonWaiting;
  "codon.resumed": CodonResumed;
  "codon.warning": CodonWarning;
  "agent.confined": AgentConfined;
  "assistant.action": AssistantAction;
  "tool.result": ToolResult;
  "permission.requested": PermissionRequested;
  "permission.resolved": PermissionResolved;
  "token.usage": TokenUsage;
  "file.updated": FileUpdated;
  "files.changed": FilesChanged;
  "filetree.updated": FiletreeUpdated;
  "agent.output": AgentOutput;
  "rig.setup.completed": RigSetupCompleted;
  "rig.setup.failed": RigSetupFailed;
  "rig.output": RigOutput;
  "check.completed": CheckCompleted;
  "loop.iteration.completed": LoopIterationCompleted;
  "archive.completed": ArchiveCompleted;
  "archive.partial": ArchivePartial;
  "budget.summary": BudgetSummary;
  "sentinel.loaded": SentinelLoaded;
  "sentinel.unloaded": SentinelUnloaded;
  "sentinel.error": SentinelError;
  "sentinel.output": SentinelOutput;
  "sentinel.triggered": SentinelTriggered;
  "checkpoint.list": CheckpointList;
  "checkpoint.partial": CheckpointPartial;
  "checkpoint.secret": CheckpointSecret;
  "checkpoint.pinned": CheckpointPinned;
  "checkpoint.pruned": CheckpointPruned;
  "store.repaired": StoreRepaired;
  "history.redacted": HistoryRedacted;
  "store.consolidated": StoreConsolidated;
  "store.progress": StoreProgress;
  "rollback.started": RollbackStarted;
  "rollback.progress": RollbackProgress;
  "rollback.codonCheckpoint": RollbackCodonCheckpoint;
  "rollback.rigCleanup": RollbackRigCleanup;
  "rollback.archiveRestore": RollbackArchiveRestore;
  "rollback.completed": RollbackCompleted;
  "checkpoint.rollback": CheckpointRollback;
  "rollback.told": RollbackTold;
  "rollback.failed": RollbackFailed;
  "workspace.invalidated": WorkspaceInvalidated;
  "execution.origin": ExecutionOrigin;
  "execution.branched": ExecutionBranched;
  "exploration.started": ExplorationStarted;
  "exploration.attemptEnded": AttemptEnded;
  "exploration.ended": ExplorationEnded;
  "bisect.started": BisectStarted;
  "bisect.progress": BisectProgress;
  "bisect.ended": BisectEnded;
  "pong": Pong;
  "history.batch": HistoryBatch;
  "incomplete.codon": IncompleteCodon;
}

/** The data of each transition. */
export interface Transitions {
  "RunStarted": RunStarted;
  "RunCompleted": RunCompleted;
  "RunFailed": RunFailed;
  "RunCrashed": RunCrashed;
  "CurrentRunCleared": CurrentRunCleared;
  "CodonStarted": CodonStarted;
  "CodonTransitioned": CodonTransitioned;
  "CostsIncremented": CostsIncremented;
  "CostsUpdated": CostsUpdated;
  "SentinelStatesUpdated": SentinelStatesUpdated;
  "ExtensionCountUpdated": ExtensionCountUpdated;
  "CodonWaitChanged": CodonWaitChanged;
  "CheckpointCreated": CheckpointCreated;
  "InitialCheckpointSet": InitialCheckpointSet;
  "PlanSet": PlanSet;
  "PlanChanged": PlanChanged;
  "TimeTravelled": TimeTravelled;
  "TravelsForgotten": TravelsForgotten;
  "EditsNoticed": EditsNoticed;
  "EditsOvertaken": EditsOvertaken;
  "AgentTold": AgentTold;
  "ExplorationSet": ExplorationSet;
  "RunImported": RunImported;
  "PermissionRuleAdded": PermissionRuleAdded;
}

/** Any program that speaks the Agent Client Protocol on its stdin and stdout. */
export interface AcpAgentSpec {
  /** Which of the alternatives this is. */
  type: "acp";
  /** For example `["opencode", "acp"]` or `["gemini", "--acp"]`. */
  command: string[];
  /** The agent's id of the session mode to use; by default, the agent chooses. */
  mode?: string;
  /**
   * Variables of the server's environment to pass on: names, or prefixes that end in `_`, such as
   * `MISTRAL_`. By default, those that a known agent needs, and none for other agents.
   */
  keys?: string[];
}

export type ActiveCodon =
  | PreparingCodon
  | StartingCodon
  | InitializingCodon
  | RunningCodon
  | CompletingSentinelsCodon;

export type ActiveStatus =
  | "preparing"
  | "starting"
  | "initializing"
  | "running"
  | "completing-sentinels";

/** One codon that was added to the execution plan. */
export interface AddedStep {
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** The loop and the iteration that it belongs to, if any. */
  loopContext?: LoopContext;
  /** The entry of the former plan that has the same codon. */
  like?: string;
  /** Null if `like` is set. */
  codon?: Codon;
}

/**
 * `aftermath.intent`: durable before a codon begins whose files are exported or archived after its
 * success, removed when that is done.
 */
export interface AftermathIntent {
  /** The run. */
  runId: string;
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
}

/**
 * The sandbox around an agent or a command has refused a path; not in Hankweave.
 *
 * It is sent once for each path, at most 20 times for a codon.
 */
export interface AgentConfined {
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** The path, absolute. */
  path: string;
  /** What was tried: `read` or `write`. */
  operation: "read" | "write";
  /** The line of the hank that would allow it; null if none can. */
  setting: string | null;
  /** Text for people, with advice. */
  message: string;
}

/** A line of an agent's plain-text output, or of its stderr. */
export interface AgentOutput {
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** Where it was written to: `stdout` or `stderr`. */
  stream: "stderr" | "stdout";
  /** The line, without its end. */
  line: string;
}

export type AgentSpec =
  | ScriptedAgentSpec
  | CommandAgentSpec
  | ClaudeAgentSpec
  | CodexAgentSpec
  | AcpAgentSpec;

/** An agent got the message about the last rollback. */
export interface AgentTold {
  /** The id of the operation, in everything that concerns it. */
  operationId: string;
}

/** The tools that `hankweave mcp` offers to agents, as configured in the hank. */
export interface AgentToolsGranted {
  /** Whether agents are offered the tools. */
  enabled: boolean;
  /** Whether they may restore files. */
  rollbackPaths: boolean;
}

/** The remains of a codon or loop were moved to `rigArchive`. For a loop, `codonId` is its id. */
export interface ArchiveCompleted {
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** The paths that were moved, relative to the work tree. */
  archivedPaths: string[];
}

/** One file, or one empty folder, in rigArchive. */
export interface ArchiveEntry {
  /** Relative to agentRoot. */
  sourcePath: string;
  /** Relative to the execution directory. */
  archivePath: string;
  /** The codon, or the loop, that it was archived for. */
  codonId: string;
  /** The codon's last checkpoint before it was archived; `orphan` if there was none. */
  checkpointSha: string;
  /** The time, in UTC with milliseconds. */
  timestamp: string;
  /** The loop and the iteration that it belongs to, if any. */
  loopContext?: ArchivePlace;
}

/** `archive.intent`: durable before the first file moves, removed after the last event. */
export interface ArchiveIntent {
  /** The id of the operation, in everything that concerns it. */
  operationId: string;
  /** The run. */
  runId: string;
  /** The codon that has ended. */
  codonId: string;
  /** The codon or loop that this is archived for. */
  archivedFor: string;
  /** The checkpoint, by its commit; commands accept a unique prefix. */
  checkpointSha: string;
  /** The time at which it began. */
  startedAt: string;
  /** The loop and the iteration that it belongs to, if any. */
  loopContext?: ArchivePlace;
  /** Renames in rigArchive of files that are in the way. */
  displaced?: ArchiveMove[];
  /** From agentRoot to rigArchive. */
  moves?: ArchiveMove[];
  /** Folders that are moved as well, the inner ones first. */
  folders?: ArchiveMove[];
  /** Those of them that were empty. */
  empty?: string[];
  /** What could not be moved. */
  failed?: Record<string, string>;
}

/** archive-manifest.json: the content of rigArchive, and where it came from. */
export interface ArchiveManifest {
  /** The version of the format. */
  version: string;
  /** The archived files. */
  entries: ArchiveEntry[];
  /** By the operation id of the rollback; Hankweave has no such field. */
  travels?: Record<string, ArchiveTravel>;
}

/** One rename; names are base64 in the file, because they may not be text. */
export interface ArchiveMove {
  /** The path in the work tree, in base64. */
  source: string;
  /** The path in the archive, in base64. */
  target: string;
}

/** A part of what a codon or loop left was moved to `rigArchive`; the rest is where it was. */
export interface ArchivePartial {
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** The paths that were moved, relative to the work tree. */
  archivedPaths: string[];
  /** The paths that could not be moved, each with its error. */
  failedPaths: FailedPath[];
}

/** The position in a loop at which something was archived. */
export interface ArchivePlace {
  /** The loop. */
  loopId: string;
  /** The iteration, from 0. */
  iteration: number;
}

/** The files one rollback moved between rigArchive and agentRoot; its undo moves them back. */
export interface ArchiveTravel {
  /** What a rollback has restored. */
  restored?: ArchiveEntry[];
  /** What its undo archives again. */
  archived?: ArchiveEntry[];
  /** Folders of agentRoot that were created for restored files. */
  folders?: string[];
  /** Files that could not be moved, and why. */
  failed?: Record<string, string>;
}

/** An agent thinks, writes, or calls a tool. */
export interface AssistantAction {
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** `thinking`, `message` or `tool_use`. */
  action: "message" | "thinking" | "tool_use";
  /** The text, or a summary of the call. */
  content: string;
  /** The tool. */
  toolName?: string;
  /** The arguments of the call. */
  toolInput?: Record<string, unknown>;
  /** The id of the call. */
  toolUseId?: string;
  /** True if the call may have effects outside the work tree, which no rollback undoes. */
  external?: boolean;
}

/** How an execution takes part in an exploration. */
export interface Attempt {
  /** The exploration. */
  explorationId: string;
  /** The attempt. */
  attemptId: string;
  /** The codon with which it begins: an entry of the plan. */
  codonId: string;
  /** What the attempt does differently. */
  variant?: Variant;
  /** True if the rest of the plan runs, and not only the codon. */
  rest?: boolean;
  /** A shell command; the last line of its output is the score. */
  score?: string;
  /**
   * The most that the execution may cost, in US dollars: what it inherits, and its share of the
   * exploration's budget.
   */
  maxDollars?: number;
}

/** An attempt has ended; its result, if it has one, is a timeline of this execution. */
export interface AttemptEnded {
  /** The exploration. */
  explorationId: string;
  /** The attempt. */
  attempt: AttemptRecord;
}

/** One attempt of an exploration, as its parent knows it. */
export interface AttemptRecord {
  /** The exploration's id, a hyphen and the attempt's number, from 1. */
  attemptId: string;
  /** What the attempt does differently. */
  variant?: Variant;
  /** `waiting`, `running`, `completed`, `failed` or `discarded`. */
  status?: "completed" | "discarded" | "failed" | "running" | "waiting";
  /** Its execution; null until it is made. */
  executionPath?: string;
  /** Its run, in its own state and, when it has ended, in that of its parent. */
  runId?: string;
  /** Its runs before that one, oldest first, if its server was started again. */
  earlierRuns?: string[];
  /** Its result: a checkpoint of the parent, to compare and to adopt. */
  checkpointSha?: string;
  /** The score: the higher, the better. */
  score?: number;
  /** Why it failed, or why it has no score. */
  message?: string;
  /** Its share of the exploration's budget in US dollars, reserved when it starts. */
  maxDollars?: number;
  /** US dollars. */
  cost?: number;
  /** How long it took, in milliseconds. */
  durationMs?: number;
  /** The number of files that differ from the checkpoint that it began from. */
  files?: number;
  /** Lines added. */
  added?: number;
  /** Lines removed. */
  removed?: number;
}

export type BackgroundTask = "verification" | "packing" | "index" | "secrets" | "watch";

/** Work that follows commands, and waits until nothing is served. */
export interface BackgroundWork {
  /** The work: `verification`, `packing`, `index`, `secrets` or `watch`. */
  name: BackgroundTask;
  /** Milliseconds since it became necessary. */
  waitingMs: number;
  /** True if it waits no longer, but is done bit by bit beside commands. */
  late: boolean;
}

/** A search has ended: with the first failure, with suspects, or without a result. */
export interface BisectEnded {
  /** The id of the search. */
  bisectId: string;
  /** The first checkpoint at which the command fails; null if there is no single one. */
  checkpointSha?: string;
  /** The checkpoint just before it. */
  parentSha?: string;
  /** Its codon. */
  codonId?: string;
  /** What it holds, as its record says it. */
  summary?: string;
  /** The checkpoints of which one is the first; several only if some were skipped. */
  suspects?: string[];
  /** How often the command was run. */
  runs?: number;
  /** The number of checkpoints that it could not judge. */
  skipped?: number;
  /** Why there is no result; null if there is one. */
  message?: string;
}

/** The command of a search was run on a checkpoint; all clients get it, and nothing keeps it. */
export interface BisectProgress {
  /** The id of the search. */
  bisectId: string;
  /** The checkpoint, by its commit; commands accept a unique prefix. */
  checkpointSha: string;
  /** What the exit code says about the checkpoint. */
  verdict: "fails" | "passes" | "skipped";
  /** The last line of the command's output: its first 200 characters. */
  lastLine: string;
  /** How often the command was started so far. */
  runs: number;
}

/**
 * Find the first checkpoint at which a command fails, in the background.
 *
 * The shell runs the command in throw-away copies of checkpoints, confined as the checks of a codon
 * are; no file of the execution changes. Exit code 0 means that it passes, 125 that it cannot judge
 * the checkpoint, and 1 to 124, 126 and 127 that it fails. `bisect.ended` has the result. One
 * search runs at a time; it ends with the server.
 */
export interface BisectStart {
  /** A shell command line. */
  command: string;
  /**
   * Where it passes: a full sha, a prefix that is unique, or a codon, for the end of that; by
   * default, the beginning.
   */
  good?: string;
  /** Where it fails, in the same form; by default, the newest checkpoint. */
  bad?: string;
  /** How many copies are tried at the same time. */
  parallel?: number;
  /** If another run is current, refuse the command with `STALE_RUN`. */
  expectedRunId?: string;
}

/** A search for the first checkpoint at which a command fails has begun. */
export interface BisectStarted {
  /** The id of the search. */
  bisectId: string;
  /** The shell command line. */
  command: string;
  /** Where it has to pass. */
  good: string;
  /** Where it has to fail. */
  bad: string;
  /** How many there are between these two, both included. */
  checkpoints: number;
}

/** End the search that `bisect.start` began; `bisect.ended` follows. */
export interface BisectStop {
  /** If another run is current, refuse the command with `STALE_RUN`. */
  expectedRunId?: string;
}

/** The reply to `bisect.start`. */
export interface BisectionBegun {
  /** The id of the search, which its events have. */
  bisectId: string;
  /** How many there are from the good to the bad one, both included. */
  checkpoints: number;
}

/** The reply to `file.blame`. */
export interface BlamedFile {
  /** The path, relative to the work tree. */
  path: string;
  /** The checkpoint whose file it is. */
  checkpointSha: string;
  /** The number of lines of the file. */
  lines: number;
  /** The requested lines, in their order. */
  ranges: BlamedRange[];
  /** The first line that did not fit into the reply; null if all did. */
  nextLine?: number;
}

/** Neighbouring lines with the same author. */
export interface BlamedRange {
  /** `initial`: it was there at the start, or the rig of a codon made it. */
  by: "agent" | "initial" | "person";
  /** The codon; null if none was running. */
  codonId: string | null;
  /** The id of the exploration's attempt in which it was done. */
  attempt: string | null;
  /** The tool and what it was called with, as `Edit records.py`; `rig` for a rig. */
  call: string | null;
  /** The checkpoint that has the change. */
  checkpointSha: string;
  /** The run. */
  runId: string | null;
  /** Of the call, or of the checkpoint. */
  timestamp: string;
  /** US dollars: the share of the call in its message's cost; null if it is not known. */
  cost: number | null;
  /** The type of the agent that the hank names; null for the one that runs the model. */
  agent: string | null;
  /** The model. */
  model: string | null;
  /** The `seq` of the call's event; or of the last event before the checkpoint. */
  eventSeq: number | null;
  /** The id of the call. */
  toolUseId: string | null;
  /** The first line, from 1. */
  from: number;
  /** The last line. */
  to: number;
  /** The path of the file when they were written. */
  path: string;
}

/** `branch.intent`: durable before a branch is created, removed after the last event. */
export interface BranchIntent {
  /** The directory in which it is built; a start that finds it removes it. */
  temporary: string;
  /** The execution directory. */
  executionPath: string;
  /** The run. */
  runId: string;
  /** The moment that it belongs to. */
  coordinate: Coordinate;
  /** The time at which it began. */
  startedAt: string;
}

/** The reply to `execution.branch`. */
export interface BranchMade {
  /** The execution directory. */
  executionPath: string;
  /** The new execution's first run of its own. */
  runId: string;
}

/** The limit that ended a codon, and how much it had used. */
export interface BudgetExceeded {
  /** USD, tokens, or seconds. */
  currency: "contextTokens" | "cost" | "duration" | "outputTokens";
  /** The limit. */
  limit: number;
  /** What was used. */
  used: number;
}

/** The limits of a codon. */
export interface BudgetFigures {
  /** US dollars. */
  maxDollars?: number;
  /** Seconds. */
  maxTimeSeconds?: number;
  /** Tokens that the agent writes. */
  maxOutputTokens?: number;
}

/** The budget of one codon, and its use. */
export interface BudgetRow {
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** The status. */
  status: "completed" | "exceeded" | "failed" | "running" | "skipped";
  /** What the codon was allowed. */
  budget: BudgetFigures;
  /** What it has used. */
  actual: SpentFigures;
  /** The loop and the iteration that it belongs to, if any. */
  loopContext?: LoopContext;
}

/** A run with a limit has ended: what each codon was allowed and has used. */
export interface BudgetSummary {
  /** The limit of the run. */
  ceiling: BudgetFigures;
  /** How the limit is shared. */
  allocation: string;
  /** One for each codon. */
  rows: BudgetRow[];
  /** The sums. */
  totals: BudgetTotals;
}

/** The sums of a run. */
export interface BudgetTotals {
  /** US dollars that were used. */
  actualDollars: number;
  /** Seconds of work. */
  actualTimeSeconds: number;
  /** The limit, in US dollars. */
  budgetDollars?: number;
}

/** A codon's answer, for later codons (`outputVar`). */
export interface Captured {
  /** The variable. */
  name: string;
  /** The answer, at most 65,536 characters. */
  value: string;
  /** True if the answer was longer; the whole answer is in the codon's log. */
  truncated?: boolean;
}

/** The author of a change: an agent's call, a person, or the start. */
export interface ChangeAuthor {
  /** `initial`: it was there at the start, or the rig of a codon made it. */
  by: "agent" | "initial" | "person";
  /** The codon; null if none was running. */
  codonId: string | null;
  /** The id of the exploration's attempt in which it was done. */
  attempt: string | null;
  /** The tool and what it was called with, as `Edit records.py`; `rig` for a rig. */
  call: string | null;
  /** The checkpoint that has the change. */
  checkpointSha: string;
  /** The run. */
  runId: string | null;
  /** Of the call, or of the checkpoint. */
  timestamp: string;
  /** US dollars: the share of the call in its message's cost; null if it is not known. */
  cost: number | null;
  /** The type of the agent that the hank names; null for the one that runs the model. */
  agent: string | null;
  /** The model. */
  model: string | null;
  /** The `seq` of the call's event; or of the last event before the checkpoint. */
  eventSeq: number | null;
  /** The id of the call. */
  toolUseId: string | null;
}

/** A change of a file. */
export interface ChangeOfFile {
  /** `initial`: it was there at the start, or the rig of a codon made it. */
  by: "agent" | "initial" | "person";
  /** The codon; null if none was running. */
  codonId: string | null;
  /** The id of the exploration's attempt in which it was done. */
  attempt: string | null;
  /** The tool and what it was called with, as `Edit records.py`; `rig` for a rig. */
  call: string | null;
  /** The checkpoint that has the change. */
  checkpointSha: string;
  /** The run. */
  runId: string | null;
  /** Of the call, or of the checkpoint. */
  timestamp: string;
  /** US dollars: the share of the call in its message's cost; null if it is not known. */
  cost: number | null;
  /** The type of the agent that the hank names; null for the one that runs the model. */
  agent: string | null;
  /** The model. */
  model: string | null;
  /** The `seq` of the call's event; or of the last event before the checkpoint. */
  eventSeq: number | null;
  /** The id of the call. */
  toolUseId: string | null;
  /** The file's path then. */
  path: string;
  /** 0 if the file is not text. */
  linesAdded: number;
  /** The same for lines that are gone. */
  linesRemoved: number;
}

/** A folder, and how many of its files changed. */
export interface ChangedFolder {
  /** The folder that directly holds the files; empty for the top of the work tree. */
  folder: string;
  /** How many of its files changed. */
  files: number;
}

/** A changed file. */
export interface ChangedPath {
  /** The path, relative to the work tree. */
  path: string;
  /** `created`, `modified` or `deleted`. */
  action: "created" | "deleted" | "modified";
}

/** The reply to `file.changes`. */
export interface ChangesOfFile {
  /** Newest first. */
  changes: ChangeOfFile[];
  /** Whether there are older ones, beyond the limit. */
  hasMore?: boolean;
}

/** A shell command in the work tree whose exit code decides whether a codon succeeded. */
export interface Check {
  /** A shell command line; exit code 0 means success. */
  run: string;
  /** The time after which the command is terminated and the check fails. */
  timeoutSeconds?: number;
  /** If true, a failed check is reported and ignored. */
  allowFailure?: boolean;
  /** What is done when it has failed; excludes `allowFailure`. */
  onFailure?: CheckFailure;
}

/** A check of a codon has ended. */
export interface CheckCompleted {
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** The position of the check, from 0. */
  checkIndex: number;
  /** The command. */
  command: string;
  /** Whether it passed. */
  passed: boolean;
  /** How long it took, in milliseconds. */
  durationMs: number;
  /** The end of its output on stdout and stderr. */
  output: string;
  /** Null if it timed out or could not be started. */
  exitCode?: number;
  /** Why it failed. */
  message?: string;
  /** True if the hank allows it to fail. */
  ignored?: boolean;
}

/** The reaction to a failed check, before the codon fails. */
export interface CheckFailure {
  /**
   * A shell command line that finds the call that broke it: it runs in throw-away copies of the
   * codon's checkpoints, as with `hankweave bisect`. The reason of the failure names the first one
   * at which it fails. `onFailure` of the codon counts afterwards.
   */
  bisect: string;
  /** The time after which the search ends without a result. */
  timeoutSeconds?: number;
}

/** Take a `manual` checkpoint now. */
export interface CheckpointCreate {
  /** Its description; it becomes part of the commit message, without secrets. */
  label?: string;
  /** If another run is current, refuse the command with `STALE_RUN`. */
  expectedRunId?: string;
}

/** A checkpoint was recorded. */
export interface CheckpointCreated {
  /** The checkpoint. */
  checkpoint: CheckpointRecord;
  /** True if a start found the commit of a server that died before it recorded it. */
  recovered?: boolean;
}

/** Compare two checkpoints, or without `to` a checkpoint and the work tree. */
export interface CheckpointDiff {
  /** The checkpoint to compare: its sha, or a unique prefix. */
  from: string;
  /** The other checkpoint; by default, the work tree. */
  to?: string;
  /** Files or folders; by default, all. */
  paths?: string[];
  /** Whether unified diffs are included. */
  patch?: boolean;
  /** The maximum number of entries on a page. */
  limit?: number;
  /** Where the next page begins: send it with the same command. Absent on the last page. */
  cursor?: string;
}

export type CheckpointKind =
  | "initial"
  | "rig-setup"
  | "completed"
  | "error"
  | "skipped"
  | "exit"
  | "tool"
  | "turn"
  | "manual"
  | "safety";

/**
 * The checkpoints: the reply to `checkpoint.list` for clients without `protocolVersion`.
 *
 * It is Hankweave's own, and sent to all clients.
 */
export interface CheckpointList {
  /** The run. */
  runId: string | null;
  /** The checkpoints. */
  checkpoints: ListedCheckpoint[];
  /** The branch of the current run; null before its first checkpoint. */
  currentBranch: string | null;
}

/** The reply to `checkpoint.list`, newest first. */
export interface CheckpointPage {
  /** The checkpoints. */
  checkpoints: CheckpointRecord[];
  /** Null while HEAD is detached: after a rollback and before the next checkpoint. */
  currentBranch: string | null;
  /** Send it to get the next page; absent on the last one. */
  cursor?: string;
}

/** A checkpoint is incomplete; a rollback to it leaves the missing files unchanged. */
export interface CheckpointPartial {
  /** The checkpoint. */
  checkpoint: Coordinate;
  /** The first of them: at most 200, and fewer if paths are long. */
  skipped: SkippedFile[];
  /** Number of skipped files, if not all are listed. */
  skippedTotal?: number;
}

/**
 * Keep a checkpoint permanently, or with `pinned` false allow its pruning again.
 *
 * If the checkpoint is already pinned, it gets the new name.
 */
export interface CheckpointPin {
  /** A full sha, or a prefix that is unique among all checkpoints. */
  checkpointSha: string;
  /** True to keep it, false to allow its pruning again. */
  pinned: boolean;
  /** One line of printable characters; it replaces an earlier name. */
  name?: string;
  /** If another run is current, refuse the command with `STALE_RUN`. */
  expectedRunId?: string;
}

/** A checkpoint was pinned or unpinned. */
export interface CheckpointPinned {
  /** The checkpoint, by its commit; commands accept a unique prefix. */
  checkpointSha: string;
  /** Whether the checkpoint is excluded from every gc. */
  pinned: boolean;
  /** The name that it was given. */
  name?: string;
}

/** Checkpoints were pruned; the events about them stay in the journal. */
export interface CheckpointPruned {
  /** Their commits. */
  checkpoints: string[];
  /** True if a crash kept the server that pruned them from recording it. */
  recovered?: boolean;
  /** True if they were not pruned: some of their objects were lost, and a repair gave them up. */
  lost?: boolean;
}

/** Read a file of a checkpoint, or a range of its bytes. */
export interface CheckpointReadFile {
  /** The checkpoint, by its commit; commands accept a unique prefix. */
  checkpointSha: string;
  /** The path, relative to the work tree. */
  path: string;
  /** The first byte. */
  offset?: number;
  /** By default, up to the end; an error if that is more than MAX_RANGE. */
  length?: number;
}

/** One checkpoint. */
export interface CheckpointRecord {
  /** The commit: 40 hexadecimal digits. */
  sha: string;
  /** When it was taken; see the kinds of checkpoints. */
  kind: CheckpointKind;
  /** The moment that it belongs to. */
  coordinate: Coordinate;
  /** The codon's name, for people. */
  codonName: string;
  /** The time, in UTC with milliseconds. */
  timestamp: string;
  /** The id of the operation, in everything that concerns it. */
  operationId: string;
  /** The description that it was given. */
  label?: string;
  /**
   * What has changed since the checkpoint before, in a few words, with the tools that changed it.
   * Null in checkpoints of older versions.
   */
  summary?: string;
  /** True if some files could not be captured; `skipped` lists them. */
  partial?: boolean;
  /** The first of them: at most 200, and fewer if paths are long. */
  skipped?: SkippedFile[];
  /** Number of skipped files, if not all are listed. */
  skippedTotal?: number;
  /** True if it was pinned and is never pruned. */
  pinned?: boolean;
  /** The name given to it when it was pinned. */
  name?: string;
  /** Of the agent that was working; null if there was none. */
  conversation?: Conversation;
}

/**
 * Files were restored from a checkpoint.
 *
 * With a `report`, nothing else changed: some `paths` were restored, the agent was frozen, or
 * (`direction` `retry`) a failed codon is retried. Without one it was a complete rollback, and
 * `rollback.completed` with the same `operationId` follows with the report.
 */
export interface CheckpointRollback {
  /** The id of the operation, in everything that concerns it. */
  operationId: string;
  /** The checkpoint. */
  checkpoint: string;
  /** The position before. */
  source: Coordinate | null;
  /** The checkpoint that is restored. */
  target: Coordinate;
  /** The paths it was limited to; null for the whole work tree. */
  paths: string[] | null;
  /** Null if `rollback.completed` with the same operation id follows: it has the report. */
  report: RollbackReport | null;
  /** Which way the rollback went: `back`, `undo`, `redo` or `retry`. */
  direction?: Movement;
  /** The reason. */
  reason?: string;
  /** The number of paths that could not be restored. */
  exceptions?: number;
}

/**
 * A checkpoint holds secrets in files that are new in it, or new in their content.
 *
 * It follows the checkpoint a moment later, and does not have the value. The checkpoint is exact
 * all the same. `hankweave redact` removes a secret from all checkpoints.
 */
export interface CheckpointSecret {
  /** The checkpoint. */
  checkpoint: Coordinate;
  /** The first of them: at most 200, and fewer if paths are long. */
  secrets: SecretInFile[];
  /** Number of secrets; of a long file, only the first MiB is examined. */
  total: number;
}

/** The `claude` program, driven over its stream-json protocol. */
export interface ClaudeAgentSpec {
  /** Which of the alternatives this is. */
  type: "claude";
  /**
   * The program's own setting for calls without permission; by default, as in Hankweave, all.
   * `permissions` of the codon take precedence.
   */
  permissionMode?: "acceptEdits" | "bypassPermissions" | "default" | "plan";
}

/**
 * The wall clock was set by more than two seconds.
 *
 * Timestamps before and after are not comparable: use `seq`.
 */
export interface ClockJumped {
  /** By how much. */
  seconds: number;
  /** `forward` or `back`. */
  direction: "back" | "forward";
}

/** The `codex` program, driven by `codex exec --json`. */
export interface CodexAgentSpec {
  /** Which of the alternatives this is. */
  type: "codex";
  /** The program's own setting for what its commands can access; by default, everything. */
  sandbox?: "danger-full-access" | "read-only" | "workspace-write";
  /** Settings of its config.toml, such as `model_reasoning_effort`; values are in TOML. */
  config?: Record<string, string>;
}

/** One step of the pipeline, done by one agent. */
export interface Codon {
  /** Which of the alternatives this is. */
  type: "codon";
  /** Its name in coordinates and files; unique in the hank. */
  id: string;
  /** For people. */
  name: string;
  /**
   * The model, such as `sonnet`, `gpt-5.4`, `google/gemini-3-pro-preview`; it selects the agent if
   * none is named.
   */
  model: string;
  /** Whether the agent starts a new session or continues that of the previous codon. */
  continuationMode: "continue-previous" | "fresh";
  /** For people. */
  description?: string;
  /**
   * Paths relative to the hank's directory; several are joined with a blank line. Takes precedence
   * over `promptText`.
   */
  promptFile?: string | string[];
  /** The prompt of the agent, if there is no `promptFile`. */
  promptText?: string;
  /** Paths of texts to append to the system prompt; excludes `appendSystemPromptText`. */
  appendSystemPromptFile?: string | string[];
  /** A text to append to the system prompt. */
  appendSystemPromptText?: string;
  /** Preparations of the work tree before the agent starts, in this order. */
  rigSetup?: RigItem[];
  /** Hankweave's name for `trackedFiles`; both are accepted and mean the same. */
  checkpointedFiles?: string[];
  /** Patterns, as in a .gitignore, of the files that checkpoints contain from this codon on. */
  trackedFiles?: string[];
  /** Environment variables of the agent and of the rig's commands. */
  env?: Record<string, string>;
  /** Files to copy to the output directory, if one is configured. */
  outputFiles?: OutputFiles[];
  /** The sentinels that observe the codon. */
  sentinels?: SentinelEntry[];
  /** Paths or globs relative to agentRoot that are moved to rigArchive after success. */
  archiveOnSuccess?: string[];
  /** What follows a failure: the run ends, the codon is retried, or the next one starts. */
  onFailure?: "abort" | "ignore" | "retry";
  /** Only with `onFailure: "retry"`. */
  retryConfig?: RetryConfig;
  /**
   * Models that take over the conversation while the codon's model has reached a limit, the
   * preferred one first; they must run with the same agent.
   */
  fallbackModels?: string[];
  /** A limit that ends within so many seconds is waited for, instead of using another model. */
  fallbackAfter?: number;
  /** A prompt to send after each success, in the same session, until its context is full. */
  exhaustWithPrompt?: string;
  /** The maximum number of times that `exhaustWithPrompt` is sent. */
  maxExtensions?: number;
  /** If true, an agent whose context is full may compact it and continue. */
  autoCompact?: boolean;
  /** Seconds without output after which the agent has failed. */
  shimIdleTimeout?: number;
  /** The limits of one execution. */
  budget?: CodonBudget;
  /** The agent; by default, the one that runs the model. `--agent` takes precedence. */
  agent?: AgentSpec;
  /** The time that the agent may work on one prompt; after it, the codon fails. */
  timeoutSeconds?: number;
  /** An expression over the hank's variables; if it is false, the codon is skipped. */
  condition?: string;
  /** Checks to run after the agent's success, in order; the codon fails with the first failure. */
  checks?: Check[];
  /** The variable that is set to the agent's last answer, for later codons. */
  outputVar?: string;
  /** The label of the checkpoint of its success. */
  checkpointLabel?: string;
  /**
   * The permissions of its agent; they replace those of `overrides` entirely. By default, the
   * agent's own mode decides.
   */
  permissions?: Permissions;
  /** What its agent and commands can reach; it replaces that of `overrides` entirely. */
  confinement?: ConfinementProfile | Confinement;
  /** How often it is tried, each time in an execution of its own; by default, it runs here. */
  attempts?: CodonAttempts;
  /**
   * Whether it takes over the result of an earlier codon with the same inputs, if there is one,
   * instead of running. If false, it always runs. By default, the `overrides` decide.
   */
  reuse?: boolean;
}

/** How often a codon is tried, side by side, and which attempt is adopted. */
export interface CodonAttempts {
  /** The number of attempts; by default, one for each variant, or two. */
  n?: number;
  /** What the attempts do differently, in turn. */
  variants?: Variant[];
  /**
   * A shell command that runs in the work tree of each attempt when the codon is done. The last
   * line of its output is the score: a number, the higher the better.
   */
  score?: string;
  /** A model that compares the results if their scores are equal, as `provider/model`. */
  judge?: string;
  /** Whether the best attempt is adopted, or a person chooses one. */
  adopt?: "ask" | "best";
  /** How many attempts run at the same time; by default, all. */
  parallel?: number;
  /** The budget of all attempts together, in US dollars. */
  maxDollars?: number;
  /** A score with which no further attempt is started. */
  goodEnough?: number;
}

/** The limits of one execution of a codon. */
export interface CodonBudget {
  /** US dollars. */
  maxDollars?: number;
  /** Seconds since the agent's start. */
  maxTimeSeconds?: number;
  /** All tokens that the agent writes. */
  maxOutputTokens?: number;
  /** The maximum size of its context: input and output of one turn. */
  maxContextTokens?: number;
  /** Whether a codon that is stopped by its budget ends as completed or failed. */
  onExceeded?: "complete" | "fail";
}

export type CodonCheckpointType =
  | "start"
  | "end"
  | "rig-setup"
  | "completed"
  | "error"
  | "skipped"
  | "beginning";

/** The reply to `codon.next` and `codon.redo`: the codon that starts. */
export interface CodonChosen {
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
}

/** A codon has ended, successfully or not. */
export interface CodonCompletedEvent {
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** Whether it succeeded. */
  success: boolean;
  /** The cost of all its attempts so far, in US dollars. */
  cost: number;
  /** Milliseconds. */
  duration: number;
  /** How its agent ended. */
  exitStatus: ExitStatus;
  /** Why the codon failed. */
  failureReason?: FailureReason;
  /** Whether `onFailure` lets the plan continue. */
  failureIgnored?: boolean;
  /** The limit of a budget that ended the codon. */
  budgetExceeded?: BudgetExceeded;
  /** Not in Hankweave: true if a person skipped it. */
  skipped?: boolean;
  /** Not in Hankweave: the condition, if the codon was skipped because it was false. */
  condition?: string;
  /** Not in Hankweave: the variable that later codons may refer to. */
  captured?: Captured;
  /** Not in Hankweave: the messages of its `codon.warning` events. */
  warnings?: string[];
  /** Not in Hankweave: where its result comes from, if it was not run. */
  reused?: ReusedResult;
}

export type CodonExecution =
  | PreparingCodon
  | StartingCodon
  | InitializingCodon
  | RunningCodon
  | CompletingSentinelsCodon
  | CompletedCodon
  | FailedCodon
  | SkippedCodon;

/**
 * An agent has succeeded, and `exhaustWithPrompt` is sent in its session.
 *
 * `cumulativeTokens` is input and output together; `tokens` has the four counts.
 */
export interface CodonExtended {
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** The codon's name, for people. */
  codonName: string;
  /** Which extension this is, from 1. */
  extensionNumber: number;
  /** The prompt that was sent. */
  exhaustWithPrompt: string;
  /**
   * Sum of input and output tokens. Clients without `protocolVersion` get the four counts, as in
   * Hankweave.
   */
  cumulativeTokens: number;
  /** The cost so far, in US dollars. */
  cumulativeCost: number;
  /** The four counts; absent in journals of earlier versions. */
  tokens?: Tokens;
}

/** Kill the running codon; it ends as `failed`, and the server becomes idle. */
export interface CodonForceStop {
  /** The reason, for the journal. */
  reason?: string;
  /** If another run is current, refuse the command with `STALE_RUN`. */
  expectedRunId?: string;
}

/**
 * The inputs of a codon as it begins, after its rig; equal ones lead to the same key.
 *
 * `hankweave why` compares them with those of an earlier execution of the codon.
 */
export interface CodonKeyed {
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** A hash of everything that its result depends on; null if that cannot be compared. */
  reuseKey?: string;
  /** Why there is no key, or why no earlier result was taken over although that was wanted. */
  reason?: string;
  /** Whether it was to take over an earlier result. */
  wanted?: boolean;
  /** Short hashes of the inputs, by name; they say what differs, and nothing else. */
  inputs?: Record<string, string>;
  /** The checkpoint from which the tracked files differ by `changed`. */
  checkpointSha?: string;
  /** Hashes of these files by path, null for a removed one; absent if there are more than 200. */
  changed?: Record<string, string | null>;
}

/** Start the next codon of the plan. */
export interface CodonNext {
  /** If another run is current, refuse the command with `STALE_RUN`. */
  expectedRunId?: string;
}

/** Read the prompt of an entry of the plan. */
export interface CodonReadPrompt {
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
}

/** Read the whole result of a tool, of which the journal has the beginning. */
export interface CodonReadResult {
  /** The `seq` of its `tool.result` event. */
  seq: number;
  /** The first character; beyond the end, the range is empty. */
  offset?: number;
  /** Maximum number of characters. */
  length?: number;
}

/** Run the newest codon again, in a new run; files are not changed. */
export interface CodonRedo {
  /** If another run is current, refuse the command with `STALE_RUN`. */
  expectedRunId?: string;
}

/**
 * A codon's wait has ended, and its agent starts again; not in Hankweave.
 *
 * Its time has come, a client sent `codon.start` or `codon.next`, or another execution with the
 * same account got an answer.
 */
export interface CodonResumed {
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /**
   * Its time has come, a client sent `codon.start`, or another execution of the account found that
   * the limit has ended.
   */
  by: "command" | "other" | "time";
  /** How long all waits of the codon have taken. */
  waitedMs: number;
  /** The conversation that continues; null if there is none yet. */
  sessionId?: string;
}

/**
 * A codon has failed and will be retried, with the files restored to the start of the attempt.
 *
 * `attempt` is the number of the next one.
 */
export interface CodonRetrying {
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** The number of the next attempt. */
  attempt: number;
  /** How many attempts there are. */
  maxAttempts: number;
  /** The time until then, in milliseconds. */
  delayMs: number;
  /** Why the codon failed. */
  failureReason: FailureReason;
}

/** Stop the running codon; it ends as `skipped`, and the plan continues after it. */
export interface CodonSkip {
  /** If another run is current, refuse the command with `STALE_RUN`. */
  expectedRunId?: string;
}

/** Start an entry of the plan. A codon that waits for the end of a limit continues. */
export interface CodonStart {
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** Do not set up its rig. */
  skipPreCommands?: boolean;
  /** If another run is current, refuse the command with `STALE_RUN`. */
  expectedRunId?: string;
}

/** A codon's record was added to the current run. */
export interface CodonStarted {
  /** The run. */
  runId: string;
  /** The codon. */
  codon: CodonExecution;
}

/** The agent has reported its session; the codon is running. */
export interface CodonStartedEvent {
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** The codon's name, for people. */
  codonName: string;
  /** The agent's session. */
  sessionId: string;
  /** The time at which it began. */
  startTime: string;
  /** The codon's description. */
  codonDescription?: string;
  /** The session that it continues. */
  previousSessionId?: string;
  /** The frontmatter of its first prompt file. */
  promptMetadata?: PromptMetadata;
}

export type CodonStatus =
  | "preparing"
  | "starting"
  | "initializing"
  | "running"
  | "completing-sentinels"
  | "completed"
  | "failed"
  | "skipped";

/** The newest record of a codon has a new state; `codon` is the new record. */
export interface CodonTransitioned {
  /** The run. */
  runId: string;
  /** The status before. */
  fromStatus: CodonStatus;
  /** The codon. */
  codon: CodonExecution;
}

/** A wait of an active codon for the end of its provider's limit; its agent has ended. */
export interface CodonWait {
  /** An allowance of hours or days, too many requests in a short time, or an outage. */
  kind: "overload" | "rate" | "usage";
  /** When the codon continues. */
  until: string;
  /** The time at which it began. */
  since: string;
  /**
   * Where `until` comes from: a field that the agent reported, a header of its provider, its words,
   * nowhere (a delay that grows with each wait), or another execution of the account.
   */
  source: "event" | "header" | "none" | "shared" | "text";
  /** 1, and one more for each wait in a row after which the model did not answer. */
  number?: number;
  /** The model whose limit it is; empty for the agent's default. */
  model?: string;
  /** The agent's own words. */
  message?: string;
}

/** An active codon began or ended a wait for the end of a limit. */
export interface CodonWaitChanged {
  /** The run. */
  runId: string;
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** Null when it has ended. */
  wait?: CodonWait;
  /** All waits of the codon that have ended, together. */
  waitedMs?: number;
  /** The conversation that continues, if it has another id than the codon's session. */
  sessionId?: string;
}

/**
 * A codon waits for the end of a limit of its provider; not in Hankweave.
 *
 * Its files are saved and its agent has ended; the same conversation continues at `until`.
 */
export interface CodonWaiting {
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** When its conversation continues. */
  until: string;
  /** The kind of limit: `usage`, `rate` or `overload`. */
  reason: "overload" | "rate" | "usage";
  /** As in the state's `wait`. */
  source: "event" | "header" | "none" | "shared" | "text";
  /** The number of waits in a row without an answer of the model. */
  number: number;
  /** The model. */
  model?: string;
  /** The agent's own words. */
  message?: string;
}

/**
 * A codon is about to be completed, but its work should be checked; not in Hankweave.
 *
 * `tools-refused`: the agent was refused every tool with which it could have worked (`tools`), by
 * the hank's permissions, by a person, by time, or by its own mode.
 */
export interface CodonWarning {
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** `tools-refused`: every call of a tool that could have done the work was refused. */
  kind: "tools-refused";
  /** Text for people, with advice. */
  message: string;
  /** The names of the tools concerned. */
  tools?: string[];
}

/** Any program; it gets the prompt on stdin and works in the work tree. */
export interface CommandAgentSpec {
  /** Which of the alternatives this is. */
  type: "command";
  /** The program and its arguments; it gets the prompt on stdin. */
  command: string[];
  /**
   * A name for everything that the program is made of; without one, its results are not reused.
   * Change it whenever the program changes. The files that `command` names are compared as well.
   */
  version?: string;
}

/** The reply to a command that was refused. */
export interface CommandFailed {
  /** Which of the alternatives this is. */
  type: "command.failed";
  /** Null if the frame had no readable id. */
  inReplyTo: string | null;
  /** The time, in UTC with milliseconds. */
  timestamp: string;
  /** The data of this type. */
  data: Failure;
}

/** A shell command. */
export interface CommandSpec {
  /** A shell command line. */
  run: string;
  /** `project` is the work tree, `lastCopied` the last target that the rig copied. */
  workingDirectory?: "lastCopied" | "project";
  /** The time after which the command and all its processes are terminated. */
  timeoutSeconds?: number;
}

export type Comparison = "previous" | "now";

/**
 * Terminal: success; cost and tokens are final.
 *
 * Session and log path are empty if no agent was started because the budget was already spent.
 */
export interface CompletedCodon {
  /** The status. */
  status: "completed";
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** The time at which it began. */
  startTime: string;
  /** The loop and the iteration that it belongs to, if any. */
  loopContext?: LoopContext;
  /** 1 for the first attempt in this run, one more for each retry or redo. */
  attempt?: number;
  /** Time spent waiting for the end of limits; it counts for no budget. */
  waitedMs?: number;
  /** The time at which it ended. */
  endTime: string;
  /** The agent's session, whichever agent it is. */
  claudeSessionId: string;
  /** The agent's log, relative to `.hankweave`. */
  claudeLogPath: string;
  /** The exit code of the process; -1 if there was none. */
  exitCode: number;
  /** The cost, in US dollars. */
  finalCost: number;
  /** The tokens. */
  finalTokens: Tokens;
  /** Whether the agent reported its end. */
  resultMessageReceived: boolean;
  /** The checkpoint of its success. */
  completionCheckpoint: string;
  /** The sentinels of the codon, with their calls and costs. */
  sentinels: ExecutedSentinels;
  /** The checkpoint after its rig. */
  rigSetupCheckpoint?: string;
  /** How many times `exhaustWithPrompt` was sent. */
  extensionCount?: number;
  /** How many messages the agent has sent. */
  assistantMessageCount?: number;
  /** True if it ended because the agent's context was full, as configured in the codon or loop. */
  contextExceeded?: boolean;
  /** The limit of a budget that ended the codon. */
  budgetExceeded?: BudgetExceeded;
  /** Its answer, as the variable of its `outputVar`. */
  captured?: Captured;
  /** Not in Hankweave: why its work should be checked although it is completed. */
  warnings?: string[];
  /**
   * Not in Hankweave: a hash of everything that its result depends on; null if that is not known,
   * or if its result depends on more. A codon with the same key may take it over.
   */
  reuseKey?: string;
  /** Not in Hankweave: where its result comes from, if it was not run. */
  reused?: ReusedResult;
}

/** The agent has ended; sentinels finish their pending work. */
export interface CompletingSentinelsCodon {
  /** The status. */
  status: "completing-sentinels";
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** The time at which it began. */
  startTime: string;
  /** The loop and the iteration that it belongs to, if any. */
  loopContext?: LoopContext;
  /** 1 for the first attempt in this run, one more for each retry or redo. */
  attempt?: number;
  /** Time spent waiting for the end of limits; it counts for no budget. */
  waitedMs?: number;
  /** The sentinels of the codon, with their calls and costs. */
  sentinels: LoadedSentinels;
  /** The process id of the agent. */
  claudePid: number;
  /** The agent's session, whichever agent it is. */
  claudeSessionId: string;
  /** The agent's log, relative to `.hankweave`. */
  claudeLogPath: string;
  /** The cost so far, in US dollars. */
  currentCost: number;
  /** The tokens so far. */
  currentTokens: Tokens;
  /** How many messages the agent has sent. */
  assistantMessageCount: number;
  /** The checkpoint after its rig. */
  rigSetupCheckpoint?: string;
  /** The session that it continues. */
  previousSessionId?: string;
  /** How many times `exhaustWithPrompt` was sent. */
  extensionCount?: number;
  /** The wait for the end of a limit; null while the agent works. */
  wait?: CodonWait;
}

/** The limits of an agent and of the rig, checks and output commands of its codon. */
export interface Confinement {
  /** What they can reach without the fields below. */
  profile?: ConfinementProfile;
  /**
   * Further files and folders that they can read: absolute, below `~`, or relative to the hank's
   * directory.
   */
  extraRead?: string[];
  /** Further files and folders that they can read and change. */
  extraWrite?: string[];
  /** The only TCP ports that they can connect to, on any host; by default all but the server's. */
  connect?: number[];
}

export type ConfinementProfile = "workspace" | "readonly" | "none";

/** The confinement of agents and their commands on this machine. */
export interface ConfinementStatus {
  /** The strongest level that works on this machine. */
  level: "bwrap" | "landlock" | "namespace" | "none";
  /** The version of the kernel's interface for Landlock; 0 without it. */
  landlockAbi: number;
  /** The profile of codons that do not set their own. */
  profile: ConfinementProfile;
  /** What an agent can reach all the same, as sentences for people. */
  notCovered: string[];
}

/** Packs and loose objects of the store before and after packing. */
export interface Consolidation {
  /** The number of packs before. */
  packsBefore: number;
  /** The number of packs afterwards. */
  packsAfter: number;
  /** The number of loose objects before. */
  looseBefore: number;
  /** The number of loose objects afterwards. */
  looseAfter: number;
  /** False if something more urgent interrupted it; the server continues later. */
  finished: boolean;
}

/** The limits of a whole hank, or of all iterations of a loop. */
export interface ContainerBudget {
  /** US dollars. */
  maxDollars?: number;
  /** Seconds of work, for all codons together. */
  maxTimeSeconds?: number;
  /**
   * `shared`: each may use the whole remainder. `proportional`: each may use its share and what
   * earlier ones left over. `proportional-strict`: each may use its share.
   */
  allocation?: "proportional" | "proportional-strict" | "shared";
  /** Shares of `maxDollars` by the id of a codon or loop; the rest is split evenly. */
  shares?: Record<string, number>;
  /** Whether a codon that is stopped by this budget ends as completed or failed. */
  onExceeded?: "complete" | "fail";
}

/** A run that continues from a checkpoint of an earlier one. */
export interface Continuation {
  /** Which of the alternatives this is. */
  type: "continuation";
  /** The moment that it continues from. */
  source: ContinuationSource;
  /** `rollback`, `retry` or `continue`. */
  reason: "continue" | "retry" | "rollback";
}

/** The position in the plan that a run continues from. */
export interface ContinuationSource {
  /** The run that owns the checkpoint. */
  runId: string;
  /** The codon after which the run continues; null: from the beginning. */
  afterCodon: string | null;
  /**
   * The checkpoint that was restored; null if the files were not changed, or if Hankweave wrote the
   * state.
   */
  checkpointSha: string | null;
  /** Where in the work of its first codon the run continues; null if the codon starts anew. */
  conversation?: Conversation;
}

/** The position in an agent's conversation. */
export interface Conversation {
  /** The agent's session. */
  sessionId: string;
  /**
   * The agent's id of the newest message after which no tool call was open; null if it does not
   * assign ids to its messages.
   */
  messageId?: string;
}

/** A moment that a rollback can go back to. */
export interface Coordinate {
  /** The checkpoint, by its commit; commands accept a unique prefix. */
  checkpointSha: string;
  /** The last event before the checkpoint. */
  eventSeq: number;
  /** The run. */
  runId: string;
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId?: string;
  /** The codon's status at that moment. */
  codonState?: string;
  /** The state of the memory of agents and sentinels; 0 before there was any. */
  memoryEpoch?: number;
}

/** The source and target of a copy. */
export interface CopySpec {
  /** POSIX path relative to the hank's directory. */
  from: string;
  /** POSIX path relative to agentRoot; an existing target is replaced. */
  to: string;
}

/** One message of the agent was counted. */
export interface CostsIncremented {
  /** The run. */
  runId: string;
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** The cost, in US dollars. */
  cost: number;
  /** The tokens. */
  tokens: Tokens;
  /** The number of assistant messages it counts for. */
  messages?: number;
}

/** The agent reported the codon's totals at its end; they replace the running sums. */
export interface CostsUpdated {
  /** The run. */
  runId: string;
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** The cost, in US dollars. */
  cost: number;
  /** The tokens. */
  tokens: Tokens;
}

/** No run is current any more: its server stops, or was found to have stopped. */
export interface CurrentRunCleared {
  /** The run that was current. */
  runId: string;
}

/** A checkpoint with objects that cannot be read. */
export interface DamagedCheckpoint {
  /** The checkpoint. */
  checkpoint: string;
  /** Its objects that cannot be read. */
  damages: DamagedObject[];
}

/** An object of the store that cannot be read. */
export interface DamagedObject {
  /** The object. */
  sha: string;
  /** `blob`, `tree` or `commit`. */
  kind: "blob" | "commit" | "tree";
  /** Its path in the checkpoint; empty for the commit and the root tree. */
  path: string;
}

/** The execution's data was replaced by other data, because of `--force`. */
export interface DataChanged {
  /** The hash before; null if there was no data. */
  previousHash: string | null;
  /** The hash now. */
  currentHash: string;
  /** The path before; null if there was no data. */
  previousPath: string | null;
  /** The path now. */
  currentPath: string;
}

/** The reply to `checkpoint.diff`, ordered by path. */
export interface DiffPage {
  /** The checkpoint before. */
  from: string;
  /** Null for the work tree. */
  to: string | null;
  /** What the checkpoint before is called. */
  fromTitle?: string;
  /** What the other one is called; null for the work tree. */
  toTitle?: string;
  /** The files. */
  files: FileDifference[];
  /** The sums over all files. */
  stats: DiffStats;
  /** Where the next page begins: send it with the same command. Absent on the last page. */
  cursor?: string;
}

/** The totals of a comparison, over all pages. */
export interface DiffStats {
  /** The number of files. */
  files: number;
  /** Added lines. */
  added: number;
  /** Removed lines. */
  removed: number;
}

export type Direction = "back" | "undo" | "redo";

/**
 * People changed files after an agent or rig last wrote them.
 *
 * With the SHA-256 of each; empty for a deleted file, and for every file of a burst.
 */
export interface EditsNoticed {
  /** The files that people changed. */
  edits: Record<string, string>;
}

/** An agent or rig wrote files that people had changed. */
export interface EditsOvertaken {
  /** Files that an agent or rig has written since. */
  paths: string[];
}

/**
 * Codes of `command.failed` and `error`; the first four are Hankweave's own.
 *
 * The string below a code has its cause and, in the last paragraph, what to do about it.
 */
export type ErrorCode =
  | "AMBIGUOUS_CHECKPOINT"
  | "CHECKPOINT_DAMAGED"
  | "CHECKPOINT_NOT_FOUND"
  | "CODON_RUNNING"
  | "FILE_TOO_LARGE"
  | "FRAME_TOO_LARGE"
  | "HANDSHAKE_REQUIRED"
  | "INSUFFICIENT_PERMISSIONS"
  | "INSUFFICIENT_SPACE"
  | "INTERNAL_ERROR"
  | "INVALID_COMMAND"
  | "INVALID_PATH"
  | "IO_ERROR"
  | "MALFORMED_JSON"
  | "MERGE_CONFLICT"
  | "MIRROR_UNREACHABLE"
  | "NOTHING_TO_RUN"
  | "NOTHING_TO_UNDO"
  | "NO_CODON_RUNNING"
  | "PERMISSION_ANSWERED"
  | "RATE_LIMITED"
  | "RESULT_TOO_LARGE"
  | "ROLLBACK_IN_PROGRESS"
  | "SENTINEL_LOAD_FAILURE"
  | "SHUTTING_DOWN"
  | "STALE_RUN"
  | "STORE_UNUSABLE"
  | "UNAUTHORIZED"
  | "UNKNOWN_CODON"
  | "UNKNOWN_COMMAND"
  | "UNKNOWN_PERMISSION"
  | "UNKNOWN_RUN";

/**
 * A failure that concerns all clients.
 *
 * Without a `seq` it is the client's own mistake, as a client without `protocolVersion` is told it.
 */
export interface ErrorEvent {
  /** A sentence for people. */
  message: string;
  /** Whether the server ends. */
  fatal: boolean;
  /** The codon. */
  codon?: string;
  /** How much it concerns. */
  severity?: "codon" | "fatal" | "operation" | "warning";
  /** The operation or part in which it happened. */
  context?: string;
  /** The code, for programs. */
  code?: string;
}

/** The events from the start of the run to the moment, both included. */
export interface EventSlice {
  /** The first `seq`. */
  from: number;
  /** The last `seq`. */
  to: number;
}

/** The reply to `events.query`: `events`, or `counts` if it counts. */
export interface EventsPage {
  /** Journal lines, unchanged. */
  events?: AnyEvent[];
  /** The number of matching events of each type. */
  counts?: Record<string, number>;
  /** Send it with the same query to get the next page; absent on the last one. */
  cursor?: string;
}

/**
 * Return the events of the journal that all given filters let pass, or how many there are.
 *
 * Unlike elsewhere, unknown keys are refused: with a misspelt filter, too much would match.
 */
export interface EventsQuery {
  /** Only events of these types. */
  types?: string[];
  /** Only events of this codon. */
  codonId?: string;
  /** Only events of this run. */
  runId?: string;
  /** Only events with this text in their type, codon or data, ignoring case. */
  text?: string;
  /** Only events after this seq, or from this time on. */
  since?: number | string;
  /** Only events up to and including this seq or time. */
  until?: number | string;
  /** Only events with this seq or command id in their `causes`. */
  causedBy?: number | string;
  /** Only direct and indirect effects of this seq or command. */
  descendantsOf?: number | string;
  /** Only direct and indirect causes of this seq. */
  ancestorsOf?: number;
  /** Return the newest event first; by default, the oldest. */
  newestFirst?: boolean;
  /** Return the number of events of each type in place of the events. */
  count?: boolean;
  /** The maximum number of entries on a page. */
  limit?: number;
  /** Where the next page begins: send it with the same command. Absent on the last page. */
  cursor?: string;
}

/** Sentinels of a terminal codon; the values are final. */
export interface ExecutedSentinels {
  /** The sentinels that ran. */
  executed: SentinelState[];
  /** The cost so far, in US dollars. */
  totalCost: number;
}

/** The reply to `executions.address`. */
export interface ExecutionAddress {
  /** The address of the page, without a token. */
  pageUrl: string;
  /** The token of controllers; null if the server needs none. */
  token: string | null;
}

/** Create a new execution from a checkpoint; this one is not changed. */
export interface ExecutionBranch {
  /** A full sha, or a prefix that is unique among all checkpoints. */
  checkpointSha: string;
  /** Absolute path of an absent or empty directory; by default, next to this execution. */
  path?: string;
  /** If another run is current, refuse the command with `STALE_RUN`. */
  expectedRunId?: string;
}

/** A new execution was made from a checkpoint of this one. `runId` is its first own run. */
export interface ExecutionBranched {
  /** The execution directory. */
  executionPath: string;
  /** The first run of the new execution itself. */
  runId: string;
  /** The moment that it belongs to. */
  coordinate: Coordinate;
  /** True if a crash kept this from being recorded when it happened. */
  recovered?: boolean;
}

/** execution-meta.json. */
export interface ExecutionMeta {
  /** The version of the format. */
  version: string;
  /** The data, as it was named. */
  readOnlySourceDataPath: string | null;
  /** The data, as an absolute path. */
  readOnlySourceResolvedDataPath: string | null;
  /** The hash of the data. */
  dataHash: string | null;
  /** The hash of the hank. */
  hankHash: string | null;
  /** The path of the hank. */
  hankPath: string | null;
  /** `symlink`, `copy` or `none`. */
  linkType: "copy" | "none" | "symlink";
  /** The time at which it was created. */
  createdAt: string;
  /** When a server last started. */
  lastUsed: string;
  /** True if the work tree is the directory itself: a project that is served in place. */
  inPlace?: boolean;
  /** The origin of a branch. */
  origin?: Origin;
  /** How it takes part in an exploration, if it is an attempt. */
  attempt?: Attempt;
  /** The name that the hank has given itself. */
  hankName?: string;
  /** The budget of the last start: the lower one of the hank's and `--max-cost`, in US dollars. */
  maxDollars?: number;
  /** Values for variables of the hank that starts were given with `--variables`. */
  variables?: Record<string, string>;
}

/** The first event of a branch: its original, and the moment in the journal of that one. */
export interface ExecutionOrigin {
  /** The execution directory. */
  executionPath: string;
  /** In the journal of that execution. */
  coordinate: Coordinate;
  /** The first run of the branch itself. */
  runId: string;
}

/**
 * The reply to `executions.list`.
 *
 * Those that need a person come first, then those that run, then by their last activity.
 */
export interface ExecutionPage {
  /** The executions of this page, without sizes and numbers of checkpoints. */
  executions: ListedExecution[];
  /** How many match, on all pages. */
  total: number;
  /** How many of them need a person: they wait for permission, or have failed. */
  needing: number;
  /** Send it to get the next page; absent on the last one. */
  cursor?: string;
  /**
   * USD since `spentSince`, over all executions, whatever was searched for; what a branch or an
   * adopted attempt shares with its origin is counted once. Null without `spentSince`.
   */
  spent?: number;
}

/**
 * List the executions of the user whom the server belongs to.
 *
 * Only a client with mode `readandwrite` may send it, and no client of a server without tokens.
 */
export interface ExecutionsList {
  /** Only those with each of these words in their hank, path, data or codon. */
  search?: string;
  /**
   * Only the executions of this map. Otherwise a map is one row, and its executions are left out
   * unless words are searched for.
   */
  mapPath?: string;
  /** A time: the reply has what was spent since then. */
  spentSince?: string;
  /** The maximum number of entries on a page. */
  limit?: number;
  /** Where the next page begins: send it with the same command. Absent on the last page. */
  cursor?: string;
}

/** How the process of an agent ended. */
export interface ExitStatus {
  /** How the process ended. */
  type: "error" | "killed" | "success";
  /** Its exit code. */
  code?: number;
  /** The signal that ended the process. */
  signal?: string;
}

/** Several attempts from one checkpoint; which one is adopted shows in the execution thread. */
export interface Exploration {
  /** The exploration. */
  explorationId: string;
  /** The time at which it was created. */
  createdAt: string;
  /** The checkpoint from which all attempts begin. */
  checkpointSha: string;
  /** The first codon that they run. */
  codonId: string;
  /** The attempts. */
  attempts: AttemptRecord[];
  /** Whether the rest of the plan is tried, and not only one codon. */
  rest?: boolean;
  /** The command that scores an attempt. */
  score?: string;
  /** A model that compares the results, for attempts whose scores are equal. */
  judge?: string;
  /** The verdict of the judge about equal scores. */
  judgement?: Judgement;
  /** How many attempts run at the same time. */
  parallel?: number;
  /** The budget of all attempts together. */
  maxDollars?: number;
  /** A score with which no further attempt is started. */
  goodEnough?: number;
  /** What happens when all attempts have ended. */
  adopt?: "ask" | "best";
  /** True if the plan began it: the plan continues when its best attempt is adopted. */
  planned?: boolean;
  /** The time at which it ended. */
  endedAt?: string;
}

/**
 * Make the result of an attempt that of this execution; `rollback.undo` reverts it.
 *
 * The plan continues after the attempt's last codon, with its conversation. With `paths`, only
 * these files are adopted, and the plan stays where it is. With `merge`, what the attempt has
 * changed is merged into the files as they are now, and the plan stays, too.
 */
export interface ExplorationAdopt {
  /** The attempt. */
  attemptId: string;
  /** Files and folders, relative to the work tree. */
  paths?: string[];
  /** Only report what would happen. */
  preview?: boolean;
  /** Keep what has changed here since the attempt began; excludes `keepEdits`. */
  merge?: boolean;
  /** With `merge`: whose version of a conflicting file wins; `ask` refuses and names them. */
  onConflict?: "ask" | "ours" | "theirs";
  /** With `merge`: absolute path of a new folder for the versions of conflicting files. */
  conflictsIn?: string;
  /** What to do about a running codon: refuse, stop it, or pause it meanwhile. */
  onRunning?: OnRunning;
  /** Keep files that people changed after an agent or rig last wrote them. */
  keepEdits?: boolean;
  /** If another run is current, refuse the command with `STALE_RUN`. */
  expectedRunId?: string;
}

/** Compare the results of two attempts, or that of one with where it began. */
export interface ExplorationCompare {
  /** The attempt. */
  attemptId: string;
  /** The other attempt; by default, the checkpoint where the attempt began. */
  otherId?: string;
  /** Files and folders, relative to the work tree. */
  paths?: string[];
  /** Whether unified diffs are included. */
  patch?: boolean;
  /** The maximum number of entries on a page. */
  limit?: number;
  /** Where the next page begins: send it with the same command. Absent on the last page. */
  cursor?: string;
}

/**
 * End the attempts of an exploration, or one of them, and remove their executions.
 *
 * Results that were recorded stay as timelines of this execution, until `store.gc` with a limit
 * prunes them.
 */
export interface ExplorationDiscard {
  /** The exploration. */
  explorationId: string;
  /** Only this attempt. */
  attemptId?: string;
  /** If another run is current, refuse the command with `STALE_RUN`. */
  expectedRunId?: string;
}

/** No attempt of an exploration runs or waits any more. */
export interface ExplorationEnded {
  /** The exploration. */
  explorationId: string;
  /** The id of the attempt to adopt; null if none has succeeded. */
  best?: string;
}

/** List the explorations of the execution, the newest first. */
export type ExplorationList = Record<string, never>;

/** The explorations of an execution. */
export interface ExplorationPage {
  /** The newest first. */
  explorations: Exploration[];
}

/** An exploration was started, or one of its attempts has changed. */
export interface ExplorationSet {
  /** The whole record; it replaces the former one. */
  exploration: Exploration;
}

/** Show one exploration with its attempts. */
export interface ExplorationShow {
  /** By default, the newest. */
  explorationId?: string;
}

/**
 * Try a codon, or the rest of the plan, several times from one checkpoint, side by side.
 *
 * The reply comes when the exploration is recorded; `exploration.ended` follows the last attempt.
 */
export interface ExplorationStart {
  /** A full sha, or a prefix that is unique; by default, the newest checkpoint of the thread. */
  checkpointSha?: string;
  /** Begin where this codon began; excludes `checkpointSha`. */
  codonId?: string;
  /** The number of attempts; by default, one for each variant, or two. */
  n?: number;
  /** What the attempts do differently, in turn. */
  variants?: Variant[];
  /** Run the rest of the plan, and not only one codon. */
  rest?: boolean;
  /**
   * A shell command that runs in the work tree of each attempt when its codons are done. The last
   * line of its output is the score: a number, the higher the better.
   */
  score?: string;
  /**
   * A model, such as `anthropic/claude-sonnet-4-5`, that compares the results if their scores are
   * equal.
   */
  judge?: string;
  /** How many attempts run at the same time; by default, all. */
  parallel?: number;
  /** The budget of all attempts together, in equal shares. */
  maxDollars?: number;
  /** A score with which no further attempt is started. */
  goodEnough?: number;
  /** Whether the best attempt is adopted when all have ended. */
  adopt?: "ask" | "best";
  /** If another run is current, refuse the command with `STALE_RUN`. */
  expectedRunId?: string;
}

/** An exploration was recorded; its attempts are made and started next. */
export interface ExplorationStarted {
  /** The exploration. */
  exploration: Exploration;
}

/** The number of times that `exhaustWithPrompt` was sent to a codon's agent. */
export interface ExtensionCountUpdated {
  /** The run. */
  runId: string;
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** How many times `exhaustWithPrompt` was sent. */
  extensionCount: number;
  /** The agent continues in a session with another id. */
  sessionId?: string;
}

/** Terminal: failed, with the phase and the reason. */
export interface FailedCodon {
  /** The status. */
  status: "failed";
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** The time at which it began. */
  startTime: string;
  /** The loop and the iteration that it belongs to, if any. */
  loopContext?: LoopContext;
  /** 1 for the first attempt in this run, one more for each retry or redo. */
  attempt?: number;
  /** Time spent waiting for the end of limits; it counts for no budget. */
  waitedMs?: number;
  /** The time at which it ended. */
  endTime: string;
  /** The status in which it failed. */
  failedDuring: ActiveStatus;
  /** The agent's exit code; -1 if there was none. */
  exitCode: number;
  /** Why the codon failed. */
  failureReason: FailureReason;
  /** The cost up to that end, in US dollars. */
  partialCost: number;
  /** The tokens up to that end. */
  partialTokens: Tokens;
  /** The sentinels of the codon, with their calls and costs. */
  sentinels: ExecutedSentinels;
  /** The process id of the agent. */
  claudePid?: number;
  /** The agent's session, whichever agent it is. */
  claudeSessionId?: string;
  /** The agent's log, relative to `.hankweave`. */
  claudeLogPath?: string;
  /** The checkpoint after its rig. */
  rigSetupCheckpoint?: string;
  /** The checkpoint of its failure. */
  errorCheckpoint?: string;
  /** How many times `exhaustWithPrompt` was sent. */
  extensionCount?: number;
  /** How many messages the agent has sent. */
  assistantMessageCount?: number;
  /** The limit of a budget that ended the codon. */
  budgetExceeded?: BudgetExceeded;
}

/** A directory that could not be removed. */
export interface FailedDirectory {
  /** The directory. */
  directory: string;
  /** The error, as a sentence. */
  error: string;
}

/** A path that could not be moved. */
export interface FailedPath {
  /** The path, relative to the work tree. */
  path: string;
  /** The error, as a sentence. */
  error: string;
}

/** Why a command was refused. */
export interface Failure {
  /** The code, for programs. */
  code: ErrorCode;
  /** A sentence for people. */
  message: string;
  /** JSON path in the command. */
  path?: string;
  /** Advice, for people. */
  hint?: string;
}

/** Why a codon failed. */
export interface FailureReason {
  /** The kind of failure. */
  type: "api-error" | "check-failed" | "rate-limit" | "sentinel-load-failure" | "timeout" | "unknown";
  /** Whether another attempt may help. */
  retriable: boolean;
  /** A sentence for people. */
  message?: string;
  /** The sentinels that could not be loaded. */
  sentinelRefs?: string[];
  /** The delay that the provider requested. */
  retryAfterMs?: number;
}

/** A file that was changed recently. */
export interface FileAccess {
  /** The path, relative to the work tree. */
  path: string;
  /** The time, in UTC with milliseconds. */
  timestamp: string;
}

/** Find who has written each line of a file: an agent's call, a person, or the start. */
export interface FileBlame {
  /** The path, relative to the work tree. */
  path: string;
  /**
   * A checkpoint, by its sha or a unique prefix, or a codon, for the end of that; by default, the
   * newest checkpoint.
   */
  at?: string;
  /** The first line. */
  first?: number;
  /** The last line; by default, that of the file. */
  last?: number;
  /** Whether lines are also followed into files from which they were copied. */
  copies?: boolean;
}

/** The difference of one file between two moments. */
export interface FileDifference {
  /** The path, relative to the work tree. */
  path: string;
  /** `created`, `modified` or `deleted`. */
  status: "created" | "deleted" | "modified";
  /** Lines; 0 if the content is binary or too large to be compared by lines. */
  added: number;
  /** Removed lines. */
  removed: number;
  /** A unified diff, if requested; absent if it would not fit into a reply. */
  patch?: string;
}

/** A file or folder of a tree. */
export interface FileNode {
  /** The name. */
  name: string;
  /** The path, relative to the work tree. */
  path: string;
  /** Whether it is a folder. */
  isDirectory: boolean;
  /** The nodes below it. */
  children: FileNode[];
  /** For files only. */
  lastModified?: string;
}

/** Find the changes that made a text more or less frequent in a file, as `git log -S` does. */
export interface FilePickaxe {
  /** The text to search for; it may have several lines. */
  text: string;
  /** The newest checkpoint to search, as in `file.blame`. */
  at?: string;
  /** Whether abandoned timelines are searched as well; excludes `at`. */
  everywhere?: boolean;
  /** Maximum number of changes. */
  limit?: number;
}

/** The reply to `checkpoint.readFile`: the whole file, or a range of its bytes. */
export interface FileRange {
  /** The bytes of the range, encoded as `encoding` says. */
  content: string;
  /** Of this range: base64 if it is not valid UTF-8. */
  encoding: "base64" | "utf-8";
  /** Size of the whole file in bytes. */
  size: number;
  /** Type and permissions as in `st_mode`; the content of a link is its target. */
  mode: number;
  /** The first byte. */
  offset?: number;
  /** The offset of the next range; absent at the end of the file. */
  nextOffset?: number;
}

/** The source of a change of a file. */
export interface FileSource {
  /** What or who changed the file. */
  kind: "archive" | "codon-end" | "codon-start" | "person" | "rig" | "rollback" | "tool_use";
  /** The id of the call. */
  toolUseId?: string;
}

/**
 * A tracked file has changed, whatever changed it.
 *
 * It is version 2 of Hankweave's event, without the content.
 */
export interface FileUpdated {
  /** The path, relative to the work tree. */
  path: string;
  /** The name without its folder. */
  filename: string;
  /** `created`, `modified` or `deleted`. */
  action: "created" | "deleted" | "modified";
  /** Of the content; empty for a deleted file. */
  sha256: string;
  /** The size in bytes. */
  bytes: number;
  /** What changed it. */
  source: FileSource;
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId?: string;
}

/** Tell how a line came to be: prompt, the model's words, call, change, and later changes. */
export interface FileWhy {
  /** The path, relative to the work tree. */
  path: string;
  /** The number of the line, from 1. */
  line: number;
  /** As in `file.blame`. */
  at?: string;
}

/**
 * More than 200 tracked files changed at once; sent instead of a `file.updated` for each.
 *
 * Not in Hankweave. The encoded event stays below 32 KiB. `checkpoint.diff` lists all files.
 */
export interface FilesChanged {
  /** How many files changed. */
  total: number;
  /** How many files were created. */
  created: number;
  /** How many files were changed. */
  modified: number;
  /** How many files were deleted. */
  deleted: number;
  /** The folders with the most changed files, at most 20. */
  folders: ChangedFolder[];
  /** Number of folders that are not listed. */
  otherFolders: number;
  /** Number of changed files in them. */
  inOtherFolders: number;
  /** The first files in the order of their paths: at most 200, and fewer if paths are long. */
  paths: ChangedPath[];
  /** What changed them. */
  source: FileSource;
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId?: string;
}

/**
 * Tracked files came or went: how they lie now.
 *
 * At most 500 of them and 30 KiB, upper levels first. It is sent at a codon's start and end, and at
 * most every five seconds in between.
 */
export interface FiletreeUpdated {
  /** The folders and files. */
  tree: FileNode[];
  /** Number of files and folders of lower levels that were left out. */
  omitted?: number;
}

/** The time and money to the end of the plan, from what this execution has used before. */
export interface Forecast {
  /** Milliseconds of work, with a wait that goes on; null if a part of it is unknown. */
  remainingMs: number | null;
  /** USD, all that will have been paid; null if a part of it is unknown. */
  costAtEnd: number | null;
  /** Where the numbers come from, as `from 3 earlier rounds`. */
  basis: string;
  /** The step that works or comes next, and those after it, as far as the plan has them. */
  steps: StepForecast[];
}

/** The changes of a rollback to one file, line by line. */
export interface ForeseenDiff {
  /** The path, relative to the work tree. */
  path: string;
  /** `created`, `modified` or `deleted`. */
  status: "created" | "deleted" | "modified";
  /** Added lines. */
  added: number;
  /** Removed lines. */
  removed: number;
  /** Unified diff from the current file to the restored one. */
  patch: string;
}

/** A run that does not continue from an earlier one. */
export interface FreshStart {
  /** Which of the alternatives this is. */
  type: "fresh";
  /** The checkpoint that it started from. */
  initialCheckpointSha?: string;
}

/** The reply to `store.fsck`. */
export interface FsckReport {
  /** Number of checkpoints that were read down to each blob. */
  checked: number;
  /** What cannot be read. */
  damages: DamagedCheckpoint[];
  /** Checkpoints that the journal names, that were not pruned, and that do not exist. */
  missing: string[];
  /** The result of the repair before this check; null if none was requested. */
  repair?: StoreRepair;
}

/** The reply to `store.gc`. */
export interface GcReport {
  /** Whether it only reports. */
  dryRun: boolean;
  /** The pruned checkpoints or, in a dry run, those that would be pruned; newest first. */
  pruned: CheckpointRecord[];
  /** How many checkpoints are kept. */
  kept: number;
  /** All kept checkpoints, newest first, each with the first reason that applies. */
  keptBecause: KeptCheckpoint[];
  /** The size of the store before. */
  bytesBefore: number;
  /** In a dry run an estimate, from the objects that only pruned checkpoints need. */
  bytesAfter: number;
  /** Null in a dry run. */
  consolidated: Consolidation | null;
  /** Rollbacks that cannot be undone afterwards, because their safety checkpoints are pruned. */
  undosLost?: number;
  /** How many undone rollbacks can no longer be redone. */
  redosLost?: number;
  /** A lost object that may refer to others; because of it, no garbage was removed. */
  unreadable?: string;
}

/**
 * Return the address of another execution's page with its token, as the terminal prints it.
 *
 * Only a client with mode `readandwrite` may send it, to a server with tokens that is open on
 * loopback alone.
 */
export interface GetExecutionAddress {
  /** A path that `executions.list` has returned. */
  executionPath: string;
}

/** Return how far the mirror is behind, and who has its lease. */
export type GetMirrorStatus = Record<string, never>;

/** Return the server's problems, lock, sizes and settings. */
export type GetServerStatus = Record<string, never>;

/** Return the whole state, as in `state.json`. */
export type GetState = Record<string, never>;

/** The first frame of a client. */
export interface Handshake {
  /** Which of the alternatives this is. */
  type: "handshake";
  /** The data of this type. */
  data: HandshakeData;
}

/** The description of a client. */
export interface HandshakeData {
  /** The mode that the client wants: `readonly` or `readandwrite`. */
  mode: Mode;
  /** Whether the response has the newest 50 events. */
  sendPreviousEvents?: boolean;
  /** `1`; without it, the client is treated as one of Hankweave's. */
  protocolVersion?: number;
  /** The last seq that the client has; it gets all later events, without gap or duplicate. */
  sinceSeq?: number;
  /** The token, if the request had none. */
  token?: string;
  /** The client's name in websocket.log; it grants nothing. */
  clientName?: string;
  /** Whether the client wants `store.progress` events. */
  progress?: boolean;
}

/** The answer to a handshake. */
export interface HandshakeResponse {
  /** Which of the alternatives this is. */
  type: "handshake.response";
  /** The data of this type. */
  data: HandshakeResponseData;
}

/** The rights that the server grants a client. */
export interface HandshakeResponseData {
  /** The client. */
  clientId: string;
  /** The granted mode: never more than the token's role allows. */
  mode: Mode;
  /** Newest first, at most 50; empty unless `sendPreviousEvents` was set. */
  eventHistory: AnyEvent[];
  /** The `seq` of the newest event. */
  totalEvents: number;
}

/** hank.json has changed since the last start. */
export interface HankChanged {
  /** The hash before. */
  previousHash: string;
  /** The hash now. */
  currentHash: string;
}

/** A part of the journal: the answer to `history.sync`. */
export interface HistoryBatch {
  /** Lines of the journal, the oldest first. */
  events: AnyEvent[];
  /** Whether further batches follow. */
  hasMore: boolean;
}

export type HistoryFinding =
  | "moved"
  | "copied"
  | "other-project"
  | "gone"
  | "adopted"
  | "relocated";

/** A start found that the history of a project (`--workspace`) is not just where it was. */
export interface HistoryIdentified {
  /** What was found. */
  finding: HistoryFinding;
  /** A sentence for people. */
  message: string;
  /** The folder with another history that was left as it is. */
  keptAt?: string;
}

/**
 * A secret was removed from the journal, the logs and the checkpoints (`hankweave redact`).
 *
 * It is the last line of the rewritten journal.
 */
export interface HistoryRedacted {
  /** The id of the operation, in everything that concerns it. */
  operationId: string;
  /** Names of rules, variables or paths; never a value. */
  removed: string[];
  /** Lines of the journal that contained it. */
  events: number;
  /** Other files of the state directory that contained it or a changed sha. */
  files: number;
  /** Different contents in checkpoints. */
  contents: number;
  /** Checkpoints that held it. */
  checkpoints: number;
  /** Checkpoints with a new sha; an old one still finds its checkpoint. */
  renamed: number;
}

/** Send the journal as `history.batch` events, at most 200 lines and about 256 KiB each. */
export interface HistorySync {
  /** Only events after this one. */
  sinceSeq?: number;
}

/**
 * The newest codon has no end, because the server died while it was running.
 *
 * Reserved: this version does not send it.
 */
export interface IncompleteCodon {
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** The codon's name, for people. */
  codonName: string;
  /** The status. */
  status: string;
  /** The run. */
  runId: string;
  /** The status of its run. */
  runStatus: RunStatus;
}

/** A remark for people. */
export interface Info {
  /** The remark. */
  message: string;
}

/** The checkpoint before the first codon was taken. */
export interface InitialCheckpointSet {
  /** The checkpoint, by its commit; commands accept a unique prefix. */
  checkpointSha: string;
}

/** The agent has started; its session id is not known yet. */
export interface InitializingCodon {
  /** The status. */
  status: "initializing";
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** The time at which it began. */
  startTime: string;
  /** The loop and the iteration that it belongs to, if any. */
  loopContext?: LoopContext;
  /** 1 for the first attempt in this run, one more for each retry or redo. */
  attempt?: number;
  /** Time spent waiting for the end of limits; it counts for no budget. */
  waitedMs?: number;
  /** The sentinels of the codon, with their calls and costs. */
  sentinels: LoadedSentinels;
  /** The process id of the agent. */
  claudePid: number;
  /** The agent's log, relative to `.hankweave`. */
  claudeLogPath: string;
  /** The checkpoint after its rig. */
  rigSetupCheckpoint?: string;
  /** The session that it continues. */
  previousSessionId?: string;
}

/** An incomplete last line was cut off; its bytes are kept in a file beside the journal. */
export interface JournalRepaired {
  /** The file with the removed bytes. */
  quarantine: string;
  /** The size in bytes. */
  bytes: number;
}

/** A reason that a model gave for its verdict on an attempt. */
export interface JudgedReason {
  /** The attempt. */
  attemptId: string;
  /** The reason, as the judge gave it. */
  text: string;
}

/** A model's comparison of the attempts, which saw them in two orders. */
export interface Judgement {
  /** The model. */
  model: string;
  /** Ids of attempts, the best first; those on which the two answers disagree are in one group. */
  order?: string[][];
  /** True if both answers have the same order. */
  agreed?: boolean;
  /** Those of the first answer, then those of the second. */
  reasons?: JudgedReason[];
  /** US dollars. */
  cost?: number;
  /** Why there is no order. */
  error?: string;
}

export type KeepReason =
  | "pinned"
  | "completed"
  | "thread"
  | "undo"
  | "kind"
  | "ancestor"
  | "limits";

/** A checkpoint that a gc keeps, with the reason. */
export interface KeptCheckpoint {
  /** The commit: 40 hexadecimal digits. */
  sha: string;
  /** The kind. */
  kind: CheckpointKind;
  /** The first reason that applies. */
  reason: KeepReason;
}

/** A file that a rollback leaves as it is, with the reason. */
export interface KeptFile {
  /** The path, relative to the work tree. */
  path: string;
  /** Why it is kept. */
  reason: string;
}

/** The reply to `file.why`: how a line came to be. */
export interface LineStory {
  /** The path, relative to the work tree. */
  path: string;
  /** The line, without its end. */
  line: number;
  /** The line. */
  text: string;
  /** Who wrote it. */
  author: ChangeAuthor;
  /** Of the codon; the names of files if the hank has it in files. */
  prompt: string | null;
  /** The model's text before the call. */
  words: string | null;
  /** The part of the change that has the line. */
  patch: string;
  /** The changes of the file since, newest first. */
  later: ChangeAuthor[];
}

/** List checkpoints, the newest first. */
export interface ListCheckpoints {
  /** Only those of this run. */
  runId?: string;
  /** The kinds to include; by default, all. */
  kinds?: CheckpointKind[];
  /** The maximum number of entries on a page. */
  limit?: number;
  /** Where the next page begins: send it with the same command. Absent on the last page. */
  cursor?: string;
}

/** List the changes of a file, through renames, with who made each. */
export interface ListFileChanges {
  /** The path, relative to the work tree. */
  path: string;
  /** The newest checkpoint to search, as in `file.blame`. */
  at?: string;
  /** Maximum number of changes. */
  limit?: number;
}

/** A checkpoint in `checkpoint.list`: Hankweave's fields, then the fields of this server. */
export interface ListedCheckpoint {
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string | null;
  /** The codon's name, for people. */
  codonName: string;
  /** The kind of the checkpoint. */
  checkpointType: CheckpointKind;
  /** The commit: 40 hexadecimal digits. */
  sha: string;
  /** The status. */
  status: string | null;
  /** The time, in UTC with milliseconds. */
  timestamp: string;
  /** The description that it was given. */
  label?: string;
  /** What has changed since the checkpoint before, in a few words. */
  summary?: string;
  /** Whether some files could not be captured. */
  partial?: boolean;
  /** The moment that it belongs to. */
  coordinate?: Coordinate;
}

/** One execution, as its files tell of it. */
export interface ListedExecution {
  /** The directory of the execution. */
  path: string;
  /**
   * `stopped`: its server was ended during a codon, and a start resumes there; `waiting`: a branch
   * that has never been served; `removing`: a cleanup was interrupted.
   */
  state: Standing;
  /** The path of its hank. */
  hank?: string;
  /** Its data, as it was named. */
  data?: string;
  /** The newest codon: the one that runs, if one does. */
  lastCodon?: string;
  /** What the hank calls its step, with the round of a loop. */
  lastCodonName?: string;
  /** Entries of the plan on the current line that have succeeded or were skipped. */
  codonsDone?: number;
  /** Entries of the plan. */
  codonsPlanned?: number;
  /**
   * The step that runs or has failed, from 1; otherwise the number of steps that are done. A loop
   * is one step with all its iterations. Of a map, the inputs that are done.
   */
  step?: number;
  /** Steps of the plan; of a map, its inputs. */
  steps?: number;
  /** When a server was last started there, or last saved the state. */
  lastUsed?: string;
  /** The pid of the server that is running there. */
  serverPid?: number;
  /** Null if counting would take too long. */
  checkpoints?: number;
  /** Null if measuring would take too long. */
  bytes?: number;
  /** Whether it was made from a checkpoint of another one. */
  isBranch?: boolean;
  /** The id of the attempt that it is, of an exploration of another execution. */
  attempt?: string;
  /** Whether it is a project that is served in place. */
  inPlace?: boolean;
  /** The reason why it cannot be read. */
  problem?: string;
  /** The name that its hank has given itself, or else that of the hank's folder. */
  hankName?: string;
  /** The execution that is explored, if it is an attempt. */
  attemptOf?: string;
  /** USD, over all runs; null if the state cannot be read. */
  cost?: number;
  /** The budget of its last start, in USD; null if there was none. */
  maxDollars?: number;
  /** When its journal or its state last changed. */
  lastActivity?: string;
  /** The address of its server's page, without a token; null if no server listens. */
  pageUrl?: string;
  /** The newest tool call of the codon that runs. */
  doing?: string;
  /** The oldest tool call that waits for a person's permission. */
  waitsFor?: string;
  /** When that call is decided without an answer. */
  answerUntil?: string;
  /** When the codon continues that waits for the end of a provider's limit. */
  waitsUntil?: string;
  /** Why it failed or crashed, or why its last codon failed while it is idle, in a sentence. */
  failure?: string;
  /** Whether its server runs nothing until the next command. */
  isIdle?: boolean;
  /** The directory of the map that it is an execution of. */
  mapOf?: string;
  /**
   * Of a map itself: a row without a work tree, whose `path` is its directory. Its numbers of
   * codons are those of its inputs.
   */
  map?: MapProgress;
}

/** Sentinels of a codon that is still active. */
export interface LoadedSentinels {
  /** The sentinels that run. */
  loaded: SentinelState[];
  /** The cost so far, in US dollars. */
  totalCost: number;
}

/** The position of a codon in a loop; rollback and resume depend on it. */
export interface LoopContext {
  /** The loop. */
  loopId: string;
  /** 0-indexed. */
  iteration: number;
  /** The position of the codon in the loop, from 0. */
  codonIndexInLoop: number;
  /** The budget of the whole loop, as in the hank when the iteration was added to the plan. */
  loopBudget?: ContainerBudget;
}

/** An iteration of a loop has ended. */
export interface LoopIterationCompleted {
  /** The loop. */
  loopId: string;
  /** The iteration, from 0. */
  iteration: number;
  /** How long it took, in milliseconds. */
  durationMs: number;
  /** The cost, in US dollars. */
  costUsd: number;
  /** The tokens of the iteration, input and output. */
  tokensUsed: number;
  /** Whether the loop ends. */
  isFinal: boolean;
  /** Why the loop ends. */
  terminationReason?: "budget_exceeded" | "context_exceeded" | "iteration_limit";
}

/** How far a map is. */
export interface MapProgress {
  /** How many it has. */
  inputs: number;
  /** Inputs whose execution has succeeded. */
  completed: number;
  /** Inputs whose execution has failed, and is not run again unless that is asked for. */
  failed: number;
  /** Inputs whose execution was started and has not ended. */
  running: number;
}

/** The reply to `mirror.off`. */
export interface MirrorEnded {
  /** The git repository; everything in it stays. */
  address: string;
  /** False if the lease was not released: others wait until it runs out. */
  released: boolean;
}

/**
 * Wait until everything that the journal has now is in the mirror.
 *
 * If that takes too long, it is refused; the server goes on trying.
 */
export interface MirrorNow {
  /** Seconds to wait at most. */
  withinSeconds?: number;
}

/**
 * End the mirror: push the rest, release the lease, and forget the address.
 *
 * If the rest cannot be pushed in time, it is refused, and the mirror goes on. Afterwards, the
 * server works without one; elsewhere, the execution can be continued from the mirror at once.
 */
export interface MirrorOff {
  /** Seconds to wait at most for the push of the rest. */
  withinSeconds?: number;
}

/** The mirror of an execution, and the lease that its server has of it. */
export interface MirrorStatus {
  /** The git repository. */
  address: string;
  /** `async`: the mirror follows. `sync`: no event is published before it is in the mirror. */
  mode: "async" | "sync";
  /** Seconds for which a push gives the lease. */
  ttlSeconds: number;
  /** The machine and the directory that have the lease. */
  owner: string;
  /** How often the lease was taken. */
  epoch: number;
  /** False if it has run out: the agent is stopped, and the journal waits. */
  leaseHeld: boolean;
  /** Seconds until it runs out, unless a push succeeds; 0 if it has. */
  leaseSecondsLeft: number;
  /** The last event in the mirror. */
  mirroredSeq: number;
  /** The size of the journal in the mirror. */
  mirroredBytes: number;
  /** Events that only the journal has. */
  eventsBehind: number;
  /** The size of these events. */
  bytesBehind: number;
  /** Seconds since the beginning of the last push that succeeded; 0 if no event is behind. */
  secondsBehind: number;
  /** Seconds since the beginning of the last push that succeeded. */
  secondsSincePush: number;
  /** Pushes of this server that succeeded. */
  pushes: number;
  /** Bytes that this server has sent. */
  sentBytes: number;
  /** Why the last push failed, in the words of git; absent if it succeeded. */
  problem?: string;
}

export type Mode = "readonly" | "readandwrite";

/** A ref of the shadow repository that named a lost commit. */
export interface MovedRef {
  /** The ref. */
  ref: string;
  /** What it named. */
  was: string;
  /** The checkpoint that it names now; null if the ref was removed. */
  now: string | null;
}

export type Movement = "back" | "undo" | "redo" | "retry";

/** The message about a rollback that an agent gets at its next step: target and reason. */
export interface Notice {
  /** The id of the operation, in everything that concerns it. */
  operationId: string;
  /** Which way the rollback went: `back`, `undo`, `redo` or `retry`. */
  direction: Direction;
  /** The checkpoint that is restored. */
  target: Coordinate;
  /** The time, in UTC with milliseconds. */
  timestamp: string;
  /** Files and folders, relative to the work tree. */
  paths?: string[];
  /** The reason that the person gave. */
  reason?: string;
}

export type OnRunning = "refuse" | "stop" | "pause";

/** The execution that a branch was made from, and the moment in it. */
export interface Origin {
  /** The execution directory. */
  executionPath: string;
  /** In the journal of that execution. */
  coordinate: Coordinate;
}

/** The files that a codon exports after its success. */
export interface OutputFiles {
  /** Paths or globs relative to agentRoot. */
  copy: string[];
  /** Commands to run in the work tree first. */
  beforeCopy?: RigCommand[];
}

/** The reply to `replay.view`: files and state at a past moment. */
export interface PastView {
  /** The checkpoint whose files are shown; null before the first checkpoint. */
  coordinate: Coordinate | null;
  /** The files. */
  tree: TreeFile[];
  /** Of all selected files, over all pages. */
  stats: TreeStats;
  /** Null on later pages, and if the journal does not reach back to the moment. */
  state: State | null;
  /** The `seq`s from the start of the run to the moment. */
  events: EventSlice | null;
  /** The first page of the comparison with the preceding checkpoint. */
  previous?: DiffPage;
  /** The first page of the comparison with the work tree. */
  now?: DiffPage;
  /** Where the next page begins: send it with the same command. Absent on the last page. */
  cursor?: string;
}

/** A tool call that waits for permission. */
export interface PendingPermission {
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** The id of the request. */
  requestId: string;
  /** The tool. */
  toolName: string;
  /** The arguments of the call. */
  toolInput: Record<string, unknown>;
  /** When `onTimeout` decides. */
  expiresAt: string;
  /** Why a client is asked. */
  reason: string;
  /** The narrowest useful rule for `always` of `permission.answer`; null if there is none. */
  suggestion?: string;
  /** What is decided at `expiresAt`: `deny` or `allow`. */
  onExpiry?: "allow" | "deny";
}

/**
 * Allow or deny the tool call that an agent requested.
 *
 * The reply is sent when the decision is journaled and the agent has it.
 */
export interface PermissionAnswer {
  /** The id of the request. */
  requestId: string;
  /** `allow` or `deny`. */
  decision: "allow" | "deny";
  /** Sent to the agent if the call is denied. */
  message?: string;
  /**
   * A rule, as in `permissions.allow`, that allows this call and from now on, in this execution,
   * every one that it fits; it names one tool. Only with `allow`.
   */
  always?: string;
  /** If another run is current, refuse the command with `STALE_RUN`. */
  expectedRunId?: string;
}

/** A tool call waits for permission; `permission.answer` allows or denies it. */
export interface PermissionRequested {
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** The id of the request. */
  requestId: string;
  /** The tool. */
  toolName: string;
  /** The arguments of the call. */
  toolInput: Record<string, unknown>;
  /** The time at which it is decided without an answer. */
  expiresAt: string;
  /** Why permission is required. */
  reason: string;
  /** The narrowest useful rule for `always` of `permission.answer`; null if there is none. */
  suggestion?: string;
  /** What is decided at `expiresAt`: `deny` or `allow`. */
  onExpiry?: "allow" | "deny";
}

/**
 * A call was allowed or denied; durable before the agent gets the answer.
 *
 * `by` says whether a pattern of the hank (`rule`), a client, the time limit, or the end of the
 * agent has decided.
 */
export interface PermissionResolved {
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** The id of the request. */
  requestId: string;
  /** The tool. */
  toolName: string;
  /** `allow` or `deny`. */
  decision: "allow" | "deny";
  /** `ended`: the agent, its codon or the server ended, or the agent withdrew the request. */
  by: "client" | "ended" | "policy" | "timeout";
  /** The client. */
  clientId?: string;
  /** The pattern (of the hank, or added by an answer) or the name of the field that decided. */
  rule?: string;
  /** The message to the agent, or the reason for the missing answer. */
  message?: string;
  /** The rule that the answer has added: it allows calls like this one from now on. */
  always?: string;
}

/** A rule that an answer to a permission request has added; it holds for this execution. */
export interface PermissionRule {
  /** A pattern, as in `permissions.allow`. */
  rule: string;
  /** The codon whose agent asked. */
  codonId: string;
  /** The request that was answered. */
  requestId: string;
}

/** The answer to a permission request has allowed further calls, too. */
export interface PermissionRuleAdded {
  /** The rule; it replaces an equal one. */
  rule: PermissionRule;
}

/** The permissions of an agent, checked before each tool call with effects. Deny wins. */
export interface Permissions {
  /** Patterns of allowed calls: `Bash(git *)`, `Write(src/**)`, `mcp__server__*`. */
  allow?: string[];
  /** Patterns of denied calls, even if `allow` matches. */
  deny?: string[];
  /** The decision for a call that no pattern matches; with `ask`, a client decides. */
  otherwise?: "allow" | "ask" | "deny";
  /** The time that a client has to answer. */
  timeoutSeconds?: number;
  /** The decision for a call without an answer. */
  onTimeout?: "allow" | "deny";
}

/** Send `pong` to the sender. */
export type Ping = Record<string, never>;

/** Send `pong` to all clients, with the id of the sender. */
export type PingBroadcast = Record<string, never>;

/**
 * The execution plan was set; recorded as its difference from the former one.
 *
 * A loop adds an iteration at a time, so recording the whole plan each time would let the journal
 * grow with the square of the iterations.
 */
export interface PlanChanged {
  /** The number of entries that stay before the change. */
  at: number;
  /** The number of entries that leave the plan from there on. */
  removed: number;
  /** The entries that take their place. */
  added?: AddedStep[];
}

/** One codon that will run or has run; loops are unrolled, one iteration at a time. */
export interface PlanEntry {
  /** The codon, as in the hank. */
  codon: Codon;
  /** Its id in the plan. */
  codonId: string;
  /** The loop and the iteration that it belongs to, if any. */
  loopContext?: LoopContext;
}

/**
 * The execution plan was set: at the start, after an iteration, or after a rollback.
 *
 * The journal has it as `PlanChanged` wherever a plan was set before.
 */
export interface PlanSet {
  /** The plan. */
  executionPlan: PlanEntry[];
}

/** The answer to `ping`; with `clientId`, the `ping.broadcast` of that client. */
export interface Pong {
  /** `pong`. */
  message: string;
  /** The time, in UTC with milliseconds. */
  timestamp: string;
  /** The sender of a `ping.broadcast`. */
  clientId?: string;
}

/** The rig is being set up; there is no agent yet. */
export interface PreparingCodon {
  /** The status. */
  status: "preparing";
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** The time at which it began. */
  startTime: string;
  /** The loop and the iteration that it belongs to, if any. */
  loopContext?: LoopContext;
  /** 1 for the first attempt in this run, one more for each retry or redo. */
  attempt?: number;
  /** Time spent waiting for the end of limits; it counts for no budget. */
  waitedMs?: number;
}

/** Why a server is degraded. */
export interface Problem {
  /**
   * `INSUFFICIENT_SPACE` or `OUT_OF_DESCRIPTORS`. With a mirror, `MIRROR_UNREACHABLE`: pushes fail;
   * or `MIRROR_LEASE_EXPIRED`: the agent and the journal wait until one succeeds.
   */
  code: ProblemCode;
  /** A sentence for people. */
  message: string;
  /** The time at which it began. */
  since: string;
}

export type ProblemCode =
  | "INSUFFICIENT_SPACE"
  | "OUT_OF_DESCRIPTORS"
  | "MIRROR_UNREACHABLE"
  | "MIRROR_LEASE_EXPIRED";

export type ProgressUnit = "files" | "bytes" | "objects" | "checkpoints";

/** The frontmatter of a prompt file. */
export interface PromptMetadata {
  /** The name. */
  name?: string;
  /** For people. */
  description?: string;
  /** Any words. */
  tags?: string[];
  /** The version of the prompt. */
  version?: string;
  /** The author. */
  author?: string;
}

/** The reply to `codon.readPrompt`: the prompt as the hank has it, without secrets. */
export interface PromptText {
  /** The prompt, before its variables are filled in; at most MAX_RANGE characters. */
  text: string;
  /** Characters of the whole prompt. */
  size: number;
  /** What is appended to the agent's system prompt, with the same limit. */
  systemPrompt?: string;
}

/** `prune.intent`: durable before a checkpoint is pruned, removed after the last event. */
export interface PruneIntent {
  /** The checkpoints. */
  checkpoints: string[];
  /** The time at which it began. */
  startedAt: string;
}

/** The content of `redact.intent`: a redaction that is not confirmed or undone. */
export interface RedactIntent {
  /** The id of the operation, in everything that concerns it. */
  operationId: string;
  /** How far it is. */
  phase: "confirming" | "exchanging" | "pending" | "undoing";
  /** The number of each is its name in `redaction/old` and `redaction/new`. */
  files: ReplacedFile[];
  /** Size of the journal afterwards; another size means that the execution has continued. */
  journalBytes: number;
}

/** The record of a redaction, kept in `redactions/`. */
export interface RedactionRecord {
  /** The id of the operation, in everything that concerns it. */
  operationId: string;
  /** The time, in UTC with milliseconds. */
  timestamp: string;
  /** Names of rules, variables or paths; never a value. */
  removed: string[];
  /** Lines of the journal. */
  events: number;
  /** Other files of the state directory, relative to the execution. */
  files: string[];
  /** Different contents in checkpoints. */
  contents: number;
  /** Checkpoints that held it. */
  checkpoints: number;
  /** The new sha of each checkpoint that has one. */
  renamed: Record<string, string>;
}

/** A file that a redaction exchanges for another. */
export interface ReplacedFile {
  /** Relative to the execution. */
  path: string;
  /** False if there was no file before. */
  replaces?: boolean;
  /** False if there is no file afterwards. */
  isReplaced?: boolean;
}

/** Show a past moment: that of a checkpoint, or that right after an event. */
export interface ReplayView {
  /** The checkpoint to show; excludes `seq`. */
  checkpointSha?: string;
  /** Show the moment right after this event; excludes `checkpointSha`. */
  seq?: number;
  /** Files and folders, relative to the work tree. */
  paths?: string[];
  /** Comparisons to include: with the preceding checkpoint, with the work tree. */
  compare?: Comparison[];
  /** Maximum number of files in one reply; 0 omits the tree. */
  limit?: number;
  /** Where the next page begins: send it with the same command. Absent on the last page. */
  cursor?: string;
}

/** The numbers of files in the lists of a rollback report. */
export interface ReportTotals {
  /** The number of added files. */
  added: number;
  /** The number of updated files. */
  updated: number;
  /** The number of removed files. */
  removed: number;
  /** The number of kept files. */
  kept: number;
  /** The number of conflicts. */
  conflicts: number;
  /** The number of skipped paths. */
  skipped: number;
  /** Of the added, updated and removed files. */
  bytes: number;
  /** The number of paths that cannot be restored. */
  cannotRestore?: number;
}

/** A consequence of a rollback that it cannot prevent, or something to be decided about it. */
export interface RestoreWarning {
  /**
   * `attributes`: attributes of a file are lost; `open-writer`: a program holds a file open that is
   * replaced; `database`: a database may be damaged; `conversation`: it is not rewound.
   */
  kind: "attributes" | "conversation" | "database" | "open-writer";
  /** The file, if it is about one. */
  path: string | null;
  /** For people: what it is, and what to do. */
  sentence: string;
}

/** Sums of the state after a transition. */
export interface ResultingState {
  /** The current run, if any. */
  currentRunId: string | null;
  /** The number of runs. */
  runCount: number;
  /** The cost so far, in US dollars. */
  totalCost: number;
  /** The cost of the current run, in US dollars. */
  currentRunCost: number;
}

/** How often and when a failed codon is retried. */
export interface RetryConfig {
  /** Including the first. */
  maxAttempts?: number;
  /** The delay before the second attempt; it doubles before each further one. */
  delayMs?: number;
  /** The longest delay, even if a provider requests a longer one. */
  maxDelayMs?: number;
}

/** The codon whose result another one has taken over instead of running. */
export interface ReusedResult {
  /** The run. */
  runId: string;
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** The checkpoint of its success. */
  checkpointSha: string;
}

/** A shell command that runs in the work tree before the agent starts. */
export interface RigCommand {
  /** Which of the alternatives this is. */
  type: "command";
  /** The command. */
  command: CommandSpec;
  /** If true, a failure is reported and ignored. */
  allowFailure?: boolean;
}

/** A copy of a file or folder of the hank into the work tree before the agent starts. */
export interface RigCopy {
  /** Which of the alternatives this is. */
  type: "copy";
  /** What is copied, and where to. */
  copy: CopySpec;
  /** If true, a failure is reported and ignored. */
  allowFailure?: boolean;
  /** Move the copied target to rigArchive after success (`rigArchive`). */
  archiveOnSuccess?: boolean;
}

export type RigItem = RigCopy | RigCommand;

/** A line of the output of a rig's command, at most 500 characters of it. */
export interface RigOutput {
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** Where it was written to: `stdout` or `stderr`. */
  stream: "stderr" | "stdout";
  /** The line, without its end. */
  line: string;
  /** The position of the command in the rig, from 0. */
  commandIndex: number;
}

/** The rig of a codon is set up. */
export interface RigSetupCompleted {
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** `command`, or `commands` if there are several operations. */
  rigType: "command" | "commands";
  /** The number of operations. */
  commandCount: number;
  /** How long it took, in milliseconds. */
  durationMs: number;
  /** The checkpoint of the result. */
  createdCheckpoint: boolean;
}

/** An operation of a rig failed. */
export interface RigSetupFailed {
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** How it failed. */
  failureType: "command_failed" | "other" | "timeout";
  /** Whether `allowFailure` lets the codon continue. */
  ignored: boolean;
  /** The exit code of the process; -1 if there was none. */
  exitCode?: number;
  /** The position of the command in the rig, from 0. */
  commandIndex?: number;
  /** A sentence for people. */
  message?: string;
}

/**
 * A rollback has restored files that were archived after its target and are in no checkpoint.
 *
 * `codonId` is the sha of the target, as in Hankweave. An undo archives the files again, with
 * `archive.completed`.
 */
export interface RollbackArchiveRestore {
  /** The target's sha, as in Hankweave. */
  codonId: string;
  /** The paths that were restored. */
  restoredPaths: string[];
  /** The status. */
  status: "completed" | "failed" | "partial";
  /** The paths that could not be moved, each with its error. */
  failedPaths?: FailedPath[];
}

/** A codon that a rollback undoes; at last, the target. */
export interface RollbackCodonCheckpoint {
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string | null;
  /** The codon's name, for people. */
  codonName: string;
  /** The checkpoint. */
  checkpoint: string;
  /** The kind of the checkpoint. */
  checkpointType: string;
  /** A sentence for people. */
  message: string;
}

/**
 * A rollback is complete: files, run and plan are those of the target.
 *
 * The exception is `report.cannotRestore`, with as many paths as `exceptions` says. If the content
 * of one differs, `autoRestart` is false.
 */
export interface RollbackCompleted {
  /** The run before the rollback. */
  fromRun: string;
  /** The run after the rollback; null if only files were restored. */
  toRun: string;
  /** The checkpoint. */
  checkpoint: string;
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string | null;
  /** The codon's name, for people. */
  codonName: string;
  /** The kind of the checkpoint. */
  checkpointType: string;
  /** Whether the rest of the plan runs afterwards. */
  autoRestart: boolean;
  /** What the rollback changed. */
  report?: RollbackReport;
  /** The id of the operation, in everything that concerns it. */
  operationId?: string;
  /** Which way the rollback went: `back`, `undo`, `redo` or `retry`. */
  direction?: Movement;
  /** The reason. */
  reason?: string;
  /** The number of paths that could not be restored; see `report.cannotRestore`. */
  exceptions?: number;
}

/**
 * A rollback has begun but could not finish.
 *
 * The disk is full: it is finished when there is space. Or it was given up, because its target is
 * gone, or because a checkpoint, a codon or another rollback followed it. The message says where
 * the previous files are.
 */
export interface RollbackFailed {
  /** The checkpoint that is restored. */
  target: Coordinate;
  /** A sentence for people. */
  message: string;
}

/** `rollback.intent`: durable before the first file changes, removed after the last event. */
export interface RollbackIntent {
  /** The id of the operation, in everything that concerns it. */
  operationId: string;
  /** The checkpoint to restore; for an undo, the safety checkpoint of the undone rollback. */
  target: CheckpointRecord;
  /** The safety checkpoint. */
  safety: CheckpointRecord;
  /** The position before. */
  source: Coordinate | null;
  /** The run before the rollback. */
  fromRun: string;
  /** The run that begins; null if only files are restored. */
  toRun: string | null;
  /** The codon after which work continues; null at the beginning of the plan. */
  afterCodon: string | null;
  /** The kind of the checkpoint. */
  checkpointType: string;
  /** The codons that are undone, the newest first. */
  codonsToProcess: string[];
  /** Whether the rest of the plan runs afterwards. */
  autoRestart: boolean;
  /** The time at which it began. */
  startedAt: string;
  /** Which way the rollback went: `back`, `undo`, `redo` or `retry`. */
  direction?: Movement;
  /** Where work continues, if that is not the target's own coordinate. */
  place?: Coordinate;
  /** Files and folders, relative to the work tree. */
  paths?: string[];
  /** Paths to leave unchanged; base64 in the file, because names may not be text. */
  keep?: string[];
  /** The files that people changed. */
  edits?: Record<string, string>;
  /** The people's edits that are in force again. */
  restoredEdits?: Record<string, string>;
  /** The reason. */
  reason?: string;
  /** Whether the memory of agents and sentinels is restored, too. */
  rewindMemory?: boolean;
  /** The operation that this one undoes. */
  undone?: string;
  /** Copied to the report. */
  note?: string;
  /** Files that a person and an agent both changed, which an automatic restore takes back. */
  contested?: string[];
  /** The codon that is run again, in a run whose later codons take over earlier results. */
  reuseAfter?: string;
}

/**
 * Report what a rollback would do, without changing anything.
 *
 * Without a target it is the last success.
 */
export interface RollbackPreview {
  /** The checkpoint, by its commit; commands accept a unique prefix. */
  checkpointSha?: string;
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId?: string;
  /** Which checkpoint of the codon; by default, `end`. */
  checkpointType?: CodonCheckpointType;
  /** The target is that of `rollback.undo` or `rollback.redo`. */
  direction?: "redo" | "undo";
  /** Files and folders, relative to the work tree. */
  paths?: string[];
  /** Keep files that people changed after an agent or rig last wrote them. */
  keepEdits?: boolean;
  /** Whether the memory of agents and sentinels is restored, too. */
  rewindMemory?: boolean;
  /** Include unified diffs of the files it would change. */
  patch?: boolean;
}

/** A step of a rollback: one for each undone codon, the newest first, and one for the target. */
export interface RollbackProgress {
  /** The step, from 1. */
  currentStep: number;
  /** The number of steps. */
  totalSteps: number;
  /** A sentence for people. */
  message: string;
}

/** Redo the rollback that was undone last. */
export interface RollbackRedo {
  /** What to do about a running codon: refuse, stop it, or pause it meanwhile. */
  onRunning?: OnRunning;
  /** Keep files that people changed after an agent or rig last wrote them. */
  keepEdits?: boolean;
  /** The reason. */
  reason?: string;
  /** If another run is current, refuse the command with `STALE_RUN`. */
  expectedRunId?: string;
}

/**
 * The changes that a rollback made or, in a preview, would make.
 *
 * A list has at most 200 files, and fewer if paths are long. `checkpoint.diff` lists all: from
 * `safety` to `target` after a rollback, and from `target` to the work tree before it.
 */
export interface RollbackReport {
  /** The checkpoint that is restored. */
  target: Coordinate;
  /** The position before. */
  source: Coordinate | null;
  /** Holds everything the rollback overwrote or removed; null in a preview, or if nothing was. */
  safety: Coordinate | null;
  /** Files that the target has and the work tree had not. */
  added: TouchedFile[];
  /** Files whose content changes. */
  updated: TouchedFile[];
  /** Files that the target does not have. */
  removed: TouchedFile[];
  /** Files left unchanged because of `keepEdits`. */
  kept: KeptFile[];
  /** Files that a person changed after an agent or rig last wrote them. */
  conflicts: KeptFile[];
  /** Paths that could not be captured or restored. */
  skipped: KeptFile[];
  /** True if a crash interrupted it and the next start finished it. */
  recovered: boolean;
  /** Sentences about what was done outside the work tree since the target, and is not undone. */
  externalEffects?: string[];
  /** Only in a preview with `patch`. */
  diffs?: ForeseenDiff[];
  /** Information about the target, such as the run it was found in. */
  note?: string;
  /** Present if a list is incomplete; see `counts`. */
  totals?: ReportTotals;
  /** People's edits that were kept or taken back, and where those are; null if there were none. */
  inWords?: string;
  /** What the rollback does not take care of. */
  warnings?: RestoreWarning[];
  /** Exceptions: paths left as they were, while all others are done. In a preview, those known. */
  cannotRestore?: UnrestoredPath[];
  /** The steps that run again; null if only files are restored. */
  runsAgain?: RunsAgain;
  /** What the target is called; null in reports of older versions. */
  targetTitle?: string;
}

/** The directories of the rig of an undone codon are removed. */
export interface RollbackRigCleanup {
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** The codon's name, for people. */
  codonName: string;
  /** The directories. */
  directories: string[];
  /** The status. */
  status: "completed" | "failed" | "partial" | "started";
  /** The directories that were removed. */
  successfulCleanups?: string[];
  /** The directories that could not be removed. */
  failedCleanups?: FailedDirectory[];
  /** The error, as a sentence. */
  error?: string;
}

/**
 * A rollback is recorded, and files begin to change.
 *
 * If it concerns at most 1,000 files, it is sent with the events that follow, when they have
 * changed.
 */
export interface RollbackStarted {
  /** The run before the rollback. */
  fromRun: string;
  /** The codon before. */
  fromCodon: string | null;
  /** The codon of the target. */
  toCodon: string | null;
  /** The checkpoint that is restored. */
  toCheckpoint: string;
  /** The kind of the checkpoint. */
  checkpointType: string;
  /** The codons that are undone, the newest first. */
  codonsToProcess: string[];
  /** The position before. */
  source?: Coordinate;
  /** The checkpoint that is restored. */
  target?: Coordinate;
  /** Whether a start finished or recorded it after a crash. */
  recovered?: boolean;
}

/** Roll back to a commit: a full sha, or a prefix that is unique among all checkpoints. */
export interface RollbackToCheckpoint {
  /** Whether the rest of the plan runs afterwards. */
  autoRestart?: boolean;
  /** What to do about a running codon: refuse, stop it, or pause it meanwhile. */
  onRunning?: OnRunning;
  /** Restore only these; no run ends or begins. */
  paths?: string[];
  /** Keep files that people changed after an agent or rig last wrote them. */
  keepEdits?: boolean;
  /** Whether the memory of agents and sentinels is restored, too. */
  rewindMemory?: boolean;
  /** The reason, in a sentence; the agent gets it. */
  reason?: string;
  /** If another run is current, refuse the command with `STALE_RUN`. */
  expectedRunId?: string;
  /** The checkpoint, by its commit; commands accept a unique prefix. */
  checkpointSha: string;
}

/**
 * Roll back to the newest checkpoint of a codon.
 *
 * It is searched on the current thread, then on any other run, which the report's `note` names.
 */
export interface RollbackToCodon {
  /** Whether the rest of the plan runs afterwards. */
  autoRestart?: boolean;
  /** What to do about a running codon: refuse, stop it, or pause it meanwhile. */
  onRunning?: OnRunning;
  /** Restore only these; no run ends or begins. */
  paths?: string[];
  /** Keep files that people changed after an agent or rig last wrote them. */
  keepEdits?: boolean;
  /** Whether the memory of agents and sentinels is restored, too. */
  rewindMemory?: boolean;
  /** The reason, in a sentence; the agent gets it. */
  reason?: string;
  /** If another run is current, refuse the command with `STALE_RUN`. */
  expectedRunId?: string;
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** Which checkpoint of the codon: its kind, or `beginning`, `start` or `end`. */
  checkpointType: CodonCheckpointType;
  /**
   * In the run that follows, run this codon; later ones take over earlier results of the same
   * inputs. The checkpoint must be `beginning`.
   */
  reuse?: boolean;
}

/**
 * Roll back to the newest `completed` codon.
 *
 * If there is none, the target is the newest rig, otherwise the beginning.
 */
export interface RollbackToLastSuccess {
  /** Whether the rest of the plan runs afterwards. */
  autoRestart?: boolean;
  /** What to do about a running codon: refuse, stop it, or pause it meanwhile. */
  onRunning?: OnRunning;
  /** Restore only these; no run ends or begins. */
  paths?: string[];
  /** Keep files that people changed after an agent or rig last wrote them. */
  keepEdits?: boolean;
  /** Whether the memory of agents and sentinels is restored, too. */
  rewindMemory?: boolean;
  /** The reason, in a sentence; the agent gets it. */
  reason?: string;
  /** If another run is current, refuse the command with `STALE_RUN`. */
  expectedRunId?: string;
}

/** An agent got the message about a rollback, with its prompt or while it was working. */
export interface RollbackTold {
  /** The id of the operation, in everything that concerns it. */
  operationId: string;
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** The checkpoint that is restored. */
  target: Coordinate;
  /** The message. */
  text: string;
  /** With the prompt of a starting codon, or while a codon is running. */
  how: "live" | "prompt";
}

/** Undo the last rollback: restore the files and the position in the plan. */
export interface RollbackUndo {
  /** What to do about a running codon: refuse, stop it, or pause it meanwhile. */
  onRunning?: OnRunning;
  /** Keep files that people changed after an agent or rig last wrote them. */
  keepEdits?: boolean;
  /** The reason. */
  reason?: string;
  /** If another run is current, refuse the command with `STALE_RUN`. */
  expectedRunId?: string;
}

/** A line of work from a start or a rollback to its end. */
export interface Run {
  /** The run. */
  runId: string;
  /** Absolute path of the run's logs. */
  runFolder: string;
  /** Its branch in the shadow repository. */
  gitBranch: string;
  /** What it started from. */
  startingConditions: StartingConditions;
  /** Its codons, each with its status. */
  codons: CodonExecution[];
  /** `running`, `completed`, `failed` or `crashed`. */
  status: RunStatus;
  /** The time at which it began. */
  startTime: string;
  /** The process id of the server. */
  serverPid: number;
  /** The time at which it ended. */
  endTime?: string;
  /** The codon that is run again; those after it take over earlier results where they can. */
  reuseAfter?: string;
}

/** A run has ended; it stays current until its server stops or another run begins. */
export interface RunCompleted {
  /** The run. */
  runId: string;
  /** The time at which it ended. */
  endTime: string;
}

/**
 * The server of the run died; the run is no longer current.
 *
 * Separate events mark its active codons as failed.
 */
export interface RunCrashed {
  /** The run. */
  runId: string;
  /** The time at which it ended. */
  endTime: string;
  /** The process id of the server. */
  serverPid: number;
}

/** A run has ended because its newest codon finally failed. */
export interface RunFailed {
  /** The run. */
  runId: string;
  /** The time at which it ended. */
  endTime: string;
}

/** A run of an attempt has become a timeline of this execution; it does not become current. */
export interface RunImported {
  /** The run. */
  run: Run;
}

/** A run was started; it is the newest and the current one. */
export interface RunStarted {
  /** The run. */
  run: Run;
}

export type RunStatus = "running" | "completed" | "failed" | "crashed";

/** The agent is working. */
export interface RunningCodon {
  /** The status. */
  status: "running";
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** The time at which it began. */
  startTime: string;
  /** The loop and the iteration that it belongs to, if any. */
  loopContext?: LoopContext;
  /** 1 for the first attempt in this run, one more for each retry or redo. */
  attempt?: number;
  /** Time spent waiting for the end of limits; it counts for no budget. */
  waitedMs?: number;
  /** The sentinels of the codon, with their calls and costs. */
  sentinels: LoadedSentinels;
  /** The process id of the agent. */
  claudePid: number;
  /** The agent's session, whichever agent it is. */
  claudeSessionId: string;
  /** The agent's log, relative to `.hankweave`. */
  claudeLogPath: string;
  /** The cost so far, in US dollars. */
  currentCost: number;
  /** The tokens so far. */
  currentTokens: Tokens;
  /** How many messages the agent has sent. */
  assistantMessageCount: number;
  /** The checkpoint after its rig. */
  rigSetupCheckpoint?: string;
  /** The session that it continues. */
  previousSessionId?: string;
  /** How many times `exhaustWithPrompt` was sent. */
  extensionCount?: number;
  /** The wait for the end of a limit; null while the agent works. */
  wait?: CodonWait;
}

/** The steps that run again after a rollback, and what they used the last time. */
export interface RunsAgain {
  /** In the order of the plan, from the target to the position before; at most the first 200. */
  codonIds: string[];
  /** The number of these steps. */
  total: number;
  /** USD, the last time; null if one of them has never begun. */
  estimatedCost: number | null;
  /** Milliseconds, the last time, without waits; null if one of them has never begun. */
  estimatedMs: number | null;
}

/** runtime.lock: the server of this directory. For information; it does not grant ownership. */
export interface RuntimeLock {
  /** The process id of the server. */
  pid: number;
  /** The current run; null before the first. */
  runId: string | null;
  /** The time at which it began. */
  startTime: string;
  /** Updated every 30 s. */
  lastHeartbeat: string;
  /** The port that the server listens on. */
  port?: number;
  /** Where programs of this machine connect; None, from an older server: 127.0.0.1. */
  host?: string;
  /** The address of the page, as people open it, without a slash at its end. */
  pageUrl?: string;
}

/** The built-in deterministic agent, for demonstrations and tests. */
export interface ScriptedAgentSpec {
  /** Which of the alternatives this is. */
  type: "scripted";
  /** Path of a JSON script in the hank's directory; by default, the prompt is the script. */
  script?: string;
}

/** A secret in a file of a checkpoint; its value is not told. */
export interface SecretInFile {
  /** The path, relative to the work tree. */
  path: string;
  /** The format of the key, such as `github-token`, or the name of the variable with the value. */
  rule: string;
  /** The line, from 1. */
  line: number;
}

/** A sentinel of a codon. */
export interface SentinelEntry {
  /** A configuration, or the path of its file relative to the hank's directory. */
  sentinelConfig: string | Record<string, unknown>;
  /** The codon's settings for it. */
  settings?: SentinelSettings;
}

/** A sentinel has failed. */
export interface SentinelError {
  /** The sentinel. */
  sentinelId: string;
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** The first three are Hankweave's. */
  errorType: "file-write-failed" | "history-damaged" | "llm-call-failed" | "template-render-failed" | "trigger-failed" | "triggers-dropped";
  /** A sentence for people. */
  message: string;
  /** Whether another attempt may help. */
  retriable: boolean;
  /** How many calls have failed in a row. */
  consecutiveFailureCount: number;
  /** Number of dropped triggers; Hankweave only logs them. */
  dropped?: number;
}

/** A sentinel observes a codon. */
export interface SentinelLoaded {
  /** The sentinel. */
  sentinelId: string;
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** The model. */
  model: string;
  /** `event` or `sequence`. */
  triggerType: "event" | "sequence";
  /** How firings become calls. */
  executionStrategy: string;
  /** Whether it remembers earlier turns. */
  conversational: boolean;
  /** `file` or `inline`. */
  source: "file" | "inline";
  /** The path of its file. */
  sourcePath?: string;
}

/** A sentinel has answered. */
export interface SentinelOutput {
  /** The sentinel. */
  sentinelId: string;
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** The number of the trigger, from 1. */
  triggerNumber: number;
  /** `text` or `structured`. */
  outputType: "structured" | "text";
  /** The answer: a text, an object or a list. */
  content: string | Record<string, unknown> | unknown[];
  /** The cost, in US dollars. */
  cost: number;
  /** The tokens. */
  tokens: Record<string, number>;
  /** How many events it is about. */
  eventCount: number;
}

/** The files of a sentinel; a name without `/` is in its own folder, a path in agentRoot. */
export interface SentinelOutputPaths {
  /** Its log; a name without `/` is in its own folder, any other path in agentRoot. */
  logFile?: string;
  /** Its newest answer alone; likewise. */
  lastValueFile?: string;
}

/** The events of a sentinel that clients get; the sentinel decides about absent ones. */
export interface SentinelReports {
  /** `sentinel.loaded` and `sentinel.unloaded`. */
  lifecycle?: boolean;
  /** `sentinel.error`. */
  errors?: boolean;
  /** `sentinel.output`. */
  outputs?: boolean;
  /** `sentinel.triggered`. */
  triggers?: boolean;
}

/** A codon's settings for a sentinel. */
export interface SentinelSettings {
  /** If true, the codon does not start without this sentinel. */
  failCodonIfNotLoaded?: boolean;
  /** Where it writes; takes precedence over the sentinel's own. */
  outputPaths?: SentinelOutputPaths;
  /** Which of its events clients get; takes precedence over the sentinel's own. */
  reportToWebsocket?: SentinelReports;
}

/** The work of one sentinel during one codon; costs in USD. */
export interface SentinelState {
  /** The sentinel. */
  id: string;
  /** The model. */
  model: string;
  /** When it was loaded. */
  loadedAt: string;
  /** How many times the model was called. */
  llmCallCount: number;
  /** How many calls failed. */
  failedLLMCalls: number;
  /** How many times it was triggered. */
  totalTriggers: number;
  /** The cost so far, in US dollars. */
  totalCost: number;
  /** The status. */
  status: "active" | "unloaded";
  /** When it was unloaded. */
  unloadedAt?: string;
  /** When it was last called. */
  lastLlmCallAt?: string;
  /** Why it was unloaded. */
  unloadReason?: string;
  /** Number of triggers without a call: the queue was full, or the codon had ended. */
  droppedTriggers?: number;
}

/** The current sentinels of an active codon. */
export interface SentinelStatesUpdated {
  /** The run. */
  runId: string;
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** The sentinels of the codon, with their calls and costs. */
  sentinels: LoadedSentinels;
}

/** A sentinel is called. */
export interface SentinelTriggered {
  /** The sentinel. */
  sentinelId: string;
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** The number of the trigger, from 1. */
  triggerNumber: number;
  /** How firings become calls. */
  strategy: string;
  /** How many events it is about. */
  eventCount: number;
  /** How many triggers wait. */
  queueSize: number;
}

/** A sentinel no longer observes its codon. */
export interface SentinelUnloaded {
  /** The sentinel. */
  sentinelId: string;
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** The reason. */
  reason: "codon-complete" | "consecutive-failures" | "fatal-error" | "shutdown";
  /** The cost, in US dollars. */
  finalCost: number;
  /** How many times the model was called. */
  llmCallCount: number;
  /** The kind of the error that ended it. */
  errorType?: "configuration" | "corruption" | "resource" | "template";
}

/**
 * The server continues with a problem.
 *
 * If the journal has to wait because of it, for the disk or for the mirror, it is sent without a
 * seq at once, and journaled when the journal can be written to.
 */
export interface ServerDegraded {
  /** The code, for programs. */
  code: ProblemCode;
  /** A sentence for people. */
  message: string;
  /** The time at which it began. */
  since: string;
}

/** Kill agents and exit immediately with code 1; the next start recovers. There is no reply. */
export interface ServerForceShutdown {
  /** The reason, for the log. */
  reason?: string;
}

/**
 * Nothing runs until the next command.
 *
 * A plan whose last codon was skipped by a person ends with `codon-completed`. After `startup` and
 * `rollback-completed` the plan may continue by itself.
 */
export interface ServerIdle {
  /** Why nothing runs. */
  reason: "all-codons-completed" | "codon-completed" | "codon-failed" | "rollback-completed" | "startup" | "stopped";
  /** A sentence for people. */
  message: string;
}

/**
 * The first event of a connection, for this client alone.
 *
 * `hankweave run --json` prints it, too, without `id` and `timestamp`.
 */
export interface ServerReady {
  /** The version of the server. */
  serverVersion: string;
  /** The execution directory. */
  executionPath: string;
  /** The work tree. */
  agentRootPath: string;
  /** The data, as agents see it; null if there is none. */
  dataPath: string | null;
  /** The port that the server listens on. */
  port: number;
  /** The address of the server. */
  url: string;
  /** The current run, if any. */
  currentRunId?: string;
  /** The `seq` of the newest event. */
  lastEventSeq?: number;
  /** The directory that output files are copied to, if any. */
  outputDirectory?: string;
  /** The address of the page, as people open it, without a slash at its end. */
  pageUrl?: string;
}

/** A problem that `server.degraded` reported is over. */
export interface ServerRecovered {
  /** The code, for programs. */
  code: ProblemCode;
  /** A sentence for people. */
  message: string;
  /** The time at which the problem began. */
  since: string;
}

/**
 * The server did not run for more than five seconds.
 *
 * The machine was suspended, or the process was stopped, frozen or starved. Time limits of agents
 * exclude this time.
 */
export interface ServerResumed {
  /** How long the server did not run. */
  suspendedSeconds: number;
  /** `suspended`, or `stopped`. */
  cause: "stopped" | "suspended";
}

/** Stop the server: end agents, take an `exit` checkpoint, save the state, release the lock. */
export interface ServerShutdown {
  /** The reason, for the journal. */
  reason?: string;
}

/** A server has started on the directory; the fields describe what the last one left. */
export interface ServerStarted {
  /** The version of the server. */
  serverVersion: string;
  /** The process id of the server. */
  pid: number;
  /** The process id of a server that had died. */
  previousPid?: number;
  /** How old its last heartbeat was. */
  previousHeartbeatAgeMs?: number;
  /** Whether another process has that id now. */
  previousPidReused?: boolean;
  /** The process ids of its agents, which were killed. */
  leftoverAgentsKilled?: number[];
  /** Lock and temporary files in the shadow repository, left by a crash. */
  leftoversRemoved?: string[];
  /** How an agent's processes are contained: by a control group, or by its keeper alone. */
  containment?: "cgroup" | "subreaper";
}

/** The reply to `server.status`. */
export interface ServerStatus {
  /** The version of the server. */
  serverVersion: string;
  /** The process id of the server. */
  pid: number;
  /** The execution directory. */
  executionPath: string;
  /** The time at which it began. */
  startedAt: string;
  /** How long the server has run. */
  uptimeMs: number;
  /** The current run, if any. */
  currentRunId: string | null;
  /** The running codon, if any. */
  activeCodonId: string | null;
  /** The codon that the plan continues with; absent at its end. */
  nextCodonId: string | null;
  /** Whether a rollback is in progress. */
  isRollingBack: boolean;
  /** The `seq` of the newest event that it includes. */
  lastEventSeq: number;
  /** USD, all that was paid, over all runs. */
  totalCost: number;
  /** The number of checkpoints. */
  checkpoints: number;
  /** The number of connected clients. */
  clients: number;
  /** The content of `runtime.lock`. */
  lock: RuntimeLock;
  /** Size of the shadow repository on disk. */
  storeBytes: number;
  /** The number of packs in the store. */
  storePacks: number;
  /** Objects outside packs; many of them are packed in the background. */
  storeLooseObjects: number;
  /** How an agent's processes are contained: by a control group, or by its keeper alone. */
  containment: "cgroup" | "subreaper";
  /** Current problems, the oldest first. */
  problems?: Problem[];
  /** Tool calls that wait for permission, the oldest first. */
  pendingPermissions?: PendingPermission[];
  /** The tools that agents are offered. */
  agentTools?: AgentToolsGranted;
  /**
   * The limits of the running codon: the lowest of its own budget, its loop's and the hank's;
   * absent if no codon runs.
   */
  activeAllowance?: BudgetFigures;
  /** The wait of the active codon for the end of a limit; absent if its agent works. */
  waiting?: CodonWait;
  /**
   * The path of the execution's data: `read_only_data_source` in the work tree or, in a project
   * that is served in place, in its `.hankweave`; absent if there is no data.
   */
  dataPath?: string;
  /** Whether scans of the work tree look only where something happened, or why not. */
  watch?: WatchStatus;
  /** How agents can be confined on this machine. */
  confinement?: ConfinementStatus;
  /** What the server still has to do for earlier commands, the oldest first. */
  background?: BackgroundWork[];
  /** USD, the part of `totalCost` for work that rollbacks discarded; budgets do not count it. */
  rolledBackCost?: number;
  /** Time and money to the end; absent if the plan has ended, or if nothing is known. */
  forecast?: Forecast;
  /**
   * USD that the hank may use: the lower of its own budget and `--max-cost`; absent if neither sets
   * a limit.
   */
  budgetUsd?: number;
  /** The name of the hank: that of its `meta`, or of its directory. */
  hankName?: string;
  /** USD, the part of `totalCost` for attempts of explorations that were not adopted. */
  attemptsCost?: number;
  /** The mirror in a git repository; absent if there is none. */
  mirror?: MirrorStatus;
}

/** The server begins to stop in order. */
export interface ServerStopping {
  /** The reason. */
  reason: string;
}

/** Terminal: skipped by a person or its condition, or timed out at its start. */
export interface SkippedCodon {
  /** The status. */
  status: "skipped";
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** The time at which it began. */
  startTime: string;
  /** The loop and the iteration that it belongs to, if any. */
  loopContext?: LoopContext;
  /** 1 for the first attempt in this run, one more for each retry or redo. */
  attempt?: number;
  /** Time spent waiting for the end of limits; it counts for no budget. */
  waitedMs?: number;
  /** The time at which it ended. */
  endTime: string;
  /** The status in which it was skipped. */
  skippedDuring: ActiveStatus;
  /** The cost up to that end, in US dollars. */
  partialCost: number;
  /** The tokens up to that end. */
  partialTokens: Tokens;
  /** How many messages the agent has sent. */
  assistantMessageCount: number;
  /** The sentinels of the codon, with their calls and costs. */
  sentinels: ExecutedSentinels;
  /** The process id of the agent. */
  claudePid?: number;
  /** The agent's session, whichever agent it is. */
  claudeSessionId?: string;
  /** The agent's log, relative to `.hankweave`. */
  claudeLogPath?: string;
  /** The checkpoint after its rig. */
  rigSetupCheckpoint?: string;
  /** The checkpoint of its skip. */
  skipCheckpoint?: string;
  /** The limit of a budget that ended the codon. */
  budgetExceeded?: BudgetExceeded;
  /** The condition that was false. */
  condition?: string;
}

/** A path that was not captured or restored, with the reason. */
export interface SkippedFile {
  /** The path, relative to the work tree. */
  path: string;
  /** Why. */
  reason: string;
}

/** The use of one codon. */
export interface SpentFigures {
  /** US dollars. */
  dollars: number;
  /** Seconds of work. */
  timeSeconds: number;
  /** Tokens that the agent wrote. */
  outputTokens: number;
}

export type Standing =
  | "new"
  | "running"
  | "completed"
  | "failed"
  | "stopped"
  | "crashed"
  | "waiting"
  | "removing"
  | "unreadable";

/** The agent is about to be started. */
export interface StartingCodon {
  /** The status. */
  status: "starting";
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** The time at which it began. */
  startTime: string;
  /** The loop and the iteration that it belongs to, if any. */
  loopContext?: LoopContext;
  /** 1 for the first attempt in this run, one more for each retry or redo. */
  attempt?: number;
  /** Time spent waiting for the end of limits; it counts for no budget. */
  waitedMs?: number;
  /** The sentinels of the codon, with their calls and costs. */
  sentinels: LoadedSentinels;
  /** The checkpoint after its rig. */
  rigSetupCheckpoint?: string;
  /** A wait for the end of a limit that another execution has met. */
  wait?: CodonWait;
}

export type StartingConditions = FreshStart | Continuation;

/** The content of state.json: the fold of the journal. */
export interface State {
  /** Newest first. */
  runs: Run[];
  /** The run of the current server, which may have ended; null if no server is running. */
  currentRunId: string | null;
  /** The plan: the codons in their order, loops unrolled. */
  executionPlan: PlanEntry[];
  /** The checkpoint before the first codon. */
  initialCheckpoint?: string;
  /** `SCHEMA_VERSION`; 0 in a file written by Hankweave. */
  schemaVersion?: number;
  /** The `seq` of the newest event that it includes. */
  lastEventSeq?: number;
  /** Rollbacks that can be undone, the newest last. */
  undo?: Travel[];
  /** Undone rollbacks that can be redone, the next one last. */
  redo?: Travel[];
  /**
   * Files that people changed after an agent or rig last wrote them, with their SHA-256. The digest
   * is empty for a deleted file and for every file of a burst.
   */
  edits?: Record<string, string>;
  /** The last rollback, until an agent has got the message about it. */
  notice?: Notice;
  /** The newest last. */
  explorations?: Exploration[];
  /** Rules that answers to permission requests have added, the newest last. */
  permissionRules?: PermissionRule[];
}

/**
 * state.json could not be used as it was, or disagrees with the other files.
 *
 * After a `cost_mismatch` the recomputed value is used, also in `state.json`.
 */
export interface StateRecovered {
  /** Where the state was taken from. */
  source: "backup" | "fresh" | "journal" | "primary" | "repository";
  /** Faults that made a file unusable. */
  errors: ValidationError[];
  /** Disagreements between files. */
  warnings: ValidationWarning[];
  /** File names of the unreadable originals, which are kept. */
  kept?: string[];
}

/**
 * The state of the work, after the handshake, a codon's end and a rollback.
 *
 * It is valid up to its `lastEventSeq`; `state.get` has everything.
 */
export interface StateSnapshot {
  /**
   * The newest hundred terminal codons of the execution thread, newest first, including failed and
   * skipped ones.
   */
  completedCodons: CodonExecution[];
  /** Empty in this version. */
  fileTree: FileNode[];
  /** The cost so far, in US dollars. */
  totalCost: number;
  /** Milliseconds since the server started. */
  totalTime: number;
  /** Whether a rollback is in progress. */
  isRollingBack: boolean;
  /** The active codon, if any. */
  currentCodon?: CodonExecution;
  /** Files that were changed recently. */
  recentFileAccess?: FileAccess;
  /** The current run, if any. */
  currentRunId?: string;
  /** The codon that the plan continues with; absent at its end. */
  nextCodonId?: string;
  /** The `seq` of the newest event that it includes. */
  lastEventSeq?: number;
}

/** One change of the state; state.json is the fold of all of these. */
export interface StateTransition {
  /** The type of the transition. */
  transitionType: string;
  /** The transition; see files. */
  transition: Transition;
  /** Sums after it. */
  resultingState: ResultingState;
  /** The run. */
  runId?: string;
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId?: string;
}

/** The likely use of a step; of the running one, only the rest. */
export interface StepForecast {
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** Milliseconds; null if nothing is known. */
  ms: number | null;
  /** USD; null if nothing is known. */
  cost: number | null;
}

/** The store's objects were packed together, in the background or by a gc. */
export interface StoreConsolidated {
  /** The number of packs before. */
  packsBefore: number;
  /** The number of packs afterwards. */
  packsAfter: number;
  /** The number of loose objects before. */
  looseBefore: number;
  /** The number of loose objects afterwards. */
  looseAfter: number;
  /** The size of the store before. */
  bytesBefore: number;
  /** The size of the store afterwards. */
  bytesAfter: number;
}

/**
 * Read every checkpoint down to each blob, after a repair if requested.
 *
 * Without `repair` it changes nothing, but it reads the whole store: viewers may not send it.
 */
export interface StoreFsck {
  /** Restore lost objects that can be found, and give up those that cannot. */
  repair?: boolean;
  /** A git repository or execution directory to search for them; only with `repair`. */
  mirror?: string;
}

/**
 * Prune checkpoints beyond the limits, and pack the store.
 *
 * Without a limit, nothing is pruned. Checkpoints that are `completed`, pinned or part of the
 * thread are never pruned, except for `completed` ones of attempts that were discarded.
 */
export interface StoreGc {
  /** Only report what would be pruned. */
  dryRun?: boolean;
  /** No remaining checkpoint is older. */
  maxAgeSeconds?: number;
  /** At most so many checkpoints remain. */
  maxCount?: number;
  /** The store is at most so large. */
  maxBytes?: number;
  /** Prune only these kinds. */
  kinds?: CheckpointKind[];
  /** If another run is current, refuse the command with `STALE_RUN`. */
  expectedRunId?: string;
}

export type StoreOperation = "capture" | "restore" | "gc" | "fsck" | "branch";

/**
 * Progress of a long operation on checkpoints; only for clients that requested `progress`.
 *
 * At most ten a second for each operation, and none for a short operation. Not journaled.
 */
export interface StoreProgress {
  /** The operation. */
  operation: StoreOperation;
  /** The same in all events of one operation. */
  operationId: string;
  /** The name of the current phase; an operation has several, one after the other. */
  phase: string;
  /** Of this phase. */
  done: number;
  /** Null while it is unknown. */
  total: number | null;
  /** What `done` and `total` count. */
  unit: ProgressUnit;
  /** The command that requested it; null if the server started it by itself. */
  commandId?: string;
  /** True in the last event; the result is in the reply and the journal. */
  ended?: boolean;
}

/** The result of a repair of the shadow repository. */
export interface StoreRepair {
  /** Objects that were unreadable and are restored; at most a thousand are listed. */
  rewritten?: string[];
  /** Checkpoints that were given up, because some of their objects could not be found. */
  lost?: string[];
  /** Refs that were moved, because what they named is lost. */
  movedRefs?: MovedRef[];
  /** Checkpoints that may have lost permissions and empty folders; their files are complete. */
  unknownPermissions?: string[];
  /** The folder of the shadow repository that holds the files it replaced. */
  quarantine?: string;
}

/**
 * Lost objects were restored, or checkpoints with lost objects were given up.
 *
 * It is caused by `store.fsck` with `repair`, or by a checkpoint on a branch whose tip is lost.
 */
export interface StoreRepaired {
  /** What was repaired. */
  repair: StoreRepair;
}

export type TerminalCodon = CompletedCodon | FailedCodon | SkippedCodon;

/** A change that made a text more or less frequent in a file. */
export interface TextChange {
  /** `initial`: it was there at the start, or the rig of a codon made it. */
  by: "agent" | "initial" | "person";
  /** The codon; null if none was running. */
  codonId: string | null;
  /** The id of the exploration's attempt in which it was done. */
  attempt: string | null;
  /** The tool and what it was called with, as `Edit records.py`; `rig` for a rig. */
  call: string | null;
  /** The checkpoint that has the change. */
  checkpointSha: string;
  /** The run. */
  runId: string | null;
  /** Of the call, or of the checkpoint. */
  timestamp: string;
  /** US dollars: the share of the call in its message's cost; null if it is not known. */
  cost: number | null;
  /** The type of the agent that the hank names; null for the one that runs the model. */
  agent: string | null;
  /** The model. */
  model: string | null;
  /** The `seq` of the call's event; or of the last event before the checkpoint. */
  eventSeq: number | null;
  /** The id of the call. */
  toolUseId: string | null;
  /** The path, relative to the work tree. */
  path: string;
  /** How often the file had the text. */
  before: number;
  /** How often it has it. */
  after: number;
}

/** The reply to `file.pickaxe`. */
export interface TextHistory {
  /** Newest first. */
  changes: TextChange[];
  /** Whether there are older ones, beyond the limit. */
  hasMore?: boolean;
}

/** The files were restored: by a rollback, the undo of one, or a redo. */
export interface TimeTravelled {
  /** Which way the rollback went: `back`, `undo`, `redo` or `retry`. */
  direction: Direction;
  /** The rollback; its `edits` are those it removed. */
  travel: Travel;
  /** The people's edits that are in force again. */
  restoredEdits?: Record<string, string>;
  /** The rollback that the next agent is told of. */
  notice?: Notice;
}

/** Tokens and cost in USD of one message or, with `final`, of the whole codon. */
export interface TokenUsage {
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** Tokens that the model read and that were in no cache. */
  inputTokens: number;
  /** Tokens that the model wrote. */
  outputTokens: number;
  /** Tokens that were written to the provider's cache. */
  cacheCreationTokens: number;
  /** Tokens that were read from the provider's cache. */
  cacheReadTokens: number;
  /** The cost, in US dollars; 0 if no price is known. */
  totalCost: number;
  /** The model, as the provider names it. */
  modelId?: string;
  /** Tokens and cost by model, as the agent reports them. */
  modelUsage?: Record<string, unknown>;
  /** True for the totals of the codon. */
  final?: boolean;
}

/** Token counts of one message, codon or run. */
export interface Tokens {
  /** Tokens that the model read and that were in no cache. */
  inputTokens: number;
  /** Tokens that the model wrote. */
  outputTokens: number;
  /** Tokens that were written to the provider's cache. */
  cacheCreationTokens: number;
  /** Tokens that were read from the provider's cache. */
  cacheReadTokens: number;
}

/** A picture in the result of a tool. */
export interface ToolImage {
  /** As the tool says, for example `image/png`. */
  mediaType: string;
  /** The bytes in base64. */
  data: string;
}

/** The reply to `codon.readResult`: the whole result of a tool, or a range of its characters. */
export interface ToolOutput {
  /** The characters of the range, without secrets. */
  content: string;
  /** Characters of the whole text. */
  size: number;
  /** The first character. */
  offset?: number;
  /** The offset of the next range; absent at the end of the text. */
  nextOffset?: number;
  /** The pictures beside the text; only in a reply from offset 0. */
  images?: ToolImage[];
}

/** A tool has returned. */
export interface ToolResult {
  /** The codon, by the id of its plan entry: `review`, or `review#1` in a loop. */
  codonId: string;
  /** The id of the call. */
  toolUseId: string;
  /** The tool. */
  toolName: string;
  /** At most 2,500 characters of the result, then `...`. */
  result: string;
  /** Whether the result was cut. */
  truncated: boolean;
  /** Its length in characters. */
  originalLength: number;
  /** How long the call took. */
  executionTimeMs: number;
  /** Whether the tool failed. */
  isError: boolean;
}

/** A file that a rollback changes. */
export interface TouchedFile {
  /** The path, relative to the work tree. */
  path: string;
  /** Its size in the target; of a removed file, its size before. */
  bytes: number;
}

/** The metadata of a frame. */
export interface TrafficMetadata {
  /** Bytes of the frame on the wire, before redaction. */
  size: number;
  /** Why the frame was not JSON. */
  error?: string;
}

/** One line of websocket.log. */
export interface TrafficRecord {
  /** When it was logged. */
  loggedAt: string;
  /** `in` or `out`. */
  direction: "in" | "out";
  /** The frame, without secrets. */
  message: unknown;
  /** What else is known of it. */
  metadata: TrafficMetadata;
}

/** The facts of a rollback that its undo needs (or of an undo, that its redo needs). */
export interface Travel {
  /** The id of the operation, in everything that concerns it. */
  operationId: string;
  /** The checkpoint of everything it changed, as it was before. */
  safety: string;
  /** The position of the execution before it; null if no codon had a checkpoint yet. */
  source: Coordinate | null;
  /** True if only files were restored: no run ended, and the position in the plan is the same. */
  inPlace?: boolean;
  /** The files and folders it was limited to; null for the whole work tree. */
  paths?: string[];
  /** People's edits that it removed, with the SHA-256 of each if known. */
  edits?: Record<string, string>;
  /** True if sessions were restored too; the safety checkpoint holds the previous ones. */
  rewoundMemory?: boolean;
}

/** Rollbacks can no longer be undone or redone: their safety checkpoints were pruned. */
export interface TravelsForgotten {
  /** Rollbacks that can no longer be undone or redone. */
  operationIds: string[];
}

/** One file of a tree. */
export interface TreeFile {
  /** The path, relative to the work tree. */
  path: string;
  /** The size in bytes. */
  size: number;
  /** Type and permissions as in `st_mode`. */
  mode: number;
}

/** The sums of a tree. */
export interface TreeStats {
  /** The number of files. */
  files: number;
  /** The size in bytes. */
  bytes: number;
}

/** A path that a rollback could not restore, or will not be able to. */
export interface UnrestoredPath {
  /** The path, relative to the work tree. */
  path: string;
  /** The name of the error, such as `EPERM`; empty if the file changed meanwhile. */
  errno: string;
  /** What is in the way, and what to do about it. */
  sentence: string;
  /** False if only permissions are not as in the checkpoint. */
  contentDiffers?: boolean;
}

/** A fault in state.json that prevents a resume. */
export interface ValidationError {
  /** The kind of error. */
  type: "corrupted_data" | "invalid_codon" | "missing_run";
  /** A sentence for people. */
  message: string;
}

/** A disagreement between the files of an execution. */
export interface ValidationWarning {
  /** The kind of warning. */
  type: "cost_mismatch" | "missing_checkpoint" | "orphaned_folder";
  /** A sentence for people. */
  message: string;
}

/** The differences of an attempt; an absent field means what the hank says. */
export interface Variant {
  /** For people. */
  name?: string;
  /** The prompt of the explored codon. */
  promptText?: string;
  /** The file with the prompt, relative to the hank's directory; excludes `promptText`. */
  promptFile?: string;
  /** The model of all codons of the attempt. */
  model?: string;
  /** The agent of all codons of the attempt: a name, as of `--agent`, or as in a codon. */
  agent?: string | AgentSpec;
  /** Values for variables of the hank. */
  variables?: Record<string, string>;
}

export type WatchReason =
  | "off"
  | "start"
  | "overflow"
  | "exhausted"
  | "file-system"
  | "mount"
  | "clock"
  | "replaced"
  | "unavailable"
  | "distrusted";

/** The watch of the work tree, with which a scan costs what changed. */
export interface WatchStatus {
  /** True if the next scan compares only what may have changed. */
  active: boolean;
  /** Why the next scan compares all files; null if it does not. */
  reason: WatchReason | null;
  /** Scans that compared only what may have changed. */
  watchedScans: number;
  /** Scans that compared all files. */
  fullScans: number;
}

/**
 * Files changed; a client that keeps an index of them must refresh it.
 *
 * With `total`, `paths` is incomplete: refresh everything.
 */
export interface WorkspaceInvalidated {
  /** The first of them: at most 200, and fewer if paths are long. */
  paths: string[];
  /** The reason. */
  reason: "branch" | "rollback";
  /** Number of changed files, if not all are listed; then a client must refresh everything. */
  total?: number;
}
