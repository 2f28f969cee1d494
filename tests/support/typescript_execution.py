"""Execution directories as the TypeScript Hankweave (0.4 to 0.12) leaves them, written by hand.

Two codons are planned, and the first has completed; the shadow repository is made with stock git.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import zstandard

from support.scripted_hank import codon, write_hank, writes

RUN = "1736000000000-x7a2b"
TIMES = [f"2025-01-04T12:00:{second:02}.000Z" for second in range(60)]
TOKENS = {"inputTokens": 1, "outputTokens": 2, "cacheCreationTokens": 0, "cacheReadTokens": 0}
BODY = "# Notes\n" + 'She said "ä\u2028\x01\t/\\" \U0001f40d\n' * 400
"""A file of 4 KiB and more, with characters that JSON escapes and ones that it does not."""

Version = Literal["0.4", "0.10", "0.12"]


@dataclass(frozen=True, slots=True)
class TypescriptExecution:
    """The location of an execution, and its parts."""

    root: Path
    hank: Path
    data: Path
    sha: str
    """The checkpoint after the first codon."""
    journal: bytes
    """The events as they were first written."""

    @property
    def state_folder(self) -> Path:
        return self.root / ".hankweave"

    @property
    def events(self) -> Path:
        return self.state_folder / "events"

    def compress(self) -> None:
        """Compress as 0.11 does at the end of a run: bodies to `cas`, the rest to one file."""
        plain = self.events / "events.jsonl"
        pointers = b"\n".join(self._pointer(line) for line in self.journal.split(b"\n"))
        (self.events / "events.jsonl.zst").write_bytes(
            zstandard.ZstdCompressor(level=3).compress(pointers)
        )
        manifest = {
            "schemaVersion": 1,
            "dietVersion": 1,
            "eventSchemaVersion": 2,
            "totalEvents": self.journal.count(b"\n"),
            "originalSha256": hashlib.sha256(self.journal).hexdigest(),
            "originalBytes": len(self.journal),
            "segments": [{"id": 0, "events": self.journal.count(b"\n")}],
            "dietedAt": TIMES[50],
        }
        (self.events / "journal.meta.json").write_text(json.dumps(manifest))
        plain.unlink()

    def _pointer(self, line: bytes) -> bytes:
        event = json.loads(line) if line else {}
        content = event.get("data", {}).get("content")
        if event.get("type") != "file.updated" or content is None or len(content) < 4096:
            return line

        body = content.encode()
        sha = hashlib.sha256(body).hexdigest()
        folder = self.events / "cas" / sha[:2]
        folder.mkdir(parents=True, exist_ok=True)
        packed = zstandard.ZstdCompressor(level=19).compress(body)
        (folder / f"{sha}.zst").write_bytes(packed)
        reference = {"sha256": sha, "bytes": len(body), "encoding": "utf-8", "ref": "cas"}
        event["data"] = {
            ("contentRef" if key == "content" else key): reference if key == "content" else value
            for key, value in event["data"].items()
        }
        return stringified(event)


def stringified(value: object) -> bytes:
    """Encode as JSON.stringify does."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def write_execution(
    folder: Path, *, version: Version = "0.12", copy: bool = False
) -> TypescriptExecution:
    """Write an execution whose run ended after the first of two codons."""
    data = folder / "data"
    data.mkdir(parents=True)
    (data / "rows.csv").write_text("1,2\n")
    hank = write_hank(folder / "hank", codon("one"), codon("two", writes("b.txt", "b")))
    root = folder / "execution"
    tree = root / "agentRoot"
    state = root / ".hankweave"
    for path in (tree, root / "rigArchive", state / "events", state / "runs" / RUN):
        path.mkdir(parents=True)

    if copy:
        (tree / "read_only_data_source").mkdir()
        (tree / "read_only_data_source" / "rows.csv").write_text("1,2\n")
    else:
        (tree / "read_only_data_source").symlink_to(data)

    sha = _checkpoints(state, tree)
    (state / "state.json").write_text(json.dumps(_state(state, hank, sha), indent=2))
    meta = _meta(version, hank, data, copy=copy)
    (state / "execution-meta.json").write_text(json.dumps(meta, indent=2))
    journal = b"".join(stringified(event) + b"\n" for event in _events(sha, version))
    (state / "events" / "events.jsonl").write_bytes(journal)
    return TypescriptExecution(root, hank, data, sha, journal)


