"""Prompts: files and frontmatter to the text that an agent is given.

Loaded once, with the hank; only the variables are filled in later, when the directories of the
execution are known.

The files of a hank: each is looked at once, however many codons name it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
_LARGEST = 8 * 1024 * 1024  # No model reads as much; a mistaken reference often has more.


Read: TypeAlias = "Callable[[str], PromptFile]"
"""Reads the prompt file that a reference of the hank names."""


class PromptFault(Exception):
    """A prompt file that cannot be used: its author's fault."""


@dataclass(frozen=True, slots=True)
class PromptFile:
    """One prompt file without its frontmatter and comments."""

    text: str
    metadata: PromptMetadata | None


@dataclass(frozen=True, slots=True)
class ResolvedPrompt:
    """What a codon says to its agent; the variables still stand in it."""

    text: str
    system_prompt: str | None
    metadata: PromptMetadata | None
    """The frontmatter of the first file."""


def resolve(hank: Hank, codon: Codon, read: Read) -> ResolvedPrompt:
    """Joins what the hank and the codon say; raises PromptFault where a file cannot be used.

    Where a codon has both a file and a text the file wins, as in Hankweave.
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
    """Reads a prompt file; raises PromptFault where it is no text or its frontmatter no YAML."""
    try:
        if path.stat().st_size > _LARGEST:
            raise PromptFault(f"{path.name!r} has more than {_LARGEST // 1024**2} MiB.")

        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise PromptFault(f"{path.name!r} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise PromptFault(f"{path.name!r} is not UTF-8 text.") from None

    metadata, body = _without_frontmatter(text, path.name)
    return PromptFile(cleaned(body), metadata)


def render(text: str, agent_root: Path, data_dir: Path) -> str:
    """Fills in the variables, each once: a path that looks like one is not filled in again."""

    def value(match: re.Match[str]) -> str:
        # Hankweave's three names of one folder, kept for its prompts.
        return str(data_dir if match.group(1) == "DATA_DIR" else agent_root)

    return _VARIABLE.sub(value, text)


def unknown_variables(text: str) -> tuple[str, ...]:
    """Lists what looks like a variable and is none: it goes to the agent as it stands."""
    found = _ANY_VARIABLE.findall(text)
    return tuple(dict.fromkeys(word for word in found if not _VARIABLE.fullmatch(word)))


def _names(references: str | Sequence[str] | None) -> Sequence[str]:
    return [references] if isinstance(references, str) else references or ()


def _parts(read: Read, files: str | Sequence[str] | None, text: str | None) -> list[str]:
    return [read(name).text for name in _names(files)] or ([cleaned(text)] if text else [])


def _joined(parts: Sequence[str]) -> str:
    return "\n\n".join(parts)


def cleaned(text: str) -> str:
    """Takes the HTML comments out, each with the line end behind it."""
    return _COMMENT.sub("", text)


def _without_frontmatter(text: str, name: str) -> tuple[PromptMetadata | None, str]:
    found = _FRONTMATTER.match(text)
    if found is None:
        return None, text

    try:
        values = yaml.load(found["yaml"], _WithoutAliases)
        metadata = _metadata(values) if isinstance(values, dict) else None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = getattr(error, "problem", None) or "it is no YAML"
        raise PromptFault(f"The frontmatter of {name!r} cannot be read: {problem}.") from None

    if values is not None and metadata is None:
        return None, text  # Two rules across the page, and prose between them.

    return metadata, text[found.end() :]


class _WithoutAliases(yaml.SafeLoader):
    """YAML's safe part without references: a page of them can mean gigabytes."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="it refers to another part of itself")

        return super().compose_node(parent, index)


def _metadata(values: Mapping[Any, Any]) -> PromptMetadata:
    """Takes what is said about a prompt; raises ValueError for a number too long to be written."""

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
    """What lies in the hank's directory, as it was when it was first asked for.

    Nothing is reached through a symbolic link, and nothing outside of the directory is read.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._faults: dict[str, str | None] = {}
        self._obstacles: dict[str, str | None] = {}
        self._trees: dict[str, str | None] = {}
        self._prompts: dict[str, PromptFile | PromptFault] = {}

    def fault_of_file(self, reference: str) -> str | None:
        """Says what is wrong with a reference that must name a regular file of the hank."""
        if reference not in self._faults:
            fault = self._fault_of_way(reference)
            if fault is None and not os.path.isfile(self._place(reference)):
                fault = f"{reference!r} is not a file."

            self._faults[reference] = fault

        return self._faults[reference]

    def nearest(self, reference: str) -> str | None:
        """Suggests the file that was probably meant by a name that is not there."""
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
        """Says what is wrong with a file or tree of the hank that a rig copies."""
        fault = self._fault_of_way(reference)
        if fault is not None:
            return fault

        if os.path.normpath(reference) == ".":
            return "The hank's own directory cannot be copied; name something in it."

        if reference not in self._trees:
            self._trees[reference] = _fault_of_tree(self._place(reference), reference)

        return self._trees[reference]

    def prompt(self, reference: str) -> PromptFile:
        """Reads a prompt file; raises PromptFault where it cannot be used."""
        if reference not in self._prompts:
            try:
                self._prompts[reference] = read_prompt_file(Path(self._place(reference)))
            except PromptFault as fault:
                self._prompts[reference] = fault

        found = self._prompts[reference]
        if isinstance(found, PromptFault):
            raise found

        return found

    def text(self, reference: str) -> str:
        """Reads a file; raises OSError or UnicodeDecodeError."""
        return Path(self._place(reference)).read_bytes().decode("utf-8-sig")

    def _place(self, reference: str) -> str:
        return os.path.join(self.directory, reference)

    def _fault_of_way(self, reference: str) -> str | None:
        fault = fault_of_relative(reference)
        if fault is not None:
            return fault

        obstacle = self._obstacle(reference)
        return None if obstacle is None else obstacle.format(repr(reference))

    def _obstacle(self, reference: str) -> str | None:
        if reference not in self._obstacles:
            above, _, _ = reference.rpartition("/")
            found = self._obstacle(above) if above else None
            self._obstacles[reference] = found or self._obstacle_at(reference)

        return self._obstacles[reference]

    def _obstacle_at(self, reference: str) -> str | None:
        try:
            mode = os.lstat(self._place(reference)).st_mode
        except (OSError, ValueError):  # No file has half a surrogate pair in its name.
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
                return f"{reference!r} holds {protected!r}, which is a protected name."

            waiting += [os.path.join(place, name) for name in names]
        elif not stat.S_ISREG(mode):
            kind = "symbolic link" if stat.S_ISLNK(mode) else "special file"
            return f"{reference!r} holds a {kind}: {os.path.relpath(place, source)}."

    return None
