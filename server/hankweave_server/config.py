"""Settings from several sources, and their precedence.

Hankweave's own settings have four sources: the command line, `HANKWEAVE_RUNTIME_*` variables, the
`overrides` of the hank and `hankweave.json`; the first that names a setting wins. `SETTINGS` lists
all of them, Hankweave's and this server's. A setting without a meaning here is reported when it is
set: with a note if that does no harm, with a refusal if it would change what is done.

All functions are pure except `read_file`.
"""

from __future__ import annotations

import difflib
import ipaddress
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

from hankweave_protocol.hank import ConfinementProfile
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.settings import (
    IDLE_SECONDS,
    LOOPBACK,
    LogFormat,
    LogLevel,
    WatchMode,
    duration,
    safe_points_named,
)

PREFIX: Final = "HANKWEAVE_RUNTIME_"
WEBHOOK_SECRET: Final = "HANKWEAVE_RUNTIME_WEBHOOK_SECRET"
"""The environment variable with the secret that signs webhooks."""

FILE: Final = "hankweave.json"
COMMAND_LINE: Final = "the command line"
ENVIRONMENT: Final = "the environment"

Parse = Callable[[object], object]
"""Converts a JSON value, or the text of a variable, to a setting; raises ValueError."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting and its description."""

    key: str
    """As in hankweave.json; a dot leads into an object."""
    parse: Parse
    default: object
    about: str
    option: str | None = None
    """The option of `hankweave run` that sets it."""
    no_effect: str | None = None
    """Why a value changes nothing here."""
    refusal: Callable[[object], str | None] = lambda _value: None
    """Returns why a value is not supported here, or None."""

    @property
    def variable(self) -> str:
        words = re.sub(r"([A-Z])", r"_\1", self.key).replace(".", "_")
        return PREFIX + words.upper()


@dataclass(frozen=True, slots=True)
class Layer:
    """The settings of one source."""

    source: str
    """For display: `the command line`, a file."""
    values: Mapping[str, object]
    names: Mapping[str, str]
    """The name of each key at this source: an option, a variable, a key of a file."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The value of a setting, and its source."""

    setting: Setting
    value: object
    source: str
    name: str | None = None
    """Its name at the source; None for a default."""

    @property
    def is_default(self) -> bool:
        return self.name is None


Config = Mapping[str, Resolved]


# --- values ---------------------------------------------------------------------------------------


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value

    if isinstance(value, str) and value.strip().lower() in ("true", "1"):
        return True

    if isinstance(value, str) and value.strip().lower() in ("false", "0"):
        return False

    raise ValueError("expected true or false")


def _integer(low: int, high: int | None = None) -> Parse:
    def parse(value: object) -> int:
        number = value
        if isinstance(value, str) and re.fullmatch(r"\d{1,15}", value.strip()):
            number = int(value)

        if isinstance(number, bool) or not isinstance(number, int):
            raise ValueError("expected a whole number")

        if number < low or (high is not None and number > high):
            upper = "" if high is None else f" and at most {high}"
            raise ValueError(f"expected at least {low}{upper}")

        return number

    return parse


def _amount(value: object) -> float:
    number = value
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            number = None

    if isinstance(number, bool) or not isinstance(number, int | float):
        raise ValueError("expected a number")

    if not math.isfinite(number) or number < 0:
        raise ValueError("expected a number of at least 0")

    return float(number)


def _budget(value: object) -> float:
    limit = _amount(value)
    if limit == 0:
        raise ValueError("expected a number above 0; without the setting, there is no limit")

    return limit


def _duration(value: object) -> float:
    return duration(value) if isinstance(value, str) else _amount(value)


def _text(value: object) -> str:
    if isinstance(value, str) and value.strip():
        return value

    raise ValueError("expected text")


def _one_of(words: tuple[str, ...]) -> Parse:
    def parse(value: object) -> str:
        if isinstance(value, str) and value.strip().lower() in words:
            return value.strip().lower()

        raise ValueError(f"expected one of {', '.join(words)}")

    return parse


def _path(value: object) -> Path:
    return Path(_text(value)).expanduser()


def _url(value: object) -> str:
    text = _text(value)
    if re.match(r"https?://[^/\s]+", text):
        return text

    raise ValueError("expected an address that begins with http:// or https://")


def _address(value: object) -> str:
    text = _text(value).strip()
    if text == "localhost":
        return LOOPBACK

    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        address = None

    if address is None or "%" in text:
        raise ValueError(f"expected an IP address, such as {LOOPBACK}, or 0.0.0.0 for all")

    return str(address)


