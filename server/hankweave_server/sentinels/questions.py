"""From the events of a trigger to what a model is asked."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hankweave_server.sentinels.backlog import Waiting
from hankweave_server.sentinels.config import LoadedConfig
from hankweave_server.worktree.dirfd import FILE_FLAGS, Descent

LARGEST_CONTENT = 256 * 1024
"""Bytes of a file that a template is shown."""


@dataclass(frozen=True, slots=True)
class Question:
    prompt: str
    system: str | None


@dataclass(frozen=True, slots=True)
class CodonFacts:
    """What a template may say about the codon."""

    id: str
    name: str
    description: str | None
    start_time: str

    @property
    def shown(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "startTime": self.start_time,
        }


def question_of(
    loaded: LoadedConfig, codon: CodonFacts, trigger: Waiting, work_tree: Path
) -> Question:
    """Renders the prompts of a trigger, blocking; raises NotRendered.

    The codon is the codon: Hankweave shows the sentinel's own name and description under its name.
    """
    config = loaded.config
    context = {
        "events": [_event(frame, work_tree) for frame in trigger.frames],
        "codon": codon.shown,
        "sentinel": {"id": config.id, "name": config.name, "description": config.description},
        "world": {"currentTime": trigger.queued_at},
    }
    system = loaded.system_prompt
    return Question(
        prompt=loaded.user_prompt.render(context),
        system=None if system is None else system.render(context),
    )


def _event(frame: bytes, work_tree: Path) -> dict[str, Any]:
    event: dict[str, Any] = msgspec.json.decode(frame)
    if event["type"] == "file.updated":
        event["data"] = _WithContent(event["data"], work_tree)

    return event


class _WithContent(dict[str, Any]):
    """The data of a `file.updated`; its `content` is read where a template asks for it."""

    def __init__(self, data: dict[str, Any], work_tree: Path) -> None:
        super().__init__(data)
        self._read = functools.cache(lambda: _content(work_tree, data["path"]))

    def __missing__(self, key: str) -> str:
        if key != "content":
            raise KeyError(key)

        return self._read()


def _content(work_tree: Path, path: str) -> str:
    """A file as it is now, without following a link; empty where it is gone."""
    descent = Descent(work_tree)
    try:
        name = os.fsencode(path)
        file = os.open(os.path.basename(name), FILE_FLAGS, dir_fd=descent.folder_of(name))
        with open(file, "rb") as opened:
            return opened.read(LARGEST_CONTENT).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        descent.close()
