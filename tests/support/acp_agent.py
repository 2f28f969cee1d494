"""A stand-in for an agent that speaks ACP, written with the SDK's agent side.

It runs as a program without a model. The words on its command line are its actions, in order, so
that each test shows the behaviour that it is about. It writes the messages that it received to
`heard.jsonl`, in its working directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import acp
from acp import schema
from acp.exceptions import RequestError

MEBIBYTE = 1024 * 1024
BEGAN = "began.txt"


class StandIn:
    """An agent driven by words: first its capabilities, then its actions in a turn."""

    def __init__(self, words: list[str]) -> None:
        self._words = words
        self._peer: Any = None
        self._session = ""
        self._is_cancelled = asyncio.Event()
        self._is_authenticated = False

    def on_connect(self, conn: Any) -> None:
        self._peer = conn

    # --- before a turn -------------------------------------------------------------------------

    async def initialize(self, **given: Any) -> schema.InitializeResponse:
        self._note("initialize", given)
        if "silent" in self._words:
            await asyncio.Event().wait()

        capabilities = schema.SessionCapabilities()
        if "can-resume" in self._words:
            capabilities.resume = schema.SessionResumeCapabilities()

        if "can-fork" in self._words:
            capabilities.fork = schema.SessionForkCapabilities()

        return schema.InitializeResponse(
            protocol_version=9 if "protocol-9" in self._words else acp.PROTOCOL_VERSION,
            agent_capabilities=schema.AgentCapabilities(
                load_session="can-load" in self._words, session_capabilities=capabilities
            ),
            auth_methods=[
                schema.AuthMethodAgent(id="oauth", name="In a browser"),
                schema.EnvVarAuthMethod(
                    id="stand-in-key",
                    name="A key",
                    type="env_var",
                    vars=[schema.AuthEnvVar(name="STAND_IN_KEY")],
                ),
            ],
        )

    async def authenticate(self, method_id: str, **_: Any) -> schema.AuthenticateResponse:
        self._note("authenticate", {"method": method_id})
        self._is_authenticated = True
        return schema.AuthenticateResponse()

    async def new_session(self, **given: Any) -> schema.NewSessionResponse:
        self._note("new", {"cwd": given["cwd"], "servers": _plain(given.get("mcp_servers"))})
        self._demand_authentication()
        self._session = "session-1"
        return schema.NewSessionResponse(session_id=self._session, **self._offer())

    async def load_session(self, session_id: str, **_: Any) -> schema.LoadSessionResponse:
        self._note("load", {"session": session_id})
        self._demand_authentication()
        self._session = session_id
        await self._say("agent_message_chunk", "an old answer")
        if "late-history" in self._words:
            asyncio.get_running_loop().call_later(0.2, self._later, "an older answer")

        return schema.LoadSessionResponse(**self._offer())

    async def resume_session(self, session_id: str, **_: Any) -> schema.ResumeSessionResponse:
        self._note("resume", {"session": session_id})
        self._session = session_id
        return schema.ResumeSessionResponse(**self._offer())

    async def fork_session(self, session_id: str, **_: Any) -> schema.ForkSessionResponse:
        self._note("fork", {"session": session_id})
        self._session = "session-2"
        return schema.ForkSessionResponse(session_id=self._session, **self._offer())

    async def set_session_mode(self, mode_id: str, **_: Any) -> schema.SetSessionModeResponse:
        self._note("mode", {"mode": mode_id})
        return schema.SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, value: Any, **_: Any
    ) -> schema.SetSessionConfigOptionResponse:
        self._note("option", {config_id: value})
        return schema.SetSessionConfigOptionResponse(config_options=self._options())

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise RequestError.method_not_found(method)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        pass

    def _later(self, words: str) -> None:
        content = {"type": "text", "text": words}
        update = {"sessionUpdate": "agent_message_chunk", "content": content}
        params = {"sessionId": self._session, "update": update}
        _put(1, {"jsonrpc": "2.0", "method": "session/update", "params": params})

    def _demand_authentication(self) -> None:
        if "needs-key" in self._words and not self._is_authenticated:
            raise RequestError.auth_required()

    def _offer(self) -> dict[str, Any]:
        modes = schema.SessionModeState(
            current_mode_id="careful",
            available_modes=[
                schema.SessionMode(id="careful", name="Careful"),
                schema.SessionMode(id="bold", name="Bold"),
            ],
        )
        return {"modes": modes, "config_options": self._options()}

    def _options(self) -> list[Any]:
        models = [
            schema.SessionConfigSelectOption(value=name, name=name)
            for name in ("maker/small", "maker/large")
        ]
        return [
            schema.SessionConfigOptionSelect(
                id="llm",
                name="Model",
                category="model",
                type="select",
                current_value="maker/small",
                options=models,
            )
        ]

    # --- a turn --------------------------------------------------------------------------------

    async def prompt(self, prompt: list[Any], **_: Any) -> schema.PromptResponse:
        self._note("prompt", {"text": prompt[0].text, "variables": sorted(os.environ)})
        Path(BEGAN).touch()
        reason: Any = "end_turn"
        for word in self._words:
            name, _equals, argument = word.partition("=")
            match name:
                case "say":
                    for piece in argument.split("|"):
                        await self._say("agent_message_chunk", piece)
                case "think":
                    await self._say("agent_thought_chunk", argument)
                case "write":
                    await self._write(argument)
                case "remember":
                    _remember(argument)
                case "recall":
                    await self._say("agent_message_chunk", " ".join(_remembered()))
                case "announce":
                    await self._announce(argument)
                case "odd":
                    self._print_oddities()
                case "long":
                    self._print_long(int(argument) * MEBIBYTE)
                case "stop":
                    reason = argument
                case "wait-for-cancel":
                    await self._is_cancelled.wait()
                    reason = "cancelled"
                case "deaf":
                    await asyncio.Event().wait()
                case "cost":
                    await self._update(
                        schema.UsageUpdate(
                            session_update="usage_update",
                            used=10,
                            size=100,
                            cost=schema.Cost(amount=float(argument), currency="USD"),
                        )
                    )
                case "fail":
                    raise RequestError(-32603, "Internal error", {"details": argument})
                case "complain":
                    os.write(2, argument.encode() + b"\n")
                case "garbage":
                    os.write(1, b"no JSON at all\n")
                case "exit":
                    os._exit(int(argument))
                case "crash":
                    os.kill(os.getpid(), signal.SIGKILL)

        usage = schema.Usage(input_tokens=30, output_tokens=12, total_tokens=42)
        return schema.PromptResponse(stop_reason=reason, usage=usage)

    async def cancel(self, **_: Any) -> None:
        self._note("cancel", {})
        self._is_cancelled.set()

    async def _write(self, path: str) -> None:
        """Ask permission to write a file, without announcing the call first."""
        call = schema.ToolCallUpdate(
            tool_call_id=f"call-{path}",
            title=f"Writing {path}",
            kind="edit",
            status="pending",
            content=[acp.tool_diff_content(path, "new words\n", "")],
            locations=[schema.ToolCallLocation(path=path)],
        )
        options = [
            schema.PermissionOption(option_id="always", name="Always", kind="allow_always"),
            schema.PermissionOption(option_id="once", name="Once", kind="allow_once"),
            schema.PermissionOption(option_id="never", name="No", kind="reject_once"),
        ]
        answer = await self._peer.request_permission(
            options=options, session_id=self._session, tool_call=call
        )
        self._note("permission", _plain(answer.outcome))
        chosen = getattr(answer.outcome, "option_id", None)
        if chosen == "once":
            Path(path).write_text("new words\n")

        await self._update(
            acp.update_tool_call(
                call.tool_call_id, status="completed" if chosen == "once" else "failed"
            )
        )

    async def _announce(self, path: str) -> None:
        """Tell the client to write, as OpenCode does whatever the client offers."""
        try:
            await self._peer.write_text_file(session_id=self._session, path=path, content="x")
            await self._say("agent_message_chunk", "taken note of")
        except RequestError as error:
            await self._say("agent_message_chunk", f"error {error.code}")

    def _print_oddities(self) -> None:
        """Print lines that no agent should print, and some that a later version may."""
        update: dict[str, Any] = {"sessionId": self._session}
        for odd in (
            b"",
            b"{half",
            b"5",
            b"[]",
            b"null",
            b'{"jsonrpc":"2.0"}',
            b'{"jsonrpc":"2.0","id":{},"result":1}',
            b'{"jsonrpc":"2.0","id":999,"error":"bad"}',
            b'{"jsonrpc":"2.0","method":5}',
            b'{"jsonrpc":"2.0","method":"session/update","params":[1]}',
            b'{"jsonrpc":"2.0","method":"session/update","params":{"update":7}}',
            b'{"jsonrpc":"2.0","method":"session/tomorrow","params":{}}',
            b'{"jsonrpc":"2.0","id":"x","method":"terminal/create","params":{}}',
            b'{"jsonrpc":"2.0","id":77,"method":"session/request_permission","params":{}}',
            b'{"a":' * 5000,
            b'{"jsonrpc":"2.0","method":"x","params":{"n":' + b"9" * 5000 + b"}}",
            b"\xff\xfe",
        ):
            os.write(1, odd + b"\n")

        for strange in (
            {"sessionUpdate": "of_tomorrow", "content": 3},
            {"sessionUpdate": "tool_call", "toolCallId": 7, "title": None, "rawInput": [1]},
            {"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": {}},
            {"sessionUpdate": [], "content": 3},
            {"sessionUpdate": "agent_message_chunk", "content": "no block"},
            {"sessionUpdate": "usage_update", "cost": {"amount": "much", "currency": "USD"}},
        ):
            params = update | {"update": strange}
            _put(1, {"jsonrpc": "2.0", "method": "session/update", "params": params})

    def _print_long(self, length: int) -> None:
        """Report a tool's result of a given number of bytes."""
        done = {
            "sessionUpdate": "tool_call_update",
            "toolCallId": "long",
            "title": "Long",
            "kind": "read",
            "status": "completed",
            "content": [{"type": "content", "content": {"type": "text", "text": "x" * length}}],
        }
        params = {"sessionId": self._session, "update": done}
        _put(1, {"jsonrpc": "2.0", "method": "session/update", "params": params})

    async def _say(self, kind: str, text: str) -> None:
        build = acp.update_agent_message_text
        if kind == "agent_thought_chunk":
            build = acp.update_agent_thought_text  # type: ignore[assignment]

        await self._update(build(text))

    async def _update(self, update: Any) -> None:
        await self._peer.session_update(session_id=self._session, update=update)

    def _note(self, what: str, given: dict[str, Any]) -> None:
        with open("heard.jsonl", "a") as file:
            file.write(json.dumps({what: _plain(given)}) + "\n")


