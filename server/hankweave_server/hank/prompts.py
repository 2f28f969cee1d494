"""Prompts: from files and frontmatter to the text that an agent gets.

Prompts are loaded once, with the hank. Only the variables are filled in later, when the directories
of the execution are known. `HankFiles` examines each file of a hank once, however many codons
refer to it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from hankweave_protocol.events import PromptMetadata
from hankweave_protocol.hank import Codon, Hank
from hankweave_server.hank.problems import did_you_mean
from hankweave_server.hank.references import fault_of_relative, is_protected

_FRONTMATTER = re.compile(r"\A---[ \t]*\r?\n(?P<yaml>.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.M)
_COMMENT = re.compile(r"<!--.*?-->(?:\r?\n)?", re.DOTALL)
_VARIABLE = re.compile(r"<%\s*(AGENT_ROOT|PROJECT_DIR|EXECUTION_DIR|DATA_DIR)\s*%>")
_ANY_VARIABLE = re.compile(r"<%[^%\n]*%>")
_LARGEST = 8 * 1024 * 1024  # No model reads as much; a mistaken reference often exceeds it.


Read: TypeAlias = "Callable[[str], PromptFile]"
"""A function that reads the prompt file of a reference."""


class PromptFault(Exception):
    """A prompt file cannot be used, because of an error of its author."""


@dataclass(frozen=True, slots=True)
class PromptFile:
    """One prompt file without its frontmatter and comments."""

    text: str
    metadata: PromptMetadata | None


@dataclass(frozen=True, slots=True)
class ResolvedPrompt:
    """The prompt of a codon, with its variables not yet filled in."""

    text: str
    system_prompt: str | None
    metadata: PromptMetadata | None
    """The frontmatter of the first file."""


def resolve(hank: Hank, codon: Codon, read: Read) -> ResolvedPrompt:
    """Join the prompts of the hank and the codon; raise PromptFault if a file is unusable.

    If a codon has both a file and a text, the file wins, as in Hankweave.
    """
    files = [read(name) for name in _names(codon.prompt_file)]
    text = _joined([file.text for file in files]) if files else cleaned(codon.prompt_text or "")
    system = [
        *_parts(read, hank.global_system_prompt_file, hank.global_system_prompt_text),
        *_parts(read, codon.append_system_prompt_file, codon.append_system_prompt_text),
    ]
    return ResolvedPrompt(
        text=text,
        system_prompt=_joined(system) if system else None,
        metadata=files[0].metadata if files else None,
    )


def read_prompt_file(path: Path) -> PromptFile:
    """Read a prompt file; raise PromptFault if it is not text or its frontmatter is not YAML."""
    try:
        if path.stat().st_size > _LARGEST:
            raise PromptFault(f"{path.name!r} is larger than {_LARGEST // 1024**2} MiB.")

        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise PromptFault(f"{path.name!r} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise PromptFault(f"{path.name!r} is not UTF-8 text.") from None

    metadata, body = _without_frontmatter(text, path.name)
    return PromptFile(cleaned(body), metadata)


def render(text: str, agent_root: Path, data_dir: Path) -> str:
    """Fill in the variables in one pass, so that values are not expanded again."""

    def value(match: re.Match[str]) -> str:
        # Hankweave has three names for one folder; its prompts may use any of them.
        return str(data_dir if match.group(1) == "DATA_DIR" else agent_root)

    return _VARIABLE.sub(value, text)


def unknown_variables(text: str) -> tuple[str, ...]:
    """Return the words that look like variables and are not; the agent gets them unchanged."""
    found = _ANY_VARIABLE.findall(text)
    return tuple(dict.fromkeys(word for word in found if not _VARIABLE.fullmatch(word)))


def _names(references: str | Sequence[str] | None) -> Sequence[str]:
    return [references] if isinstance(references, str) else references or ()


def _parts(read: Read, files: str | Sequence[str] | None, text: str | None) -> list[str]:
    return [read(name).text for name in _names(files)] or ([cleaned(text)] if text else [])


def _joined(parts: Sequence[str]) -> str:
    return "\n\n".join(parts)


def cleaned(text: str) -> str:
    """Return the text without HTML comments, each removed with the line end after it."""
    return _COMMENT.sub("", text)


def _without_frontmatter(text: str, name: str) -> tuple[PromptMetadata | None, str]:
    found = _FRONTMATTER.match(text)
    if found is None:
        return None, text

    try:
        values = yaml.load(found["yaml"], _WithoutAliases)
        metadata = _metadata(values) if isinstance(values, dict) else None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = getattr(error, "problem", None) or "it is not YAML"
        raise PromptFault(f"The frontmatter of {name!r} cannot be read: {problem}.") from None

    if values is not None and metadata is None:
        return None, text  # Prose between two horizontal rules.

    return metadata, text[found.end() :]


class _WithoutAliases(yaml.SafeLoader):
    """A safe YAML loader without aliases: a page of them can expand to gigabytes."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="aliases are not allowed")

        return super().compose_node(parent, index)