def _origin(value: object) -> str:
    """Return an address as the Origin header of a browser has it."""
    text = _text(value).strip().lower()
    found = re.fullmatch(r"(https?)://([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::(\d{1,5}))?/?", text)
    if found is None:
        raise ValueError(
            "expected an address without a path, such as https://hankweave.example.org"
        )

    scheme, name, port = found.groups()
    if port is not None and int(port) > 65535:
        raise ValueError("expected a port of at most 65535")

    if name.startswith("["):
        name = f"[{ipaddress.IPv6Address(name[1:-1])}]"

    is_usual = port is None or int(port) == (443 if scheme == "https" else 80)
    return f"{scheme}://{name}" if is_usual else f"{scheme}://{name}:{int(port)}"


def _safe_points(value: object) -> str:
    text = _text(value)
    safe_points_named(text)
    return text


def _telemetry(value: object) -> object:
    """Reduce an object to its `enabled`: its other keys have no meaning here."""
    if isinstance(value, dict):
        return value.get("enabled", True)

    return _boolean(value)


def _refusing(why: str) -> Callable[[object], str | None]:
    return lambda _value: why


# --- the settings ---------------------------------------------------------------------------------

_FIXED = "the files of an execution have fixed paths, so that clients and tools find them"
NO_PROXY: Final = (
    "there is no proxy here: agents connect to their providers directly, and their messages and "
    "usage are in their logs and in the journal"
)
_NO_DIET = "journals are never compressed or moved"

