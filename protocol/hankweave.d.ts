// What goes over the wire of Hankweave, and what lies in its files, from the protocol's own shapes.
// `scripts/export-schema --update` writes it. It needs nothing else: copy it where you want it.
//
// A field that holds its default is not written, so that it is `?` here. A newer server may send
// events, fields and words that are not here: keep what you do not know.

/** What a client sends. */
export type ClientFrame = Handshake | AnyCommand;

/** What a server sends: `type` tells which it is. */
export type ServerFrame = HandshakeResponse | AnyReply | CommandFailed | AnyEvent;

export type CommandType = keyof Commands;

/** A command; `data` may be left out where it would be empty. */
export type CommandOf<T extends CommandType> = { id: string; type: T } & ({} extends Commands[T]
  ? { data?: Commands[T] }
  : { data: Commands[T] });

export type AnyCommand = { [T in CommandType]: CommandOf<T> }[CommandType];

/** The answer to a command that was done. */
export interface ReplyTo<T extends CommandType> {
  type: "command.succeeded";
  /** The id of the command. */
  inReplyTo: string;
  timestamp: string;
  data: Replies[T];
}

export type AnyReply = { [T in CommandType]: ReplyTo<T> }[CommandType];

export type EventType = keyof Events;

/** An event, as it comes over the wire and as it stands in the journal. */
export interface EventOf<T extends EventType> {
  /** A UUID. */
  id: string;
  /** The place in the journal; absent where the event is for one client alone. */
  seq?: number;
  /** UTC, milliseconds, `Z`. */
  timestamp: string;
  type: T;
  data: Events[T];
  runId?: string;
  codonId?: string;
  /** Seqs of the events, or the id of the command, that led to this one. */
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

/** What a client may ask for. */
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
  "ping": Ping;
  "ping.broadcast": PingBroadcast;
  "history.sync": HistorySync;
  "events.query": EventsQuery;
  "state.get": GetState;
  "server.status": GetServerStatus;
  "server.shutdown": ServerShutdown;
  "server.force_shutdown": ServerForceShutdown;
}

/** What the `data` of the answer is. */
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
  "ping": null;
  "ping.broadcast": null;
  "history.sync": null;
  "events.query": EventsPage;
  "state.get": State;
  "server.status": ServerStatus;
  "server.shutdown": null;
  "server.force_shutdown": null;
}

/** What happens. */
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
  "data.changed": DataChanged;
  "info": Info;
  "error": ErrorEvent;
  "state.snapshot": StateSnapshot;
  "state.transition": StateTransition;
  "codon.started": CodonStartedEvent;
  "codon.completed": CodonCompletedEvent;
  "codon.extended": CodonExtended;
  "codon.retrying": CodonRetrying;
  "codon.warning": CodonWarning;
  "assistant.action": AssistantAction;
  "tool.result": ToolResult;
  "permission.requested": PermissionRequested;
  "permission.resolved": PermissionResolved;
  "token.usage": TokenUsage;
  "file.updated": FileUpdated;
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
  "checkpoint.pinned": CheckpointPinned;
  "checkpoint.pruned": CheckpointPruned;
  "store.repaired": StoreRepaired;
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
  "pong": Pong;
  "history.batch": HistoryBatch;
  "incomplete.codon": IncompleteCodon;
}

/** What can happen to the state. */
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
  "CheckpointCreated": CheckpointCreated;
  "InitialCheckpointSet": InitialCheckpointSet;
  "PlanSet": PlanSet;
  "TimeTravelled": TimeTravelled;
  "TravelsForgotten": TravelsForgotten;
  "EditsNoticed": EditsNoticed;
  "EditsOvertaken": EditsOvertaken;
  "AgentTold": AgentTold;
}

