"""Load the configuration of a sentinel from a codon's entry, or report all its problems.

An entry contains a sentinel or names its file. References in a sentinel's file are relative to that
file, and must stay below the hank's directory. Reading blocks.

`findings` has the rules beyond the shape of the configuration. Each rule checks one part, so a
fault in one part does not hide faults in another.
"""

from __future__ import annotations

import functools
import json
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, assert_never

import msgspec

from hankweave_protocol.events import EVENTS
from hankweave_protocol.hank import SentinelEntry, SentinelSettings
from hankweave_protocol.sentinels import (
    Condition,
    EventTrigger,
    SentinelConfig,
    SentinelOutputPlace,
    SequenceTrigger,
    StructuredOutput,
)
from hankweave_server.hank import references, shape
from hankweave_server.hank.codon_checks import of_sentinel
from hankweave_server.hank.json_source import NotJson, parse
from hankweave_server.hank.problems import Finding, JsonPath, did_you_mean, path_text
from hankweave_server.hank.prompts import HankFiles, PromptFault
from hankweave_server.hank.rules import JsonNode
from hankweave_server.sentinels.structured import BadSchema, Form, Schema, form_of
from hankweave_server.sentinels.templates.base import (
    LARGEST_TEMPLATE,
    BadTemplate,
    Template,
    engine_of,
    has_only_jinja_tags,
)
from hankweave_server.sentinels.templates.javascript import EtaTemplate, QuickJs, ZodSchema
from hankweave_server.sentinels.templates.jinja import JinjaTemplate
from hankweave_server.sentinels.triggers import (
    EVERY,
    HISTORY_LIMIT,
    ROUTED,
    fault_of_value,
    has_path,
)

_SCHEMAS = ("schemaStr", "schemaFile", "jsonSchema", "jsonSchemaFile")


def findings(raw: dict[str, Any]) -> Iterator[Finding]:
    """Yield faults of a sentinel; parts of the wrong shape are skipped, as `shape` reports them."""
    yield from of_sentinel(JsonNode(raw, ()))
    trigger = _part(raw, "trigger", EventTrigger | SequenceTrigger)
    if trigger is not None:
        yield from _of_trigger(trigger)

    structured = _part(raw, "structuredOutput", StructuredOutput)
    if structured is not None:
        yield from _of_structured(structured)

    output = _part(raw, "output", SentinelOutputPlace)
    if output is not None:
        yield from _of_places(output.file, output.last_value_file, raw, ("output",))


def of_settings(settings: SentinelSettings, raw: dict[str, Any]) -> Iterator[Finding]:
    """Yield faults in a codon's settings for a sentinel."""
    if (paths := settings.output_paths) is not None:
        path = ("settings", "outputPaths")
        yield from _of_places(paths.log_file, paths.last_value_file, raw, path, log_key="logFile")


def _part(raw: dict[str, Any], key: str, shape: Any) -> Any:
    try:
        return msgspec.convert(raw[key], shape)
    except (KeyError, msgspec.ValidationError):
        return None


# --- triggers ---------------------------------------------------------------------------------


def _of_trigger(trigger: EventTrigger | SequenceTrigger) -> Iterator[Finding]:
    match trigger:
        case EventTrigger(on=on, conditions=conditions):
            yield from _of_types(on, ("trigger", "on"))
            yield from _of_conditions(conditions, on, ("trigger", "conditions"))
        case SequenceTrigger():
            yield from _of_sequence(trigger)
        case other:
            assert_never(other)


def _of_sequence(trigger: SequenceTrigger) -> Iterator[Finding]:
    interest = trigger.interest_filter.on
    yield from _of_types(interest, ("trigger", "interestFilter", "on"))
    if len(trigger.pattern) > HISTORY_LIMIT:
        message = f"A pattern can have at most {HISTORY_LIMIT} events."
        yield Finding(("trigger", "pattern"), message)

    for index, step in enumerate(trigger.pattern):
        path = ("trigger", "pattern", index)
        yield from _of_types((step.type,), (*path, "type"))
        yield from _of_conditions(step.conditions, (step.type,), (*path, "conditions"))
        if EVERY not in (*interest, step.type) and step.type not in interest:
            message = f"{step.type!r} is not in the interestFilter: the pattern can never match."
            yield Finding((*path, "type"), message)


def _of_types(types: Sequence[str], path: JsonPath) -> Iterator[Finding]:
    for name in types:
        if name == EVERY or name in ROUTED:
            continue

        if name in EVENTS.members:
            yield Finding(path, f"{name!r} is not available to sentinels.")
        else:
            hint = did_you_mean(name, sorted(ROUTED))
            yield Finding(path, f"There is no event {name!r}.", hint)


