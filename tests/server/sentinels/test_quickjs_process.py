"""Claims about the process that runs sentinels' JavaScript: time limit, replacement, no keys."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hankweave_server.sentinels.templates import javascript
from hankweave_server.sentinels.templates.javascript import (
    JavaScriptError,
    JavaScriptLimit,
    QuickJs,
    summary,
)
from support.waiting import LIMIT, eventually_blocking

VENDOR = Path(javascript.__file__).with_name("vendor")
FOREVER = {"template": "<% while (true) {} %>", "it": {"events": []}, "contents": []}


@pytest.fixture
def quickjs() -> Iterator[QuickJs]:
    engine = QuickJs()
    yield engine
    engine.close()


def worker() -> psutil.Process:
    [child] = [
        each
        for each in psutil.Process().children()
        if any("quickjs_worker" in word for word in each.cmdline())
    ]
    return child


def compile_one(quickjs: QuickJs) -> None:
    assert quickjs.call("eta", "compile", {"template": "<%= 1 %>"}) is None


def test_one_process_serves_many_calls(quickjs: QuickJs) -> None:
    """The process starts with the first call and ends with `close`."""
    assert quickjs.is_idle
    compile_one(quickjs)
    first = worker().pid
    compile_one(quickjs)
    assert worker().pid == first
    quickjs.close()
    assert quickjs.is_idle
    assert not psutil.pid_exists(first)


def test_a_call_that_outlasts_the_wall_clock_is_killed(quickjs: QuickJs) -> None:
    """The wall clock limit holds even if the engine's does not; the next call has a new process."""
    compile_one(quickjs)
    first = worker().pid
    with pytest.raises(JavaScriptLimit, match=r"longer than 0\.5 s"):
        quickjs.call("eta", "render", FOREVER, cpu_seconds=600, wall_seconds=0.5)

    assert not psutil.pid_exists(first)
    compile_one(quickjs)


def test_a_worker_that_dies_is_replaced(quickjs: QuickJs) -> None:
    """Whatever ended it, the call in between fails or already has a new process."""
    compile_one(quickjs)
    dying = worker()
    dying.kill()
    dying.wait()
    compile_one(quickjs)
    assert worker().pid != dying.pid


def test_closing_ends_a_call_that_is_running(quickjs: QuickJs) -> None:
    """A server that stops does not wait for a template."""
    compile_one(quickjs)
    outcome: list[Exception] = []

    def call() -> None:
        try:
            quickjs.call("eta", "render", FOREVER, cpu_seconds=600, wall_seconds=600)
        except JavaScriptError as error:
            outcome.append(error)

    thread = threading.Thread(target=call)
    busy = worker()
    before = busy.cpu_times().user
    thread.start()
    eventually_blocking(lambda: busy.cpu_times().user - before >= 0.05)
    quickjs.close()
    thread.join(LIMIT)
    assert not thread.is_alive()
    assert [type(error) for error in outcome] == [JavaScriptLimit]


def test_the_worker_has_no_keys_and_few_rights(
    quickjs: QuickJs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker has the environment of an interpreter; it writes no files and opens few."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    monkeypatch.setenv("HANKWEAVE_TOKEN", "secret")
    compile_one(quickjs)
    process = worker()
    assert "secret" not in process.environ().values()
    assert process.rlimit(psutil.RLIMIT_FSIZE) == (0, 0)
    assert process.rlimit(psutil.RLIMIT_NOFILE)[0] <= 16
    assert process.rlimit(psutil.RLIMIT_AS)[0] <= 2 * 1024**3


def test_a_message_is_reported_without_the_engines_stack() -> None:
    """The message is one line with the part that the template's author can use."""
    error = JavaScriptError("TypeError: no\n\n  more\n    at f (<input>:1:2)\n    at g")
    assert summary(error) == "TypeError: no more"


def test_the_vendored_libraries_are_the_reviewed_ones() -> None:
    """Each file, licences included, has its hash in SHA256SUMS."""
    sums = dict(
        reversed(line.split("  ")) for line in (VENDOR / "SHA256SUMS").read_text().splitlines()
    )
    files = {path.name for path in VENDOR.iterdir()} - {"SHA256SUMS"}
    assert sums.keys() == files
    assert {"eta.js", "zod3.js", "zod4.js", "LICENSE-eta", "LICENSE-zod"} <= files
    for name, expected in sums.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == expected
