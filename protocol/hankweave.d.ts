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
  "ping": Ping;
  "ping.broadcast": PingBroadcast;
  "history.sync": HistorySync;
  "events.query": EventsQuery;
  "state.get": GetState;
  "server.status": GetServerStatus;
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
  "ping": null;
  "ping.broadcast": null;
  "history.sync": null;
  "events.query": EventsPage;
  "state.get": State;
  "server.status": ServerStatus;
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
}

/** Any program that speaks the Agent Client Protocol on its stdin and stdout. */
export interface AcpAgentSpec {
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
  codonId: string;
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
  runId: string;
  codonId: string;
}

/** Not in Hankweave: the fence around an agent or a command has refused a path. */
export interface AgentConfined {
  codonId: string;
  path: string;
  operation: "read" | "write";
  /** The line of the hank that would allow it; null if none can. */
  setting: string | null;
  /** Text for people, with advice. */
  message: string;
}

/** A line of an agent's plain-text output, or of its stderr. */
export interface AgentOutput {
  codonId: string;
  stream: "stderr" | "stdout";
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
  operationId: string;
}

/** The tools that `hankweave mcp` offers to agents, as configured in the hank. */
export interface AgentToolsGranted {
  enabled: boolean;
  rollbackPaths: boolean;
}

export interface ArchiveCompleted {
  codonId: string;
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
  timestamp: string;
  loopContext?: ArchivePlace;
}

/** `archive.intent`: durable before the first file moves, removed after the last event. */
export interface ArchiveIntent {
  operationId: string;
  runId: string;
  /** The codon that has ended. */
  codonId: string;
  /** The codon or loop that this is archived for. */
  archivedFor: string;
  checkpointSha: string;
  startedAt: string;
  loopContext?: ArchivePlace;
  /** Renames in rigArchive of files that are in the way. */
  displaced?: ArchiveMove[];
  /** From agentRoot to rigArchive. */
  moves?: ArchiveMove[];
  /** Folders that are moved as well, the inner ones first. */
  folders?: ArchiveMove[];
  /** Those of them that were empty. */
  empty?: string[];
  failed?: Record<string, string>;
}

/** archive-manifest.json: the content of rigArchive, and where it came from. */
export interface ArchiveManifest {
  version: string;
  entries: ArchiveEntry[];
  /** By the operation id of the rollback; Hankweave has no such field. */
  travels?: Record<string, ArchiveTravel>;
}

/** One rename; names are base64 in the file, because they may not be text. */
export interface ArchiveMove {
  source: string;
  target: string;
}

export interface ArchivePartial {
  codonId: string;
  archivedPaths: string[];
  failedPaths: FailedPath[];
}

/** The position in a loop at which something was archived. */
export interface ArchivePlace {
  loopId: string;
  iteration: number;
}

/** The files one rollback moved between rigArchive and agentRoot; its undo moves them back. */
export interface ArchiveTravel {
  restored?: ArchiveEntry[];
  archived?: ArchiveEntry[];
  /** Folders of agentRoot that were created for restored files. */
  folders?: string[];
  /** Files that could not be moved, and why. */
  failed?: Record<string, string>;
}

export interface AssistantAction {
  codonId: string;
  action: "message" | "thinking" | "tool_use";
  content: string;
  toolName?: string;
  toolInput?: Record<string, unknown>;
  toolUseId?: string;
  /** True if the call may have effects outside the work tree, which no rollback undoes. */
  external?: boolean;
}

/** How an execution takes part in an exploration. */
export interface Attempt {
  explorationId: string;
  attemptId: string;
  /** The codon with which it begins: an entry of the plan. */
  codonId: string;
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
  explorationId: string;
  attempt: AttemptRecord;
}

/** One attempt of an exploration, as its parent knows it. */
export interface AttemptRecord {
  /** The exploration's id, a hyphen and the attempt's number, from 1. */
  attemptId: string;
  variant?: Variant;
  status?: "completed" | "discarded" | "failed" | "running" | "waiting";
  /** Its execution; null until it is made. */
  executionPath?: string;
  /** Its run, in its own state and, when it has ended, in that of its parent. */
  runId?: string;
  /** Its runs before that one, oldest first, if its server was started again. */
  earlierRuns?: string[];
  /** Its result: a checkpoint of the parent, to compare and to adopt. */
  checkpointSha?: string;
  score?: number;
  /** Why it failed, or why it has no score. */
  message?: string;
  /** Its share of the exploration's budget in US dollars, reserved when it starts. */
  maxDollars?: number;
  /** US dollars. */
  cost?: number;
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
  name: BackgroundTask;
  /** Milliseconds since it became necessary. */
  waitingMs: number;
  /** True if it waits no longer, but is done bit by bit beside commands. */
  late: boolean;
}

/** `branch.intent`: durable before a branch is created, removed after the last event. */
export interface BranchIntent {
  /** The directory in which it is built; a start that finds it removes it. */
  temporary: string;
  executionPath: string;
  runId: string;
  coordinate: Coordinate;
  startedAt: string;
}

/** The reply to `execution.branch`. */
export interface BranchMade {
  executionPath: string;
  /** The new execution's first run of its own. */
  runId: string;
}

/** The limit that ended a codon, and how much it had used. */
export interface BudgetExceeded {
  /** USD, tokens, or seconds. */
  currency: "contextTokens" | "cost" | "duration" | "outputTokens";
  limit: number;
  used: number;
}

export interface BudgetFigures {
  maxDollars?: number;
  maxTimeSeconds?: number;
  maxOutputTokens?: number;
}

export interface BudgetRow {
  codonId: string;
  status: "completed" | "exceeded" | "failed" | "running" | "skipped";
  budget: BudgetFigures;
  actual: SpentFigures;
  loopContext?: LoopContext;
}

export interface BudgetSummary {
  ceiling: BudgetFigures;
  allocation: string;
  rows: BudgetRow[];
  totals: BudgetTotals;
}

export interface BudgetTotals {
  actualDollars: number;
  actualTimeSeconds: number;
  budgetDollars?: number;
}

/** A codon's answer, for later codons (`outputVar`). */
export interface Captured {
  name: string;
  value: string;
  /** True if the answer was longer; the whole answer is in the codon's log. */
  truncated?: boolean;
}

export interface ChangedFolder {
  /** The folder that directly holds the files; empty for the top of the work tree. */
  folder: string;
  files: number;
}

export interface ChangedPath {
  path: string;
  action: "created" | "deleted" | "modified";
}

/** A shell command in the work tree whose exit code decides whether a codon succeeded. */
export interface Check {
  /** A shell command line; exit code 0 means success. */
  run: string;
  /** The time after which the command is terminated and the check fails. */
  timeoutSeconds?: number;
  /** If true, a failed check is reported and ignored. */
  allowFailure?: boolean;
}

