"""Hold the dialogue with an ACP agent: initialize, authenticate, session, mode, model, prompt.

The functions interpret an agent's answers: its capabilities, what it offers, and how a turn ended.
`Dialogue` sends the requests in order.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio
from acp.exceptions import RequestError
from acp.meta import PROTOCOL_VERSION

from hankweave_server.agents.acp.events import AcpTranslator
from hankweave_server.agents.acp.json_lines import (
    BridgeOrder,
    BridgeOutput,
    BridgeTools,
    Message,
    as_list,
    as_object,
    as_text,
)

_KEYS: Mapping[str, tuple[str, ...]] = {
    "gemini-api-key": ("GEMINI_API_KEY",),
    "vertex-ai": ("GOOGLE_API_KEY", "GOOGLE_CLOUD_PROJECT"),
    "openai-api-key": ("OPENAI_API_KEY",),
    "codex-api-key": ("CODEX_API_KEY",),
}
"""Non-interactive authentication methods, with variables of which one must be set."""

STOPPED = {
    "max_tokens": "The answer exceeded the model's output token maximum (max_tokens).",
    "max_turn_requests": "The agent stopped: it reached the limit of model requests per turn "
    "(max_turn_requests).",
    "refusal": "The model refused to continue (refusal).",
    "cancelled": "The agent's turn was cancelled.",
}
"""Messages for stop reasons of failed turns; the first matches what recognizes a full context."""

WORDLESS = "The turn ended without text or a tool call: perhaps the model refused this prompt."
"""The message for an empty turn; Gemini CLI reports nothing else for a blocked prompt."""


def resuming(abilities: Message, forks: bool) -> str:
    """Return the method that resumes an earlier session; empty if there is none."""
    within = as_object(abilities.get("sessionCapabilities"))
    if forks and isinstance(within.get("fork"), dict):
        return "session/fork"

    if isinstance(within.get("resume"), dict):
        return "session/resume"

    return "session/load" if abilities.get("loadSession") is True else ""


def fitting(methods: list[Any]) -> Iterator[str]:
    """Yield the authentication methods whose variables are set."""
    for each in methods:
        match each:
            case {"id": str() as name, "type": "env_var", "vars": [_, *_] as variables}:
                needed = [as_object(one) for one in variables]
                if all(_is_set(as_text(one.get("name"))) or one.get("optional") for one in needed):
                    yield name
            case {"id": str() as name} if any(_is_set(key) for key in _KEYS.get(name, ())):
                yield name


def _is_set(variable: str) -> bool:
    return bool(variable and os.environ.get(variable))


def unauthenticated(message: str, methods: list[Any]) -> str:
    """Return the message for an agent that no available method authenticates."""
    offered = ", ".join(named(methods, "id")) or "none"
    return (
        f"Not authenticated: {message} Set its key in the environment, or log in with the agent "
        f"itself first. Its authentication methods: {offered}."
    )


def option(offer: Message, category: str) -> Message:
    """Return the select option of a category from an agent's offer; empty if there is none."""
    for each in as_list(offer.get("configOptions")):
        match each:
            case {"category": str() as found, "type": "select"} if found == category:
                return dict(each)

    return {}


def options(offer: Message, category: str) -> list[str]:
    """Return the values of a setting, without their grouping."""
    values: list[str] = []
    for each in as_list(option(offer, category).get("options")):
        grouped = as_object(each).get("options")
        values += named(grouped if isinstance(grouped, list) else [each], "value")

    return values


def named(entries: Any, name: str) -> list[str]:
    """Return the non-empty texts of a field in a list of objects."""
    found = [as_text(as_object(each).get(name)) for each in as_list(entries)]
    return [each for each in found if each]


def match_of(wanted: str, offered: list[str]) -> str | None:
    """Return the model with that name, or the only one with that name at any provider."""
    if wanted in offered:
        return wanted

    same = [each for each in offered if each.rpartition("/")[2] == wanted]
    return same[0] if len(same) == 1 else None