def _metadata(values: Mapping[Any, Any]) -> PromptMetadata:
    """Return a prompt's metadata; raise ValueError for a number too long to be written."""

    def text(name: str) -> str | None:
        value = values.get(name)
        return None if value is None else str(value)

    tags = values.get("tags")
    listed = tags if isinstance(tags, list) else [] if tags is None else [tags]
    return PromptMetadata(
        name=text("name"),
        description=text("description"),
        tags=tuple(str(tag) for tag in listed),
        version=text("version"),
        author=text("author"),
    )


class HankFiles:
    """The files in the hank's directory, as they were when first requested.

    Nothing is reached through a symbolic link, and nothing outside the directory is read.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.fault_of_file = cache(self._fault_of_file)
        self._obstacle = cache(self._obstacle_on_the_way)
        self._fault_of_tree = cache(_fault_of_tree)
        self._prompt = cache(self._read_prompt)

    def _fault_of_file(self, reference: str) -> str | None:
        """Return what is wrong with a reference that must name a regular file, or None."""
        fault = self._fault_of_way(reference)
        if fault is None and not os.path.isfile(self._place(reference)):
            fault = f"{reference!r} is not a file."

        return fault

    def nearest(self, reference: str) -> str | None:
        """Suggest an existing file for a name that does not exist."""
        above, _, name = reference.rpartition("/")
        if fault_of_relative(reference) is not None or (above and self._obstacle(above)):
            return None

        try:
            names = os.listdir(self._place(above))
        except (OSError, ValueError):
            return None

        beside = f"{above}/" if above else ""
        return did_you_mean(reference, [f"{beside}{each}" for each in names if each != name])

    def fault_of_rig(self, reference: str) -> str | None:
        """Return what is wrong with a file or tree that a rig copies, or None."""
        fault = self._fault_of_way(reference)
        if fault is not None:
            return fault

        if os.path.normpath(reference) == ".":
            return "The hank's own directory cannot be copied; name something inside it."

        return self._fault_of_tree(self._place(reference), reference)

    def prompt(self, reference: str) -> PromptFile:
        """Read a prompt file; raise PromptFault if it cannot be used, or is not in the hank."""
        found = self._prompt(reference)
        if isinstance(found, PromptFault):
            raise found

        return found

    def _read_prompt(self, reference: str) -> PromptFile | PromptFault:
        if (fault := self.fault_of_file(reference)) is not None:
            return PromptFault(fault)

        try:
            return read_prompt_file(Path(self._place(reference)))
        except PromptFault as unusable:
            return unusable

    def text(self, reference: str) -> str:
        """Read a text file; raise OSError or UnicodeDecodeError."""
        return Path(self._place(reference)).read_bytes().decode("utf-8-sig")

    def _place(self, reference: str) -> str:
        return os.path.join(self.directory, reference)

    def _fault_of_way(self, reference: str) -> str | None:
        fault = fault_of_relative(reference)
        if fault is not None:
            return fault

        obstacle = self._obstacle(reference)
        return None if obstacle is None else obstacle.format(repr(reference))

    def _obstacle_on_the_way(self, reference: str) -> str | None:
        above, _, _ = reference.rpartition("/")
        return (self._obstacle(above) if above else None) or self._obstacle_at(reference)

    def _obstacle_at(self, reference: str) -> str | None:
        try:
            mode = os.lstat(self._place(reference)).st_mode
        except (OSError, ValueError):  # No file name contains an unpaired surrogate.
            return "There is no {} in the hank's directory."

        return "{} goes through a symbolic link." if stat.S_ISLNK(mode) else None


def _fault_of_tree(source: str, reference: str) -> str | None:
    waiting = [source]
    while waiting:
        place = waiting.pop()
        mode = os.lstat(place).st_mode
        if stat.S_ISDIR(mode):
            names = sorted(os.listdir(place), reverse=True)
            protected = next(filter(is_protected, names), None)
            if protected is not None:
                return f"{reference!r} contains {protected!r}, which is a protected name."

            waiting += [os.path.join(place, name) for name in names]
        elif not stat.S_ISREG(mode):
            kind = "symbolic link" if stat.S_ISLNK(mode) else "special file"
            return f"{reference!r} contains a {kind}: {os.path.relpath(place, source)}."

    return None
