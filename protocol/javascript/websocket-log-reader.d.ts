export interface LogEntry {
  /** When the frame was logged, in ISO 8601; not the message's own timestamp. */
  loggedAt: string;
  /** `in`: client to server; `out`: server to client. */
  direction: "in" | "out";
  message: any;
  metadata?: { size?: number; error?: string };
}

export interface LogStatistics {
  totalEntries: number;
  incomingCount: number;
  outgoingCount: number;
  messageTypes: Record<string, number>;
  /** Bytes, rounded; a missing size counts as 0. */
  averageMessageSize: number;
  /** The first and the last entry in file order; null for an empty log. */
  timeRange: { start: string; end: string } | null;
}

export class WebSocketLogReader {
  constructor(logPath: string);
  readonly logPath: string;
  /** How many lines of the last reading were not valid entries. */
  skippedLines: number;
  readLog(): Promise<LogEntry[]>;
  readLogSync(): LogEntry[];
  streamRead(callback: (entry: LogEntry) => void | Promise<void>): Promise<void>;
  getEntries(): LogEntry[];
  filterByDirection(direction: "in" | "out"): LogEntry[];
  filterByMessageType(type: string): LogEntry[];
  filterByTimeRange(start: string | Date, end: string | Date): LogEntry[];
  getCodonMessages(codonId: string): LogEntry[];
  getPhaseMessages(phaseId: string): LogEntry[];
  getSessionMessages(sessionId: string): LogEntry[];
  getServerEvents(): LogEntry[];
  getClientCommands(): LogEntry[];
  getStatistics(): LogStatistics;
  exportToFile(entries: LogEntry[], path: string): void;
}

export function readWebSocketLog(path: string): Promise<LogEntry[]>;
export function getWebSocketLogStats(path: string): Promise<LogStatistics>;