def usage_of(answer: Message) -> Message:
    """Return the tokens of a turn, in the form of the protocol or of Gemini CLI."""
    usage = as_object(answer.get("usage"))
    if usage:
        return {
            "usage": {
                "input_tokens": usage.get("inputTokens"),
                "output_tokens": usage.get("outputTokens"),
                "cache_creation_input_tokens": usage.get("cachedWriteTokens"),
                "cache_read_input_tokens": usage.get("cachedReadTokens"),
            }
        }

    quota = as_object(as_object(answer.get("_meta")).get("quota"))
    counts = as_object(quota.get("token_count"))
    if not counts:
        return {}

    by_model = {
        as_text(each.get("model")): _in_camel(as_object(each.get("token_count")))
        for each in map(as_object, as_list(quota.get("model_usage")))
    }
    return {"usage": counts, "modelUsage": by_model}


def _in_camel(counts: Message) -> Message:
    return {"inputTokens": counts.get("input_tokens"), "outputTokens": counts.get("output_tokens")}


def cost_of(before: float | None, after: float | None) -> Message:
    """Return the cost of this conversation; the agent reports that of its whole session.

    Unknown for a resumed session without an earlier report; then the price of its tokens is used.
    """
    if before is None or after is None:
        return {}

    return {"total_cost_usd": max(after - before, 0.0)}


AUTHENTICATION_REQUIRED = -32000

_QUIET = 0.5
"""Seconds without an update after which the replay of a loaded session is complete."""

_LONGEST_REPLAY = 20.0
"""Seconds to wait for the replay of a loaded session at most."""

_SET_MODEL = "session/set_model"
"""No longer in the SDK; agents that follow an older draft know it and offer `models`."""