def _remember(word: str) -> None:
    """Store a word where OpenCode keeps its sessions."""
    with contextlib.closing(sqlite3.connect(os.environ["OPENCODE_DB"])) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE IF NOT EXISTS said (word)")
        database.execute("INSERT INTO said VALUES (?)", (word,))
        database.commit()


def _remembered() -> list[str]:
    with contextlib.closing(sqlite3.connect(os.environ["OPENCODE_DB"])) as database:
        return [word for (word,) in database.execute("SELECT word FROM said")]


def _put(descriptor: int, message: dict[str, Any]) -> None:
    """Write all bytes directly, without the SDK."""
    os.set_blocking(descriptor, True)
    rest = memoryview(json.dumps(message).encode() + b"\n")
    while rest:
        rest = rest[os.write(descriptor, rest) :]

    os.set_blocking(descriptor, False)


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)

    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}

    return [_plain(each) for each in value] if isinstance(value, list) else value


def main() -> None:
    agent: Any = StandIn(sys.argv[1:])
    for word in sys.argv[1:]:
        if word.startswith("early-exit="):
            os.write(2, b"I cannot begin.\n")
            sys.exit(int(word.partition("=")[2]))

    run: Callable[..., Awaitable[None]] = acp.run_agent
    asyncio.run(run(agent, use_unstable_protocol=True))  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
