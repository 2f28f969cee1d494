"""Resolve the settings of a run from options, environment variables and files.

This module also holds two features of `hankweave run`:

- Data as text: `--input TEXT`, or `-` for stdin (`-i` of the original Hankweave). The text is
  written to a file whose name is a hash of the text. The same text is thus the same data, and its
  execution is found again.
- `--new --force`: set an execution aside to make its directory available for a new one. Nothing is
  lost: state, work tree, archive and data are renamed to names that end in `.backup-<time>` (as
  `.hankweave.backup-<timestamp>` of the original Hankweave, which deletes the work tree). An intent
  file in the state directory is durable before the first rename, and the state directory is renamed
  last. A start that finds the intent finishes the renames.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

import click
import msgspec

from hankweave_protocol import instants
from hankweave_protocol.hank import ConfinementProfile
from hankweave_protocol.ids import CodonId
from hankweave_server import config, fsutil
from hankweave_server.cli.output.text import print_error
from hankweave_server.cli.shared import invocation
from hankweave_server.clock import Clock
from hankweave_server.config import Config, Layer, Resolved
from hankweave_server.domain.variables import NAME
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.installed import feature_of, parts
from hankweave_server.paths import Layout
from hankweave_server.settings import LogFormat, LogLevel, RunSettings, WatchMode, safe_points_named
from hankweave_server.worktree import data_source

CACHE = Path("~/.hankweave-cache/inputs")
STDIN = Path("-")


def of_text(text: str) -> Path:
    """Return the file that holds a text of the command line; write it if it does not exist."""
    return _stored(text.encode("utf-8", "surrogateescape"), "input")


def of_stdin() -> Path:
    """Return a file with the content of stdin; raise Stop if stdin is a terminal."""
    if sys.stdin.isatty():
        raise Stop(
            "stdin is a terminal, so there is no data to read.",
            ExitCode.NO_INPUT,
            hint='Pipe the data into it: `echo "some text" | hankweave hank.json -`.',
        )

    return _stored(sys.stdin.buffer.read(), "stdin")


def _stored(content: bytes, kind: str) -> Path:
    digest = hashlib.sha256(content).hexdigest()[:16]
    path = CACHE.expanduser() / f"{kind}-{digest}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written only once: the modification time of data is part of what identifies its execution.
    if not path.exists():
        fsutil.replace_durably(path, content)

    return path


T = TypeVar("T")

log_level_option = click.option(
    "--log-level", type=click.Choice(get_args(LogLevel)), help="Minimum level of server.log."
)
confinement_option = click.option(
    "--confinement",
    type=click.Choice(get_args(ConfinementProfile)),
    help="What agents and commands can change: the work tree, nothing (readonly) or everything "
    "(none). Default: workspace, or as the hank says.",
)
require_confinement_option = click.option(
    "--require-confinement",
    is_flag=True,
    help="Refuse to start if agents would run unconfined.",
)
log_format_option = click.option(
    "--log-format", type=click.Choice(get_args(LogFormat)), help="Format of server.log."
)


F = TypeVar("F", bound=Callable[..., Any])


def budget_option(name: str, help: str) -> Callable[[F], F]:
    """Return an option that takes a budget."""
    return click.option(name, type=float, callback=_checked_budget, help=help)


def _checked_budget(
    _context: click.Context, _option: click.Parameter, limit: float | None
) -> float | None:
    """Return the budget; a callback of click.

    A budget of 0 would let nothing run, and infinity is no budget.
    """
    if limit is None or (limit > 0 and math.isfinite(limit)):
        return limit

    raise click.BadParameter(
        "A budget must be a finite number above 0. Without the option, there is no limit."
    )


def checked(key: str, text: str | None) -> object:
    """Return the value of an option that is parsed like a setting; for a callback of click."""
    try:
        return None if text is None else config.SETTINGS[key].parse(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: {error}.") from None


_ABOVE_HANK = (config.COMMAND_LINE, config.ENVIRONMENT)
FLAGS = {
    "no_autostart": ("autostart", False),
    "ignore_rig_failures": ("ignoreRigFailures", True),
    "no_agent_check": ("noAgentCheck", True),
    "require_confinement": ("requireConfinement", True),
    "without_tls": ("withoutTls", True),
}
"""Options of `run` without a value, and the settings and values they set."""

KEYS = {
    name: setting.key
    for setting in config.SETTINGS.values()
    if setting.option is not None
    and (name := setting.option.removeprefix("--").replace("-", "_")) not in FLAGS
}
"""The settings that other options of `run` set, by the name of click's parameter."""