_ALL = (
    Setting(
        "port",
        _integer(0, 65535),
        0,
        "Port; 0 selects that of the last server if it is free, or any other.",
        "--port",
    ),
    Setting("host", _address, LOOPBACK, "IP address to listen on.", "--host"),
    Setting(
        "publicUrl",
        _origin,
        None,
        "Address at which browsers find the page, if not the host and port.",
        "--public-url",
    ),
    Setting(
        "withoutTls",
        _boolean,
        False,
        "Let tokens cross a network without encryption.",
        "--without-tls",
    ),
    Setting("autostart", _boolean, True, "Start the plan at once.", "--no-autostart"),
    Setting(
        "exitOnComplete",
        _boolean,
        None,
        "Exit when the plan ends. Default: if stdout is not a terminal and no client is connected.",
        "--exit-on-complete",
    ),
    Setting("model", _text, None, "Model for all codons.", "--model"),
    Setting(
        "anthropicBaseUrl",
        _url,
        None,
        "Base URL of Anthropic's API, for agents and sentinels.",
        "--anthropic-base-url",
    ),
    Setting("outputDirectory", _path, None, "Directory for copies of output files.", "--output"),
    Setting("executionBaseDir", _path, Path("~/.hankweave-executions"), "Directory of executions."),
    Setting("stateDir", _path, None, "Directory for the histories of projects.", "--state-dir"),
    Setting(
        "dataHashTimeLimit",
        _integer(1),
        5000,
        "Milliseconds for hashing the data; beyond that, only its path identifies it.",
    ),
    Setting(
        "shimIdleTimeout",
        _integer(1, 1800),
        IDLE_SECONDS,
        "Maximum silence of an agent in seconds, for codons that do not set it.",
        "--shim-idle-timeout",
    ),
    Setting(
        "ignoreRigFailures",
        _boolean,
        False,
        "Continue when a rig operation fails.",
        "--ignore-rig-failures",
    ),
    Setting(
        "budget.maxDollars", _budget, None, "Budget of the execution, in US dollars.", "--max-cost"
    ),
    Setting(
        "budget.maxTimeSeconds",
        _budget,
        None,
        "Budget of all codons together, in seconds.",
        "--max-time",
    ),
    Setting(
        "maxWait",
        _duration,
        None,
        "Longest wait for the end of a provider's limit: seconds, or 30m, 8h, 2d; 0 for none.",
        "--max-wait",
    ),
    Setting("sentinel.enablePersistence", _boolean, True, "Save the state of sentinels on disk."),
    Setting(
        "toolResultTruncateLength",
        _integer(1),
        2500,
        "Maximum characters of a tool's result in an event.",
    ),
    Setting("safePoints", _safe_points, "all", "Automatic checkpoints.", "--safe-points"),
    Setting(
        "logLevel",
        _one_of(get_args(LogLevel)),
        "info",
        "Minimum level of server.log: debug, info, warning or error.",
        "--log-level",
    ),
    Setting(
        "logFormat",
        _one_of(get_args(LogFormat)),
        "console",
        "Format of server.log: console or json.",
        "--log-format",
    ),
    Setting(
        "watch",
        _one_of(get_args(WatchMode)),
        "auto",
        "Watch of the work tree, so that a checkpoint costs what changed: auto or off.",
        "--watch",
    ),
    Setting(
        "reuse",
        _boolean,
        False,
        "Take over results of earlier codons with the same inputs instead of running.",
        "--reuse",
    ),
    Setting(
        "noAgentCheck",
        _boolean,
        False,
        "Start even if an agent is missing or not logged in, or a required sentinel cannot load.",
        "--no-agent-check",
    ),
    Setting(
        "confinement",
        _one_of(get_args(ConfinementProfile)),
        "workspace",
        "What agents and commands can reach: workspace, readonly or none (everything).",
        "--confinement",
    ),
    Setting(
        "requireConfinement",
        _boolean,
        False,
        "Refuse to start if agents would run unconfined.",
        "--require-confinement",
    ),
    Setting(
        "withoutProxy",
        _boolean,
        True,
        "Do not use a proxy between agents and their models.",
        "--without-proxy",
        refusal=lambda value: None if value else NO_PROXY,
    ),
    Setting("showCosts", _boolean, True, "Show costs.", no_effect="costs are always shown"),
    Setting(
        "idleTimeout",
        _integer(0, 255),
        0,
        "Seconds after which an idle connection is closed.",
        "--idle-timeout",
        no_effect="lost clients are detected within 40 seconds, and idle ones stay connected",
    ),
    Setting(
        "logParsingInterval",
        _integer(1),
        1000,
        "Milliseconds between two reads of an agent's log.",
        no_effect="output of agents is read at once",
    ),
    Setting(
        "dietOnFinalize",
        _boolean,
        False,
        "Compress the journal when a run has ended.",
        no_effect=_NO_DIET,
    ),
    Setting(
        "journalDietThresholdBytes",
        _integer(1),
        4096,
        "Minimum size of a file body to move out of the journal.",
        no_effect=_NO_DIET,
    ),
    Setting(
        "sentinel.healthCheckGracePeriodMs",
        _integer(1),
        2000,
        "Milliseconds for the health check of a sentinel's model.",
        no_effect="there are no health checks of sentinels' models",
    ),
    Setting(
        "sentinel.waitForAllHealthChecks",
        _boolean,
        False,
        "Wait for the health checks of all sentinels' models.",
        no_effect="there are no health checks of sentinels' models",
    ),
    Setting(
        "telemetry", _telemetry, False, "Anonymous statistics.", no_effect="nothing is ever sent"
    ),
    Setting(
        "handshakeHistoryLimit",
        _integer(1),
        50,
        "Events in the answer to a handshake.",
        refusal=_refusing("it is always 50; `sinceSeq` and `history.sync` return earlier events"),
    ),
    Setting("lockFile", _text, ".hankweave/runtime.lock", "The lock.", refusal=_refusing(_FIXED)),
    Setting(
        "serverLogFile",
        _text,
        ".hankweave/logs/server.log",
        "The log of the server.",
        refusal=_refusing(_FIXED),
    ),
    Setting(
        "socketLogFile",
        _text,
        ".hankweave/logs/websocket.log",
        "The log of WebSocket messages.",
        refusal=_refusing(_FIXED),
    ),
)
SETTINGS: Final[Mapping[str, Setting]] = {setting.key: setting for setting in _ALL}
_BY_VARIABLE: Final = {setting.variable: setting for setting in _ALL}
_OF_A_HANK: Final = frozenset(
    {"model", "dataHashTimeLimit", "shimIdleTimeout", "confinement", "reuse"}
    | {key for key in SETTINGS if key.startswith("sentinel.")}
)
"""Keys allowed in a hank's `overrides`. Their budget is the hank's own, besides this one."""


# --- layers ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Read:
    """A layer, and warnings about it."""

    layer: Layer
    warnings: tuple[str, ...] = ()


def of_command_line(values: Mapping[str, object]) -> Layer:
    """Return the layer of options; those that were not given are None."""
    given = {key: value for key, value in values.items() if value is not None}
    names = {key: SETTINGS[key].option or key for key in given}
    return Layer(COMMAND_LINE, given, names)


def of_environment(environment: Mapping[str, str], known: Iterable[str] = ()) -> Read:
    """Read all `HANKWEAVE_RUNTIME_*` variables; raise Stop for an invalid value.

    `known` are variables with other readers. An unknown one causes a warning.
    """
    values: dict[str, object] = {}
    for name, text in sorted(environment.items()):
        setting = _BY_VARIABLE.get(name)
        if setting is not None and text:
            values[setting.key] = _parsed(setting, text, name)

    layer = Layer(ENVIRONMENT, values, {key: SETTINGS[key].variable for key in values})
    return Read(layer, unknown_variables(environment, known))


