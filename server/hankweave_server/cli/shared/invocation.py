"""Translate the command line of the original Hankweave, which has options but no commands.

`hankweave my-project` and `hankweave hank.json data/ --headless` mean `run`, and so does
`hankweave` alone in a directory with a hank.json; `--validate`, `--init`, `--cleanup` and
`--attach` are commands here. A single argument is the hank if it ends in
`.json` or is a directory with a `hank.json`. Otherwise it is the data, and the hank is in the
current directory.

The functions here are pure, except that they check which paths exist.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import Final

from hankweave_server.errors import ExitCode, Stop

RUN: Final = "run"
AS_HANKWEAVE: Final = "--as-hankweave"
"""Makes `run` interpret its arguments as the original Hankweave does."""

_WITH_VALUE: Final = frozenset(
    {
        *("--config", "--data", "--execution", "-e", "--anthropic-base-url", "--port", "-p"),
        *("--model", "-m", "--idle-timeout", "--shim-idle-timeout", "--input", "-i"),
        *("--output", "-o", "--replay", "--max-cost", "--max-time", "--max-wait"),
        *("--webhook", "--notify", "--host", "--public-url"),
        *("--restore-journal", "--diet-journal"),
    }
)
_HANK: Final = "hank.json"
_HANK_ENDINGS: Final = (".json", ".hank", ".tar.zst")
_REMOTE: Final = re.compile(r"(?:https?|ssh):/|git@")
"""The beginning of a remote hank; `Path` may have reduced `//` to a single slash."""
_REFUSED: Final = {
    "--replay": (
        "Replaying recorded logs is not supported.",
        "`hankweave replay SHA -e DIR` shows files, state and events of any moment, "
        "and `hankweave events -e DIR` what happened.",
    ),
    "--diet-journal": (
        "Journals are never compressed or moved.",
        "`hankweave gc -e DIR` packs the checkpoints, which take more space.",
    ),
    "--restore-journal": (
        "This is not necessary: a compressed journal of Hankweave can be read directly.",
        "`hankweave log -e DIR` shows it, and `hankweave run -e DIR` resumes it.",
    ),
}


@dataclass(slots=True)
class _Words:
    """A command line of the original Hankweave, split into arguments, options and flags."""

    positional: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)


def translated(arguments: list[str], commands: Container[str]) -> list[str]:
    """Return the arguments in the form of our commands; raise Stop for unsupported features."""
    if arguments[:1] == ["pack"] and "pack" not in commands:
        raise _not_packed(arguments[1:])

    if not arguments:
        # Without a hank in the current directory there is nothing to run, and help is shown.
        return [RUN, AS_HANKWEAVE] if os.path.isfile(_HANK) else arguments

    if not _is_of_hankweave(arguments[0], commands):
        return arguments

    if (moved := _with_command_first(arguments, commands)) is not None:
        return moved

    words = _classified(arguments)
    if words.positional:
        refuse_what_is_elsewhere(words.positional[0])

    for option, (message, hint) in _REFUSED.items():
        if option in words.options:
            raise Stop(f"{option}: {message}", ExitCode.USAGE, hint=hint)

    if "--init" in words.flags:
        return ["init"]

    if words.flags & {"--validate", "-v"}:
        return ["validate", *_hank_and_data(words), *_given(words, model=("--model", "-m"))]

    if "--cleanup" in words.flags:
        return ["cleanup", *_place(words), *(["--yes"] if words.flags & {"--yes", "-y"} else [])]

    if "--attach" in words.flags:
        return ["attach", "--readonly", *_given(words, port=("--port", "-p")), *_place(words)]

    return [RUN, AS_HANKWEAVE, *arguments]


def is_hank(word: str) -> bool:
    """Return whether a single argument is a hank rather than data."""
    is_directory_of_one = os.path.isfile(os.path.join(word, _HANK))
    return word.endswith(_HANK_ENDINGS) or bool(_REMOTE.match(word)) or is_directory_of_one


def refuse_what_is_elsewhere(hank: str) -> None:
    """Raise Stop for a remote or packed hank: it must be fetched or unpacked first."""
    if _REMOTE.match(hank):
        raise Stop(
            f"{hank} is remote, and remote hanks are not fetched.",
            ExitCode.USAGE,
            hint=f"Fetch it first: `git clone {hank} the-hank && hankweave the-hank`.",
        )

    if hank.endswith((".hank", ".tar.zst")):
        raise Stop(
            f"{hank} is a packed hank, which is not supported.",
            ExitCode.USAGE,
            hint=f"Unpack it first: `mkdir the-hank && tar -xf {hank} -C the-hank`.",
        )


def _not_packed(rest: list[str]) -> Stop:
    """Return the refusal of the original Hankweave's only command."""
    folder = next((word for word in rest if not word.startswith("-")), ".")
    file = "../hank.tar.gz" if folder == "." else "hank.tar.gz"
    return Stop(
        "pack: Hanks are not packed: a hank is a directory, and is run from it.",
        ExitCode.USAGE,
        hint=f"`hankweave validate {shlex.quote(folder)}` checks a hank, and "
        f"`tar -czf {file} -C {shlex.quote(folder)} .` makes one file of it to hand over.",
    )


def _is_of_hankweave(first: str, commands: Container[str]) -> bool:
    if first in commands or first in ("-h", "--help", "--version"):
        return False

    return first.startswith("-") or "/" in first or is_hank(first) or os.path.exists(first)


def _with_command_first(arguments: list[str], commands: Container[str]) -> list[str] | None:
    """Return `-e DIR COMMAND ...` with the command first; None if it is not of this form.

    Data with the name of a command is data.
    """
    match arguments:
        case ["-e" | "--execution" | "-w" | "--workspace" as option, place, command, *rest]:
            is_command = command in commands and not os.path.lexists(command)
            return [command, option, place, *rest] if is_command else None
        case _:
            return None


def _classified(arguments: list[str]) -> _Words:
    words = _Words()
    rest = iter(arguments)
    for argument in rest:
        name, is_joined, value = argument.partition("=")
        if argument == "-" or not argument.startswith("-"):
            words.positional.append(argument)
        elif name in _WITH_VALUE:
            words.options[name] = value if is_joined else next(rest, "")
        else:
            words.flags.add(argument)

    return words


def _option(words: _Words, *names: str) -> str | None:
    return next((words.options[name] for name in names if name in words.options), None)


def _given(words: _Words, **names: tuple[str, ...]) -> Iterator[str]:
    for name, spellings in names.items():
        value = _option(words, *spellings)
        if value is not None:
            yield from (f"--{name}", value)


def _hank_and_data(words: _Words) -> list[str]:
    hank, data = _option(words, "--config"), _option(words, "--data")
    match words.positional:
        case [one] if is_hank(one):
            hank = one
        case [one]:
            data = one
        case [first, second, *_]:
            hank, data = first, second
        case _:
            pass

    return [hank or _HANK, *([data] if data and data != "-" else [])]


def _place(words: _Words) -> list[str]:
    execution = _option(words, "--execution", "-e")
    if execution is not None:
        return ["-e", execution]

    if "--attach" in words.flags:
        return []

    _, *data = _hank_and_data(words)
    return ["--data", data[0] if data else "."]
