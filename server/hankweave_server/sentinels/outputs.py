"""Write a sentinel's answers: all of them to a log, the newest also to a separate file.

A name without a slash is a file in `.hankweave/sentinels/outputs/{id}/`; a path with a slash is
relative to the work tree. An agent may have put a symbolic link on that path, so each folder is
opened without following links, and nothing outside is ever written.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hankweave_protocol.hank import SentinelOutputPaths, SentinelSettings
from hankweave_protocol.ids import CodonId
from hankweave_protocol.sentinels import SentinelConfig, SentinelOutputPlace
from hankweave_server.fsutil import (
    PRIVATE_DIRECTORY,
    PRIVATE_FILE,
    make_private_directory,
    write_all,
)
from hankweave_server.paths import Layout
from hankweave_server.worktree.dirfd import FOLDER_FLAGS

DEFAULT_JOIN = "\n---\n"
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\\\": "\\"}
_APPENDING = os.O_WRONLY | os.O_APPEND | os.O_CREAT
_ANEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_CAREFUL = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
IN_THE_WORK_TREE = 0o644
FOLDER_THERE = 0o755
TEMPORARY = ".tmp"


@dataclass(frozen=True, slots=True)
class OutputPlace:
    """A file below a private folder or below the work tree."""

    root: Path
    path: str
    """A POSIX path relative to the root."""
    is_private: bool

    @contextlib.contextmanager
    def opened(self, flags: int, suffix: str = "") -> Iterator[tuple[int, int]]:
        """Provide the descriptors of the folder and the file; create both if they are missing."""
        *folders, name = self.path.split("/")
        mode = PRIVATE_DIRECTORY if self.is_private else FOLDER_THERE
        with contextlib.ExitStack() as held:
            at = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            held.callback(os.close, at)
            for folder in folders:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(folder, mode, dir_fd=at)

                at = os.open(folder, FOLDER_FLAGS, dir_fd=at)
                held.callback(os.close, at)

            file = os.open(name + suffix, flags | _CAREFUL, self._mode, dir_fd=at)
            held.callback(os.close, file)
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise OSError(f"{self.path} is not a regular file.")

            yield at, file

    @property
    def _mode(self) -> int:
        return PRIVATE_FILE if self.is_private else IN_THE_WORK_TREE

    def append(self, text: str) -> None:
        with self.opened(_APPENDING) as (_, file):
            write_all(file, text.encode("utf-8", "replace"))

    def replace(self, text: str) -> None:
        """Replace the file atomically; its content is synced, the rename is not."""
        name = self.path.rpartition("/")[2]
        with self.opened(_ANEW, suffix=TEMPORARY) as (folder, file):
            write_all(file, text.encode("utf-8", "replace"))
            os.fsync(file)
            os.rename(name + TEMPORARY, name, src_dir_fd=folder, dst_dir_fd=folder)


@dataclass(frozen=True, slots=True)
class SentinelOutputs:
    """The output files of one sentinel and their format; its methods block and raise OSError."""

    sentinel_id: str
    log: OutputPlace
    last_value: OutputPlace | None
    is_structured: bool
    is_jsonl: bool
    join: str
    clean: Callable[[str], str] = str
    """Removes secrets from what is written."""

    @property
    def in_the_work_tree(self) -> frozenset[bytes]:
        """The paths in the work tree that it writes."""
        places = (self.log, self.last_value)
        return frozenset(
            os.fsencode(place.path + suffix)
            for place in places
            if place is not None and not place.is_private
            for suffix in ("", TEMPORARY)
        )

    def begin(self) -> None:
        """Create the log if it does not exist."""
        self.log.append("")

    def write(self, content: Any, timestamp: str) -> None:
        """Write one answer."""
        self.log.append(self.clean(self._entry(content, timestamp)))
        if self.last_value is not None:
            is_text = isinstance(content, str) and not self.is_structured
            value = content if is_text else _json(content, indent=2) + "\n"
            self.last_value.replace(self.clean(value))

    def _entry(self, content: Any, timestamp: str) -> str:
        if self.is_structured:
            return _json(content) + "\n"

        if self.is_jsonl:
            line = {"text": content, "timestamp": timestamp, "sentinelId": self.sentinel_id}
            return _json(line) + "\n"

        # As in Hankweave, the join string also precedes the first entry.
        return f"{self.join}{content}\n"


def outputs_of(
    config: SentinelConfig,
    settings: SentinelSettings | None,
    layout: Layout,
    codon_id: CodonId,
    loaded_ms: int,
    clean: Callable[[str], str] = str,
) -> SentinelOutputs:
    """Return the output files: the codon's settings, else the sentinel's own, else a default."""
    own = config.output or SentinelOutputPlace()
    wanted = (None if settings is None else settings.output_paths) or SentinelOutputPaths()
    is_structured, is_jsonl = config.structured_output is not None, own.format == "jsonl"
    ending = "ndjson" if is_structured else "jsonl" if is_jsonl else "md"
    default = f"{config.id}-{codon_id}-{loaded_ms}.{ending}"
    home = layout.sentinel_outputs / config.id

    def place(name: str) -> OutputPlace:
        if "/" in name:
            steps = [step for step in name.split("/") if step not in ("", ".")]
            return OutputPlace(layout.work_tree, "/".join(steps), is_private=False)

        make_private_directory(home)
        return OutputPlace(home, name, is_private=True)

    last = wanted.last_value_file or own.last_value_file
    return SentinelOutputs(
        sentinel_id=config.id,
        log=place(wanted.log_file or own.file or default),
        last_value=None if last is None else place(last),
        is_structured=is_structured,
        is_jsonl=is_jsonl,
        join=DEFAULT_JOIN if config.join_string is None else _unescaped(config.join_string),
        clean=clean,
    )


def _unescaped(text: str) -> str:
    parts, at = [], 0
    while at < len(text):
        pair = text[at : at + 2]
        parts.append(_ESCAPES.get(pair, text[at]))
        at += 2 if pair in _ESCAPES else 1

    return "".join(parts)


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False)