def _meta(version: Version, hank: Path, data: Path, *, copy: bool) -> dict[str, Any]:
    meta: dict[str, Any] = {
        "version": {"0.4": "1.0.0", "0.10": "1.1.0", "0.12": "1.2.0"}[version],
        "readOnlySourceDataPath": str(data),
        "readOnlySourceResolvedDataPath": str(data.resolve()),
        "dataHash": "0123456789ab",
        "linkType": "copy" if copy else "symlink",
        "createdAt": TIMES[0],
        "lastUsed": TIMES[0],
    }
    if version != "0.12":
        return meta

    environment = {"invocationMethod": "bun", "platform": "linux", "arch": "x64"}
    whole = {"$schema": "https://unpkg.com/hankweave@latest/schemas/hank.schema.json"}
    text = json.dumps(whole | json.loads(hank.read_text()), ensure_ascii=False, indent=2) + "\n"
    return meta | {
        "hankHash": hashlib.sha256(text.encode()).hexdigest(),
        "hankPath": str(hank),
        "hankweaveVersion": "0.12.0",
        "environment": {**environment, "osRelease": "6.1", "runtime": "1.2"},
    }


def _checkpoints(state: Path, tree: Path) -> str:
    """Create the shadow repository as Hankweave does, by calling git."""
    folder = state / "checkpoints"
    folder.mkdir()
    (folder / ".gitconfig").write_text(
        "[user]\n\tname = Hankweave Runtime\n\temail = froggie@southbridge.ai\n"
    )

    def git(*words: str) -> str:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder),
            "GIT_DIR": str(folder / ".hankweavecheckpoints"),
            "GIT_WORK_TREE": str(tree),
        }
        done = subprocess.run(
            ["git", *words], cwd=tree, env=environment, capture_output=True, check=True, text=True
        )
        return done.stdout.strip()

    git("init", "-q", "-b", "main")
    git("commit", "-q", "--allow-empty", "-m", "Initial checkpoint setup")
    git("checkout", "-q", "-b", f"run-{RUN}")
    (tree / "a.txt").write_text("a")
    git("add", "-f", "a.txt")
    body = f"Codon: Codon one\nStatus: completed\nTimestamp: {TIMES[9]}\nDuration: 9000ms"
    git("commit", "-q", "-m", f"completed:one [run:{RUN}] Codon one\n\n{body}")
    return git("rev-parse", "HEAD")


def _state(state: Path, hank: Path, sha: str) -> dict[str, Any]:
    plan = json.loads(hank.read_text())["hank"]
    done = {
        "codonId": "one",
        "codonDescription": "Codon one",
        "startTime": TIMES[0],
        "endTime": TIMES[9],
        "status": "completed",
        "claudePid": 4711,
        "claudeSessionId": "5e55-10",
        "claudeLogPath": f".hankweave/runs/{RUN}/one-claude.log",
        "finalCost": 0.25,
        "finalTokens": TOKENS,
        "assistantMessageCount": 1,
        "extensionCount": 0,
        "exitCode": 0,
        "resultMessageReceived": True,
        "completionCheckpoint": sha,
        "sentinels": {"executed": [], "totalCost": 0},
    }
    run = {
        "runId": RUN,
        "runFolder": str(state / "runs" / RUN),
        "gitBranch": f"run-{RUN}",
        "startingConditions": {"type": "fresh"},
        "codons": [done],
        "status": "completed",
        "startTime": TIMES[0],
        "endTime": TIMES[10],
        "serverPid": 4710,
    }
    model = {"providerId": "anthropic", "modelId": "claude-sonnet", "name": "Sonnet", "cost": {}}
    entries = [
        {"codonId": step["id"], "codon": step | {"model": model}, "index": index}
        for index, step in enumerate(plan)
    ]
    return {"runs": [run], "currentRunId": None, "executionPlan": entries}


def _events(sha: str, version: Version) -> Sequence[Mapping[str, Any]]:
    """Return the events: one of each kind that matters to a reader."""
    file: dict[str, Any] = {"path": "a.txt", "filename": "a.txt", "content": BODY}
    file |= {"action": "created"}
    entries: list[tuple[str, dict[str, Any]]] = [
        ("info", {"message": "Starting"}),
        (
            "state.transition",
            {
                "transitionType": "RunStarted",
                "runId": RUN,
                "transition": {"type": "RunStarted", "data": {"runId": RUN}},
                "resultingState": {
                    "currentRunId": RUN,
                    "runCount": 1,
                    "totalCost": 0,
                    "currentRunCost": 0,
                },
            },
        ),
        (
            "codon.started",
            {
                "codonId": "one",
                "codonName": "Codon one",
                "sessionId": "5e55-10",
                "startTime": TIMES[1],
            },
        ),
        ("file.updated", file),
        (
            "codon.extended",
            {
                "codonId": "one",
                "codonName": "Codon one",
                "extensionNumber": 1,
                "exhaustWithPrompt": "More",
                "cumulativeTokens": TOKENS,
                "cumulativeCost": 0.1,
            },
        ),
        ("from.a.later.version", {"codonId": "one"}),
        (
            "codon.completed",
            {
                "codonId": "one",
                "success": True,
                "cost": 0.25,
                "duration": 9000,
                "exitStatus": {"type": "success"},
            },
        ),
    ]
    return [
        {"id": f"{version}-{number}", "timestamp": TIMES[number], "type": kind, "data": data}
        for number, (kind, data) in enumerate(entries)
    ]