def _of_conditions(
    conditions: Sequence[Condition], types: Sequence[str], path: JsonPath
) -> Iterator[Finding]:
    for index, condition in enumerate(conditions):
        fault = fault_of_value(condition)
        if fault is not None:
            yield Finding((*path, index, "value"), fault)

        known = [name for name in types if name in ROUTED]
        is_known = EVERY in types or not known
        if not is_known and not any(has_path(name, condition.path) for name in known):
            message = f"The data of {' or '.join(known)} has no field {condition.path!r}."
            yield Finding((*path, index, "path"), message)


# --- answers ----------------------------------------------------------------------------------


def _of_structured(structured: StructuredOutput) -> Iterator[Finding]:
    texts = (structured.schema_str, structured.schema_file)
    schemas = (*texts, structured.json_schema, structured.json_schema_file)
    given = [schema for schema in schemas if schema is not None]
    path = ("structuredOutput",)
    if structured.output == "enum":
        if given or not structured.enum_values:
            yield Finding(path, "'output': 'enum' requires 'enumValues' and no schema.")
    elif len(given) != 1 or structured.enum_values is not None:
        yield Finding(path, f"Set exactly one of {', '.join(_SCHEMAS)}.")


def _of_places(
    log: str | None,
    last: str | None,
    raw: dict[str, Any],
    path: JsonPath,
    *,
    log_key: str = "file",
) -> Iterator[Finding]:
    is_structured = raw.get("structuredOutput") is not None
    for key, place, endings in (
        (log_key, log, (".ndjson", ".jsonl")),
        ("lastValueFile", last, (".json",)),
    ):
        if place is None:
            continue

        fault = references.fault_of_target(place)
        if fault is not None or place.endswith("/"):
            yield Finding((*path, key), fault or f"{place!r} is a folder.")
        elif is_structured and not place.endswith(endings):
            message = f"A file of structured output must end in {' or '.join(endings)}."
            yield Finding((*path, key), message)


_SHAPE = msgspec.inspect.type_info(SentinelConfig)


class SentinelInvalid(Exception):
    """A sentinel cannot be started; `problems` has all its faults."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(" ".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A checked sentinel; its files are not read again."""

    config: SentinelConfig
    settings: SentinelSettings
    source: Literal["file", "inline"]
    source_path: str | None
    user_prompt: Template
    system_prompt: Template | None
    form: Form | None
    warnings: tuple[str, ...] = ()
    """Remarks on settings that are valid but probably not intended."""


def reference_of(entry: SentinelEntry, index: int) -> str:
    """Return a name for an entry, which may not even have an id."""
    if isinstance(entry.sentinel_config, str):
        return entry.sentinel_config

    name = entry.sentinel_config.get("id")
    return name if isinstance(name, str) and name else f"sentinels[{index}]"


def load_config(entry: SentinelEntry, files: HankFiles, quickjs: QuickJs) -> LoadedConfig:
    """Load one entry; raises SentinelInvalid with all its problems.

    Its templates and schemas run in `quickjs`, which the caller closes when it no longer needs
    them.
    """
    return _Loading(entry, files, quickjs).loaded()


