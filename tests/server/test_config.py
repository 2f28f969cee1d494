"""Claims about settings: every Hankweave setting is known, and the first source wins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hankweave_server import config
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.settings import IDLE_SECONDS

HANKWEAVE = (
    *("port", "autostart", "withoutProxy", "showCosts", "idleTimeout", "executionBaseDir"),
    *("lockFile", "serverLogFile", "socketLogFile", "outputDirectory", "logParsingInterval"),
    *("dataHashTimeLimit", "toolResultTruncateLength", "handshakeHistoryLimit"),
    *("dietOnFinalize", "journalDietThresholdBytes", "sentinel.enablePersistence"),
    *("sentinel.healthCheckGracePeriodMs", "sentinel.waitForAllHealthChecks", "model"),
    *("anthropicBaseUrl", "ignoreRigFailures", "telemetry", "shimIdleTimeout"),
    *("budget.maxDollars", "budget.maxTimeSeconds"),
)
"""All settings of Hankweave 0.12."""


def file_of(tmp_path: Path, **content: object) -> config.Layer:
    read = config.of_file(tmp_path / "hankweave.json", content)
    assert read.warnings == ()
    return read.layer


@pytest.mark.parametrize("key", HANKWEAVE)
def test_every_setting_of_hankweave_has_an_effect_or_says_why_not(key: str) -> None:
    """The variable of the same name sets it."""
    setting = config.SETTINGS[key]
    variable = (
        config.PREFIX
        + "".join(
            f"_{letter}" if letter.isupper() else letter for letter in key.replace(".", "_")
        ).upper()
    )
    assert setting.variable == variable
    assert setting.about


def test_the_first_source_that_names_a_setting_decides(tmp_path: Path) -> None:
    """The order is command line, environment, hank, hankweave.json, default."""
    line = config.of_command_line({"shimIdleTimeout": 1, "port": None})
    environment = config.of_environment({"HANKWEAVE_RUNTIME_SHIM_IDLE_TIMEOUT": "2"}).layer
    hank = config.of_hank(tmp_path / "hank.json", {"shimIdleTimeout": 3, "budget": {}})
    file = file_of(tmp_path, shimIdleTimeout=4)
    layers = [line, environment, hank, file]
    for expected in (1, 2, 3, 4, IDLE_SECONDS):
        found = config.resolve(layers)["shimIdleTimeout"]
        assert found.value == expected
        assert found.is_default == (expected is IDLE_SECONDS)
        layers = layers[1:]


def test_values_are_read_as_their_kind() -> None:
    """The text of a variable is read as a JSON value."""
    read = config.of_environment(
        {
            "HANKWEAVE_RUNTIME_PORT": "7777",
            "HANKWEAVE_RUNTIME_AUTOSTART": "0",
            "HANKWEAVE_RUNTIME_SENTINEL_ENABLE_PERSISTENCE": "false",
            "HANKWEAVE_RUNTIME_BUDGET_MAX_DOLLARS": "1.5",
            "HANKWEAVE_RUNTIME_OUTPUT_DIRECTORY": "out",
            "HANKWEAVE_RUNTIME_MODEL": "",
            "HANKWEAVE_X": "not ours",
        }
    )
    assert read.warnings == ()
    assert read.layer.values == {
        "port": 7777,
        "autostart": False,
        "sentinel.enablePersistence": False,
        "budget.maxDollars": 1.5,
        "outputDirectory": Path("out"),
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("PORT", "abc"),
        ("PORT", "70000"),
        ("AUTOSTART", "maybe"),
        ("SHIM_IDLE_TIMEOUT", "1801"),
        ("IDLE_TIMEOUT", "256"),
        ("BUDGET_MAX_DOLLARS", "nan"),
        ("BUDGET_MAX_DOLLARS", "0"),
        ("BUDGET_MAX_TIME_SECONDS", "0"),
        ("ANTHROPIC_BASE_URL", "localhost"),
        ("SAFE_POINTS", "sometimes"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(name: str, text: str) -> None:
    """The exit code is 78, and the message says what was expected."""
    with pytest.raises(Stop) as stop:
        config.of_environment({f"HANKWEAVE_RUNTIME_{name}": text})

    assert stop.value.exit_code is ExitCode.CONFIGURATION
    assert stop.value.message.startswith(f"HANKWEAVE_RUNTIME_{name} is ")


def test_an_unknown_name_is_warned_about_with_the_nearest_known() -> None:
    """The environment and the file are checked; settings that an option reads itself are known."""
    read = config.of_environment(
        {"HANKWEAVE_RUNTIME_PRT": "1", "HANKWEAVE_RUNTIME_LOUD": "1"}, ["HANKWEAVE_RUNTIME_LOUD"]
    )
    assert read.warnings == (
        "HANKWEAVE_RUNTIME_PRT is set, but there is no such setting. Did you mean "
        "HANKWEAVE_RUNTIME_PORT?",
    )
    (warning,) = config.of_file(Path("hankweave.json"), {"outputDir": "x"}).warnings
    assert warning.endswith("there is no setting 'outputDir'. Did you mean outputDirectory?")


def test_what_cannot_be_had_here_is_refused_with_the_reason(tmp_path: Path) -> None:
    """A proxy or other places for files are refused, except a value that is already in effect."""
    config.resolve([file_of(tmp_path, withoutProxy=True)])
    for content in ({"withoutProxy": False}, {"lockFile": "x"}, {"handshakeHistoryLimit": 9}):
        with pytest.raises(Stop) as stop:
            config.resolve([file_of(tmp_path, **content)])

        assert stop.value.exit_code is ExitCode.CONFIGURATION
        assert "hankweave.json" in (stop.value.hint or "")


def test_a_setting_without_effect_is_reported_where_it_was_set(tmp_path: Path) -> None:
    """Defaults, and values that are already in effect, cause no message."""
    layer = file_of(
        tmp_path,
        showCosts=True,
        dietOnFinalize=False,
        telemetry={"enabled": False},
        idleTimeout=30,
        journalDietThresholdBytes=1,
    )
    notes = config.notes_on(config.resolve([layer]))
    assert [note.split()[0] for note in notes] == ["idleTimeout", "journalDietThresholdBytes"]
    assert config.notes_on(config.resolve([])) == []


def test_a_file_is_read_or_refused_with_its_place(tmp_path: Path) -> None:
    """A missing file is None; one that is not JSON, or not an object, causes exit code 78."""
    path = tmp_path / "hankweave.json"
    assert config.read_file(path) is None
    path.write_text(json.dumps({"sentinel": {"enablePersistence": False}, "$schema": "x"}))
    read = config.read_file(path)
    assert read is not None
    assert read.layer.values == {"sentinel.enablePersistence": False}
    for text, message in (('{"port": }', "line 1, column 10"), ("[]", "expected an object")):
        path.write_text(text)
        with pytest.raises(Stop, match=message) as stop:
            config.read_file(path)

        assert stop.value.exit_code is ExitCode.CONFIGURATION
