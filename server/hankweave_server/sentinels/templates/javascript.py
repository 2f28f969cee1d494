"""Evaluate the JavaScript of Hankweave's sentinels: Eta templates and zod schemas.

Eta is Hankweave's template language: JavaScript between `<%` and `%>`. It runs with Hankweave's
options. A template sees `it` with `events`, `codon`, `sentinel` and `world`; times are Dates, as in
Hankweave.

A zod schema is JavaScript that evaluates to a schema. zod converts it to the JSON Schema that a
model has to fill, and checks the answer, including refinements, defaults and transforms, which JSON
Schema cannot express. Hankweave uses version 3; a text that only version 4 accepts is evaluated by
version 4.

Both are untrusted code of the hank's author. They run in QuickJS with the original libraries, in a
process of their own (`quickjs_worker`), for three reasons. QuickJS's time limit counts the CPU time
of the whole process and would fire early beside other threads. A bug in the engine must not crash
the server. And a process can be killed after a wall-clock time, which is the limit that always
works.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import selectors
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from hankweave_server.sentinels.structured import BadAnswer, BadSchema, Schema
from hankweave_server.sentinels.templates.base import BadTemplate, NotRendered, RenderLimit

Library = Literal["eta", "zod3", "zod4"]

WORKER: Final = Path(__file__).with_name("quickjs_worker.py")

CPU_SECONDS: Final = 2.0
"""CPU time of one call."""

WALL_SECONDS: Final = 30.0
"""Wall-clock time after which the process is killed, however busy the machine is."""

LARGEST_RESULT: Final = 4 * 1024 * 1024
"""Characters of JSON."""

_KEPT_VARIABLES = ("LD_LIBRARY_PATH", "PATH", "PYTHONHOME", "PYTHONPATH", "TZ")
"""Variables that the worker gets: those that an interpreter needs, and no keys."""

_LENGTH = struct.Struct(">I")

MISSING: Final = (
    "QuickJS, which runs Eta templates and zod schemas, is not installed: "
    "pip install 'hankweave[sentinels-js]'."
)


class JavaScriptError(Exception):
    """The JavaScript failed, with a syntax error or an exception."""


class JavaScriptLimit(JavaScriptError):
    """The JavaScript took too long, or its result is too large."""


class JavaScriptMissing(JavaScriptError):
    """QuickJS is not installed."""


def summary(error: JavaScriptError) -> str:
    """Return the error message in one line, without the engine's stack trace."""
    lines: list[str] = []
    for line in str(error).splitlines():
        if line.startswith(("    at ", "====")):
            break

        if line.strip():
            lines.append(line.strip())

    return " ".join(lines)[:500]