/** Any program that speaks the Agent Client Protocol on its stdin and stdout. */
export interface AcpAgentSpec {
  type: "acp";
  /** Such as `["opencode", "acp"]` or `["gemini", "--acp"]`. */
  command: string[];
  /** The session mode to work in, by the id that the agent gives it; absent: its own choice. */
  mode?: string;
  /**
   * Variables of the server's environment that it gets: names, or beginnings that end in `_`, such
   * as `MISTRAL_`. Absent: those that a known agent needs, for any other none.
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

/**
 * `aftermath.intent`: durable before a codon begins whose success has consequences, gone when its
 * files are handed out and archived.
 */
export interface AftermathIntent {
  runId: string;
  codonId: string;
}

/** A line of an agent that speaks plain text, or of its stderr. */
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

/** An agent has learned of the last rollback. */
export interface AgentTold {
  operationId: string;
}

/** What `hankweave mcp` may give to agents, as the hank says. */
export interface AgentToolsGranted {
  enabled: boolean;
  rollbackPaths: boolean;
}

export interface ArchiveCompleted {
  codonId: string;
  archivedPaths: string[];
}

/** One file, or one empty folder, that lies in rigArchive (Hankweave, archives). */
export interface ArchiveEntry {
  /** Below agentRoot. */
  sourcePath: string;
  /** Below the execution directory. */
  archivePath: string;
  /** The codon, or the loop, that it was archived for. */
  codonId: string;
  /** The checkpoint of the end after which it was archived; `orphan` where there was none. */
  checkpointSha: string;
  timestamp: string;
  loopContext?: ArchivePlace;
}

/** `archive.intent`: durable before the first file moves, gone when all is told. */
export interface ArchiveIntent {
  operationId: string;
  runId: string;
  /** The codon that has ended. */
  codonId: string;
  /** The codon, or the loop, in whose name this is archived. */
  archivedFor: string;
  checkpointSha: string;
  startedAt: string;
  loopContext?: ArchivePlace;
  /** What is in the way in rigArchive gets another name there. */
  displaced?: ArchiveMove[];
  /** From agentRoot to rigArchive. */
  moves?: ArchiveMove[];
  /** Folders that go along, the inner ones first. */
  folders?: ArchiveMove[];
  /** Those of them that held nothing. */
  empty?: string[];
  failed?: Record<string, string>;
}

/** archive-manifest.json: what lies in rigArchive, and where it came from. */
export interface ArchiveManifest {
  version: string;
  entries: ArchiveEntry[];
  /** By the operation id of the rollback; Hankweave has no such field. */
  travels?: Record<string, ArchiveTravel>;
}

/** One rename; names are base64 in the file, because they need not be text. */
export interface ArchiveMove {
  source: string;
  target: string;
}

export interface ArchivePartial {
  codonId: string;
  archivedPaths: string[];
  failedPaths: FailedPath[];
}

/** Where in a loop something was archived. */
export interface ArchivePlace {
  loopId: string;
  iteration: number;
}

/** What one rollback moved between rigArchive and agentRoot, so that its undo can reverse it. */
export interface ArchiveTravel {
  restored?: ArchiveEntry[];
  archived?: ArchiveEntry[];
  /** Folders of agentRoot that were made for what was restored. */
  folders?: string[];
  /** What could not be moved, and why. */
  failed?: Record<string, string>;
}

export interface AssistantAction {
  codonId: string;
  action: "message" | "thinking" | "tool_use";
  content: string;
  toolName?: string;
  toolInput?: Record<string, unknown>;
  toolUseId?: string;
  /** The call reaches outside the work tree: no rollback takes its effects back. */
  external?: boolean;
}

/** `branch.intent`: durable before anything of a branch is made, gone when all is told. */
export interface BranchIntent {
  /** Where it is built; a start that finds it removes it. */
  temporary: string;
  executionPath: string;
  runId: string;
  coordinate: Coordinate;
  startedAt: string;
}

/** The answer to `execution.branch`. */
export interface BranchMade {
  executionPath: string;
  /** The new execution's first run of its own. */
  runId: string;
}

/** Which limit ended a codon, and how much it had used by then. */
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

/** A codon's answer, for the codons after it (`outputVar`). */
export interface Captured {
  name: string;
  value: string;
  /** True where the answer was longer; all of it is in the codon's log. */
  truncated?: boolean;
}

/** A shell command in the work tree that says by its exit code whether a codon did its work. */
export interface Check {
  /** A shell command line; 0 is a pass. */
  run: string;
  /** The command and all it started are ended after so long; that is a failed check. */
  timeoutSeconds?: number;
  /** True: a failed check is told and passed over. */
  allowFailure?: boolean;
}

/** One of a codon's checks has ended. */
export interface CheckCompleted {
  codonId: string;
  checkIndex: number;
  command: string;
  passed: boolean;
  durationMs: number;
  /** The last of what it wrote on stdout and stderr. */
  output: string;
  /** None where its time was up or it could not be started. */
  exitCode?: number;
  /** Why it did not pass. */
  message?: string;
  /** True where the hank allows it to fail. */
  ignored?: boolean;
}

/** Takes a `manual` checkpoint now. */
export interface CheckpointCreate {
  label?: string;
  expectedRunId?: string;
}

/** A commit of the shadow repository is on record. */
export interface CheckpointCreated {
  checkpoint: CheckpointRecord;
  /** True where the commit was found at a start, made by a server that died before it said so. */
  recovered?: boolean;
}

/** Compares two checkpoints, or without `to` a checkpoint and the work tree. */
export interface CheckpointDiff {
  from: string;
  to?: string;
  /** Files or folders; absent: all. */
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

/** Hankweave's answer to `checkpoint.list`, sent to all. */
export interface CheckpointList {
  runId: string | null;
  checkpoints: ListedCheckpoint[];
  currentBranch: string | null;
}

/** The answer to `checkpoint.list`: newest first. */
export interface CheckpointPage {
  checkpoints: CheckpointRecord[];
  /** None while HEAD is detached, after a rollback and before the next checkpoint. */
  currentBranch: string | null;
  /** Give it back to get the next page; absent on the last one. */
  cursor?: string;
}

/** A checkpoint does not hold everything: what it lacks, a rollback to it leaves alone. */
export interface CheckpointPartial {
  checkpoint: Coordinate;
  skipped: SkippedFile[];
}

/**
 * Keeps a checkpoint for good, or with `pinned` false gives it back to the retention.
 *
 * A checkpoint that is pinned already takes the new name.
 */
export interface CheckpointPin {
  /** A full sha, or a prefix that is unique among all checkpoints. */
  checkpointSha: string;
  pinned: boolean;
  name?: string;
  expectedRunId?: string;
}

/** A person keeps a checkpoint for good, or lets it go. */
export interface CheckpointPinned {
  checkpointSha: string;
  pinned: boolean;
  name?: string;
}

/** Checkpoints are gone; what happened around them stays in the journal. */
export interface CheckpointPruned {
  checkpoints: string[];
  /** True where a crash kept the server that pruned them from saying so. */
  recovered?: boolean;
  /** True where nobody pruned them: objects of theirs were lost, and a repair gave them up. */
  lost?: boolean;
}

/** Reads a file of a checkpoint, or a range of its bytes. */
export interface CheckpointReadFile {
  checkpointSha: string;
  path: string;
  offset?: number;
  /** Absent: up to the end, if that is no more than MAX_RANGE. */
  length?: number;
}

/** What is known of one checkpoint. */
export interface CheckpointRecord {
  sha: string;
  kind: CheckpointKind;
  coordinate: Coordinate;
  codonName: string;
  timestamp: string;
  operationId: string;
  label?: string;
  /** True where something could not be captured; `skipped` names it. */
  partial?: boolean;
  skipped?: SkippedFile[];
  /** True where it is never pruned, because a person said so. */
  pinned?: boolean;
  /** What the person who pinned it calls it. */
  name?: string;
  /** Of the agent that was at work; null where none was. */
  conversation?: Conversation;
}

/**
 * Files went back to a checkpoint.
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
  /** Null where `rollback.completed` follows with the same operation id: it has the report. */
  report: RollbackReport | null;
  direction?: Movement;
  reason?: string;
}

/** The `claude` program, driven over its stream-json protocol. */
export interface ClaudeAgentSpec {
  type: "claude";
  /**
   * What it may do without asking, in its own words: everything, as in Hankweave, unless the hank
   * says otherwise. `permissions` of the codon take precedence.
   */
  permissionMode?: "acceptEdits" | "bypassPermissions" | "default" | "plan";
}

/** Somebody set the wall clock: the stamps before this event and after it do not compare. */
export interface ClockJumped {
  seconds: number;
  direction: "back" | "forward";
}

/** The `codex` program, driven by `codex exec --json`. */
export interface CodexAgentSpec {
  type: "codex";
  /** What its commands can reach, in its own words: everything, unless the hank says otherwise. */
  sandbox?: "danger-full-access" | "read-only" | "workspace-write";
  /** Settings of its config.toml, each a TOML value, such as `model_reasoning_effort`. */
  config?: Record<string, string>;
}

/** One step of the pipeline, done by one agent. */
export interface Codon {
  type: "codon";
  /** Names it in coordinates and files; no other codon of the hank has it. */
  id: string;
  /** For people. */
  name: string;
  /**
   * What the agent is told to use, such as `sonnet`, `gpt-5.4`, `google/gemini-3-pro-preview`; it
   * selects the agent where none is named.
   */
  model: string;
  /** Whether the agent begins anew or goes on in the session of the codon before. */
  continuationMode: "continue-previous" | "fresh";
  description?: string;
  /**
   * Paths below the hank's directory; several are joined with a blank line. Wins over `promptText`.
   */
  promptFile?: string | string[];
  promptText?: string;
  /** Paths of what is added to the system prompt; excludes `appendSystemPromptText`. */
  appendSystemPromptFile?: string | string[];
  appendSystemPromptText?: string;
  /** What is done in the work tree before the agent starts, in this order. */
  rigSetup?: RigItem[];
  /** Hankweave's name of `trackedFiles`; both are accepted and mean the same. */
  checkpointedFiles?: string[];
  /** Patterns as in a .gitignore, of the files that checkpoints hold from this codon on. */
  trackedFiles?: string[];
  /** Environment variables of the agent and of the rig's commands. */
  env?: Record<string, string>;
  /** What is copied to the output directory, where one is configured. */
  outputFiles?: OutputFiles[];
  sentinels?: SentinelEntry[];
  /** Paths or globs below agentRoot that are moved to rigArchive after success. */
  archiveOnSuccess?: string[];
  /** What follows a failure: the run ends, the codon is tried again, or the next one starts. */
  onFailure?: "abort" | "ignore" | "retry";
  /** Only with `onFailure` `retry`. */
  retryConfig?: RetryConfig;
  /** Said after each success, in the same session, until its context is full. */
  exhaustWithPrompt?: string;
  /** How often `exhaustWithPrompt` is said at most. */
  maxExtensions?: number;
  /** True: an agent whose context is full may compact it and go on. */
  autoCompact?: boolean;
  /** Seconds without a word of the agent after which it has failed. */
  shimIdleTimeout?: number;
  budget?: CodonBudget;
  /** Who does this step; absent: the agent that runs its model. `--agent` wins. */
  agent?: AgentSpec;
  /** How long its agent may work on one prompt; then the codon has failed. */
  timeoutSeconds?: number;
  /** An expression over the hank's variables; where it does not hold the codon is skipped. */
  condition?: string;
  /** Run after the agent's success, in this order; the first that fails fails the codon. */
  checks?: Check[];
  /** The variable that takes the agent's last answer, for the codons that follow. */
  outputVar?: string;
  /** What the checkpoint of its success is labelled with. */
  checkpointLabel?: string;
  /**
   * What its agent may do; wins as a whole over those of `overrides`. Absent: what the agent's own
   * mode lets it do.
   */
  permissions?: Permissions;
}

/** What one execution of a codon may use. */
export interface CodonBudget {
  /** US dollars. */
  maxDollars?: number;
  /** Seconds from the agent's start. */
  maxTimeSeconds?: number;
  maxOutputTokens?: number;
  /** The fullest its context may become: input and output of one turn. */
  maxContextTokens?: number;
  /** Whether a codon that is stopped by its budget is completed or failed. */
  onExceeded?: "complete" | "fail";
}

export type CodonCheckpointType =
  | "start"
  | "end"
  | "rig-setup"
  | "completed"
  | "error"
  | "skipped";

/** The answer to `codon.next` and `codon.redo`: what it is that starts. */
export interface CodonChosen {
  codonId: string;
}

/** A codon came to its end, whatever the end was. */
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
  /** Ours: true where a person skipped it, which Hankweave's event does not say. */
  skipped?: boolean;
  /** Ours: the condition that did not hold, where it was skipped for that. */
  condition?: string;
  /** Ours: what the codons after it may refer to. */
  captured?: Captured;
  /** Ours: the messages of its `codon.warning` events. */
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
   * Input and output tokens together. Hankweave's event has the four counts here; clients without
   * `protocolVersion` get these (`reference`).
   */
  cumulativeTokens: number;
  cumulativeCost: number;
  /** The four counts; absent in journals of earlier versions. */
  tokens?: Tokens;
}

