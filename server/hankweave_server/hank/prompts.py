"""Prompts: files and frontmatter to the text that an agent is given.

Loaded once, with the hank; only the variables are filled in later, when the directories of the
execution are known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from hankweave_protocol.events import PromptMetadata
from hankweave_protocol.hank import Codon, Hank

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