def resolved(given: Mapping[str, Any], hank: Path | None, others: frozenset[str]) -> Config:
    """Resolve all settings; warn about unknown or ineffective ones; raise Stop for fatal errors.

    `others` are environment variables that click options read themselves.
    """
    values = {key: given.get(name) for name, key in KEYS.items()}
    values |= {key: value for name, (key, value) in FLAGS.items() if given.get(name)}
    return from_layers(config.of_command_line(values), hank, others)


def from_layers(command_line: Layer, hank: Path | None, others: frozenset[str]) -> Config:
    environment = config.of_environment(os.environ, others)
    file = config.read_file(Path.cwd() / config.FILE)
    layers = [command_line, environment.layer]
    if hank is not None:
        layers.append(config.of_hank(hank, _overrides_in(hank)))

    if file is not None:
        layers.append(file.layer)

    found = config.resolve(layers)
    warnings = (*environment.warnings, *(() if file is None else file.warnings))
    for warning in (*warnings, *config.notes_on(found)):
        print_error(f"warning: {warning}")

    return found


def _overrides_in(hank: Path) -> object:
    """Return the overrides of a hank; the loader reports errors in the file."""
    try:
        content = json.loads(hank.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None

    return content.get("overrides") if isinstance(content, dict) else None


def variables_of(command: click.Command) -> frozenset[str]:
    """Return the environment variables that the options of a command read themselves."""
    names = (parameter.envvar for parameter in command.params)
    return frozenset(name for name in names if isinstance(name, str))


# --- hank and data --------------------------------------------------------------------------------


def place(given: Mapping[str, Any]) -> tuple[Path | None, Path | None, bool]:
    """Return the hank, the data, and whether the data is implied; raise UsageError and Stop."""
    hank, data, is_implied = _named(given)
    if hank is not None:
        invocation.refuse_what_is_elsewhere(str(hank))

    if hank is None and _wants_hank(given):
        from hankweave_server.cli.shared import hank_loading

        hank = hank_loading.in_folder(Path.cwd())

    if hank is None and given["default_hank"] is not None and not _has_hank(given):
        hank, data = given["default_hank"], data or given["default_data"]

    if hank is None and given["execution"] is None and given["workspace"] is None:
        raise click.UsageError(
            "There is no hank.json in this directory. Name a HANK, or an --execution or "
            "--workspace to resume."
        )

    if given["input"] is not None:
        return hank, of_text(given["input"]), False

    if data == STDIN:
        return hank, of_stdin(), False

    return hank, data, is_implied


def _named(given: Mapping[str, Any]) -> tuple[Path | None, Path | None, bool]:
    hank, data = given["hank"], given["data"]
    if given["as_hankweave"] and hank is not None and data is None:
        if not invocation.is_hank(str(hank)):
            hank, data = None, hank
        elif hank.is_dir() and given["data_option"] is None:
            data = hank

    if given["config"] is not None:
        if hank is not None:
            raise click.UsageError("--config and HANK exclude each other.")

        hank = given["config"]

    if given["data_option"] is not None:
        if data is not None:
            raise click.UsageError("--data and DATA exclude each other.")

        data = given["data_option"]

    if data is None and given["as_hankweave"] and given["workspace"] is None:
        # The original Hankweave's data is the hank's directory, unless the command line names it.
        folder = hank if hank is not None else Path.cwd()
        return hank, folder if folder.is_dir() else folder.parent, True

    return hank, data, False


def _wants_hank(given: Mapping[str, Any]) -> bool:
    """Return whether to use the hank.json of the current directory when none is named."""
    if given["workspace"] is not None:
        return False

    return given["execution"] is None or not _has_hank(given)


def _has_hank(given: Mapping[str, Any]) -> bool:
    execution: Path | None = given["execution"]
    from hankweave_server.local import executions

    return execution is not None and executions.former_hank(execution) is not None


def with_options_of_features(command: F) -> F:
    """Give a command the options that features add to `run`."""
    for part in parts("run_options"):
        for option in reversed(part.OPTIONS):
            command = option(command)

    return command


# --- settings -------------------------------------------------------------------------------------


def settings_of(given: Mapping[str, Any], others: frozenset[str]) -> RunSettings:
    """Return the settings of a run; raise UsageError or Stop for invalid ones."""
    _refuse_contradictions(given)
    hank, data, is_implied = place(given)
    from hankweave_server.cli.shared import hank_loading
    from hankweave_server.local import executions

    hank = None if hank is None else hank_loading.file_of(hank)
    found = resolved(given, hank, others)
    begin_at, until = given["begin_at"], given["until"]
    settings = RunSettings(
        hank=hank,
        data=data,
        data_is_implied=is_implied,
        execution=given["execution"],
        workspace=given["workspace"],
        adopted_state=given["adopt_state"],
        executions_root=executions.executions_root(),
        headless=given["headless"],
        keep_running=given["keep_running"],
        unattended=not sys.stdout.isatty(),
        plan_on_record=given["for_a_moment"],
        begin_at=None if begin_at is None else CodonId(begin_at),
        until=None if until is None else CodonId(until),
        variables=_values_in(given["variables"]),
        copy=given["copy"] or given["input"] is not None or given["data"] == STDIN,
        new=given["new"],
        force=given["force"] or given["ignore_data_mismatch"],
        keep_work_tree=given["no_wipe"],
        yes=given["yes"],
        agent=given["agent"],
        no_token=given["no_token"],
        new_tokens=given["new_tokens"],
        prices=given["prices"],
        of_features={
            feature_of(part): chosen
            for part in parts("run_options")
            if (chosen := part.chosen(given)) is not None
        },
        overwrite_output=given["overwrite_output"],
        plain=given["plain"],
        json_output=given["as_json"],
    )
    settings = configured(settings, found)
    export(found)
    if given["for_a_moment"]:
        # A port that the user has set is that of the server that stays.
        return replace(settings.on_loopback(), port=0, autostart=False, exit_on_complete=False)

    return settings


def _values_in(file: Path | None) -> tuple[tuple[str, str], ...]:
    """Return the variables of a file; raise Stop for one that has none."""
    if file is None:
        return ()

    try:
        values = msgspec.json.decode(file.read_bytes(), type=dict[str, str])
        wrong = [name for name in values if re.fullmatch(NAME, name) is None]
    except FileNotFoundError:
        from hankweave_server.local.executions import nothing_at

        raise nothing_at("file with variables", file) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as fault:
        wrong = [str(fault)]

    if wrong:
        raise Stop(
            f"{file} has no values for variables: {wrong[0]}.",
            ExitCode.BAD_DATA,
            hint='Write names and strings: {"city": "Oslo"}. A name has no spaces.',
        )

    return tuple(values.items())


def export(found: Config) -> None:
    """Set the variables of this process that agents, their checks and sentinels read."""
    if (url := found["anthropicBaseUrl"].value) is not None:
        os.environ["ANTHROPIC_BASE_URL"] = str(url)


def configured(settings: RunSettings, found: Config) -> RunSettings:
    """Return `settings` with the values that options, variables and files can set."""
    idle = _value(found, "shimIdleTimeout", int)
    is_above_hank = found["shimIdleTimeout"].source in _ABOVE_HANK
    profile, reuse = found["confinement"], found["reuse"]
    persistence, output = found["sentinel.enablePersistence"], found["outputDirectory"].value
    state_folder = found["stateDir"].value
    return replace(
        settings,
        port=_value(found, "port", int),
        host=_value(found, "host", str),
        public_url=_optional(found, "publicUrl", str),
        without_tls=_value(found, "withoutTls", bool),
        autostart=_value(found, "autostart", bool),
        exit_on_complete=_optional(found, "exitOnComplete", bool),
        model=_model(found),
        agent_check=not _value(found, "noAgentCheck", bool),
        safe_points=safe_points_named(_value(found, "safePoints", str)),
        confinement=_profile(profile) if profile.source in _ABOVE_HANK else None,
        default_confinement="workspace" if _is_of_hank(profile) else _profile(profile),
        require_confinement=_value(found, "requireConfinement", bool),
        max_cost=_optional(found, "budget.maxDollars", float),
        max_time=_optional(found, "budget.maxTimeSeconds", float),
        max_wait=_optional(found, "maxWait", float),
        output=output.absolute() if isinstance(output, Path) else None,
        state_folder=state_folder.absolute() if isinstance(state_folder, Path) else None,
        idle_seconds=idle if is_above_hank else None,
        default_idle_seconds=idle,
        ignore_rig_failures=_value(found, "ignoreRigFailures", bool),
        sentinel_persistence=None if persistence.is_default else bool(persistence.value),
        tool_result_limit=_value(found, "toolResultTruncateLength", int),
        log_level=cast(LogLevel, _value(found, "logLevel", str)),
        log_format=cast(LogFormat, _value(found, "logFormat", str)),
        watch=cast(WatchMode, _value(found, "watch", str)),
        reuse=bool(reuse.value) if reuse.source in _ABOVE_HANK else None,
        default_reuse=bool(reuse.value) and not _is_of_hank(reuse),
        data_hash_seconds=_value(found, "dataHashTimeLimit", int) / 1000,
    )


def _refuse_contradictions(given: Mapping[str, Any]) -> None:
    if given["workspace"] is not None and (given["execution"] is not None or given["new"]):
        raise click.UsageError("--workspace excludes --execution and --new.")

    for option in ("state_dir", "adopt_state"):
        if given[option] is not None and given["workspace"] is None and given["execution"] is None:
            raise click.UsageError(
                f"--{option.replace('_', '-')} is for a project: name it with --workspace."
            )

    if given["begin_at"] is not None and given["no_autostart"]:
        raise click.UsageError("--from and --no-autostart exclude each other.")

    if given["new_tokens"] and given["no_token"]:
        raise click.UsageError("--new-tokens and --no-token exclude each other.")

    if given["no_wipe"] and not (given["new"] and given["force"]):
        raise click.UsageError("--no-wipe requires --new and --force.")

    if given["input"] is not None and (given["data"] or given["data_option"]):
        raise click.UsageError("--input and DATA exclude each other.")


def _model(found: Config) -> str | None:
    """Return the model for every codon.

    None if it comes from the hank's overrides: loading the hank applies those.
    """
    return None if _is_of_hank(found["model"]) else _optional(found, "model", str)


def _is_of_hank(resolved: Resolved) -> bool:
    return (resolved.name or "").startswith("overrides.")


def _profile(resolved: Resolved) -> ConfinementProfile:
    return cast(ConfinementProfile, resolved.value)


def _value(found: Config, key: str, kind: type[T]) -> T:
    value = found[key].value
    assert isinstance(value, kind), key
    return value


def _optional(found: Config, key: str, kind: type[T]) -> T | None:
    return None if found[key].value is None else _value(found, key, kind)


_KEEP = "keep-work-tree"


def set_aside(layout: Layout, clock: Clock, *, keep_work_tree: bool = False) -> tuple[str, ...]:
    """Rename all parts of an execution, except for a work tree to keep; return the new names.

    Raises LockHeld while a server runs.
    """
    from hankweave_server.runtime_lock.held import acquire

    held = acquire(layout, clock)
    try:
        if not layout.set_aside_intent.exists():
            suffix = f".backup-{instants.epoch_ms(clock.now())}"
            words = [suffix, *([_KEEP] if keep_work_tree else [])]
            fsutil.replace_durably(layout.set_aside_intent, " ".join(words).encode())

        suffix, *kept = layout.set_aside_intent.read_text().split()
        # Removed now because `release` cannot find it after the rename, and because in the renamed
        # directory it would describe no process.
        fsutil.remove_durably(layout.runtime_lock)
        return _renamed(layout, suffix, keep_work_tree=_KEEP in kept)
    finally:
        held.release()


def was_interrupted(layout: Layout) -> bool:
    return layout.set_aside_intent.exists()


def _renamed(layout: Layout, suffix: str, *, keep_work_tree: bool) -> tuple[str, ...]:
    ours = (layout.rig_archive, layout.data_source, layout.state_directory)
    parts = ours if keep_work_tree else (layout.work_tree, *ours)
    for part in parts:
        if os.path.lexists(part):
            # Each rename is durable before the next; the state directory with the intent is last.
            part.rename(part.with_name(part.name + suffix))
            fsutil.sync_directory(layout.root)
            if part == layout.data_source:
                _point_at_renamed_data(layout, suffix)

    aside = (part.name + suffix for part in parts)
    return tuple(name for name in aside if os.path.lexists(layout.root / name))


def _point_at_renamed_data(layout: Layout, suffix: str) -> None:
    """Point the link in the renamed work tree to the renamed data, not to that of its successor."""
    work_tree = layout.work_tree.with_name(layout.work_tree.name + suffix)
    link = work_tree / layout.data_source.name
    if link.is_symlink() and os.readlink(link) == os.path.join("..", layout.data_source.name):
        data_source.point(link, os.path.join("..", layout.data_source.name + suffix))