/** Kills the active codon; it ends as `failed` and the server idles. */
export interface CodonForceStop {
  reason?: string;
  expectedRunId?: string;
}

/** Starts the thread's next codon. */
export interface CodonNext {
  expectedRunId?: string;
}

/** Runs the thread's newest codon again. */
export interface CodonRedo {
  expectedRunId?: string;
}

/** A codon failed and will be tried again, from the files that the attempt began with. */
export interface CodonRetrying {
  codonId: string;
  /** The number of the attempt that comes next. */
  attempt: number;
  maxAttempts: number;
  delayMs: number;
  failureReason: FailureReason;
}

/** Stops the active codon; it ends as `skipped` and the plan goes on after it. */
export interface CodonSkip {
  expectedRunId?: string;
}

/** Starts one entry of the plan. */
export interface CodonStart {
  codonId: string;
  skipPreCommands?: boolean;
  expectedRunId?: string;
}

/** A codon's record is appended to the current run. */
export interface CodonStarted {
  runId: string;
  codon: CodonExecution;
}

/** The agent reported its session: the codon runs. */
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

/** The newest record of a codon takes another state; `codon` is the record as it now stands. */
export interface CodonTransitioned {
  runId: string;
  fromStatus: CodonStatus;
  codon: CodonExecution;
}

/** Ours: a codon is completed, and something about its work should be looked at. */
export interface CodonWarning {
  codonId: string;
  /** `tools-refused`: every tool with which the agent could have done its work was refused. */
  kind: "tools-refused";
  /** For people, with what to do. */
  message: string;
  /** The names of the tools that it is about. */
  tools?: string[];
}

/** Any program; it gets the prompt on stdin and works in the work tree. */
export interface CommandAgentSpec {
  type: "command";
  command: string[];
}

export interface CommandFailed {
  type: "command.failed";
  /** Null where the frame had no readable id. */
  inReplyTo: string | null;
  timestamp: string;
  data: Failure;
}

/** A command of a shell. */
export interface CommandSpec {
  /** A shell command line. */
  run: string;
  /** `project` is the work tree, `lastCopied` what the rig copied last. */
  workingDirectory?: "lastCopied" | "project";
  /** The command and all it started are ended after so long. */
  timeoutSeconds?: number;
}

export type Comparison = "previous" | "now";

/**
 * Terminal: success; cost and tokens are final.
 *
 * Session and log path are empty where the budget was spent before: no agent was started.
 */
export interface CompletedCodon {
  status: "completed";
  codonId: string;
  startTime: string;
  loopContext?: LoopContext;
  /** 1 for the first try in this run, one more for each retry or redo. */
  attempt?: number;
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
  /** It ended because the agent's context was full, which codon or loop had asked for. */
  contextExceeded?: boolean;
  budgetExceeded?: BudgetExceeded;
  captured?: Captured;
  /** Ours: why its work should be looked at, although it was completed. */
  warnings?: string[];
}

