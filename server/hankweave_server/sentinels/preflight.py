"""Check, before a run starts, that each codon's sentinels can be loaded on this machine.

Otherwise a missing package or key, or a template that does not compile, would be found when its
codon starts, perhaps hours later. The check loads each sentinel as its codon does, but uses no
network and asks no model: only the provider can tell if a key is valid.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

from hankweave_protocol.hank import Codon, SentinelEntry
from hankweave_protocol.shapes import Value
from hankweave_server.domain.model_names import spelling_of
from hankweave_server.hank.prompts import HankFiles
from hankweave_server.sentinels.config import SentinelInvalid, load_config, reference_of
from hankweave_server.sentinels.providers.registry import Models
from hankweave_server.sentinels.templates.javascript import QuickJs


class SentinelCheck(Value, kw_only=True, omit_defaults=False):
    """The result for one sentinel of one codon."""

    codon: str
    sentinel: str
    """Its file, or its id."""

    model: str | None
    """Null if the configuration is so faulty that it has none."""

    is_required: bool
    """True if its codon fails without it (`failCodonIfNotLoaded`)."""

    faults: tuple[str, ...]
    """The reasons why it cannot be loaded; empty if nothing is wrong."""

    warnings: tuple[str, ...]
    """Remarks on settings that are valid but probably not intended."""

    def problem_lines(self) -> Iterator[str]:
        """Yield a line for each fault, with what it means for the codon."""
        end = "the codon will fail" if self.is_required else "the codon will run without it"
        for fault in self.faults:
            yield f"{self.codon}: sentinel {self.sentinel}, {end}: {fault}"


def check_sentinels(
    codons: Iterable[Codon],
    hank_directory: Path,
    environment: Mapping[str, str],
    listed: Collection[str] = (),
) -> tuple[SentinelCheck, ...]:
    """Check the sentinels of codons; blocks while templates and schemas are compiled.

    `environment` is that of the server, which has the keys of the models. `listed` has the names of
    known models; without it, the spelling of models is not checked.
    """
    files, models = HankFiles(hank_directory), Models(environment)
    with closing(QuickJs()) as quickjs:
        return tuple(
            _checked(codon, entry, reference_of(entry, index), files, quickjs, models, listed)
            for codon in codons
            for index, entry in enumerate(codon.sentinels)
        )


def _checked(
    codon: Codon,
    entry: SentinelEntry,
    name: str,
    files: HankFiles,
    quickjs: QuickJs,
    models: Models,
    listed: Collection[str],
) -> SentinelCheck:
    model: str | None = None
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    try:
        loaded = load_config(entry, files, quickjs)
    except SentinelInvalid as invalid:
        faults = invalid.problems
    else:
        model, warnings = loaded.config.model, loaded.warnings
        faults = (*models.faults(model), *_misspelt(model, models, listed))

    return SentinelCheck(
        codon=codon.id,
        sentinel=name,
        model=model,
        is_required=entry.settings is not None and entry.settings.fail_codon_if_not_loaded,
        faults=faults,
        warnings=warnings,
    )


def _misspelt(model: str, models: Models, listed: Collection[str]) -> Iterator[str]:
    if not listed or models.has_own_endpoint(model):
        return

    spelling = spelling_of(model, listed)
    if spelling is not None and spelling.is_misspelt:
        yield (
            f"There is no model {model!r} in the list of known models."
            f" Did you mean {spelling.nearest!r}?"
        )