class Peer(Protocol):
    """The agent as a JSON-RPC peer; the SDK's `Connection` is one."""

    def send_request(self, method: str, params: Any = None) -> Awaitable[Any]: ...

    def send_notification(self, method: str, params: Any = None) -> Awaitable[None]: ...


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a dialogue."""

    success: bool
    text: str = ""
    spent: Message = field(default_factory=dict)
    """Usage and cost, as fields of a result line."""


class Dialogue:
    """The requests of one session with an ACP agent."""

    def __init__(
        self,
        order: BridgeOrder,
        peer: Peer,
        translator: AcpTranslator,
        output: BridgeOutput,
        began: Callable[[str, str], None],
    ) -> None:
        """Start; `began` is called with the session and its model before the prompt is sent."""
        self._order = order
        self._peer = peer
        self._translator = translator
        self._output = output
        self._began = began
        self._session: str | None = None
        self._is_prompting = False
        self._giving_up = anyio.CancelScope()
        self.doing = "initialize"
        """The method whose answer is pending."""

    async def run(self) -> Ended:
        """Run the whole dialogue. Raises RequestError, and ConnectionError if the agent ends."""
        with self._giving_up:
            abilities, methods = await self._initialize()
            if self._order.resume is not None and not resuming(abilities, self._order.forks):
                return Ended(
                    False,
                    "This agent cannot continue an earlier session: it supports neither "
                    "session/load nor session/resume. Set continuationMode to fresh.",
                )

            offer = await self._open(abilities, methods)
            if not self._session:
                return Ended(False, f"The agent answered {self.doing} without a session.")

            if problem := await self._set_mode(offer):
                return Ended(False, problem)

            self._began(self._session, await self._set_model(offer))
            return await self._prompt()

        return Ended(False, STOPPED["cancelled"])

    async def cancel(self) -> None:
        """Ask the agent to end its turn; before the prompt, end the dialogue at once."""
        if self._session is not None and self._is_prompting:
            with contextlib.suppress(ConnectionError):
                await self._peer.send_notification("session/cancel", {"sessionId": self._session})
        else:
            self._giving_up.cancel()

    # --- before the prompt ---------------------------------------------------------------------

    async def _initialize(self) -> tuple[Message, list[Any]]:
        files = {"readTextFile": False, "writeTextFile": False}
        answer = await self._ask(
            "initialize",
            protocolVersion=PROTOCOL_VERSION,
            clientCapabilities={"fs": files, "terminal": False, "auth": {"terminal": False}},
            clientInfo={"name": "hankweave", "title": "Hankweave", "version": "1"},
        )
        if answer.get("protocolVersion") != PROTOCOL_VERSION:
            spoken = answer.get("protocolVersion")
            raise RequestError(0, f"The agent speaks ACP {spoken!r}, not {PROTOCOL_VERSION}.")

        methods = answer.get("authMethods")
        abilities = as_object(answer.get("agentCapabilities"))
        return abilities, methods if isinstance(methods, list) else []

    async def _open(self, abilities: Message, methods: list[Any]) -> Message:
        """Start or resume the session, authenticate if required; return what the agent offers."""
        try:
            return await self._begin(abilities)
        except RequestError as error:
            if error.code != AUTHENTICATION_REQUIRED:
                raise

            method = next(fitting(methods), None)
            if method is None:
                raise RequestError(error.code, unauthenticated(str(error), methods)) from error

        await self._ask("authenticate", methodId=method)
        return await self._begin(abilities)

    async def _begin(self, abilities: Message) -> Message:
        resumed = self._order.resume
        here = {"cwd": self._order.work_tree, "mcpServers": [*map(_offered, self._order.tools)]}
        if resumed is None:
            offer = await self._ask("session/new", **here)
        else:
            method = resuming(abilities, self._order.forks)
            self._translator.is_replay = True
            offer = {"sessionId": resumed} | await self._ask(method, sessionId=resumed, **here)
            if method == "session/load":
                await self._replay_ends()

            self._translator.is_replay = False

        self._session = as_text(offer.get("sessionId")) or None
        return offer

    async def _replay_ends(self) -> None:
        """Wait until a loaded session is replayed; some agents continue after their answer."""
        with anyio.move_on_after(_LONGEST_REPLAY):
            while True:
                count = self._translator.update_count
                await anyio.sleep(_QUIET)
                if self._translator.update_count == count:
                    return

    async def _set_mode(self, offer: Message) -> str | None:
        """Set the hank's mode; return an error message if the agent does not have it."""
        mode = self._order.mode
        if mode is None:
            return None

        modes = as_object(offer.get("modes"))
        known = named(modes.get("availableModes"), "id")
        known += [value for value in options(offer, "mode") if value not in known]
        if mode not in known:
            offered = f"it has: {', '.join(known)}" if known else "it has none"
            return f"The agent has no mode {mode!r}; {offered}."

        await self._ask("session/set_mode", sessionId=self._session, modeId=mode)
        return None

    async def _set_model(self, offer: Message) -> str:
        """Set the hank's model if the agent offers it; return the model in use."""
        wanted, setting = self._order.model, option(offer, "model")
        models = as_object(offer.get("models"))
        if found := match_of(wanted, options(offer, "model")):
            chosen = {"configId": setting.get("id"), "value": found}
            await self._ask("session/set_config_option", sessionId=self._session, **chosen)
            return found

        if found := match_of(wanted, named(models.get("availableModels"), "modelId")):
            await self._ask(_SET_MODEL, sessionId=self._session, modelId=found)
            return found

        current = as_text(setting.get("currentValue")) or as_text(models.get("currentModelId"))
        if not wanted:
            return current

        self._output.note(
            f"The agent does not offer the model {wanted!r}; it uses "
            f"{repr(current) if current else 'its own choice'}."
        )
        return current or wanted

    # --- the prompt ----------------------------------------------------------------------------

    async def _prompt(self) -> Ended:
        before = self._translator.cost if self._order.resume is not None else 0.0
        prompt = [{"type": "text", "text": self._order.prompt}]
        self._is_prompting = True
        answer = await self._ask("session/prompt", sessionId=self._session, prompt=prompt)
        spent = usage_of(answer) | cost_of(before, self._translator.cost)
        reason = as_text(answer.get("stopReason"))
        self._translator.end_message()
        if reason == "end_turn" and self._translator.has_answered:
            return Ended(True, spent=spent)

        if reason == "end_turn":
            return Ended(False, WORDLESS, spent)

        return Ended(False, STOPPED.get(reason) or f"The turn ended with {reason!r}.", spent)

    async def _ask(self, method: str, **params: Any) -> Message:
        self.doing = method
        return as_object(await self._peer.send_request(method, params))


def _offered(tool: BridgeTools) -> Message:
    program, *arguments = tool.command
    variables = [{"name": name, "value": value} for name, value in tool.environment.items()]
    return {"name": tool.name, "command": program, "args": arguments, "env": variables}