/** The agent has ended; sentinels finish what they began. */
export interface CompletingSentinelsCodon {
  status: "completing-sentinels";
  codonId: string;
  startTime: string;
  loopContext?: LoopContext;
  /** 1 for the first try in this run, one more for each retry or redo. */
  attempt?: number;
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
}

/** One of four forms: `field`, `op`, `value`; or `and`; or `or`; or `not`. */
export interface Condition {
  /** A dotted path: `type`, `seq`, `data.codonId`, `data.files.0.path`. */
  field?: string;
  op?: string;
  /** Codebolt's name of `op`; one of the two. */
  operator?: string;
  value?: unknown;
  and?: Condition[];
  or?: Condition[];
  not?: Condition;
}

/** How the store's objects lay before and after they were packed together. */
export interface Consolidation {
  packsBefore: number;
  packsAfter: number;
  looseBefore: number;
  looseAfter: number;
  /** False where something more urgent came in between; the server goes on with it later. */
  finished: boolean;
}

/** What a whole hank, or all iterations of a loop, may use. */
export interface ContainerBudget {
  /** US dollars. */
  maxDollars?: number;
  /** Seconds of work, for all codons together. */
  maxTimeSeconds?: number;
  /**
   * `shared`: each may use all that is left. `proportional`: each its share, and what others left
   * over. `proportional-strict`: each its share.
   */
  allocation?: "proportional" | "proportional-strict" | "shared";
  /** Parts of `maxDollars` by the id of a codon or loop; what they leave is split evenly. */
  shares?: Record<string, number>;
  /** Whether a codon that is stopped by this budget is completed or failed. */
  onExceeded?: "complete" | "fail";
}

/** A run that goes on from a checkpoint of an earlier one. */
export interface Continuation {
  type: "continuation";
  source: ContinuationSource;
  reason: "continue" | "retry" | "rollback";
}

export interface ContinuationSource {
  /** The run that owns the checkpoint. */
  runId: string;
  /** The codon after which to go on; null: from the beginning. */
  afterCodon: string | null;
  /**
   * What the files were restored to; null where they were left as they were, or where Hankweave
   * wrote the state.
   */
  checkpointSha: string | null;
  /** Where in the work of its first codon the run goes on; null where that begins anew. */
  conversation?: Conversation;
}

/** How far an agent's conversation had come. */
export interface Conversation {
  sessionId: string;
  /**
   * The newest message after which no tool call was open, by the agent's own name for it; null
   * where it gives its messages none.
   */
  messageId?: string;
}

/** A moment that can be gone back to. */
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

/** What is copied where. */
export interface CopySpec {
  /** POSIX path below the hank's directory. */
  from: string;
  /** POSIX path below agentRoot; an existing target is replaced. */
  to: string;
}

/** One message of the agent was counted. */
export interface CostsIncremented {
  runId: string;
  codonId: string;
  cost: number;
  tokens: Tokens;
  /** How many assistant messages are counted with it. */
  messages?: number;
}

/** The codon's totals as the agent reported them at its end replace the running sums. */
export interface CostsUpdated {
  runId: string;
  codonId: string;
  cost: number;
  tokens: Tokens;
}

/** No run is current any more: the server that drove it stops, or is found to have stopped. */
export interface CurrentRunCleared {
  /** The one that was current. */
  runId: string;
}

export interface DamagedCheckpoint {
  checkpoint: string;
  damages: DamagedObject[];
}

export interface DamagedObject {
  sha: string;
  kind: "blob" | "commit" | "tree";
  /** Where it stands in the checkpoint; empty for the commit and the top. */
  path: string;
}

/** The execution was given other data than it was made for, because a person forced it. */
export interface DataChanged {
  previousHash: string | null;
  currentHash: string;
  previousPath: string | null;
  currentPath: string;
}

/** The answer to `checkpoint.diff`, in the order of paths. */
export interface DiffPage {
  from: string;
  /** Null: the work tree as it was found. */
  to: string | null;
  files: FileDifference[];
  stats: DiffStats;
  cursor?: string;
}

/** What a whole comparison comes to, be it one page or many. */
export interface DiffStats {
  files: number;
  added: number;
  removed: number;
}

export type Direction = "back" | "undo" | "redo";

/** People changed these files since an agent or rig last wrote them (SHA-256; empty: gone). */
export interface EditsNoticed {
  edits: Record<string, string>;
}

/** An agent or rig wrote these files after people had. */
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
  | "MALFORMED_JSON"
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
  | "UNAUTHORIZED"
  | "UNKNOWN_CODON"
  | "UNKNOWN_COMMAND"
  | "UNKNOWN_PERMISSION"
  | "UNKNOWN_RUN";

/** Something went wrong for everybody; a client's own mistake is answered to it alone. */
export interface ErrorEvent {
  message: string;
  fatal: boolean;
  codon?: string;
  severity?: "codon" | "fatal" | "operation" | "warning";
  context?: string;
  code?: string;
}

/** The events from the begin of the run to the moment; both ends belong to it. */
export interface EventSlice {
  from: number;
  to: number;
}

/** The answer to `events.query`: `events`, or `rows` where it selects or reduces. */
export interface EventsPage {
  /** Journal lines as they are. */
  events?: AnyEvent[];
  /** Objects with one key for each selected path, or for each group's path and the aggregate. */
  rows?: Record<string, unknown>[];
  /** Give it back, with the same query, to get the next page; absent on the last one. */
  cursor?: string;
}

/** Asks the journal: a window, causes and conditions; then events, columns or an aggregate. */
export interface EventsQuery {
  where?: Condition[] | Condition;
  /** Only events after this seq, or from this moment on. */
  since?: number | string;
  /** Only events up to this seq or moment, itself included. */
  until?: number | string;
  /** Only events that name this seq or command id in their `causes`. */
  causedBy?: number | string;
  /** Only events that this seq or command led to, over any number of others. */
  descendantsOf?: number | string;
  /** Only events that led to this seq, over any number of others. */
  ancestorsOf?: number;
  select?: string[];
  orderBy?: Order[] | Order;
  reduce?: Reduction;
  limit?: number;
  cursor?: string;
}

/** Sentinels of a terminal codon: the key's name says that all is final. */
export interface ExecutedSentinels {
  executed: SentinelState[];
  totalCost: number;
}

/** Makes a new execution from a checkpoint; this one stays as it is. */
export interface ExecutionBranch {
  /** A full sha, or a prefix that is unique among all checkpoints. */
  checkpointSha: string;
  /** Absolute: a directory that does not exist, or is empty. Absent: beside this execution. */
  path?: string;
  expectedRunId?: string;
}