class _Loading:
    def __init__(self, entry: SentinelEntry, files: HankFiles, quickjs: QuickJs) -> None:
        self._files = files
        self._quickjs = quickjs
        self._warnings: list[str] = []
        self._settings = entry.settings or SentinelSettings()
        self._reference = entry.sentinel_config if isinstance(entry.sentinel_config, str) else None
        self._folder = posixpath.dirname(self._reference or "")
        self._found: list[Finding] = []
        self._raw = self._read(entry.sentinel_config)

    def loaded(self) -> LoadedConfig:
        raw = self._raw
        self._found += shape.findings(raw, _SHAPE)
        if isinstance(raw, dict):
            self._found += findings(raw)
            self._found += of_settings(self._settings, raw)

        user = self._template("userPromptFile", "userPromptText")
        system = self._template("systemPromptFile", "systemPromptText")
        form = self._form()
        self._refuse_faulty()
        config = msgspec.convert(raw, SentinelConfig)
        assert user is not None, "a sentinel without a prompt is refused"
        return LoadedConfig(
            config=config,
            settings=self._settings,
            source="inline" if self._reference is None else "file",
            source_path=self._reference,
            user_prompt=user,
            system_prompt=system,
            form=form,
            warnings=tuple(self._warnings),
        )

    def _refuse_faulty(self) -> None:
        if self._found:
            raise SentinelInvalid(list(dict.fromkeys(map(self._described, self._found))))

    def _described(self, found: Finding) -> str:
        hint = "" if found.suggestion is None else f" {found.suggestion}"
        place = path_text(found.path)
        whose = "" if self._reference is None else f"{self._reference}: "
        return f"{whose}{place}: {found.message}{hint}"

    # --- reading ------------------------------------------------------------------------------

    def _read(self, config: str | dict[str, object]) -> Any:
        if isinstance(config, dict):
            return config

        fault = self._files.fault_of_file(config)
        if fault is not None:
            raise SentinelInvalid([fault])

        try:
            source = parse(self._files.text(config))
        except NotJson as error:
            self._found += error.findings
        except (OSError, UnicodeDecodeError) as error:
            raise SentinelInvalid([f"{config!r} cannot be read: {error}."]) from None
        else:
            self._found += source.findings
            return source.value

        self._refuse_faulty()
        raise SentinelInvalid([f"{config!r} is not JSON."])

    def _text_of(self, reference: str, path: JsonPath) -> str | None:
        place = self._place(reference, path)
        if place is None:
            return None

        try:
            return self._files.text(place)
        except (OSError, UnicodeDecodeError):
            self._fault(path, f"{reference!r} cannot be read as text.")
            return None

    def _place(self, reference: str, path: JsonPath) -> str | None:
        """Return the path of a reference below the hank's directory; None with a fault recorded."""
        place = reference if reference[:1] == "/" else posixpath.join(self._folder, reference)
        fault = self._files.fault_of_file(place)
        if fault is None:
            return place

        self._fault(path, fault)
        return None

    def _fault(self, path: JsonPath, message: str) -> None:
        self._found.append(Finding(path, message))

    # --- prompts ------------------------------------------------------------------------------

    def _template(self, file_key: str, text_key: str) -> Template | None:
        """Join the files and then the text with blank lines, and compile one template."""
        parts = list(self._prompt_files(file_key))
        text = self._raw.get(text_key) if isinstance(self._raw, dict) else None
        if isinstance(text, str) and text:
            parts.append(text)

        if not parts:
            return None

        key = text_key if text else file_key
        try:
            return self._engine("\n\n".join(parts), key, tuple(self._names(file_key)))
        except BadTemplate as error:
            self._fault((key,), str(error))
            return None

    def _engine(self, source: str, key: str, files: tuple[str, ...]) -> Template:
        if len(source) > LARGEST_TEMPLATE:
            raise BadTemplate(f"The template is longer than {LARGEST_TEMPLATE} characters.")

        chosen = self._raw.get("templateEngine")
        if engine_of(chosen if chosen in ("eta", "jinja") else None, files) == "jinja":
            return JinjaTemplate(source)

        if chosen is None and has_only_jinja_tags(source):
            self._warnings.append(
                f"{key}: '{{{{' and '{{%' mean nothing in an Eta template and are kept unchanged. "
                "For Jinja, set 'templateEngine': 'jinja', or name the file '….j2'."
            )

        return EtaTemplate(source, self._quickjs)

    def _names(self, key: str) -> Iterator[str]:
        names = self._raw.get(key) if isinstance(self._raw, dict) else None
        for name in [names] if isinstance(names, str) else names or ():
            if isinstance(name, str):
                yield name

    def _prompt_files(self, key: str) -> Iterator[str]:
        for name in self._names(key):
            place = self._place(name, (key,))
            if place is None:
                continue

            try:
                yield self._files.prompt(place).text
            except PromptFault as fault:
                self._fault((key,), str(fault))

    # --- schemas ------------------------------------------------------------------------------

    def _form(self) -> Form | None:
        raw = self._raw.get("structuredOutput") if isinstance(self._raw, dict) else None
        if raw is None:
            return None

        try:
            structured = msgspec.convert(raw, StructuredOutput)
            zod = self._zod(structured)
            if zod is not None:
                parse = functools.partial(zod.parse, is_array=structured.output == "array")
                return None if self._found else form_of(structured, zod.json_schema, parse)

            schema = self._json_schema(structured)
            return None if self._found else form_of(structured, schema)
        except msgspec.ValidationError:
            return None  # The wrong shape is already reported.
        except BadSchema as error:
            self._fault(("structuredOutput",), str(error))
            return None

    def _zod(self, structured: StructuredOutput) -> ZodSchema | None:
        text = structured.schema_str
        if text is None and structured.schema_file is not None:
            text = self._text_of(structured.schema_file, ("structuredOutput", "schemaFile"))

        return None if text is None else ZodSchema(text, self._quickjs)

    def _json_schema(self, structured: StructuredOutput) -> Schema | None:
        if structured.json_schema is not None:
            return structured.json_schema

        if structured.json_schema_file is not None:
            path = ("structuredOutput", "jsonSchemaFile")
            text = self._text_of(structured.json_schema_file, path)
            return None if text is None else _schema_in(text)

        return None


def _schema_in(text: str) -> Schema:
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadSchema(f"The schema file is not JSON: {error}.") from None

    if not isinstance(schema, dict):
        raise BadSchema("The schema file does not contain an object.")

    return schema
