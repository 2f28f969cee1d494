"""From a hank.json to a hank that can be run, or to everything that is wrong with it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hankweave_protocol.hank import Codon, Hank, Loop
from hankweave_server.hanks import check, shape
from hankweave_server.hanks.problems import (
    Finding,
    HankInvalid,
    JsonPath,
    Problem,
    did_you_mean,
    path_text,
)
from hankweave_server.hanks.prompts import PromptFault, ResolvedPrompt, resolve
from hankweave_server.hanks.source import NotJson, Source, parse

__all__ = ["HankInvalid", "LoadedHank", "Problem", "ResolvedPrompt", "load", "no_hank"]

_HANK = msgspec.inspect.type_info(Hank)


@dataclass(frozen=True, slots=True)
class LoadedHank:
    """A checked hank with its prompts; nothing of it is read again while it runs."""

    hank: Hank
    directory: Path
    """Absolute; what the hank refers to lies below it."""
    hank_hash: str
    """SHA-256 in hex of the file's canonical JSON: layout and order of keys do not matter.

    Empty where there is no hank.
    """
    prompts: Mapping[str, ResolvedPrompt]
    """By the codon's id in the hank, without an iteration."""


def no_hank(directory: Path) -> LoadedHank:
    """Stands for the hank of a server without a plan, which takes checkpoints and goes back."""
    return LoadedHank(Hank(hank=()), directory, hank_hash="", prompts={})


def load(path: Path) -> LoadedHank:
    """Loads and checks a hank.json; raises HankInvalid with all its problems at once."""
    source = _parsed(path)
    directory = path.absolute().parent.resolve()
    findings = [
        *source.findings,
        *shape.findings(source.value, _HANK),
        *check.findings(source.value, directory),
    ]
    if findings:
        raise HankInvalid(path, _problems(findings, source))

    return _loaded(path, source, directory)


def hash_of(raw: Any) -> str:
    """Hashes a hank's JSON; `$schema` is left out, since editors add it (Hankweave, hankHash)."""
    content = {key: value for key, value in raw.items() if key != "$schema"}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _parsed(path: Path) -> Source:
    try:
        return parse(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        suggestion = None
        if isinstance(error, FileNotFoundError) and path.parent.is_dir():
            suggestion = did_you_mean(path.name, (item.name for item in path.parent.iterdir()))

        problem = Problem("$", None, f"The file cannot be read: {error.strerror}.", suggestion)
    except UnicodeDecodeError:
        problem = Problem("$", None, "The file is not UTF-8 text.")
    except NotJson as error:
        problem = Problem("$", error.line, error.message)

    raise HankInvalid(path, [problem])


def _loaded(path: Path, source: Source, directory: Path) -> LoadedHank:
    try:
        hank = msgspec.convert(_typed(source.value), Hank)
        codons = [codon for step in hank.hank for codon in _codons(step)]
        prompts = {codon.id: resolve(hank, codon, directory) for codon in codons}
    except (msgspec.ValidationError, PromptFault) as error:
        # A file changed under our eyes, or the shapes know a rule that `shape` does not.
        raise HankInvalid(path, [Problem("$", None, str(error))]) from None

    return LoadedHank(hank, directory, hash_of(source.value), prompts)


def _codons(step: Codon | Loop) -> tuple[Codon, ...]:
    return step.codons if isinstance(step, Loop) else (step,)


def _typed(raw: dict[str, Any]) -> dict[str, Any]:
    """Says of each step what it is: one without a type is a codon."""
    return raw | {"hank": [{"type": shape.DEFAULT_TAG} | step for step in raw["hank"]]}


def _problems(findings: Iterable[Finding], source: Source) -> list[Problem]:
    """Looks up the lines and sorts by them; what was found twice is told once."""

    def line_of(path: JsonPath) -> int | None:
        return source.line_of(path) if path else None

    problems = dict.fromkeys(
        Problem(path_text(found.path), line_of(found.path), found.message, found.suggestion)
        for found in findings
    )
    return sorted(problems, key=lambda problem: problem.line or 0)