/** A new execution was made from a checkpoint of this one. */
export interface ExecutionBranched {
  executionPath: string;
  /** The first run of the new execution itself. */
  runId: string;
  coordinate: Coordinate;
  /** True where a crash kept this from being told when it happened. */
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
  /** True where the work tree is the directory itself: a person's own project. */
  inPlace?: boolean;
  /** Where a branch comes from. */
  origin?: Origin;
}

/** The first event of a branch: whose past the transitions up to its first run are. */
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

/** How often a working codon's agent was sent on with `exhaustWithPrompt`. */
export interface ExtensionCountUpdated {
  runId: string;
  codonId: string;
  extensionCount: number;
  /** The session that the agent goes on in, where it gave it another name. */
  sessionId?: string;
}

/** Terminal: where and why it went wrong. */
export interface FailedCodon {
  status: "failed";
  codonId: string;
  startTime: string;
  loopContext?: LoopContext;
  /** 1 for the first try in this run, one more for each retry or redo. */
  attempt?: number;
  endTime: string;
  failedDuring: ActiveStatus;
  /** The agent's exit code; -1 where there was none. */
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
  /** JSON path into the command. */
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

/** What became of one file between two moments. */
export interface FileDifference {
  path: string;
  status: "created" | "deleted" | "modified";
  /** Lines; 0 where the content is binary or too large to be compared by lines. */
  added: number;
  removed: number;
  /** A unified diff, if asked for; absent where it would not fit into an answer. */
  patch?: string;
}

export interface FileNode {
  name: string;
  path: string;
  isDirectory: boolean;
  children: FileNode[];
  /** Of files alone. */
  lastModified?: string;
}

/** The answer to `checkpoint.readFile`: the whole file, or a range of its bytes. */
export interface FileRange {
  content: string;
  /** Each range has its own: one that is no whole UTF-8 text comes in base64. */
  encoding: "base64" | "utf-8";
  /** Of the whole file, in bytes. */
  size: number;
  /** Type and permissions as in `st_mode`; the content of a link is its target. */
  mode: number;
  offset?: number;
  /** Where the next range begins; absent at the end of the file. */
  nextOffset?: number;
}

export interface FileSource {
  kind: "archive" | "codon-end" | "codon-start" | "person" | "rig" | "rollback" | "tool_use";
  toolUseId?: string;
}

/** A tracked file changed (Hankweave's version 2 of the event: no content). */
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

export interface FiletreeUpdated {
  tree: FileNode[];
  /** Files and folders of lower levels that were too many to be shown. */
  omitted?: number;
}

/** What a rollback would do to one file, line by line. */
export interface ForeseenDiff {
  path: string;
  status: "created" | "deleted" | "modified";
  added: number;
  removed: number;
  /** Unified diff from the file as it is to the file as it would be. */
  patch: string;
}

/** A run with no past. */
export interface FreshStart {
  type: "fresh";
  initialCheckpointSha?: string;
}

/** The answer to `store.fsck`. */
export interface FsckReport {
  /** Checkpoints that were read down to each blob. */
  checked: number;
  damages: DamagedCheckpoint[];
  /** Checkpoints that the journal names, that nobody pruned, and that are gone. */
  missing: string[];
  /** What was repaired before this was checked; null where no repair was asked for. */
  repair?: StoreRepair;
}

/** The answer to `store.gc`. */
export interface GcReport {
  dryRun: boolean;
  /** What went or, in a dry run, would go: newest first. */
  pruned: CheckpointRecord[];
  kept: number;
  /** All that stay, newest first; the first reason that holds. */
  keptBecause: KeptCheckpoint[];
  bytesBefore: number;
  /** In a dry run an estimate, from what the pruned ones alone need. */
  bytesAfter: number;
  /** Null in a dry run. */
  consolidated: Consolidation | null;
  /** Rollbacks that can be undone now and not after it, because their safety checkpoints go. */
  undosLost?: number;
  redosLost?: number;
  /** A lost object that may hide what is needed: no garbage was removed because of it. */
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
  /** The last seq the client has; it gets all later events, without gap or duplicate. */
  sinceSeq?: number;
  token?: string;
  /** What the client calls itself, for whoever reads websocket.log; it grants nothing. */
  clientName?: string;
  /** Whether the client wants to be told of `store.progress`. */
  progress?: boolean;
}

export interface HandshakeResponse {
  type: "handshake.response";
  data: HandshakeResponseData;
}

export interface HandshakeResponseData {
  clientId: string;
  /** What was granted: never more than the token's role allows. */
  mode: Mode;
  /** Newest first, at most 50; only where `sendPreviousEvents` asked for it. */
  eventHistory: AnyEvent[];
  totalEvents: number;
}

/** hank.json is not the one this execution began with. */
export interface HankChanged {
  previousHash: string;
  currentHash: string;
}

export interface HistoryBatch {
  events: AnyEvent[];
  hasMore: boolean;
}

/** Streams the whole journal to the sender, or what came after `since_seq`. */
export interface HistorySync {
  sinceSeq?: number;
}

/** The newest codon never came to an end: a server died under it. */
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

/** The agent lives; its session id is awaited. */
export interface InitializingCodon {
  status: "initializing";
  codonId: string;
  startTime: string;
  loopContext?: LoopContext;
  /** 1 for the first try in this run, one more for each retry or redo. */
  attempt?: number;
  sentinels: LoadedSentinels;
  claudePid: number;
  claudeLogPath: string;
  rigSetupCheckpoint?: string;
  previousSessionId?: string;
}

/** A torn last line was cut off; its bytes were kept in a file beside the journal. */
export interface JournalRepaired {
  quarantine: string;
  bytes: number;
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

/** Hankweave's five fields, and ours after them. */
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

/** Where in a loop a codon stands: rollback and resume depend on it. */
export interface LoopContext {
  loopId: string;
  /** 0-indexed. */
  iteration: number;
  codonIndexInLoop: number;
  /** What the whole loop may use, as the hank said when the iteration was laid out. */
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
  /** The checkpoint that it names now; null where it was moved aside altogether. */
  now: string | null;
}

export type Movement = "back" | "undo" | "redo" | "retry";

/** What an agent is to be told at its next step: that it was rolled back, to where and why. */
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

/** The execution, and the moment of it, that a branch was made from. */
export interface Origin {
  executionPath: string;
  /** In the journal of that execution. */
  coordinate: Coordinate;
}

/** What a codon hands out once it has succeeded. */
export interface OutputFiles {
  /** Paths or globs below agentRoot. */
  copy: string[];
  /** Commands that run in the work tree first. */
  beforeCopy?: RigCommand[];
}

/** The answer to `replay.view`: files and state as they were. */
export interface PastView {
  /** The checkpoint whose files are shown; null before the first one. */
  coordinate: Coordinate | null;
  tree: TreeFile[];
  /** Of all selected files, be the tree in one page or many. */
  stats: TreeStats;
  /** Null on later pages, and where the journal does not reach back to the moment. */
  state: State | null;
  events: EventSlice | null;
  previous?: DiffPage;
  now?: DiffPage;
  cursor?: string;
}

/** A call that an agent waits for leave to make. */
export interface PendingPermission {
  codonId: string;
  requestId: string;
  toolName: string;
  toolInput: Record<string, unknown>;
  expiresAt: string;
  reason: string;
}

/** Lets an agent call the tool that it asked for, or not. */
export interface PermissionAnswer {
  requestId: string;
  decision: "allow" | "deny";
  /** The agent is told, where it is denied. */
  message?: string;
  expectedRunId?: string;
}

/** An agent waits for leave to call a tool; `permission.answer` gives or refuses it. */
export interface PermissionRequested {
  codonId: string;
  requestId: string;
  toolName: string;
  toolInput: Record<string, unknown>;
  /** When it is answered for want of an answer. */
  expiresAt: string;
  /** Why somebody has to say. */
  reason: string;
}

/** A call was allowed or denied; on the disk before the agent is told. */
export interface PermissionResolved {
  codonId: string;
  requestId: string;
  toolName: string;
  decision: "allow" | "deny";
  /** `ended`: the agent, its codon or the server came to an end, or the agent asks no more. */
  by: "client" | "ended" | "policy" | "timeout";
  clientId?: string;
  /** The pattern that decided, or the name of the field that did. */
  rule?: string;
  /** What the agent is told, or why there was no answer. */
  message?: string;
}

/** What an agent may do: asked before each call of a tool that changes something. Deny wins. */
export interface Permissions {
  /** Patterns of calls that are allowed: `Bash(git *)`, `Write(src/**)`, `mcp__server__*`. */
  allow?: string[];
  /** Patterns of calls that are not, whatever `allow` says. */
  deny?: string[];
  /** What becomes of a call that no pattern fits; `ask`: a client says. */
  otherwise?: "allow" | "ask" | "deny";
  /** How long a client has to answer. */
  timeoutSeconds?: number;
  /** What becomes of a call that nobody answers. */
  onTimeout?: "allow" | "deny";
}

export type Ping = Record<string, never>;

export type PingBroadcast = Record<string, never>;

/** One codon that will run or has run; loops stand unrolled, one iteration at a time. */
export interface PlanEntry {
  codon: Codon;
  codonId: string;
  loopContext?: LoopContext;
}

/** The execution plan is laid out anew: at the start, after an iteration, after a rollback. */
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
  /** 1 for the first try in this run, one more for each retry or redo. */
  attempt?: number;
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

/** `prune.intent`: durable before the first checkpoint is let go, gone when all is told. */
export interface PruneIntent {
  checkpoints: string[];
  startedAt: string;
}

/** One aggregate over all that matches, or over each group of it. */
export interface Reduction {
  type: string;
  /** Needed by every aggregate but `count`. */
  field?: string;
  groupBy?: string[];
}

/** Shows a past moment: that of a checkpoint, or that right after an event. */
export interface ReplayView {
  checkpointSha?: string;
  seq?: number;
  paths?: string[];
  compare?: Comparison[];
  /** Files in one answer; 0 leaves the tree out. */
  limit?: number;
  cursor?: string;
}

export interface ResultingState {
  currentRunId: string | null;
  runCount: number;
  totalCost: number;
  currentRunCost: number;
}

/** How often and when a codon that failed is tried again. */
export interface RetryConfig {
  /** All of them, the first included. */
  maxAttempts?: number;
  /** Before the second attempt; twice as long before each further one. */
  delayMs?: number;
  /** The longest wait, whatever a provider asks for. */
  maxDelayMs?: number;
}

/** Runs a shell command in the work tree before the agent starts. */
export interface RigCommand {
  type: "command";
  command: CommandSpec;
  /** True: a failure is told and passed over. */
  allowFailure?: boolean;
}

/** Copies a file or tree of the hank into the work tree before the agent starts. */
export interface RigCopy {
  type: "copy";
  copy: CopySpec;
  /** True: a failure is told and passed over. */
  allowFailure?: boolean;
  /** Moves the copied target to rigArchive after success. */
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
}

/** A rollback that had begun could not finish; the next start redoes it. */
export interface RollbackFailed {
  target: Coordinate;
  message: string;
}

/** `rollback.intent`: durable before the first file moves, gone when all is told. */
export interface RollbackIntent {
  operationId: string;
  /** The files: a checkpoint, or for an undo the safety checkpoint of what is undone. */
  target: CheckpointRecord;
  safety: CheckpointRecord;
  source: Coordinate | null;
  fromRun: string;
  /** The run that begins; null where only files move. */
  toRun: string | null;
  afterCodon: string | null;
  checkpointType: string;
  codonsToProcess: string[];
  autoRestart: boolean;
  startedAt: string;
  direction?: Movement;
  /** From where work goes on, where that is not the target's own coordinate. */
  place?: Coordinate;
  paths?: string[];
  /** Paths to leave alone; base64 in the file, because names need not be text. */
  keep?: string[];
  edits?: Record<string, string>;
  restoredEdits?: Record<string, string>;
  reason?: string;
  rewindMemory?: boolean;
  /** The operation that this one takes back. */
  undone?: string;
  /** Passed on to the report. */
  note?: string;
}

/** Says what a rollback would do; exactly one target, or none for the last success. */
export interface RollbackPreview {
  checkpointSha?: string;
  codonId?: string;
  checkpointType?: CodonCheckpointType;
  /** The target is what `rollback.undo` or `rollback.redo` would go to. */
  direction?: "redo" | "undo";
  paths?: string[];
  keepEdits?: boolean;
  /** Adds unified diffs of the files it would touch. */
  patch?: boolean;
}

export interface RollbackProgress {
  currentStep: number;
  totalSteps: number;
  message: string;
}

/** Takes back the last undo. */
export interface RollbackRedo {
  onRunning?: OnRunning;
  keepEdits?: boolean;
  reason?: string;
  expectedRunId?: string;
}

/** What a rollback did, or, as a preview, would do. */
export interface RollbackReport {
  target: Coordinate;
  source: Coordinate | null;
  /** Holds all that the rollback overwrote or removed; null in a preview, or if nothing was. */
  safety: Coordinate | null;
  added: TouchedFile[];
  updated: TouchedFile[];
  removed: TouchedFile[];
  /** Left as they are because `keepEdits` asked for it. */
  kept: KeptFile[];
  /** Files that a person changed after an agent or rig last wrote them. */
  conflicts: KeptFile[];
  skipped: KeptFile[];
  /** True where a crash interrupted it and the next start finished it. */
  recovered: boolean;
  /** Tool calls between target and now whose effects lie outside the work tree, and stay. */
  externalEffects?: string[];
  /** Only in a preview that asked for them. */
  diffs?: ForeseenDiff[];
  /** What the caller should know about the target, such as the run it was found in. */
  note?: string;
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

/** Goes back to a commit: a full sha, or a prefix that is unique among all checkpoints. */
export interface RollbackToCheckpoint {
  autoRestart?: boolean;
  onRunning?: OnRunning;
  /** Restores these and nothing else; no run changes. */
  paths?: string[];
  /** Leaves files alone that people changed after an agent or rig last wrote them. */
  keepEdits?: boolean;
  rewindMemory?: boolean;
  /** Why, in a sentence: the agent is told. */
  reason?: string;
  expectedRunId?: string;
  checkpointSha: string;
}

/** Goes back to a checkpoint of the newest execution of a codon in the thread. */
export interface RollbackToCodon {
  autoRestart?: boolean;
  onRunning?: OnRunning;
  /** Restores these and nothing else; no run changes. */
  paths?: string[];
  /** Leaves files alone that people changed after an agent or rig last wrote them. */
  keepEdits?: boolean;
  rewindMemory?: boolean;
  /** Why, in a sentence: the agent is told. */
  reason?: string;
  expectedRunId?: string;
  codonId: string;
  checkpointType: CodonCheckpointType;
}

/** Goes back to the newest completed codon of the thread. */
export interface RollbackToLastSuccess {
  autoRestart?: boolean;
  onRunning?: OnRunning;
  /** Restores these and nothing else; no run changes. */
  paths?: string[];
  /** Leaves files alone that people changed after an agent or rig last wrote them. */
  keepEdits?: boolean;
  rewindMemory?: boolean;
  /** Why, in a sentence: the agent is told. */
  reason?: string;
  expectedRunId?: string;
}

/** An agent learned that it was rolled back, to where and why. */
export interface RollbackTold {
  operationId: string;
  codonId: string;
  target: Coordinate;
  /** What it was told. */
  text: string;
  /** With the prompt of a codon that begins, or in the middle of one. */
  how: "live" | "prompt";
}

/** Takes back the last rollback: files, and the place in the plan, as they were before it. */
export interface RollbackUndo {
  onRunning?: OnRunning;
  keepEdits?: boolean;
  reason?: string;
  expectedRunId?: string;
}

/** One line of work from a start or a rollback to its end. */
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

/** A run came to its end; it stays the current one until its server stops or another begins. */
export interface RunCompleted {
  runId: string;
  endTime: string;
}

/**
 * The server that drove the run died, so the run is no longer the current one.
 *
 * Its active codons are failed by events of their own.
 */
export interface RunCrashed {
  runId: string;
  endTime: string;
  serverPid: number;
}

/** The same of a run whose newest codon failed for good. */
export interface RunFailed {
  runId: string;
  endTime: string;
}

/** A new run becomes the newest and the current one. */
export interface RunStarted {
  run: Run;
}

export type RunStatus = "running" | "completed" | "failed" | "crashed";

/** The agent works. */
export interface RunningCodon {
  status: "running";
  codonId: string;
  startTime: string;
  loopContext?: LoopContext;
  /** 1 for the first try in this run, one more for each retry or redo. */
  attempt?: number;
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
}

/** runtime.lock: who serves here. It informs; it never grants. */
export interface RuntimeLock {
  pid: number;
  runId: string | null;
  startTime: string;
  lastHeartbeat: string;
  port?: number;
}

/** The deterministic agent that is built in: for demonstrations and tests. */
export interface ScriptedAgentSpec {
  type: "scripted";
  /** Path of a JSON script below the hank's directory; absent: the prompt is the script. */
  script?: string;
}

/** What watches a codon. */
export interface SentinelEntry {
  /** A sentinel, or the path of its file below the hank's directory. */
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
  /** Triggers that will never be called for; Hankweave only logs them. */
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

/** Where a sentinel writes; a name without `/` lies in its own folder, else in agentRoot. */
export interface SentinelOutputPaths {
  logFile?: string;
  lastValueFile?: string;
}

/** Which of a sentinel's events clients are told; what is not said, the sentinel decides. */
export interface SentinelReports {
  lifecycle?: boolean;
  errors?: boolean;
  outputs?: boolean;
  triggers?: boolean;
}

/** What a codon settles about a sentinel. */
export interface SentinelSettings {
  /** True: without this sentinel the codon does not start. */
  failCodonIfNotLoaded?: boolean;
  outputPaths?: SentinelOutputPaths;
  reportToWebsocket?: SentinelReports;
}

/** What one sentinel did during one codon; costs in USD. */
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
  /** Triggers that were never called for: no room, or no time at the codon's end. */
  droppedTriggers?: number;
}

/** The sentinels of an active codon, as they now stand. */
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
 * The server stays up with a problem; told at once, without a seq where the disk is at fault.
 *
 * On record it comes with the next line that the disk takes.
 */
export interface ServerDegraded {
  code: ProblemCode;
  message: string;
  since: string;
}

/** Kills agents and leaves at once with exit code 1; the next start recovers. */
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
  /** Where output files are copied, if anywhere. */
  outputDirectory?: string;
}

/** A problem is over. */
export interface ServerRecovered {
  code: ProblemCode;
  message: string;
  /** When the problem began. */
  since: string;
}

/** Nothing of the server ran for a while: the machine slept, or the process was stopped. */
export interface ServerResumed {
  suspendedSeconds: number;
  cause: "stopped" | "suspended";
}

/** Stops the server: agents, `exit` checkpoint, final state, lock. */
export interface ServerShutdown {
  reason?: string;
}

/** A server took over the directory; it says what it found of the one before. */
export interface ServerStarted {
  serverVersion: string;
  pid: number;
  previousPid?: number;
  previousHeartbeatAgeMs?: number;
  previousPidReused?: boolean;
  leftoverAgentsKilled?: number[];
  /** Lock and temporary files of the shadow repository that a crash left behind. */
  leftoversRemoved?: string[];
  /** What holds an agent's processes together: a control group of its own, or its keeper alone. */
  containment?: "cgroup" | "subreaper";
}

/** The answer to `server.status`. */
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
  /** Objects that no pack holds yet; where they pile up they are packed in the background. */
  storeLooseObjects: number;
  /** What holds an agent's processes together: a control group of its own, or its keeper alone. */
  containment: "cgroup" | "subreaper";
  /** What is wrong, the oldest first; none where all is well. */
  problems?: Problem[];
  /** What agents wait for leave to do, the oldest first. */
  pendingPermissions?: PendingPermission[];
  agentTools?: AgentToolsGranted;
  /**
   * What the codon that runs may use in all: the tightest of its own budget, its loop's and the
   * hank's; absent where no codon runs.
   */
  activeAllowance?: BudgetFigures;
  /**
   * Where the execution's data is reached: `read_only_data_source` in the work tree, or, in a
   * project that is served in place, in its `.hankweave`; absent where there is no data.
   */
  dataPath?: string;
}

export interface ServerStopping {
  reason: string;
}

/** Terminal: skipped by a person or its condition, or its time ran out at its start. */
export interface SkippedCodon {
  status: "skipped";
  codonId: string;
  startTime: string;
  loopContext?: LoopContext;
  /** 1 for the first try in this run, one more for each retry or redo. */
  attempt?: number;
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
  /** The condition that did not hold. */
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
  /** 1 for the first try in this run, one more for each retry or redo. */
  attempt?: number;
  sentinels: LoadedSentinels;
  rigSetupCheckpoint?: string;
}

export type StartingConditions = FreshStart | Continuation;

/** The whole of state.json: what the journal folds to. */
export interface State {
  /** Newest first. */
  runs: Run[];
  /** The run of the server that lives, which may have ended; None where no server runs. */
  currentRunId: string | null;
  executionPlan: PlanEntry[];
  initialCheckpoint?: string;
  /** `SCHEMA_VERSION` in what we write; 0 in a file that Hankweave wrote. */
  schemaVersion?: number;
  lastEventSeq?: number;
  /** Rollbacks that can be undone, the newest last. */
  undo?: Travel[];
  /** Undone rollbacks that can be redone, the next one last. */
  redo?: Travel[];
  /** Files that people changed after an agent or rig last wrote them, with their SHA-256. */
  edits?: Record<string, string>;
  /** The last rollback, while no agent has been told of it. */
  notice?: Notice;
}

/** state.json was not simply read: where the state came from and what was wrong with it. */
export interface StateRecovered {
  source: "backup" | "fresh" | "journal" | "primary" | "repository";
  errors: ValidationError[];
  warnings: ValidationWarning[];
  /** Names under which the unreadable originals were kept. */
  kept?: string[];
}

export interface StateSnapshot {
  /**
   * Terminal codons of the execution thread, newest first, failed and skipped ones included; the
   * newest hundred.
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
 * Reads every checkpoint down to each blob, and repairs the store before if asked to.
 *
 * Without `repair` it changes nothing, but reads the whole store: viewers may not send it.
 */
export interface StoreFsck {
  /** Write lost objects again where they can be found, and give up what cannot. */
  repair?: boolean;
  /** A git repository or execution directory that may have them; only with `repair`. */
  mirror?: string;
}

/**
 * Prunes the checkpoints beyond the limits, and packs the store.
 *
 * Without a limit nothing is pruned. `completed`, pinned and the thread's own never are.
 */
export interface StoreGc {
  /** Only says what would go. */
  dryRun?: boolean;
  maxAgeSeconds?: number;
  maxCount?: number;
  maxBytes?: number;
  /** Only these may go. */
  kinds?: CheckpointKind[];
  expectedRunId?: string;
}

export type StoreOperation = "capture" | "restore" | "gc" | "fsck" | "branch";

/**
 * How far long work on checkpoints is; for clients that asked for `progress`, and no journal.
 *
 * At most ten a second for each operation, none of one that is quickly done.
 */
export interface StoreProgress {
  operation: StoreOperation;
  /** The same for all that is told of one operation. */
  operationId: string;
  /** What is done now, in a word; an operation has several, one after the other. */
  phase: string;
  /** Of this phase. */
  done: number;
  /** None while nobody knows it. */
  total: number | null;
  unit: ProgressUnit;
  /** The command that asked for it; None where the server does it of itself. */
  commandId?: string;
  /** True in the last one; how it ended, the reply and the journal say. */
  ended?: boolean;
}

/** What a repair of the shadow repository did. */
export interface StoreRepair {
  /** Objects that could not be read and can be now; at most a thousand are listed. */
  rewritten?: string[];
  /** Checkpoints that were given up: not all of their objects could be found. */
  lost?: string[];
  movedRefs?: MovedRef[];
  /** Checkpoints of which permissions and empty folders may be lost; their files are whole. */
  unknownPermissions?: string[];
  /** The folder of the shadow repository with everything that was moved aside. */
  quarantine?: string;
}

/** Objects were written again, or what was lost was taken out of the history. */
export interface StoreRepaired {
  repair: StoreRepair;
}

export type TerminalCodon = CompletedCodon | FailedCodon | SkippedCodon;

/** The files went to another moment: a rollback, the undo of one, or a redo. */
export interface TimeTravelled {
  direction: Direction;
  /** The journey just made; its `edits` are those it took away. */
  travel: Travel;
  restoredEdits?: Record<string, string>;
  notice?: Notice;
}

/** Costs in USD: the message's own cost, or with `final` the codon's total. */
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
  /** Bytes of the frame as it went over the wire, before redaction. */
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

/** One rollback, as far as its undo (or for an undo: its redo) needs to know it. */
export interface Travel {
  operationId: string;
  /** The checkpoint of everything it touched, as it was before. */
  safety: string;
  /** Where the execution stood before it; null where no codon had a checkpoint yet. */
  source: Coordinate | null;
  /** Only files moved: no run ended, and the plan stands where it stood. */
  inPlace?: boolean;
  /** The files and folders it was confined to; null for the whole work tree. */
  paths?: string[];
  /** People's edits that it took away, with the SHA-256 of each where it is known. */
  edits?: Record<string, string>;
  /** Agents and sentinels forgot what they knew; the epoch of the safety checkpoint has it. */
  rewoundMemory?: boolean;
}

/** Rollbacks that cannot be undone, or redone, any more: their safety checkpoints are gone. */
export interface TravelsForgotten {
  operationIds: string[];
}

/** One file of many thousands; gc=False keeps the collector from visiting each of them. */
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

/** A fault of state.json that prevents continuation. */
export interface ValidationError {
  type: "corrupted_data" | "invalid_codon" | "missing_run";
  message: string;
}

export interface ValidationWarning {
  type: "cost_mismatch" | "missing_checkpoint" | "orphaned_folder";
  message: string;
}

/** Files changed under whoever keeps an index of them. */
export interface WorkspaceInvalidated {
  paths: string[];
  reason: "branch" | "rollback";
}
