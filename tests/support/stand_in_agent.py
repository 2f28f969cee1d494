#!/usr/bin/env python3
"""A stand-in for Claude Code: same arguments, same lines, same files.

It talks to a model over HTTP, has four tools, waits for hooks before it calls one, and resumes and
forks conversations from a transcript of its own. It is unrealistic in three ways: it asks no
permission, retries only once, and does not stream.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Message = dict[str, Any]

TOOLS = [
    {
        "name": "Write",
        "description": "Writes a file.",
        "input_schema": {
            "type": "object",
            "properties": {"file_path": {"type": "string"}, "content": {"type": "string"}},
            "required": ["file_path", "content"],
        },
    },
    {
        "name": "Read",
        "description": "Read a file.",
        "input_schema": {
            "type": "object",
            "properties": {"file_path": {"type": "string"}},
            "required": ["file_path"],
        },
    },
    {
        "name": "Edit",
        "description": "Replace a text in a file.",
        "input_schema": {
            "type": "object",
            "properties": {
                "file_path": {"type": "string"},
                "old_string": {"type": "string"},
                "new_string": {"type": "string"},
            },
            "required": ["file_path", "old_string", "new_string"],
        },
    },
    {
        "name": "Bash",
        "description": "Runs a command.",
        "input_schema": {
            "type": "object",
            "properties": {"command": {"type": "string"}},
            "required": ["command"],
        },
    },
]


class Refused(Exception):
    """The model's provider did not answer."""


class Overloaded(Refused):
    """A later request may succeed."""


def main() -> None:
    if "--version" in sys.argv:
        sys.stdout.write("3.0.0 (a stand-in)\n")
        return

    asked = _arguments()
    session = asked.session_id or asked.resume or str(uuid.uuid4())
    known = _read(asked.resume, asked.resume_session_at) if asked.resume else []
    transcript = _transcript(session)
    transcript.parent.mkdir(parents=True, exist_ok=True)
    transcript.write_text("".join(f"{json.dumps(entry)}\n" for entry in known))
    _emit({"type": "system", "subtype": "init", "session_id": session, "model": asked.model})
    conversation = [entry["message"] for entry in known]
    try:
        text = _work(conversation, transcript, asked)
    except (Refused, OSError) as error:
        _result(session, f"API Error: {error}", is_error=True)
        sys.exit(1)

    _result(session, text, is_error=False)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("--resume", "--resume-session-at", "--session-id", "--input-format"):
        parser.add_argument(name)

    parser.add_argument("--model")
    return parser.parse_known_args()[0]


def _work(conversation: list[Message], transcript: Path, asked: argparse.Namespace) -> str:
    text, hooks = _input(asked.input_format)
    prompt = {"role": "user", "content": [{"type": "text", "text": text}]}
    _add(conversation, transcript, prompt)
    while True:
        answer = _ask(asked.model, conversation)
        message = {"role": "assistant", "content": answer["content"]}
        known_as = _add(conversation, transcript, message)
        _emit({"type": "assistant", "message": answer, "uuid": known_as})
        if answer["stop_reason"] == "refusal":
            raise Refused("the model refused, by its provider's usage policy.")

        calls = [block for block in answer["content"] if block["type"] == "tool_use"]
        if not calls:
            return "".join(block.get("text", "") for block in answer["content"])

        back = {"role": "user", "content": [_done(call, hooks) for call in calls]}
        _emit({"type": "user", "message": back, "uuid": _add(conversation, transcript, back)})


def _input(form: str | None) -> tuple[str, list[str]]:
    """Return the prompt, and the ids of the hooks to wait for before a tool is called."""
    if form != "stream-json":
        return sys.stdin.read(), []

    hooks: list[str] = []
    while True:
        message = json.loads(sys.stdin.readline())
        if message["type"] == "user":
            content = message["message"]["content"]
            return content if isinstance(content, str) else content[0]["text"], hooks

        for hook in message.get("request", {}).get("hooks", {}).get("PreToolUse", []):
            hooks += hook["hookCallbackIds"]


def _wait_for(hook: str, call: Message) -> None:
    """Wait for the answer of a hook, and ignore it: this program asks no permission."""
    about = {"tool_name": call["name"], "tool_input": call["input"], "tool_use_id": call["id"]}
    request = {"subtype": "hook_callback", "callback_id": hook, "input": about}
    _emit({"type": "control_request", "request_id": call["id"], "request": request})
    while json.loads(sys.stdin.readline()).get("type") != "control_response":
        pass


def _ask(model: str, conversation: list[Message]) -> Message:
    body = {"model": model, "max_tokens": 1000, "messages": conversation, "tools": TOOLS}
    try:
        return _send(body)
    except Overloaded:
        return _send(body)


def _send(body: Message) -> Message:
    request = urllib.request.Request(
        os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages",
        json.dumps(body).encode(),
        {"content-type": "application/json", "x-api-key": os.environ["ANTHROPIC_API_KEY"]},
    )
    try:
        with urllib.request.urlopen(request) as response:
            answer: Message = json.load(response)
    except urllib.error.HTTPError as error:
        kind = Overloaded if error.code == 529 else Refused
        raise kind(f"{error.code} {json.load(error)['error']['message']}") from error
    except (http.client.HTTPException, ValueError) as error:
        raise Refused(f"a malformed response: {error}") from error

    return answer


def _done(call: Message, hooks: list[str]) -> Message:
    for hook in hooks:
        _wait_for(hook, call)

    try:
        content, is_error = _performed(call["name"], call["input"])
    except (OSError, ValueError) as error:
        content, is_error = str(error), True

    result = {"type": "tool_result", "tool_use_id": call["id"], "content": content}
    return {**result, "is_error": True} if is_error else result


def _performed(tool: str, arguments: Mapping[str, str]) -> tuple[str, bool]:
    """Execute a tool; return its output and whether it failed."""
    if tool == "Bash":
        ran = subprocess.run(arguments["command"], shell=True, capture_output=True, text=True)
        return ran.stdout + ran.stderr, ran.returncode != 0

    path = Path(arguments["file_path"])
    if tool == "Read":
        return path.read_text(), False

    if tool == "Write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(arguments["content"])
        return "The file was written.", False

    text = path.read_text()
    if arguments["old_string"] not in text:
        raise ValueError("String to replace not found in file.")

    path.write_text(text.replace(arguments["old_string"], arguments["new_string"], 1))
    return "The file was edited.", False


def _transcript(session: str) -> Path:
    home = os.environ.get("CLAUDE_CONFIG_DIR") or os.path.expanduser("~/.claude")
    folder = re.sub(r"[^a-zA-Z0-9]", "-", os.getcwd())
    return Path(home, "projects", folder, f"{session}.jsonl")


def _read(session: str, last: str | None) -> list[Message]:
    known: list[Message] = []
    for line in _transcript(session).read_text().splitlines():
        known.append(json.loads(line))
        if last is not None and known[-1]["uuid"] == last:
            break

    return known


def _add(conversation: list[Message], transcript: Path, message: Message) -> str:
    conversation.append(message)
    known_as = str(uuid.uuid4())
    with transcript.open("a") as file:
        file.write(json.dumps({"uuid": known_as, "message": message}) + "\n")

    return known_as


def _result(session: str, text: str, *, is_error: bool) -> None:
    result = {"subtype": "success", "is_error": is_error, "result": text, "session_id": session}
    _emit({"type": "result", **result})


def _emit(message: Message) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
