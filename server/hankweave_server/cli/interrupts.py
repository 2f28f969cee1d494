"""Ctrl-C on a terminal: what is to become of the step that runs.

One Ctrl-C asks; a second one stops at once. While it is asked the terminal gives each key as it is
pressed, and the settings that it had are put back afterwards.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import click

from hankweave_server.cli.live.frame import Said
from hankweave_server.cli.live.terminal import Keyboard
from hankweave_server.daemon import Choice

QUESTION = "What is to become of this step?\nf finish, then stop   s stop   c go on"
"""In lines that a narrow terminal shows whole."""

_CHOICES: dict[str, Choice] = {
    "f": "finish",
    "s": "stop",
    "q": "stop",
    "c": "go on",
    "escape": "go on",
}
_SAID: dict[Choice, str] = {
    "finish": "Stopping when this step has ended.\nCtrl-C stops now.",
    "stop": "Stopping.",
    "go on": "",
}


@dataclass(slots=True)
class Notice:
    """What is asked or promised below the live view."""

    text: str = ""

    def lines(self) -> tuple[Said, ...]:
        return tuple(Said(line, "bold yellow") for line in self.text.splitlines())


class Interrupts:
    """Asks the person at the terminal."""

    def __init__(self, notice: Notice, *, is_drawn: bool) -> None:
        """`is_drawn`: a live view shows the notice; else it is written to stderr."""
        self._notice = notice
        self._is_drawn = is_drawn

    async def ask(self) -> Choice:
        """Ask, and return the answer; a terminal that goes away means to stop."""
        self.say(QUESTION)
        chosen: Choice = "stop"
        keyboard = Keyboard(sys.stdin.fileno())
        with keyboard.taken():
            async for key in keyboard.keys():
                if (meant := _CHOICES.get(key.lower())) is not None:
                    chosen = meant
                    break

        self.say(_SAID[chosen])
        return chosen

    def say(self, text: str) -> None:
        self._notice.text = text
        if text and not self._is_drawn:
            click.echo(text, err=True)
