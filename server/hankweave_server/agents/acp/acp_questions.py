"""What an ACP agent asks leave for: told to the server, and answered as the server answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio

from hankweave_server.agents.acp.events import Story
from hankweave_server.agents.acp.json_lines import Message, Voice, is_whole

_ALLOWING = ("allow_once", "allow_always")
_REFUSING = ("reject_once", "reject_always")
"""In the order in which they are chosen: what was answered holds for one call."""

_CANCELLED: Message = {"outcome": {"outcome": "cancelled"}}


class _Question:
    """Waits for its answer; one that nobody gives is a refusal by the one who asked, a cancel."""

    def __init__(self) -> None:
        self._given = anyio.Event()
        self.is_allowed: bool | None = None

    def settle(self, allowed: bool | None) -> None:
        if not self._given.is_set():
            self.is_allowed = allowed
            self._given.set()

    async def wait(self) -> bool | None:
        await self._given.wait()
        return self.is_allowed


class Questions:
    def __init__(self, story: Story, voice: Voice) -> None:
        self._story = story
        self._voice = voice
        self._open: dict[str, _Question] = {}
        self._asked = 0
        self._is_closed = False

    async def ask(self, asked: Mapping[str, Any]) -> Message:
        """Gives the agent the answer that the server gives."""
        self._asked += 1
        name = f"permission-{self._asked}"
        line = self._story.question(name, asked)
        options = _options(asked)
        if self._is_closed:
            return _CANCELLED

        if not is_whole(line):
            # Whoever answers must see all that decides.
            self._voice.note("Leave for a tool's call was refused: it is too long to be shown.")
            return _chosen(options, allowed=False)

        question = self._open[name] = _Question()
        self._voice.say(line)
        allowed = await question.wait()
        del self._open[name]
        return _CANCELLED if allowed is None else _chosen(options, allowed=allowed)

    def answered(self, message: Mapping[str, Any]) -> None:
        """Takes a line of the server's; anything but a clear yes is a no."""
        match message:
            case {
                "type": "control_response",
                "response": {"request_id": str() as name, **given},
            } if name in self._open:
                behavior = given.get("response")
                is_yes = isinstance(behavior, dict) and behavior.get("behavior") == "allow"
                self._open[name].settle(is_yes)

    def close(self) -> None:
        """Answers what is open, and all that will be asked, with a cancel: nobody is there."""
        self._is_closed = True
        for name, question in self._open.items():
            self._voice.say({"type": "control_cancel_request", "request_id": name})
            question.settle(None)


def _options(asked: Mapping[str, Any]) -> list[tuple[str, str]]:
    options = asked.get("options")
    return [
        (each["kind"], each["optionId"])
        for each in (options if isinstance(options, list) else [])
        if isinstance(each, dict)
        and isinstance(each.get("kind"), str)
        and isinstance(each.get("optionId"), str)
    ]


def _chosen(options: list[tuple[str, str]], *, allowed: bool) -> Message:
    for wanted in _ALLOWING if allowed else _REFUSING:
        for kind, option in options:
            if kind == wanted:
                return {"outcome": {"outcome": "selected", "optionId": option}}

    return _CANCELLED