def unknown_variables(environment: Mapping[str, str], known: Iterable[str] = ()) -> tuple[str, ...]:
    """Return a warning for each variable that looks like a setting and is none."""
    names = (*_BY_VARIABLE, *known)
    return tuple(
        f"{name} is set, but there is no such setting.{_nearest(name, names)}"
        for name, text in sorted(environment.items())
        if name.startswith(PREFIX) and text and name not in names
    )


def of_file(path: Path, content: object) -> Read:
    """Read the content of a hankweave.json; raise Stop for an invalid value."""
    if not isinstance(content, dict):
        raise _unusable(path, "expected an object")

    values: dict[str, object] = {}
    warnings = []
    for key, value in _flat(content):
        if key == "$schema":
            continue

        setting = SETTINGS.get(key)
        if setting is not None:
            values[key] = _parsed(setting, value, f"{path}: {key}")
        else:
            warnings.append(f"{path}: there is no setting {key!r}.{_nearest(key, SETTINGS)}")

    return Read(Layer(str(path), values, {key: key for key in values}), tuple(warnings))


def of_hank(path: Path, overrides: object) -> Layer:
    """Return the settings in a hank's overrides; the loader of hanks reports invalid ones."""
    values: dict[str, object] = {}
    for key, value in _flat(overrides if isinstance(overrides, dict) else {}):
        if key in _OF_A_HANK:
            try:
                values[key] = SETTINGS[key].parse(value)
            except ValueError:
                continue

    return Layer(str(path), values, {key: f"overrides.{key}" for key in values})


def read_file(path: Path) -> Read | None:
    """Read a hankweave.json; None if there is none. Raises Stop for one that cannot be read."""
    try:
        return of_file(path, json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from None
    except UnicodeDecodeError:
        raise _unusable(path, "it is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise _unusable(path, f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise _unusable(path, "it is nested too deeply") from None


def resolve(layers: Iterable[Layer]) -> Config:
    """Return every setting with its value; the first layer that names it wins.

    Raises Stop for a value that is not supported here.
    """
    ordered = tuple(layers)
    config = {key: _resolved(setting, ordered) for key, setting in SETTINGS.items()}
    for each in config.values():
        why = None if each.is_default else each.setting.refusal(each.value)
        if why is not None:
            raise Stop(
                f"{each.name} cannot be {_shown(each.value)}: {why}.",
                ExitCode.CONFIGURATION,
                hint=f"Remove it from {each.source}.",
            )

    return config


def notes_on(config: Config) -> list[str]:
    """Return a sentence for each setting that was set and has no effect."""
    return [
        f"{each.name} ({each.source}) has no effect here: {each.setting.no_effect}."
        for each in config.values()
        if each.setting.no_effect is not None
        and not each.is_default
        and each.value != each.setting.default
    ]


def _resolved(setting: Setting, layers: tuple[Layer, ...]) -> Resolved:
    for layer in layers:
        if setting.key in layer.values:
            return Resolved(
                setting, layer.values[setting.key], layer.source, layer.names[setting.key]
            )

    return Resolved(setting, setting.default, "default")


def _flat(content: Mapping[Any, object]) -> Iterable[tuple[str, object]]:
    """Yield the keys of an object, with those of `budget` and `sentinel` after a dot."""
    for key, value in content.items():
        if key in ("budget", "sentinel") and isinstance(value, dict):
            for inner, below in value.items():
                yield f"{key}.{inner}", below
        else:
            yield str(key), value


def _parsed(setting: Setting, value: object, name: str) -> object:
    try:
        return setting.parse(value)
    except ValueError as problem:
        raise Stop(
            f"{name} is {_shown(value)}: {str(problem).rstrip('.')}.",
            ExitCode.CONFIGURATION,
            hint=f"{setting.about} `hankweave config` shows all settings.",
        ) from None


def _unusable(path: Path, what: str) -> Stop:
    return Stop(
        f"{path} cannot be used: {what}.",
        ExitCode.CONFIGURATION,
        hint="Correct the file, or remove it: it is optional.",
    )


def _shown(value: object) -> str:
    if isinstance(value, Path):
        return str(value)

    try:
        return json.dumps(value, ensure_ascii=True)
    except (TypeError, ValueError):
        return repr(value)


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {near[0]}?" if near else ""
