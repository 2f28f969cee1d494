"""Play a script and print it as Claude Code would: the scripted agent's program.

A script is `{"steps": [step, …]}`; a step is an object with one of these names:

| step | effect |
|---|---|
| `{"say": text}`, `{"think": text}` | a message of that text, or of that thought |
| `{"write": {"path", "text"}}`, `{"append": {"path", "text"}}` | a file is written, or extended |
| `{"delete": path}` | a file is removed |
| `{"run": command}` | a shell runs it; its output is the tool's result |
| `{"wait": seconds}`, `{"waitForFile": path}` | nothing, until time has passed or the file exists |
| `{"ask": {"tool", "input"?}}` | asks for permission to call that tool, and waits for the answer |
| `{"recall": words}` | a message of the words and the number of prompts and steps in its session |
| `{"cost": usd}` | is added to the cost that the result reports |
| `{"stderr": text}`, `{"raw": line}` | a line is printed verbatim |
| `{"fail": {"message", "exitCode"?}}` | an error result, and exit |
| `{"limit": {"resetsIn"?, "resetsAt"?}}` | a usage limit, and exit; a resumed session goes on |
| `{"exit": code}`, `{"crash": signal}` | immediate exit without a result |

Every file step is a tool call and its result. With `{"steps": …, "asks": true}`, or if the codon
has permissions, the player asks for permission before each one. A refused step is skipped; with
`"onRefusal": "fail"` the player then fails with the message of the refusal. Paths are relative to
the work tree. Ids and token counts derive from run, codon and words, so two runs of a script print
the same. After the last step comes a successful result, whose text is the last message. Standard
library only, as `own_program` requires.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TextIO

SCRIPT = "HANKWEAVE_SCRIPT"
"""The environment variable with the path of a script file."""

SESSIONS = "HANKWEAVE_AGENT_SESSIONS"
"""The environment variable with the folder of sessions; without it, nothing is remembered."""

GOES_ON = "HANKWEAVE_AGENT_GOES_ON"
"""The environment variable that is set to continue an interrupted script. Steps that the session
has recorded since the newest prompt are not played again, up to the message that the variable
names, or all of them if it is not among them."""

ASKS = "HANKWEAVE_AGENT_ASKS"
"""The environment variable that makes it ask for permission, whatever its script says."""

WAITS = "HANKWEAVE_AGENT_WAITS"
"""The environment variable that makes it wait before each step that changes files, as Claude Code
does for a hook. It does not ask for permission then."""

_POLL = 0.01
_BAD_SCRIPT = 2


def main(_arguments: list[str]) -> int:
    prompt = str(json.loads(sys.stdin.readline())["message"]["content"])
    codon = os.environ.get("HANKWEAVE_CODON_ID", "codon")
    player = Player(prompt, codon)
    continues = os.environ.get(GOES_ON)
    played = None if continues is None else player.steps_played(continues)
    player.begin(anew=played is None)
    try:
        script = _script_for(prompt, codon)
        player.asks = bool(script.get("asks")) or ASKS in os.environ
        player.waits = WAITS in os.environ
        player.gives_up = script.get("onRefusal") == "fail"
        for step in script["steps"][played:]:
            player.play(step)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        player.fail({"message": f"The script is invalid: {error!r}", "exitCode": _BAD_SCRIPT})

    player.end(player.last_words, is_error=False)
    return 0


def _script_for(prompt: str, codon: str) -> dict[str, Any]:
    if prompt.lstrip().startswith("{") and '"steps"' in prompt:
        return dict(json.loads(prompt))

    if file := os.environ.get(SCRIPT):
        return dict(json.loads(Path(file).read_text(encoding="utf-8")))

    return _default_script(prompt, codon)


def _default_script(prompt: str, codon: str) -> dict[str, Any]:
    read = f"I have read the prompt of {codon}: {len(prompt.split())} words."
    note = f"# {codon}\n\n{prompt.strip()}\n"
    path = f"notes/{codon.replace('/', '-')}.md"
    return {"steps": [{"say": read}, {"write": {"path": path, "text": note}}]}


class Player:
    """One run of a script."""

    def __init__(self, prompt: str, codon: str) -> None:
        self._prompt_words = len(prompt.split())
        self._model = os.environ.get("HANKWEAVE_MODEL") or "scripted"
        self._session = os.environ.get("HANKWEAVE_RESUME_SESSION") or _session_of(codon)
        self._messages = 0
        self._output_words = 0
        self._cost = 0.0
        self._notices_read = 0
        self._questions = 0
        self._memory = _Memory(self._session)
        self._lines = len(self._memory.entries())
        """Number of lines of its conversation so far; a line's id contains its number."""
        self._step: str | None = None
        """The step that is being played and is not yet recorded."""
        self.last_words = "Done."
        """The text of its result: its last message, if there is one."""
        self.asks = False
        """If true, it asks for permission before each step that changes files."""
        self.waits = False
        """If true, it runs a hook before each step that changes files, and waits for the answer."""
        self.gives_up = False
        """If true, it fails when a step is refused."""
        self._steps: dict[str, Callable[[Any], None]] = {
            "say": self._send_text,
            "think": lambda text: self._message({"type": "thinking", "thinking": text}),
            "write": self._write,
            "append": self._append,
            "delete": self._delete,
            "run": self._run,
            "wait": time.sleep,
            "waitForFile": _wait_for_file,
            "ask": self._ask,
            "recall": self._report_memory,
            "cost": self._add_cost,
            "stderr": lambda text: _print(text, sys.stderr),
            "raw": lambda line: _print(line, sys.stdout),
            "fail": self.fail,
            "limit": self._fail_with_limit,
            "exit": os._exit,
            "crash": _crash,
        }

    def steps_played(self, until: str) -> int:
        """Return the number of steps since the newest prompt, up to a message if it is there."""
        return self._memory.steps_played(until)

    def begin(self, *, anew: bool) -> None:
        _emit(
            {
                "type": "system",
                "subtype": "init",
                "cwd": str(Path.cwd()),
                "session_id": self._session,
                "tools": ["Bash", "Edit", "Write"],
                "mcp_servers": [],
                "model": self._model,
                "permissionMode": "bypassPermissions",
                "apiKeySource": "none",
            }
        )
        if anew:
            self._memory.add({"prompt": self._prompt_words})

    def _send_text(self, text: str) -> None:
        self.last_words = text
        self._message({"type": "text", "text": text})

    def play(self, step: dict[str, Any]) -> None:
        self._read_notices()
        ((name, argument),) = step.items()
        self._step = name
        self._steps[name](argument)
        self._remember()

    def _remember(self) -> None:
        """Record the current step, before its result becomes visible."""
        if self._step is not None:
            self._memory.add({"step": self._step, "message": self._line_name()})
            self._step = None

    def _line_name(self) -> str:
        return f"{self._session}/{self._lines}"

    def _read_notices(self) -> None:
        """Acknowledge every new line in HANKWEAVE_NOTICES."""
        path = Path(os.environ.get("HANKWEAVE_NOTICES", ""))
        if not path.is_file():
            return

        lines = path.read_text(encoding="utf-8").splitlines()
        for line in lines[self._notices_read :]:
            notice = json.loads(line)
            _emit(
                {
                    "type": "system",
                    "subtype": "notice",
                    "session_id": self._session,
                    "operation_id": notice["operationId"],
                    "text": notice["text"],
                }
            )

        self._notices_read = len(lines)

    def fail(self, failure: dict[str, Any]) -> NoReturn:
        self.end(failure["message"], is_error=True)
        sys.exit(failure.get("exitCode", 1))

    def _fail_with_limit(self, limit: dict[str, float]) -> NoReturn:
        self._remember()
        resets_at = limit.get("resetsAt")
        if resets_at is None and "resetsIn" in limit:
            resets_at = time.time() + limit["resetsIn"]

        known = {} if resets_at is None else {"resetsAt": resets_at}
        info = {"status": "rejected", "rateLimitType": "five_hour"} | known
        _emit({"type": "rate_limit_event", "rate_limit_info": info})
        error = {"api_error_status": 429, "api_error": "usage_limit_reached"}
        self.end("You've hit your usage limit.", is_error=True, **error)
        sys.exit(1)

    def end(self, text: str, *, is_error: bool, **more: object) -> None:
        _emit(
            more
            | {
                "type": "result",
                "subtype": "error_during_execution" if is_error else "success",
                "is_error": is_error,
                "num_turns": self._messages,
                "result": text,
                "session_id": self._session,
                "total_cost_usd": round(self._cost, 6),
                "usage": _usage(self._prompt_words * self._messages, self._output_words),
            }
        )

    def _write(self, argument: dict[str, str]) -> None:
        path = Path(argument["path"])
        call = {"file_path": str(Path.cwd() / path), "content": argument["text"]}
        tool = self._call("Write", call)
        if self._is_refused("Write", call, tool):
            return

        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(argument["text"], encoding="utf-8")
        self._return(tool, f"File written: {path}")

    def _append(self, argument: dict[str, str]) -> None:
        path = Path(argument["path"])
        call = {
            "file_path": str(Path.cwd() / path),
            "old_string": "",
            "new_string": argument["text"],
        }
        tool = self._call("Edit", call)
        if self._is_refused("Edit", call, tool):
            return

        with path.open("a", encoding="utf-8") as file:
            file.write(argument["text"])

        self._return(tool, f"File extended: {path}")

    def _delete(self, path: str) -> None:
        call = {"command": f"rm {path}"}
        tool = self._call("Bash", call)
        if self._is_refused("Bash", call, tool):
            return

        Path(path).unlink()
        self._return(tool, f"File deleted: {path}")

    def _run(self, command: str) -> None:
        tool = self._call("Bash", {"command": command})
        if self._is_refused("Bash", {"command": command}, tool):
            return

        done = subprocess.run(
            command,
            shell=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        self._return(tool, done.stdout.decode(errors="replace"), is_error=done.returncode != 0)

    def _is_refused(self, name: str, argument: dict[str, str], tool: str) -> bool:
        """Ask or wait, if enabled; emit a refusal as the tool's result and return True."""
        refusal = None
        if self.asks:
            refusal = self._permission(name, argument)
        elif self.waits:
            self._run_hook(name, argument, tool)

        if refusal is not None:
            self._return(tool, refusal, is_error=True)
            if self.gives_up:
                self.fail({"message": refusal})

        return refusal is not None

    def _ask(self, question: dict[str, Any]) -> None:
        refusal = self._permission(question["tool"], question.get("input", {}))
        self._steps["say"](f"{question['tool']}: {refusal or 'allowed'}")

    def _permission(self, name: str, argument: dict[str, Any]) -> str | None:
        """Ask for permission and return the reason of a refusal; no answer is a refusal too."""
        question = {"subtype": "can_use_tool", "tool_name": name, "input": argument}
        answer = self._answer_to(question)
        if answer is None:
            return "There was no answer."

        return None if answer["behavior"] == "allow" else str(answer["message"])

    def _run_hook(self, name: str, argument: dict[str, Any], tool: str) -> None:
        hook = {
            "hook_event_name": "PreToolUse",
            "tool_name": name,
            "tool_input": argument,
            "tool_use_id": tool,
        }
        self._answer_to({"subtype": "hook_callback", "callback_id": "before-tool", "input": hook})

    def _answer_to(self, question: dict[str, Any]) -> dict[str, Any] | None:
        self._questions += 1
        request = f"request_{self._questions}"
        _emit({"type": "control_request", "request_id": request, "request": question})
        for line in sys.stdin:
            response = json.loads(line)["response"]
            if response["request_id"] == request:
                return dict(response["response"])

        return None

    def _report_memory(self, words: str) -> None:
        prompts, steps = self._memory.count("prompt"), self._memory.count("step")
        self._steps["say"](f"{words} {prompts} prompts and {steps} steps")

    def _add_cost(self, usd: float) -> None:
        self._cost += usd

    def _call(self, name: str, argument: dict[str, str]) -> str:
        tool = f"toolu_{self._messages + 1}"
        self._message({"type": "tool_use", "id": tool, "name": name, "input": argument})
        return tool

    def _return(self, tool: str, content: str, *, is_error: bool = False) -> None:
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": tool, "content": content}
        if is_error:
            block["is_error"] = True

        self._lines += 1
        self._remember()
        message = {"role": "user", "content": [block]}
        _emit({"type": "user", "message": message, "uuid": self._line_name()})

    def _message(self, block: dict[str, Any]) -> None:
        self._messages += 1
        self._lines += 1
        words = len(json.dumps(block).split())
        self._output_words += words
        _emit(
            {
                "type": "assistant",
                "message": {
                    "id": f"msg_{self._messages}",
                    "role": "assistant",
                    "model": self._model,
                    "content": [block],
                    "usage": _usage(self._prompt_words, words),
                },
                "session_id": self._session,
                "uuid": self._line_name(),
            }
        )


class _Memory:
    """The file of a session, with one line for each prompt and step."""

    def __init__(self, session: str) -> None:
        folder = os.environ.get(SESSIONS)
        self._path = None if folder is None else Path(folder, f"{session}.jsonl")

    def add(self, what: dict[str, Any]) -> None:
        if self._path is not None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
            with open(os.open(self._path, flags, 0o600), "a", encoding="utf-8") as file:
                file.write(json.dumps(what) + "\n")

    def count(self, kind: str) -> int:
        return sum(kind in entry for entry in self.entries())

    def steps_played(self, until: str) -> int:
        messages: list[str] = []
        for entry in self.entries():
            messages = [] if "prompt" in entry else [*messages, entry["message"]]

        return messages.index(until) + 1 if until in messages else len(messages)

    def entries(self) -> list[dict[str, Any]]:
        if self._path is None or not self._path.exists():
            return []

        return [json.loads(line) for line in self._path.read_text(encoding="utf-8").splitlines()]


def _session_of(codon: str) -> str:
    run = os.environ.get("HANKWEAVE_RUN_ID", "run")
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{run}/{codon}"))


def _usage(input_words: int, output_words: int) -> dict[str, int]:
    return {"input_tokens": input_words, "output_tokens": output_words}


def _wait_for_file(path: str) -> None:
    while not os.path.exists(path):
        time.sleep(_POLL)


def _crash(number: int | str) -> None:
    chosen = signal.Signals[number] if isinstance(number, str) else signal.Signals(number)
    os.kill(os.getpid(), chosen)


def _emit(message: dict[str, Any]) -> None:
    _print(json.dumps(message, ensure_ascii=False), sys.stdout)


def _print(line: str, stream: TextIO) -> None:
    stream.write(line + "\n")
    stream.flush()