class QuickJs:
    """A worker process that the first call starts. Thread-safe.

    A call blocks. After a kill or a crash the next call starts a new process.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def call(
        self,
        library: Library,
        entry: str,
        arguments: Mapping[str, Any],
        *,
        cpu_seconds: float = CPU_SECONDS,
        wall_seconds: float = WALL_SECONDS,
    ) -> Any:
        """Call an entry point of `host.js` with JSON values, and return its result.

        Raises JavaScriptError, and JavaScriptLimit if it was stopped.
        """
        request = {
            "library": library,
            "entry": entry,
            "arguments": arguments,
            "seconds": cpu_seconds,
            "most": LARGEST_RESULT,
        }
        with self._lock:
            answer = self._exchange(json.dumps(request).encode(), wall_seconds)

        if "limit" in answer:
            raise JavaScriptLimit(f"{answer['limit']}.")

        if "error" in answer:
            raise JavaScriptError(answer["error"])

        return json.loads(answer["result"])

    @property
    def is_idle(self) -> bool:
        """True if no process is running."""
        return self._process is None

    def close(self) -> None:
        """Kill the process, even during a call; a later call starts another one."""
        process = self._process
        if process is not None:
            process.kill()  # A call that waits for it fails and releases the lock.

        with self._lock:
            self._end()

    def _exchange(self, request: bytes, wall_seconds: float) -> dict[str, Any]:
        deadline = time.monotonic() + wall_seconds
        process = self._running()
        assert process.stdin is not None
        try:
            process.stdin.write(_LENGTH.pack(len(request)) + request)
            process.stdin.flush()
            header = self._read(process, _LENGTH.size, deadline)
            answer: dict[str, Any] = json.loads(
                self._read(process, _LENGTH.unpack(header)[0], deadline)
            )
        except BaseException as error:
            self._end()
            if isinstance(error, TimeoutError):
                raise JavaScriptLimit(f"it took longer than {wall_seconds:g} s.") from None

            if isinstance(error, OSError | EOFError):
                raise JavaScriptLimit("the process that ran it exited.") from None

            raise

        return answer

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process

        self._end()
        if importlib.util.find_spec("quickjs") is None:
            raise JavaScriptMissing(MISSING)

        environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=environment,
            start_new_session=True,
        )
        return self._process

    @staticmethod
    def _read(process: subprocess.Popen[bytes], size: int, deadline: float) -> bytes:
        assert process.stdout is not None
        pieces, missing = [], size
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while missing:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError

                piece = os.read(process.stdout.fileno(), missing)
                if not piece:
                    raise EOFError

                pieces.append(piece)
                missing -= len(piece)

        return b"".join(pieces)

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return

        process.kill()
        with contextlib.suppress(OSError), process:
            pass


OPENING: Final = "<%"

MOST_EVENTS: Final = 1000
"""As in Hankweave, a template sees the first 1,000 events of a trigger."""

MOST_CONTENT: Final = 8 * 1024 * 1024
"""Characters of files that one template sees."""


class EtaTemplate:
    """One prompt. Raises BadTemplate if it is not valid or QuickJS is missing."""

    def __init__(self, source: str, quickjs: QuickJs) -> None:
        self._source = source
        self._quickjs = quickjs
        if OPENING not in source:
            return  # Eta does not change such a text, so no engine is needed.

        try:
            quickjs.call("eta", "compile", {"template": source})
        except JavaScriptMissing as missing:
            raise BadTemplate(str(missing)) from None
        except JavaScriptError as error:
            raise BadTemplate(f"The template is not valid Eta: {summary(error)}") from None

    def render(self, context: Mapping[str, Any]) -> str:
        """Render. Blocks; raises NotRendered, and RenderLimit if a limit is exceeded."""
        if OPENING not in self._source:
            return self._source

        events = list(context["events"][:MOST_EVENTS])
        arguments = {
            "template": self._source,
            "it": {**context, "events": events},
            "contents": self._contents(events),
        }
        try:
            rendered: str = self._quickjs.call("eta", "render", arguments)
        except JavaScriptLimit as error:
            raise RenderLimit(f"The template was stopped: {error}") from None
        except JavaScriptError as error:
            raise NotRendered(f"The template failed: {summary(error)}") from None

        return rendered

    def _contents(self, events: Sequence[Mapping[str, Any]]) -> list[tuple[int, str]]:
        """Read the files of `file.updated` events, if the template may access `content`."""
        if "content" not in self._source:
            return []

        contents: list[tuple[int, str]] = []
        left = MOST_CONTENT
        for index, event in enumerate(events):
            if event["type"] == "file.updated":
                text = event["data"]["content"][:left]
                left -= len(text)
                contents.append((index, text))

        return contents


_VERSIONS: tuple[Library, ...] = ("zod3", "zod4")


class ZodSchema:
    """A zod schema. Raises BadSchema if the text is not valid."""

    def __init__(self, source: str, quickjs: QuickJs) -> None:
        self._source = source
        self._quickjs = quickjs
        self._version, self.json_schema = self._converted()

    def _converted(self) -> tuple[Library, Schema]:
        first: JavaScriptError | None = None
        for version in _VERSIONS:
            try:
                schema = self._quickjs.call(version, "schema", {"source": self._source})
            except (JavaScriptLimit, JavaScriptMissing) as error:
                raise BadSchema(f"The zod schema cannot be evaluated: {summary(error)}") from None
            except JavaScriptError as error:
                first = first or error
            else:
                # OpenAI rejects the key inside a schema, and the dialect is clear without it.
                return version, {key: each for key, each in schema.items() if key != "$schema"}

        assert first is not None, "each version failed"
        raise BadSchema(f"The zod schema is not valid: {summary(first)}")

    def parse(self, value: Any, *, is_array: bool) -> Any:
        """Check an answer, or each element of one, and return zod's result; raises BadAnswer."""
        arguments = {"source": self._source, "isArray": is_array, "value": value}
        try:
            found = self._quickjs.call(self._version, "parse", arguments)
        except JavaScriptError as error:
            raise BadAnswer(f"The zod schema failed on the answer: {summary(error)}") from None

        if "message" in found:
            place = "".join(f"[{step!r}]" for step in found["path"])
            raise BadAnswer(f"At ${place} of the answer: {found['message'][:300]}.")

        return found.get("value")