/** A check of a codon has ended. */
export interface CheckCompleted {
  codonId: string;
  checkIndex: number;
  command: string;
  passed: boolean;
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

/** Take a `manual` checkpoint now. */
export interface CheckpointCreate {
  label?: string;
  expectedRunId?: string;
}

/** A checkpoint was recorded. */
export interface CheckpointCreated {
  checkpoint: CheckpointRecord;
  /** True if a start found the commit of a server that died before it recorded it. */
  recovered?: boolean;
}

/** Compare two checkpoints, or without `to` a checkpoint and the work tree. */
export interface CheckpointDiff {
  from: string;
  to?: string;
  /** Files or folders; by default, all. */
  paths?: string[];
  patch?: boolean;
  limit?: number;
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

/** Hankweave's reply to `checkpoint.list`, sent to all clients. */
export interface CheckpointList {
  runId: string | null;
  checkpoints: ListedCheckpoint[];
  currentBranch: string | null;
}

/** The reply to `checkpoint.list`, newest first. */
export interface CheckpointPage {
  checkpoints: CheckpointRecord[];
  /** Null while HEAD is detached: after a rollback and before the next checkpoint. */
  currentBranch: string | null;
  /** Send it to get the next page; absent on the last one. */
  cursor?: string;
}

/** A checkpoint is incomplete; a rollback to it leaves the missing files unchanged. */
export interface CheckpointPartial {
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
  pinned: boolean;
  name?: string;
  expectedRunId?: string;
}

/** A checkpoint was pinned or unpinned. */
export interface CheckpointPinned {
  checkpointSha: string;
  pinned: boolean;
  name?: string;
}

/** Checkpoints were pruned; the events about them stay in the journal. */
export interface CheckpointPruned {
  checkpoints: string[];
  /** True if a crash kept the server that pruned them from recording it. */
  recovered?: boolean;
  /** True if they were not pruned: some of their objects were lost, and a repair gave them up. */
  lost?: boolean;
}

/** Read a file of a checkpoint, or a range of its bytes. */
export interface CheckpointReadFile {
  checkpointSha: string;
  path: string;
  offset?: number;
  /** By default, up to the end; an error if that is more than MAX_RANGE. */
  length?: number;
}

/** One checkpoint. */
export interface CheckpointRecord {
  sha: string;
  kind: CheckpointKind;
  coordinate: Coordinate;
  codonName: string;
  timestamp: string;
  operationId: string;
  label?: string;
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
 * A rollback of the whole execution sends it before `rollback.completed`, which has the report.
 */
export interface CheckpointRollback {
  operationId: string;
  checkpoint: string;
  source: Coordinate | null;
  target: Coordinate;
  /** The paths it was limited to; null for the whole work tree. */
  paths: string[] | null;
  /** Null if `rollback.completed` with the same operation id follows: it has the report. */
  report: RollbackReport | null;
  direction?: Movement;
  reason?: string;
  /** The number of paths that could not be restored. */
  exceptions?: number;
}

/**
 * A checkpoint holds secrets in files that are new in it, or new in their content.
 *
 * The checkpoint is exact all the same. `hankweave redact` removes a secret from all checkpoints.
 */
export interface CheckpointSecret {
  checkpoint: Coordinate;
  /** The first of them: at most 200, and fewer if paths are long. */
  secrets: SecretInFile[];
  /** Number of secrets; of a long file, only the first MiB is examined. */
  total: number;
}

/** The `claude` program, driven over its stream-json protocol. */
export interface ClaudeAgentSpec {
  type: "claude";
  /**
   * The program's own setting for calls without permission; by default, as in Hankweave, all.
   * `permissions` of the codon take precedence.
   */
  permissionMode?: "acceptEdits" | "bypassPermissions" | "default" | "plan";
}

/** The wall clock was set: timestamps before and after this event are not comparable. */
export interface ClockJumped {
  seconds: number;
  direction: "back" | "forward";
}

/** The `codex` program, driven by `codex exec --json`. */
export interface CodexAgentSpec {
  type: "codex";
  /** The program's own setting for what its commands can access; by default, everything. */
  sandbox?: "danger-full-access" | "read-only" | "workspace-write";
  /** Settings of its config.toml, such as `model_reasoning_effort`; values are in TOML. */
  config?: Record<string, string>;
}

/** One step of the pipeline, done by one agent. */
export interface Codon {
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
  description?: string;
  /**
   * Paths relative to the hank's directory; several are joined with a blank line. Takes precedence
   * over `promptText`.
   */
  promptFile?: string | string[];
  promptText?: string;
  /** Paths of texts to append to the system prompt; excludes `appendSystemPromptText`. */
  appendSystemPromptFile?: string | string[];
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
  | "skipped";

/** The reply to `codon.next` and `codon.redo`: the codon that starts. */
export interface CodonChosen {
  codonId: string;
}

/** A codon has ended, successfully or not. */
export interface CodonCompletedEvent {
  codonId: string;
  success: boolean;
  cost: number;
  /** Milliseconds. */
  duration: number;
  exitStatus: ExitStatus;
  failureReason?: FailureReason;
  failureIgnored?: boolean;
  budgetExceeded?: BudgetExceeded;
  /** Not in Hankweave: true if a person skipped it. */
  skipped?: boolean;
  /** Not in Hankweave: the condition, if the codon was skipped because it was false. */
  condition?: string;
  /** Not in Hankweave: the variable that later codons may refer to. */
  captured?: Captured;
  /** Not in Hankweave: the messages of its `codon.warning` events. */
  warnings?: string[];
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

export interface CodonExtended {
  codonId: string;
  codonName: string;
  extensionNumber: number;
  exhaustWithPrompt: string;
  /**
   * Sum of input and output tokens. Clients without `protocolVersion` get the four counts, as in
   * Hankweave.
   */
  cumulativeTokens: number;
  cumulativeCost: number;
  /** The four counts; absent in journals of earlier versions. */
  tokens?: Tokens;
}

/** Kill the active codon; it ends as `failed` and the server becomes idle. */
export interface CodonForceStop {
  reason?: string;
  expectedRunId?: string;
}

/** Start the next codon of the thread. */
export interface CodonNext {
  expectedRunId?: string;
}

/** Run the newest codon of the thread again. */
export interface CodonRedo {
  expectedRunId?: string;
}

/** Not in Hankweave: a codon's wait has ended, and its agent starts again. */
export interface CodonResumed {
  codonId: string;
  /**
   * Its time has come, a client sent `codon.start`, or another execution of the account found that
   * the limit has ended.
   */
  by: "command" | "other" | "time";
  waitedMs: number;
  /** The conversation that continues; null if there is none yet. */
  sessionId?: string;
}

/** A codon failed and will be retried, with the files restored to the start of the attempt. */
export interface CodonRetrying {
  codonId: string;
  /** The number of the next attempt. */
  attempt: number;
  maxAttempts: number;
  delayMs: number;
  failureReason: FailureReason;
}

/** Stop the active codon; it ends as `skipped` and the plan continues after it. */
export interface CodonSkip {
  expectedRunId?: string;
}

/** Start an entry of the plan. */
export interface CodonStart {
  codonId: string;
  skipPreCommands?: boolean;
  expectedRunId?: string;
}

/** A codon's record was added to the current run. */
export interface CodonStarted {
  runId: string;
  codon: CodonExecution;
}

/** The agent has reported its session; the codon is running. */
export interface CodonStartedEvent {
  codonId: string;
  codonName: string;
  sessionId: string;
  startTime: string;
  codonDescription?: string;
  previousSessionId?: string;
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
  runId: string;
  fromStatus: CodonStatus;
  codon: CodonExecution;
}

/** A wait of an active codon for the end of its provider's limit; its agent has ended. */
export interface CodonWait {
  /** An allowance of hours or days, too many requests in a short time, or an outage. */
  kind: "overload" | "rate" | "usage";
  /** When the codon continues. */
  until: string;
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
  runId: string;
  codonId: string;
  /** Null when it has ended. */
  wait?: CodonWait;
  /** All waits of the codon that have ended, together. */
  waitedMs?: number;
  /** The conversation that continues, if it has another id than the codon's session. */
  sessionId?: string;
}

/** Not in Hankweave: a codon waits for the end of a limit; its agent has ended. */
export interface CodonWaiting {
  codonId: string;
  /** When its conversation continues. */
  until: string;
  reason: "overload" | "rate" | "usage";
  /** As in the state's `wait`. */
  source: "event" | "header" | "none" | "shared" | "text";
  /** The number of waits in a row without an answer of the model. */
  number: number;
  model?: string;
  /** The agent's own words. */
  message?: string;
}

/** Not in Hankweave: a codon is completed, but its work should be checked. */
export interface CodonWarning {
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
  type: "command";
  command: string[];
}

export interface CommandFailed {
  type: "command.failed";
  /** Null if the frame had no readable id. */
  inReplyTo: string | null;
  timestamp: string;
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
  status: "completed";
  codonId: string;
  startTime: string;
  loopContext?: LoopContext;
  /** 1 for the first attempt in this run, one more for each retry or redo. */
  attempt?: number;
  /** Time spent waiting for the end of limits; it counts for no budget. */
  waitedMs?: number;
  endTime: string;
  claudeSessionId: string;
  claudeLogPath: string;
  exitCode: number;
  finalCost: number;
  finalTokens: Tokens;
  resultMessageReceived: boolean;
  completionCheckpoint: string;
  sentinels: ExecutedSentinels;
  rigSetupCheckpoint?: string;
  extensionCount?: number;
  assistantMessageCount?: number;
  /** True if it ended because the agent's context was full, as configured in the codon or loop. */
  contextExceeded?: boolean;
  budgetExceeded?: BudgetExceeded;
  captured?: Captured;
  /** Not in Hankweave: why its work should be checked although it is completed. */
  warnings?: string[];
}

/** The agent has ended; sentinels finish their pending work. */
export interface CompletingSentinelsCodon {
  status: "completing-sentinels";
  codonId: string;
  startTime: string;
  loopContext?: LoopContext;
  /** 1 for the first attempt in this run, one more for each retry or redo. */
  attempt?: number;
  /** Time spent waiting for the end of limits; it counts for no budget. */
  waitedMs?: number;
  sentinels: LoadedSentinels;
  claudePid: number;
  claudeSessionId: string;
  claudeLogPath: string;
  currentCost: number;
  currentTokens: Tokens;
  assistantMessageCount: number;
  rigSetupCheckpoint?: string;
  previousSessionId?: string;
  extensionCount?: number;
  /** The wait for the end of a limit; null while the agent works. */
  wait?: CodonWait;
}

/** One of four forms: `field`, `op`, `value`; or `and`; or `or`; or `not`. */
export interface Condition {
  /** A dotted path: `type`, `seq`, `data.codonId`, `data.files.0.path`. */
  field?: string;
  op?: string;
  /** Codebolt's name for `op`; use one of the two. */
  operator?: string;
  value?: unknown;
  and?: Condition[];
  or?: Condition[];
  not?: Condition;
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
  packsBefore: number;
  packsAfter: number;
  looseBefore: number;
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
  type: "continuation";
  source: ContinuationSource;
  reason: "continue" | "retry" | "rollback";
}

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
  sessionId: string;
  /**
   * The agent's id of the newest message after which no tool call was open; null if it does not
   * assign ids to its messages.
   */
  messageId?: string;
}

/** A moment that a rollback can go back to. */
export interface Coordinate {
  checkpointSha: string;
  /** The last event before the checkpoint. */
  eventSeq: number;
  runId: string;
  codonId?: string;
  /** The codon's status at that moment. */
  codonState?: string;
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
  runId: string;
  codonId: string;
  cost: number;
  tokens: Tokens;
  /** The number of assistant messages it counts for. */
  messages?: number;
}

/** The agent reported the codon's totals at its end; they replace the running sums. */
export interface CostsUpdated {
  runId: string;
  codonId: string;
  cost: number;
  tokens: Tokens;
}

/** No run is current any more: its server stops, or was found to have stopped. */
export interface CurrentRunCleared {
  /** The run that was current. */
  runId: string;
}

export interface DamagedCheckpoint {
  checkpoint: string;
  damages: DamagedObject[];
}

export interface DamagedObject {
  sha: string;
  kind: "blob" | "commit" | "tree";
  /** Its path in the checkpoint; empty for the commit and the root tree. */
  path: string;
}

/** The execution's data was replaced by other data, at a person's explicit request. */
export interface DataChanged {
  previousHash: string | null;
  currentHash: string;
  previousPath: string | null;
  currentPath: string;
}

/** The reply to `checkpoint.diff`, ordered by path. */
export interface DiffPage {
  from: string;
  /** Null for the work tree. */
  to: string | null;
  files: FileDifference[];
  stats: DiffStats;
  cursor?: string;
}

/** The totals of a comparison, over all pages. */
export interface DiffStats {
  files: number;
  added: number;
  removed: number;
}

export type Direction = "back" | "undo" | "redo";

/**
 * People changed files after an agent or rig last wrote them.
 *
 * With the SHA-256 of each; empty for a deleted file, and for every file of a burst.
 */
export interface EditsNoticed {
  edits: Record<string, string>;
}

/** An agent or rig wrote files that people had changed. */
export interface EditsOvertaken {
  paths: string[];
}

/** Codes of `command.failed` and `error`; the first four are Hankweave's own. */
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

/** A failure that concerns all clients; a client's own mistake is reported to it alone. */
export interface ErrorEvent {
  message: string;
  fatal: boolean;
  codon?: string;
  severity?: "codon" | "fatal" | "operation" | "warning";
  context?: string;
  code?: string;
}

/** The events from the start of the run to the moment, both included. */
export interface EventSlice {
  from: number;
  to: number;
}

/** The reply to `events.query`: `events`, or `rows` if it selects or reduces. */
export interface EventsPage {
  /** Journal lines, unchanged. */
  events?: AnyEvent[];
  /** Objects with one key for each selected path, or for each group's path and the aggregate. */
  rows?: Record<string, unknown>[];
  /** Send it with the same query to get the next page; absent on the last one. */
  cursor?: string;
}

/** Query the journal by window, causes and conditions for events, columns or an aggregate. */
export interface EventsQuery {
  where?: Condition[] | Condition;
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
  select?: string[];
  orderBy?: Order[] | Order;
  reduce?: Reduction;
  limit?: number;
  cursor?: string;
}

/** Sentinels of a terminal codon; the values are final. */
export interface ExecutedSentinels {
  executed: SentinelState[];
  totalCost: number;
}

/** Create a new execution from a checkpoint; this one is not changed. */
export interface ExecutionBranch {
  /** A full sha, or a prefix that is unique among all checkpoints. */
  checkpointSha: string;
  /** Absolute path of an absent or empty directory; by default, next to this execution. */
  path?: string;
  expectedRunId?: string;
}

/** A new execution was made from a checkpoint of this one. */
export interface ExecutionBranched {
  executionPath: string;
  /** The first run of the new execution itself. */
  runId: string;
  coordinate: Coordinate;
  /** True if a crash kept this from being recorded when it happened. */
  recovered?: boolean;
}

/** execution-meta.json. */
export interface ExecutionMeta {
  version: string;
  readOnlySourceDataPath: string | null;
  readOnlySourceResolvedDataPath: string | null;
  dataHash: string | null;
  hankHash: string | null;
  hankPath: string | null;
  linkType: "copy" | "none" | "symlink";
  createdAt: string;
  lastUsed: string;
  /** True if the work tree is the directory itself: a project that is served in place. */
  inPlace?: boolean;
  /** The origin of a branch. */
  origin?: Origin;
  /** How it takes part in an exploration, if it is an attempt. */
  attempt?: Attempt;
}

/** The first event of a branch; the transitions up to its first run come from its origin. */
export interface ExecutionOrigin {
  executionPath: string;
  /** In the journal of that execution. */
  coordinate: Coordinate;
  /** The first run of the branch itself. */
  runId: string;
}

export interface ExitStatus {
  type: "error" | "killed" | "success";
  code?: number;
  signal?: string;
}

/** Several attempts from one checkpoint; which one is adopted shows in the execution thread. */
export interface Exploration {
  explorationId: string;
  createdAt: string;
  /** The checkpoint from which all attempts begin. */
  checkpointSha: string;
  /** The first codon that they run. */
  codonId: string;
  attempts: AttemptRecord[];
  rest?: boolean;
  score?: string;
  /** A model that compares the results, for attempts whose scores are equal. */
  judge?: string;
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
  attemptId: string;
  paths?: string[];
  /** Only report what would happen. */
  preview?: boolean;
  /** Keep what has changed here since the attempt began; excludes `keepEdits`. */
  merge?: boolean;
  /** With `merge`: whose version of a conflicting file wins; `ask` refuses and names them. */
  onConflict?: "ask" | "ours" | "theirs";
  /** With `merge`: absolute path of a new folder for the versions of conflicting files. */
  conflictsIn?: string;
  onRunning?: OnRunning;
  /** Keep files that people changed after an agent or rig last wrote them. */
  keepEdits?: boolean;
  expectedRunId?: string;
}

/** Compare the results of two attempts, or that of one with where it began. */
export interface ExplorationCompare {
  attemptId: string;
  otherId?: string;
  paths?: string[];
  patch?: boolean;
  limit?: number;
  cursor?: string;
}

/**
 * End the attempts of an exploration, or one of them, and remove their executions.
 *
 * Results that were recorded stay as timelines of this execution, until `store.gc` with a limit
 * prunes them.
 */
export interface ExplorationDiscard {
  explorationId: string;
  attemptId?: string;
  expectedRunId?: string;
}

/** No attempt of an exploration runs or waits any more. */
export interface ExplorationEnded {
  explorationId: string;
  /** The id of the attempt to adopt; null if none has succeeded. */
  best?: string;
}

/** List the explorations of the execution, the newest first. */
export type ExplorationList = Record<string, never>;

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
  expectedRunId?: string;
}

/** An exploration was recorded; its attempts are made and started next. */
export interface ExplorationStarted {
  exploration: Exploration;
}

/** The number of times that `exhaustWithPrompt` was sent to a codon's agent. */
export interface ExtensionCountUpdated {
  runId: string;
  codonId: string;
  extensionCount: number;
  /** The agent continues in a session with another id. */
  sessionId?: string;
}

/** Terminal: failed, with the phase and the reason. */
export interface FailedCodon {
  status: "failed";
  codonId: string;
  startTime: string;
  loopContext?: LoopContext;
  /** 1 for the first attempt in this run, one more for each retry or redo. */
  attempt?: number;
  /** Time spent waiting for the end of limits; it counts for no budget. */
  waitedMs?: number;
  endTime: string;
  failedDuring: ActiveStatus;
  /** The agent's exit code; -1 if there was none. */
  exitCode: number;
  failureReason: FailureReason;
  partialCost: number;
  partialTokens: Tokens;
  sentinels: ExecutedSentinels;
  claudePid?: number;
  claudeSessionId?: string;
  claudeLogPath?: string;
  rigSetupCheckpoint?: string;
  errorCheckpoint?: string;
  extensionCount?: number;
  assistantMessageCount?: number;
  budgetExceeded?: BudgetExceeded;
}

export interface FailedDirectory {
  directory: string;
  error: string;
}

export interface FailedPath {
  path: string;
  error: string;
}

export interface Failure {
  code: ErrorCode;
  message: string;
  /** JSON path in the command. */
  path?: string;
  hint?: string;
}

export interface FailureReason {
  type: "api-error" | "check-failed" | "rate-limit" | "sentinel-load-failure" | "timeout" | "unknown";
  retriable: boolean;
  message?: string;
  sentinelRefs?: string[];
  retryAfterMs?: number;
}

export interface FileAccess {
  path: string;
  timestamp: string;
}

/** The difference of one file between two moments. */
export interface FileDifference {
  path: string;
  status: "created" | "deleted" | "modified";
  /** Lines; 0 if the content is binary or too large to be compared by lines. */
  added: number;
  removed: number;
  /** A unified diff, if requested; absent if it would not fit into a reply. */
  patch?: string;
}

export interface FileNode {
  name: string;
  path: string;
  isDirectory: boolean;
  children: FileNode[];
  /** For files only. */
  lastModified?: string;
}

/** The reply to `checkpoint.readFile`: the whole file, or a range of its bytes. */
export interface FileRange {
  content: string;
  /** Of this range: base64 if it is not valid UTF-8. */
  encoding: "base64" | "utf-8";
  /** Size of the whole file in bytes. */
  size: number;
  /** Type and permissions as in `st_mode`; the content of a link is its target. */
  mode: number;
  offset?: number;
  /** The offset of the next range; absent at the end of the file. */
  nextOffset?: number;
}

export interface FileSource {
  kind: "archive" | "codon-end" | "codon-start" | "person" | "rig" | "rollback" | "tool_use";
  toolUseId?: string;
}

/** A tracked file has changed (version 2 of Hankweave's event, without the content). */
export interface FileUpdated {
  path: string;
  filename: string;
  action: "created" | "deleted" | "modified";
  /** Of the content; empty for a deleted file. */
  sha256: string;
  bytes: number;
  source: FileSource;
  codonId?: string;
}

/**
 * More than 200 tracked files changed at once; sent instead of a `file.updated` for each.
 *
 * Not in Hankweave. The encoded event stays below 32 KiB. `checkpoint.diff` lists all files.
 */
export interface FilesChanged {
  total: number;
  created: number;
  modified: number;
  deleted: number;
  /** The folders with the most changed files, at most 20. */
  folders: ChangedFolder[];
  /** Number of folders that are not listed. */
  otherFolders: number;
  /** Number of changed files in them. */
  inOtherFolders: number;
  /** The first files in the order of their paths: at most 200, and fewer if paths are long. */
  paths: ChangedPath[];
  source: FileSource;
  codonId?: string;
}

export interface FiletreeUpdated {
  tree: FileNode[];
  /** Number of files and folders of lower levels that were left out. */
  omitted?: number;
}

/** The changes of a rollback to one file, line by line. */
export interface ForeseenDiff {
  path: string;
  status: "created" | "deleted" | "modified";
  added: number;
  removed: number;
  /** Unified diff from the current file to the restored one. */
  patch: string;
}

/** A run that does not continue from an earlier one. */
export interface FreshStart {
  type: "fresh";
  initialCheckpointSha?: string;
}

/** The reply to `store.fsck`. */
export interface FsckReport {
  /** Number of checkpoints that were read down to each blob. */
  checked: number;
  damages: DamagedCheckpoint[];
  /** Checkpoints that the journal names, that were not pruned, and that do not exist. */
  missing: string[];
  /** The result of the repair before this check; null if none was requested. */
  repair?: StoreRepair;
}

/** The reply to `store.gc`. */
export interface GcReport {
  dryRun: boolean;
  /** The pruned checkpoints or, in a dry run, those that would be pruned; newest first. */
  pruned: CheckpointRecord[];
  kept: number;
  /** All kept checkpoints, newest first, each with the first reason that applies. */
  keptBecause: KeptCheckpoint[];
  bytesBefore: number;
  /** In a dry run an estimate, from the objects that only pruned checkpoints need. */
  bytesAfter: number;
  /** Null in a dry run. */
  consolidated: Consolidation | null;
  /** Rollbacks that cannot be undone afterwards, because their safety checkpoints are pruned. */
  undosLost?: number;
  redosLost?: number;
  /** A lost object that may refer to others; because of it, no garbage was removed. */
  unreadable?: string;
}

export type GetServerStatus = Record<string, never>;

export type GetState = Record<string, never>;

export interface Handshake {
  type: "handshake";
  data: HandshakeData;
}

export interface HandshakeData {
  mode: Mode;
  sendPreviousEvents?: boolean;
  protocolVersion?: number;
  /** The last seq that the client has; it gets all later events, without gap or duplicate. */
  sinceSeq?: number;
  token?: string;
  /** The client's name in websocket.log; it grants nothing. */
  clientName?: string;
  /** Whether the client wants `store.progress` events. */
  progress?: boolean;
}

export interface HandshakeResponse {
  type: "handshake.response";
  data: HandshakeResponseData;
}

export interface HandshakeResponseData {
  clientId: string;
  /** The granted mode: never more than the token's role allows. */
  mode: Mode;
  /** Newest first, at most 50; empty unless `sendPreviousEvents` was set. */
  eventHistory: AnyEvent[];
  totalEvents: number;
}

/** hank.json has changed since this execution began. */
export interface HankChanged {
  previousHash: string;
  currentHash: string;
}

export interface HistoryBatch {
  events: AnyEvent[];
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
  finding: HistoryFinding;
  message: string;
  /** The folder with another history that was left as it is. */
  keptAt?: string;
}

/** A secret was removed from the journal, the logs and the checkpoints (`hankweave redact`). */
export interface HistoryRedacted {
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

/** Send the journal to the sender, or the events after `since_seq`. */
export interface HistorySync {
  sinceSeq?: number;
}

/** The newest codon has no end, because the server died while it was running. */
export interface IncompleteCodon {
  codonId: string;
  codonName: string;
  status: string;
  runId: string;
  runStatus: RunStatus;
}

export interface Info {
  message: string;
}

export interface InitialCheckpointSet {
  checkpointSha: string;
}

/** The agent has started; its session id is not known yet. */
export interface InitializingCodon {
  status: "initializing";
  codonId: string;
  startTime: string;
  loopContext?: LoopContext;
  /** 1 for the first attempt in this run, one more for each retry or redo. */
  attempt?: number;
  /** Time spent waiting for the end of limits; it counts for no budget. */
  waitedMs?: number;
  sentinels: LoadedSentinels;
  claudePid: number;
  claudeLogPath: string;
  rigSetupCheckpoint?: string;
  previousSessionId?: string;
}

/** An incomplete last line was cut off; its bytes are kept in a file beside the journal. */
export interface JournalRepaired {
  quarantine: string;
  bytes: number;
}

/** A reason that a model gave for its verdict on an attempt. */
export interface JudgedReason {
  attemptId: string;
  text: string;
}

/** A model's comparison of the attempts, which saw them in two orders. */
export interface Judgement {
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

export interface KeptCheckpoint {
  sha: string;
  kind: CheckpointKind;
  reason: KeepReason;
}

export interface KeptFile {
  path: string;
  reason: string;
}

export interface ListCheckpoints {
  runId?: string;
  kinds?: CheckpointKind[];
  limit?: number;
  cursor?: string;
}

/** A checkpoint in `checkpoint.list`: Hankweave's fields, then the fields of this server. */
export interface ListedCheckpoint {
  codonId: string | null;
  codonName: string;
  checkpointType: CheckpointKind;
  sha: string;
  status: string | null;
  timestamp: string;
  label?: string;
  partial?: boolean;
  coordinate?: Coordinate;
}

/** Sentinels of a codon that is still active. */
export interface LoadedSentinels {
  loaded: SentinelState[];
  totalCost: number;
}

/** The position of a codon in a loop; rollback and resume depend on it. */
export interface LoopContext {
  loopId: string;
  /** 0-indexed. */
  iteration: number;
  codonIndexInLoop: number;
  /** The budget of the whole loop, as in the hank when the iteration was added to the plan. */
  loopBudget?: ContainerBudget;
}

export interface LoopIterationCompleted {
  loopId: string;
  iteration: number;
  durationMs: number;
  costUsd: number;
  tokensUsed: number;
  isFinal: boolean;
  terminationReason?: "budget_exceeded" | "context_exceeded" | "iteration_limit";
}

export type Mode = "readonly" | "readandwrite";

/** A ref of the shadow repository that named a lost commit. */
export interface MovedRef {
  ref: string;
  was: string;
  /** The checkpoint that it names now; null if the ref was removed. */
  now: string | null;
}

export type Movement = "back" | "undo" | "redo" | "retry";

/** The message about a rollback that an agent gets at its next step: target and reason. */
export interface Notice {
  operationId: string;
  direction: Direction;
  target: Coordinate;
  timestamp: string;
  paths?: string[];
  reason?: string;
}

export type OnRunning = "refuse" | "stop" | "pause";

export interface Order {
  field: string;
  direction?: string;
}

/** The execution that a branch was made from, and the moment in it. */
export interface Origin {
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
  tree: TreeFile[];
  /** Of all selected files, over all pages. */
  stats: TreeStats;
  /** Null on later pages, and if the journal does not reach back to the moment. */
  state: State | null;
  events: EventSlice | null;
  previous?: DiffPage;
  now?: DiffPage;
  cursor?: string;
}

/** A tool call that waits for permission. */
export interface PendingPermission {
  codonId: string;
  requestId: string;
  toolName: string;
  toolInput: Record<string, unknown>;
  expiresAt: string;
  reason: string;
}

/** Allow or deny the tool call that an agent requested. */
export interface PermissionAnswer {
  requestId: string;
  decision: "allow" | "deny";
  /** Sent to the agent if the call is denied. */
  message?: string;
  expectedRunId?: string;
}

/** A tool call waits for permission; `permission.answer` allows or denies it. */
export interface PermissionRequested {
  codonId: string;
  requestId: string;
  toolName: string;
  toolInput: Record<string, unknown>;
  /** The time at which it is decided without an answer. */
  expiresAt: string;
  /** Why permission is required. */
  reason: string;
}

/** A call was allowed or denied; durable before the agent gets the answer. */
export interface PermissionResolved {
  codonId: string;
  requestId: string;
  toolName: string;
  decision: "allow" | "deny";
  /** `ended`: the agent, its codon or the server ended, or the agent withdrew the request. */
  by: "client" | "ended" | "policy" | "timeout";
  clientId?: string;
  /** The pattern or the name of the field that decided. */
  rule?: string;
  /** The message to the agent, or the reason for the missing answer. */
  message?: string;
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

export type Ping = Record<string, never>;

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
  codon: Codon;
  codonId: string;
  loopContext?: LoopContext;
}

/**
 * The execution plan was set: at the start, after an iteration, or after a rollback.
 *
 * The journal has it as `PlanChanged` wherever a plan was set before.
 */
export interface PlanSet {
  executionPlan: PlanEntry[];
}

export interface Pong {
  message: string;
  timestamp: string;
  clientId?: string;
}

/** The rig is being set up; there is no agent yet. */
export interface PreparingCodon {
  status: "preparing";
  codonId: string;
  startTime: string;
  loopContext?: LoopContext;
  /** 1 for the first attempt in this run, one more for each retry or redo. */
  attempt?: number;
  /** Time spent waiting for the end of limits; it counts for no budget. */
  waitedMs?: number;
}

/** Why a server is degraded. */
export interface Problem {
  code: ProblemCode;
  message: string;
  since: string;
}

export type ProblemCode = "INSUFFICIENT_SPACE" | "OUT_OF_DESCRIPTORS";

export type ProgressUnit = "files" | "bytes" | "objects" | "checkpoints";

export interface PromptMetadata {
  name?: string;
  description?: string;
  tags?: string[];
  version?: string;
  author?: string;
}

/** `prune.intent`: durable before a checkpoint is pruned, removed after the last event. */
export interface PruneIntent {
  checkpoints: string[];
  startedAt: string;
}

/** The content of `redact.intent`: a redaction that is not confirmed or undone. */
export interface RedactIntent {
  operationId: string;
  phase: "confirming" | "exchanging" | "pending" | "undoing";
  /** The number of each is its name in `redaction/old` and `redaction/new`. */
  files: ReplacedFile[];
  /** Size of the journal afterwards; another size means that the execution has continued. */
  journalBytes: number;
}

/** The record of a redaction, kept in `redactions/`. */
export interface RedactionRecord {
  operationId: string;
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

/** One aggregate over all matching events, or over each group of them. */
export interface Reduction {
  type: string;
  /** Required by every aggregate except `count`. */
  field?: string;
  groupBy?: string[];
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
  checkpointSha?: string;
  seq?: number;
  paths?: string[];
  compare?: Comparison[];
  /** Maximum number of files in one reply; 0 omits the tree. */
  limit?: number;
  cursor?: string;
}

/** The numbers of files in the lists of a rollback report. */
export interface ReportTotals {
  added: number;
  updated: number;
  removed: number;
  kept: number;
  conflicts: number;
  skipped: number;
  /** Of the added, updated and removed files. */
  bytes: number;
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

export interface ResultingState {
  currentRunId: string | null;
  runCount: number;
  totalCost: number;
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

/** A shell command that runs in the work tree before the agent starts. */
export interface RigCommand {
  type: "command";
  command: CommandSpec;
  /** If true, a failure is reported and ignored. */
  allowFailure?: boolean;
}

/** A copy of a file or folder of the hank into the work tree before the agent starts. */
export interface RigCopy {
  type: "copy";
  copy: CopySpec;
  /** If true, a failure is reported and ignored. */
  allowFailure?: boolean;
  /** Move the copied target to rigArchive after success. */
  archiveOnSuccess?: boolean;
}

export type RigItem = RigCopy | RigCommand;

export interface RigOutput {
  codonId: string;
  stream: "stderr" | "stdout";
  line: string;
  commandIndex: number;
}

export interface RigSetupCompleted {
  codonId: string;
  rigType: "command" | "commands";
  commandCount: number;
  durationMs: number;
  createdCheckpoint: boolean;
}

export interface RigSetupFailed {
  codonId: string;
  failureType: "command_failed" | "other" | "timeout";
  ignored: boolean;
  exitCode?: number;
  commandIndex?: number;
  message?: string;
}

export interface RollbackArchiveRestore {
  /** The target's sha, as in Hankweave. */
  codonId: string;
  restoredPaths: string[];
  status: "completed" | "failed" | "partial";
  failedPaths?: FailedPath[];
}

export interface RollbackCodonCheckpoint {
  codonId: string | null;
  codonName: string;
  checkpoint: string;
  checkpointType: string;
  message: string;
}

export interface RollbackCompleted {
  fromRun: string;
  toRun: string;
  checkpoint: string;
  codonId: string | null;
  codonName: string;
  checkpointType: string;
  autoRestart: boolean;
  report?: RollbackReport;
  operationId?: string;
  direction?: Movement;
  reason?: string;
  /** The number of paths that could not be restored; see `report.cannotRestore`. */
  exceptions?: number;
}

/** A rollback has begun but could not finish: the disk is full, or it was given up. */
export interface RollbackFailed {
  target: Coordinate;
  message: string;
}

/** `rollback.intent`: durable before the first file changes, removed after the last event. */
export interface RollbackIntent {
  operationId: string;
  /** The checkpoint to restore; for an undo, the safety checkpoint of the undone rollback. */
  target: CheckpointRecord;
  safety: CheckpointRecord;
  source: Coordinate | null;
  fromRun: string;
  /** The run that begins; null if only files are restored. */
  toRun: string | null;
  afterCodon: string | null;
  checkpointType: string;
  codonsToProcess: string[];
  autoRestart: boolean;
  startedAt: string;
  direction?: Movement;
  /** Where work continues, if that is not the target's own coordinate. */
  place?: Coordinate;
  paths?: string[];
  /** Paths to leave unchanged; base64 in the file, because names may not be text. */
  keep?: string[];
  edits?: Record<string, string>;
  restoredEdits?: Record<string, string>;
  reason?: string;
  rewindMemory?: boolean;
  /** The operation that this one undoes. */
  undone?: string;
  /** Copied to the report. */
  note?: string;
  /** Files that a person and an agent both changed, which an automatic restore takes back. */
  contested?: string[];
}

/** Report what a rollback would do; exactly one target, or none for the last success. */
export interface RollbackPreview {
  checkpointSha?: string;
  codonId?: string;
  checkpointType?: CodonCheckpointType;
  /** The target is that of `rollback.undo` or `rollback.redo`. */
  direction?: "redo" | "undo";
  paths?: string[];
  keepEdits?: boolean;
  rewindMemory?: boolean;
  /** Include unified diffs of the files it would change. */
  patch?: boolean;
}

export interface RollbackProgress {
  currentStep: number;
  totalSteps: number;
  message: string;
}

/** Redo the rollback that was undone last. */
export interface RollbackRedo {
  onRunning?: OnRunning;
  keepEdits?: boolean;
  reason?: string;
  expectedRunId?: string;
}

/**
 * The changes that a rollback made or, in a preview, would make.
 *
 * A list has at most 200 files, and fewer if paths are long. `checkpoint.diff` lists all: from
 * `safety` to `target` after a rollback, and from `target` to the work tree before it.
 */
export interface RollbackReport {
  target: Coordinate;
  source: Coordinate | null;
  /** Holds everything the rollback overwrote or removed; null in a preview, or if nothing was. */
  safety: Coordinate | null;
  added: TouchedFile[];
  updated: TouchedFile[];
  removed: TouchedFile[];
  /** Files left unchanged because of `keepEdits`. */
  kept: KeptFile[];
  /** Files that a person changed after an agent or rig last wrote them. */
  conflicts: KeptFile[];
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
  warnings?: RestoreWarning[];
  /** Exceptions: paths left as they were, while all others are done. In a preview, those known. */
  cannotRestore?: UnrestoredPath[];
}

export interface RollbackRigCleanup {
  codonId: string;
  codonName: string;
  directories: string[];
  status: "completed" | "failed" | "partial" | "started";
  successfulCleanups?: string[];
  failedCleanups?: FailedDirectory[];
  error?: string;
}

export interface RollbackStarted {
  fromRun: string;
  fromCodon: string | null;
  toCodon: string | null;
  toCheckpoint: string;
  checkpointType: string;
  codonsToProcess: string[];
  source?: Coordinate;
  target?: Coordinate;
  recovered?: boolean;
}

/** Roll back to a commit: a full sha, or a prefix that is unique among all checkpoints. */
export interface RollbackToCheckpoint {
  autoRestart?: boolean;
  onRunning?: OnRunning;
  /** Restore only these; no run ends or begins. */
  paths?: string[];
  /** Keep files that people changed after an agent or rig last wrote them. */
  keepEdits?: boolean;
  rewindMemory?: boolean;
  /** The reason, in a sentence; the agent gets it. */
  reason?: string;
  expectedRunId?: string;
  checkpointSha: string;
}

/** Roll back to a checkpoint of the newest execution of a codon in the thread. */
export interface RollbackToCodon {
  autoRestart?: boolean;
  onRunning?: OnRunning;
  /** Restore only these; no run ends or begins. */
  paths?: string[];
  /** Keep files that people changed after an agent or rig last wrote them. */
  keepEdits?: boolean;
  rewindMemory?: boolean;
  /** The reason, in a sentence; the agent gets it. */
  reason?: string;
  expectedRunId?: string;
  codonId: string;
  checkpointType: CodonCheckpointType;
}

/** Roll back to the newest completed codon of the thread. */
export interface RollbackToLastSuccess {
  autoRestart?: boolean;
  onRunning?: OnRunning;
  /** Restore only these; no run ends or begins. */
  paths?: string[];
  /** Keep files that people changed after an agent or rig last wrote them. */
  keepEdits?: boolean;
  rewindMemory?: boolean;
  /** The reason, in a sentence; the agent gets it. */
  reason?: string;
  expectedRunId?: string;
}

/** An agent got the message about a rollback. */
export interface RollbackTold {
  operationId: string;
  codonId: string;
  target: Coordinate;
  /** The message. */
  text: string;
  /** With the prompt of a starting codon, or while a codon is running. */
  how: "live" | "prompt";
}

/** Undo the last rollback: restore the files and the position in the plan. */
export interface RollbackUndo {
  onRunning?: OnRunning;
  keepEdits?: boolean;
  reason?: string;
  expectedRunId?: string;
}

/** A line of work from a start or a rollback to its end. */
export interface Run {
  runId: string;
  /** Absolute path of the run's logs. */
  runFolder: string;
  gitBranch: string;
  startingConditions: StartingConditions;
  codons: CodonExecution[];
  status: RunStatus;
  startTime: string;
  serverPid: number;
  endTime?: string;
}

/** A run has ended; it stays current until its server stops or another run begins. */
export interface RunCompleted {
  runId: string;
  endTime: string;
}

/**
 * The server of the run died; the run is no longer current.
 *
 * Separate events mark its active codons as failed.
 */
export interface RunCrashed {
  runId: string;
  endTime: string;
  serverPid: number;
}

/** A run has ended because its newest codon finally failed. */
export interface RunFailed {
  runId: string;
  endTime: string;
}

/** A run of an attempt has become a timeline of this execution; it does not become current. */
export interface RunImported {
  run: Run;
}

/** A run was started; it is the newest and the current one. */
export interface RunStarted {
  run: Run;
}

export type RunStatus = "running" | "completed" | "failed" | "crashed";

/** The agent is working. */
export interface RunningCodon {
  status: "running";
  codonId: string;
  startTime: string;
  loopContext?: LoopContext;
  /** 1 for the first attempt in this run, one more for each retry or redo. */
  attempt?: number;
  /** Time spent waiting for the end of limits; it counts for no budget. */
  waitedMs?: number;
  sentinels: LoadedSentinels;
  claudePid: number;
  claudeSessionId: string;
  claudeLogPath: string;
  currentCost: number;
  currentTokens: Tokens;
  assistantMessageCount: number;
  rigSetupCheckpoint?: string;
  previousSessionId?: string;
  extensionCount?: number;
  /** The wait for the end of a limit; null while the agent works. */
  wait?: CodonWait;
}

/** runtime.lock: the server of this directory. For information; it does not grant ownership. */
export interface RuntimeLock {
  pid: number;
  runId: string | null;
  startTime: string;
  lastHeartbeat: string;
  port?: number;
}

/** The built-in deterministic agent, for demonstrations and tests. */
export interface ScriptedAgentSpec {
  type: "scripted";
  /** Path of a JSON script in the hank's directory; by default, the prompt is the script. */
  script?: string;
}

/** A secret in a file of a checkpoint; its value is not told. */
export interface SecretInFile {
  path: string;
  /** The format of the key, such as `github-token`, or the name of the variable with the value. */
  rule: string;
  line: number;
}

/** A sentinel of a codon. */
export interface SentinelEntry {
  /** A configuration, or the path of its file relative to the hank's directory. */
  sentinelConfig: string | Record<string, unknown>;
  settings?: SentinelSettings;
}

export interface SentinelError {
  sentinelId: string;
  codonId: string;
  /** The first three are Hankweave's. */
  errorType: "file-write-failed" | "history-damaged" | "llm-call-failed" | "template-render-failed" | "trigger-failed" | "triggers-dropped";
  message: string;
  retriable: boolean;
  consecutiveFailureCount: number;
  /** Number of dropped triggers; Hankweave only logs them. */
  dropped?: number;
}

export interface SentinelLoaded {
  sentinelId: string;
  codonId: string;
  model: string;
  triggerType: "event" | "sequence";
  executionStrategy: string;
  conversational: boolean;
  source: "file" | "inline";
  sourcePath?: string;
}

export interface SentinelOutput {
  sentinelId: string;
  codonId: string;
  triggerNumber: number;
  outputType: "structured" | "text";
  content: string | Record<string, unknown> | unknown[];
  cost: number;
  tokens: Record<string, number>;
  eventCount: number;
}

/** The files of a sentinel; a name without `/` is in its own folder, a path in agentRoot. */
export interface SentinelOutputPaths {
  logFile?: string;
  lastValueFile?: string;
}

/** The events of a sentinel that clients get; the sentinel decides about absent ones. */
export interface SentinelReports {
  lifecycle?: boolean;
  errors?: boolean;
  outputs?: boolean;
  triggers?: boolean;
}

/** A codon's settings for a sentinel. */
export interface SentinelSettings {
  /** If true, the codon does not start without this sentinel. */
  failCodonIfNotLoaded?: boolean;
  outputPaths?: SentinelOutputPaths;
  reportToWebsocket?: SentinelReports;
}

/** The work of one sentinel during one codon; costs in USD. */
export interface SentinelState {
  id: string;
  model: string;
  loadedAt: string;
  llmCallCount: number;
  failedLLMCalls: number;
  totalTriggers: number;
  totalCost: number;
  status: "active" | "unloaded";
  unloadedAt?: string;
  lastLlmCallAt?: string;
  unloadReason?: string;
  /** Number of triggers without a call: the queue was full, or the codon had ended. */
  droppedTriggers?: number;
}

/** The current sentinels of an active codon. */
export interface SentinelStatesUpdated {
  runId: string;
  codonId: string;
  sentinels: LoadedSentinels;
}

export interface SentinelTriggered {
  sentinelId: string;
  codonId: string;
  triggerNumber: number;
  strategy: string;
  eventCount: number;
  queueSize: number;
}

export interface SentinelUnloaded {
  sentinelId: string;
  codonId: string;
  reason: "codon-complete" | "consecutive-failures" | "fatal-error" | "shutdown";
  finalCost: number;
  llmCallCount: number;
  errorType?: "configuration" | "corruption" | "resource" | "template";
}

/**
 * The server continues with a problem; sent at once, without a seq if the disk is the cause.
 *
 * It is journaled as soon as the disk can be written to.
 */
export interface ServerDegraded {
  code: ProblemCode;
  message: string;
  since: string;
}

/** Kill agents and exit immediately with code 1; the next start recovers. */
export interface ServerForceShutdown {
  reason?: string;
}

export interface ServerIdle {
  reason: "all-codons-completed" | "codon-completed" | "codon-failed" | "rollback-completed" | "startup" | "stopped";
  message: string;
}

/** The first event of a connection, and the first line of `hankweave run --json`. */
export interface ServerReady {
  serverVersion: string;
  executionPath: string;
  agentRootPath: string;
  dataPath: string | null;
  port: number;
  url: string;
  currentRunId?: string;
  lastEventSeq?: number;
  /** The directory that output files are copied to, if any. */
  outputDirectory?: string;
}

/** A problem is over. */
export interface ServerRecovered {
  code: ProblemCode;
  message: string;
  /** The time at which the problem began. */
  since: string;
}

/** The server did not run for a while: the machine was suspended, or the process stopped. */
export interface ServerResumed {
  suspendedSeconds: number;
  cause: "stopped" | "suspended";
}

/** Stop the server: end agents, take an `exit` checkpoint, save the state, release the lock. */
export interface ServerShutdown {
  reason?: string;
}

/** A server has started on the directory; the fields describe what the last one left. */
export interface ServerStarted {
  serverVersion: string;
  pid: number;
  previousPid?: number;
  previousHeartbeatAgeMs?: number;
  previousPidReused?: boolean;
  leftoverAgentsKilled?: number[];
  /** Lock and temporary files in the shadow repository, left by a crash. */
  leftoversRemoved?: string[];
  /** How an agent's processes are contained: by a control group, or by its keeper alone. */
  containment?: "cgroup" | "subreaper";
}

/** The reply to `server.status`. */
export interface ServerStatus {
  serverVersion: string;
  pid: number;
  executionPath: string;
  startedAt: string;
  uptimeMs: number;
  currentRunId: string | null;
  activeCodonId: string | null;
  nextCodonId: string | null;
  isRollingBack: boolean;
  lastEventSeq: number;
  /** USD, over all runs. */
  totalCost: number;
  checkpoints: number;
  clients: number;
  lock: RuntimeLock;
  /** Size of the shadow repository on disk. */
  storeBytes: number;
  storePacks: number;
  /** Objects outside packs; many of them are packed in the background. */
  storeLooseObjects: number;
  /** How an agent's processes are contained: by a control group, or by its keeper alone. */
  containment: "cgroup" | "subreaper";
  /** Current problems, the oldest first. */
  problems?: Problem[];
  /** Tool calls that wait for permission, the oldest first. */
  pendingPermissions?: PendingPermission[];
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
  confinement?: ConfinementStatus;
  /** What the server still has to do for earlier commands, the oldest first. */
  background?: BackgroundWork[];
}

export interface ServerStopping {
  reason: string;
}

/** Terminal: skipped by a person or its condition, or timed out at its start. */
export interface SkippedCodon {
  status: "skipped";
  codonId: string;
  startTime: string;
  loopContext?: LoopContext;
  /** 1 for the first attempt in this run, one more for each retry or redo. */
  attempt?: number;
  /** Time spent waiting for the end of limits; it counts for no budget. */
  waitedMs?: number;
  endTime: string;
  skippedDuring: ActiveStatus;
  partialCost: number;
  partialTokens: Tokens;
  assistantMessageCount: number;
  sentinels: ExecutedSentinels;
  claudePid?: number;
  claudeSessionId?: string;
  claudeLogPath?: string;
  rigSetupCheckpoint?: string;
  skipCheckpoint?: string;
  budgetExceeded?: BudgetExceeded;
  /** The condition that was false. */
  condition?: string;
}

export interface SkippedFile {
  path: string;
  reason: string;
}

export interface SpentFigures {
  dollars: number;
  timeSeconds: number;
  outputTokens: number;
}

/** The agent is about to be started. */
export interface StartingCodon {
  status: "starting";
  codonId: string;
  startTime: string;
  loopContext?: LoopContext;
  /** 1 for the first attempt in this run, one more for each retry or redo. */
  attempt?: number;
  /** Time spent waiting for the end of limits; it counts for no budget. */
  waitedMs?: number;
  sentinels: LoadedSentinels;
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
  executionPlan: PlanEntry[];
  initialCheckpoint?: string;
  /** `SCHEMA_VERSION`; 0 in a file written by Hankweave. */
  schemaVersion?: number;
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
}

/** state.json could not be used as it was: the source of the state, and the faults found. */
export interface StateRecovered {
  source: "backup" | "fresh" | "journal" | "primary" | "repository";
  errors: ValidationError[];
  warnings: ValidationWarning[];
  /** File names of the unreadable originals, which are kept. */
  kept?: string[];
}

export interface StateSnapshot {
  /**
   * The newest hundred terminal codons of the execution thread, newest first, including failed and
   * skipped ones.
   */
  completedCodons: CodonExecution[];
  fileTree: FileNode[];
  totalCost: number;
  /** Milliseconds since the server started. */
  totalTime: number;
  isRollingBack: boolean;
  currentCodon?: CodonExecution;
  recentFileAccess?: FileAccess;
  currentRunId?: string;
  nextCodonId?: string;
  lastEventSeq?: number;
}

/** One change of the state; state.json is the fold of all of these. */
export interface StateTransition {
  transitionType: string;
  transition: Transition;
  resultingState: ResultingState;
  runId?: string;
  codonId?: string;
}

/** The store's objects were packed together. */
export interface StoreConsolidated {
  packsBefore: number;
  packsAfter: number;
  looseBefore: number;
  looseAfter: number;
  bytesBefore: number;
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
  maxAgeSeconds?: number;
  maxCount?: number;
  maxBytes?: number;
  /** Prune only these kinds. */
  kinds?: CheckpointKind[];
  expectedRunId?: string;
}

export type StoreOperation = "capture" | "restore" | "gc" | "fsck" | "branch";

/**
 * Progress of a long operation on checkpoints; only for clients that requested `progress`.
 *
 * At most ten a second for each operation, and none for a short operation. Not journaled.
 */
export interface StoreProgress {
  operation: StoreOperation;
  /** The same in all events of one operation. */
  operationId: string;
  /** The name of the current phase; an operation has several, one after the other. */
  phase: string;
  /** Of this phase. */
  done: number;
  /** Null while it is unknown. */
  total: number | null;
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
  movedRefs?: MovedRef[];
  /** Checkpoints that may have lost permissions and empty folders; their files are complete. */
  unknownPermissions?: string[];
  /** The folder of the shadow repository that holds the files it replaced. */
  quarantine?: string;
}

/** Lost objects were restored, or checkpoints with lost objects were given up. */
export interface StoreRepaired {
  repair: StoreRepair;
}

export type TerminalCodon = CompletedCodon | FailedCodon | SkippedCodon;

/** The files were restored: by a rollback, the undo of one, or a redo. */
export interface TimeTravelled {
  direction: Direction;
  /** The rollback; its `edits` are those it removed. */
  travel: Travel;
  restoredEdits?: Record<string, string>;
  notice?: Notice;
}

/** Tokens and cost in USD of one message or, with `final`, of the whole codon. */
export interface TokenUsage {
  codonId: string;
  inputTokens: number;
  outputTokens: number;
  cacheCreationTokens: number;
  cacheReadTokens: number;
  totalCost: number;
  modelId?: string;
  modelUsage?: Record<string, unknown>;
  final?: boolean;
}

/** Token counts of one message, codon or run. */
export interface Tokens {
  inputTokens: number;
  outputTokens: number;
  cacheCreationTokens: number;
  cacheReadTokens: number;
}

export interface ToolResult {
  codonId: string;
  toolUseId: string;
  toolName: string;
  result: string;
  truncated: boolean;
  originalLength: number;
  executionTimeMs: number;
  isError: boolean;
}

export interface TouchedFile {
  path: string;
  bytes: number;
}

export interface TrafficMetadata {
  /** Bytes of the frame on the wire, before redaction. */
  size: number;
  error?: string;
}

/** One line of websocket.log. */
export interface TrafficRecord {
  loggedAt: string;
  direction: "in" | "out";
  message: unknown;
  metadata: TrafficMetadata;
}

/** The facts of a rollback that its undo needs (or of an undo, that its redo needs). */
export interface Travel {
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
  operationIds: string[];
}

/** One file of a tree. */
export interface TreeFile {
  path: string;
  size: number;
  /** Type and permissions as in `st_mode`. */
  mode: number;
}

export interface TreeStats {
  files: number;
  bytes: number;
}

/** A path that a rollback could not restore, or will not be able to. */
export interface UnrestoredPath {
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
  type: "corrupted_data" | "invalid_codon" | "missing_run";
  message: string;
}

export interface ValidationWarning {
  type: "cost_mismatch" | "missing_checkpoint" | "orphaned_folder";
  message: string;
}

/** What an attempt does differently; without a field, as the hank says. */
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
  watchedScans: number;
  fullScans: number;
}

/** Files changed; a client that keeps an index of them must refresh it. */
export interface WorkspaceInvalidated {
  /** The first of them: at most 200, and fewer if paths are long. */
  paths: string[];
  reason: "branch" | "rollback";
  /** Number of changed files, if not all are listed; then a client must refresh everything. */
  total?: number;
}
