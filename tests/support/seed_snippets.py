"""The commands and programs of the original specifications, word for word.

Tests replace only placeholder names (`RUN_ID`, `abc123`).
"""

CONFIGURE_GIT = """\
export GIT_DIR=.hankweave/checkpoints/.hankweavecheckpoints
export GIT_WORK_TREE=agentRoot
"""

LIST_CHECKPOINTS = """\
# View all commits across all branches to see the complete checkpoint history
git log --oneline --all
"""

COMPARE_STATES = """\
# Compare two checkpoints to see all file changes between them
git diff abc123 def456

# Compare a specific file between two checkpoints
git diff abc123 def456 -- src/schema/types.ts
"""

INSPECT_CHECKPOINT = """\
# Show the commit message and a summary of changes for a checkpoint
git show abc123

# List all files that existed at that checkpoint
git ls-tree --name-only abc123

# View the full content of a specific file at that checkpoint
git show abc123:src/schema/types.ts
"""

FIND_WHEN_IT_BROKE = """\
# Find all checkpoints that modified a specific file
git log --all --follow -- src/schema/types.ts

# Find all commits related to a specific codon by searching the commit message
git log --all --grep="build-schema"
"""

CHECKPOINT_CONFIG = """\
[user]
  name = Hankweave Runtime
  email = froggie@southbridge.ai
[commit]
  gpgsign = false
"""

FIND_EXECUTION = """\
ls -lt ~/.hankweave-executions/ | head -5
"""

CHECK_SERVER = """\
cat /path/to/execution/.hankweave/runtime.lock
"""

VIEW_CONVERSATION = """\
# Pretty-print the agent log with jq
cat /path/to/execution/.hankweave/runs/RUN_ID/CODON_ID-claude.log | jq .
"""

COMPARE_CHECKPOINTS = """\
# Navigate to the execution directory
cd /path/to/execution

# Temporarily point git commands to the internal .hankweave repo.
# This avoids interfering with any git repo in your own data.
export GIT_DIR=.hankweave/checkpoints/.hankweavecheckpoints
export GIT_WORK_TREE=agentRoot

# See all checkpoints as a commit log
git log --oneline

# Compare the filesystem state between two checkpoints
git diff <commit-hash-1> <commit-hash-2>

# See exactly what changed in a single checkpoint
git show <commit-hash>
"""

FIND_TOOL_CALLS = """\
import { readFileSync } from "fs";

const logPath = ".hankweave/runs/run-123/observe#0-claude.log";
const log = readFileSync(logPath, "utf-8");
const messages = log
  .split("\\n")
  .filter(Boolean)
  .map((line) => JSON.parse(line));

// Find all tool calls made by the assistant
const toolCalls = messages
  .filter((m) => m.type === "assistant")
  .flatMap((m) => m.content?.filter((c) => c.type === "tool_use") || []);
"""

ANALYZE_TRAFFIC = """\
import { WebSocketLogReader } from "hankweave/websocket-log-reader";

const reader = new WebSocketLogReader(".hankweave/logs/websocket.log");
await reader.readLog();

// Get statistics
const stats = reader.getStatistics();
console.log(`Total messages: ${stats.totalEntries}`);
console.log(`Message types:`, stats.messageTypes);

// Filter messages for a specific codon
const codonMessages = reader.getCodonMessages("generate#0");
"""

READ_STATE = """\
import fs from "fs";

const state = JSON.parse(
  fs.readFileSync(".hankweave/state.json", "utf-8")
);

// Find the current run
const currentRun = state.runs.find(r => r.runId === state.currentRunId);

// Find failed codons
const failedCodons = currentRun?.codons.filter(c => c.status === "failed") ?? [];

// Calculate total cost for all runs
const totalCost = state.runs.reduce((total, run) => {
  return total + run.codons.reduce((runTotal, codon) => {
    if (codon.status === "completed") return runTotal + codon.finalCost;
    if (codon.status === "failed") return runTotal + codon.partialCost;
    if (codon.status === "running") return runTotal + codon.currentCost;
    return runTotal;
  }, 0);
}, 0);
"""

FIND_RUNNING_CODON = """\
const currentRun = state.runs.find(r => r.runId === state.currentRunId);
const runningCodon = currentRun?.codons.find(
  c => !["completed", "failed", "skipped"].includes(c.status)
);
"""

LAST_SUCCESS = """\
const completedCodons = currentRun?.codons.filter(c => c.status === "completed") ?? [];
const lastSuccess = completedCodons[completedCodons.length - 1];
const checkpoint = lastSuccess?.completionCheckpoint;
"""

COST_OF_CURRENT_RUN = """\
const currentRun = state.runs.find(r => r.runId === state.currentRunId);

const totalCost = currentRun?.codons.reduce((total, codon) => {
  let codonCost = 0;
  switch (codon.status) {
    case "completed":
      codonCost = codon.finalCost ?? 0;
      break;
    case "failed":
    case "skipped":
      codonCost = codon.partialCost ?? 0;
      break;
    case "running":
    case "completing-sentinels":
      codonCost = codon.currentCost ?? 0;
      break;
  }
  const sentinelCost = codon.sentinels?.totalCost ?? 0;
  return total + codonCost + sentinelCost;
}, 0) ?? 0;
"""

WHY_IT_FAILED = """\
const failedCodon = currentRun?.codons.find(c => c.status === "failed");
if (failedCodon) {
  console.log(`Failed during: ${failedCodon.failedDuring}`);
  console.log(`Reason: ${failedCodon.failureReason.message}`);
  console.log(`Retriable: ${failedCodon.failureReason.retriable}`);
  console.log(`Exit code: ${failedCodon.exitCode}`);
}
"""

RIG_WITH_ARCHIVE = """\
{
  "rigSetup": [
    {
      "type": "copy",
      "copy": { "from": "./templates", "to": "src" },
      "archiveOnSuccess": true
    }
  ]
}
"""
