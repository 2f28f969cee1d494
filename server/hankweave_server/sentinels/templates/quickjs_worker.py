"""Run a sentinel's JavaScript: the program of the worker process.

`javascript` starts it as a script, in an interpreter that imports nothing of the server. It
reads requests from stdin and writes answers to stdout, one at a time: a length of four bytes,
big-endian, then JSON. Each request gets a fresh QuickJS context, so a template or schema cannot
affect the next one, and each context has limits on CPU time, memory and stack.

A context only has the language itself: QuickJS has no modules, files, network, timers or processes
unless its host adds them, and this one adds nothing. If the limits of QuickJS fail, those of the
process apply: memory, open files, file size, no core dumps, and the parent's wall-clock timeout.

Values are passed as ASCII JSON, because the binding cuts strings at NUL, truncates integers and
fails on unpaired surrogates.
"""

from __future__ import annotations

import contextlib
import json
import resource
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import quickjs

HERE = Path(__file__).parent
LENGTH = struct.Struct(">I")

MEMORY = 256 * 1024 * 1024
"""Bytes that one context may use."""

STACK = 512 * 1024

PROCESS_MEMORY = 2 * 1024 * 1024 * 1024
"""Bytes; enough for a request of the largest size and the context."""

OPEN_FILES = 16
"""Descriptors; the interpreter and the libraries need a few."""


def main() -> None:
    _limit_process()
    sources: dict[str, str] = {}
    for request in _requests(sys.stdin.buffer):
        answer = json.dumps(_answered(request, sources)).encode()
        sys.stdout.buffer.write(LENGTH.pack(len(answer)) + answer)
        sys.stdout.buffer.flush()


def _limit_process() -> None:
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_AS: PROCESS_MEMORY,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_FSIZE: 0,
    }
    for kind, most in limits.items():
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with contextlib.suppress(ValueError, OSError):  # macOS has no RLIMIT_AS.
            resource.setrlimit(kind, (most, most))


def _requests(stream: BinaryIO) -> Iterator[dict[str, Any]]:
    while len(header := stream.read(LENGTH.size)) == LENGTH.size:
        (length,) = LENGTH.unpack(header)
        yield json.loads(stream.read(length))


def _answered(request: dict[str, Any], sources: dict[str, str]) -> dict[str, Any]:
    """Run one request; failures are answers with `error`, or with `limit` if it was stopped."""
    try:
        context = _context(request["library"], sources)
        context.set_time_limit(request["seconds"])
        context.set("input", json.dumps(request["arguments"]))
        found = context.eval(f"call({json.dumps(request['entry'])}, input)")
    except quickjs.StackOverflow:
        return {"limit": "it recursed too deeply"}
    except quickjs.JSException as error:
        return _failure(str(error).strip())
    except MemoryError:
        return {"limit": "it used too much memory"}

    if not isinstance(found, str):
        return {"error": "the result is not JSON"}

    if len(found) > request["most"]:
        return {"limit": f"it produced more than {request['most']} characters"}

    return {"result": found}


def _failure(message: str) -> dict[str, Any]:
    first = message.partition("\n")[0]
    if "out of memory" in first:
        return {"limit": "it used too much memory"}

    if "interrupted" in first:
        return {"limit": "it took too long"}

    if "stack overflow" in first or "Maximum call stack" in first:
        return {"limit": "it recursed too deeply"}

    return {"error": message}


def _context(library: str, sources: dict[str, str]) -> Any:
    context = quickjs.Context()
    context.set_memory_limit(MEMORY)
    context.set_max_stack_size(STACK)
    for name in (f"vendor/{library}.js", "host.js"):
        if name not in sources:
            sources[name] = (HERE / name).read_text(encoding="utf-8")

        context.eval(sources[name])

    return context


if __name__ == "__main__":
    main()
