"""Report an agent's work as it happens: one JSON object per line on stdout.

The lines have the format of Claude's `stream-json`, so that a run looks the same whether a model or
a program does the work:

    system     the agent and its session
    assistant  a message, or a tool call
    user       the result of a tool call
    result     the outcome and the cost

A tool in this directory uses it like this:

    with Transcript("observe") as transcript:
        transcript.say("Reading the data.")
        transcript.write("notes/profile.json", text)

Tokens are estimated at four characters each, and the cost is that of so many tokens at $3 (input),
$0.30 (cache read) and $15 (output) per million. No model is called and nothing is spent; the
numbers make costs and budgets visible without an API key.

With `HANKWEAVE_EXAMPLE_OVERLOAD=1` the first attempt of a codon with retries fails as if the model
had been overloaded, to show the effect of `"onFailure": "retry"`.

`HANKWEAVE_EXAMPLE_PACE` is the approximate number of seconds that a codon takes (default 0.3): more
for a person who watches, 0 for a test. Hankweave passes the server's `HANKWEAVE_X` to its agents as
`X`, so both names are read.
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

Outcome = TypeVar("Outcome")

CHARACTERS_PER_TOKEN = 4
DOLLARS_PER_INPUT_TOKEN = 3e-6
DOLLARS_PER_REREAD_TOKEN = 0.3e-6
DOLLARS_PER_OUTPUT_TOKEN = 15e-6
USAGE = (
    "input_tokens",
    "output_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
)
PAUSES_PER_CODON = 6  # about as many messages as one of our tools sends


class Overloaded(Exception):
    """The answer of an overloaded model."""


class Transcript:
    """The messages of one agent, printed during the work."""

    def __init__(self, task: str) -> None:
        self.agent_root = Path(os.environ.get("HANKWEAVE_AGENT_ROOT", ".")).absolute()
        run = os.environ.get("HANKWEAVE_RUN_ID", "by hand")
        self.session_id = os.environ.get("HANKWEAVE_RESUME_SESSION") or str(
            _named(f"{run}, {task}")
        )
        self._task = task
        self._prompt = (
            "" if sys.stdin.isatty() else sys.stdin.buffer.read().decode(errors="replace")
        )
        self._started = time.monotonic()
        self._pause = _seconds_per_codon() / PAUSES_PER_CODON
        self._messages = 0
        self._last_words = ""
        self._unread = _tokens(self._prompt)
        self._context = 0
        self._usage = dict.fromkeys(USAGE, 0)

    def __enter__(self) -> Transcript:
        _emit(
            type="system",
            subtype="init",
            session_id=self.session_id,
            cwd=str(self.agent_root),
            tools=["Read", "Write", "Validate"],
            model="scripted",
            permissionMode="bypassPermissions",
            apiKeySource="none",
            mcp_servers=[],
        )
        return self

    def be_overloaded_once(self) -> None:
        """Fail the first attempt if requested; the marker file is not in any checkpoint."""
        mark = self.agent_root / ".overloaded-once"
        if mark.exists():
            mark.unlink()
        elif _told("EXAMPLE_OVERLOAD"):
            mark.touch()
            raise Overloaded("the model is busy, so this is tried again (a demonstration)")

    def say(self, text: str) -> None:
        """Print a message; the last one is also the result."""
        self._last_words = text
        self._assistant({"type": "text", "text": text})

    def write(self, path: str, content: str) -> None:
        """Write a file of the work tree, as a tool call with a result.

        One that has the content already is left alone: it would be empty for a moment.
        """
        target = self.agent_root / path

        def act() -> str:
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.is_file() or target.read_text(encoding="utf-8") != content:
                target.write_text(content, encoding="utf-8")

            return f"Wrote {len(content.encode()):,} bytes to {path}"

        self.use("Write", {"file_path": str(target), "content": content}, act)

    def use(
        self,
        tool: str,
        arguments: dict[str, Any],
        act: Callable[[], Outcome],
        answer: Callable[[Outcome], str] = str,
    ) -> Outcome:
        """Print a tool call, run it, print its result and return it."""
        tool_use_id = f"toolu_{self._next_id()}"
        self._assistant({"type": "tool_use", "id": tool_use_id, "name": tool, "input": arguments})
        outcome = act()
        told = answer(outcome)
        self._unread += _tokens(told)
        content = {"type": "tool_result", "tool_use_id": tool_use_id, "content": told}
        _emit(
            type="user",
            message={"role": "user", "content": [content]},
            session_id=self.session_id,
        )
        return outcome

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        """Print the result line; a failure is also raised again, so that the exit code is 1."""
        _emit(
            type="result",
            subtype="success" if problem is None else "error",
            is_error=problem is not None,
            duration_ms=round((time.monotonic() - self._started) * 1000),
            duration_api_ms=0,
            num_turns=self._messages,
            result=self._last_words if problem is None else f"{type(problem).__name__}: {problem}",
            session_id=self.session_id,
            total_cost_usd=_cost(self._usage),
            usage=self._usage,
        )

    def _assistant(self, content: dict[str, Any]) -> None:
        time.sleep(self._pause)
        message_id = self._next_id()
        self._messages += 1
        usage = {
            "input_tokens": self._unread,
            "output_tokens": _tokens(json.dumps(content)),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": self._context,
        }
        self._context += usage["input_tokens"] + usage["output_tokens"]
        self._unread = 0
        for name, tokens in usage.items():
            self._usage[name] += tokens

        _emit(
            type="assistant",
            message={
                "id": f"msg_{message_id}",
                "type": "message",
                "role": "assistant",
                "model": "scripted",
                "content": [content],
                "usage": usage,
            },
            session_id=self.session_id,
        )

    def _next_id(self) -> str:
        return _named(f"{self.session_id}, {self._task}, message {self._messages}").hex[:24]


def _emit(**line: Any) -> None:
    print(json.dumps(line), flush=True)


def _named(what: str) -> uuid.UUID:
    """Return an id derived from a name, deterministic for each run."""
    return uuid.uuid5(uuid.NAMESPACE_OID, f"hankweave example, {what}")


def _seconds_per_codon() -> float:
    return float(_told("EXAMPLE_PACE") or "0.3")


def _told(name: str) -> str:
    return os.environ.get(f"HANKWEAVE_{name}") or os.environ.get(name) or ""


def _tokens(text: str) -> int:
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def _cost(usage: dict[str, int]) -> float:
    return round(
        usage["input_tokens"] * DOLLARS_PER_INPUT_TOKEN
        + usage["cache_read_input_tokens"] * DOLLARS_PER_REREAD_TOKEN
        + usage["output_tokens"] * DOLLARS_PER_OUTPUT_TOKEN,
        6,
    )
