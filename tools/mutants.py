"""Plant known faults in the source, one at a time, and count those that the tests notice.

usage: tools/mutants.py [NUMBER...|AREA...]

A gate that is green says something only if its tests see faults. `mutants.toml` lists 60 that a
person could make in code that must not fail: a flush left out, a record acknowledged too early.
Each is put into a private copy of the last commit, where the gate's tests of that area run until
one fails twice. The list and its order are fixed, so that each run is the same. At least `REQUIRED`
of the faults must be noticed; of a selection, all. The exit code says whether they were.

First the tests of each area run without a fault: they must pass, or nothing would be proven by a
failure. Each copy is also checked to be what is imported, by a test and by a server that a test
starts: the environment has the checkout installed.

Libraries for mutation testing (mutmut, cosmic-ray) generate faults from the syntax: thousands, most
of no consequence to a user. This list has few, each with a known effect.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

TOP = Path(__file__).resolve().parent.parent
LIST = TOP / "tools" / "mutants.toml"

GATE = "--gate"
"""The option of pytest that selects the tests of the gate."""

REQUIRED = 57
SIDE_BY_SIDE = 2

TEST_LIMIT = 90
"""Seconds after which a test hangs; a fault that makes it hang is noticed."""
LIMIT = 1800
"""The same for all tests of an area, if even pytest hangs."""

PACKAGES = ("server", "protocol")
_TIMEOUT = "from pytest-timeout"
"""What pytest says of a test that hangs."""
_OUTCOME = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)


class Unusable(Exception):
    """A list, copy or test that proves nothing."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: a few lines of a file, and what they become."""

    number: int
    area: str
    file: str
    before: str
    after: str
    effect: str
    """What a user loses by it."""

    def planted(self, source: str) -> str:
        """Return the source with the fault; raise Unusable unless it fits exactly once."""
        lines = re.compile(f"^{re.escape(self.before)}", re.MULTILINE)
        if (count := len(lines.findall(source))) != 1:
            raise Unusable(
                f"Fault {self.number} ({self.area}) fits {count} times in {self.file}: "
                f"correct it in tools/mutants.toml.\n{self.before}"
            )

        return lines.sub(lambda _: self.after, source)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one run of tests."""

    noticed_by: str | None
    """The test that failed; None if all passed."""
    seconds: float
    output: str
    flaky: tuple[str, ...] = ()
    """Tests that failed, but passed alone."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A private copy of the last commit."""

    path: Path

    @classmethod
    def made(cls, path: Path) -> Copy:
        """Clone the checkout, with the modules that were compiled there."""
        clone = ["git", "clone", "--quiet", "--shared", "--no-tags", str(TOP), str(path)]
        subprocess.run(clone, check=True)
        for package in PACKAGES:
            for compiled in (TOP / package).rglob("*.so"):
                shutil.copy2(compiled, path / compiled.relative_to(TOP))

        copy = cls(path)
        copy.require_imported()
        return copy

    @property
    def environment(self) -> dict[str, str]:
        paths = os.pathsep.join(str(self.path / package) for package in PACKAGES)
        return os.environ | {"PYTHONPATH": paths}

    def require_imported(self) -> None:
        """Raise Unusable unless tests, and the servers that they start, run this source."""
        in_process = "import hankweave_server, sys; sys.stderr.write(hankweave_server.__file__)"
        # As the tests start a server; Python then names each module that it loads.
        in_server = (
            "import subprocess; from support.running_server import command, environment; "
            "subprocess.run(command('--version'), env=environment(PYTHONVERBOSE='1'), check=True)"
        )
        tests = self.environment["PYTHONPATH"] + os.pathsep + str(self.path / "tests")
        for program, environment in (
            (in_process, self.environment),
            (in_server, self.environment | {"PYTHONPATH": tests}),
        ):
            words = [sys.executable, "-c", program]
            done = subprocess.run(
                words, cwd=self.path, env=environment, text=True, capture_output=True, check=True
            )
            wanted = str(self.path / "server" / "hankweave_server" / "__init__.py")
            unwanted = str(TOP / "server" / "hankweave_server")
            if wanted not in done.stderr or unwanted in done.stderr:
                raise Unusable(f"The copy in {self.path} is not the source that is imported.")

    @contextmanager
    def planted(self, fault: Fault) -> Iterator[None]:
        """Put a fault into the copy for the time of the block."""
        path = self.path / fault.file
        original, status = path.read_text(), path.stat()
        path.write_text(fault.planted(original))
        # Bytecode is found by time and size of the source: each content needs a time of its own.
        os.utime(path, (status.st_atime, status.st_mtime + 10 * fault.number))
        try:
            yield
        finally:
            path.write_text(original)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def test(self, tests: Sequence[str]) -> Outcome:
        """Run tests until one fails, and fails again alone; raise Unusable if none can run.

        The gate passes, too, if a test that failed passes alone: then the others decide.
        """
        started = time.monotonic()
        flaky: list[str] = []
        while True:
            others = (f"--deselect={test}" for test in flaky)
            failed, output = self._run([*tests, *others])
            if failed is None or _TIMEOUT in output or not self._passes(failed):
                return Outcome(failed, time.monotonic() - started, output, tuple(flaky))

            flaky.append(failed)

    def _passes(self, test: str) -> bool:
        try:
            return self._run([test])[0] is None
        except Unusable:
            return False  # Its file cannot be imported, or pytest has shortened its name.

    def _run(self, arguments: Sequence[str]) -> tuple[str | None, str]:
        """Return the first test that failed, None if all passed, and the output."""
        temporary = self.path.with_name(f"{self.path.name}-tests")
        words = [sys.executable, "-m", "pytest", GATE, "-x", "-q", "--no-header", "--tb=short"]
        words += [f"--timeout={TEST_LIMIT}", f"--basetemp={temporary}", *arguments]
        with subprocess.Popen(
            words,
            cwd=self.path,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                return "hung", _TIMEOUT
            finally:
                # Also what a test has left behind.
                _kill_session(process)

        if process.returncode == 0:
            return None, output

        found = _OUTCOME.search(output)
        if process.returncode not in (1, 2) or found is None:
            raise Unusable(f"The tests could not run:\n{output}")

        return found[1], output


def _kill_session(process: subprocess.Popen[str]) -> None:
    """Kill the process group of a process that was started in a session of its own."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def read_list(path: Path = LIST) -> tuple[dict[str, list[str]], list[Fault]]:
    """Return the tests of each area, and the faults in their order."""
    content = tomllib.loads(path.read_text())
    return content["areas"], [Fault(**fault) for fault in content["faults"]]


def selected(faults: Sequence[Fault], names: Sequence[str]) -> list[Fault]:
    """Return the faults with one of the numbers or areas; all without any."""
    known = {str(fault.number) for fault in faults} | {fault.area for fault in faults}
    if unknown := [name for name in names if name not in known]:
        raise Unusable(f"There is no fault or area {unknown[0]}.")

    return [f for f in faults if not names or str(f.number) in names or f.area in names]


class Campaign:
    """A run of some faults, in several copies side by side."""

    def __init__(self, copies: Sequence[Copy], tests: dict[str, list[str]]) -> None:
        self._tests = tests
        self._idle: SimpleQueue[Copy] = SimpleQueue()
        for copy in copies:
            self._idle.put(copy)

    def baseline(self, area: str) -> float:
        """Run the tests of an area without a fault; raise Unusable if one fails."""
        copy = self._idle.get()
        try:
            outcome = copy.test(self._tests[area])
        finally:
            self._idle.put(copy)

        if outcome.noticed_by is not None:
            raise Unusable(
                f"Without a fault, the tests of {area} fail: {outcome.noticed_by}\n{outcome.output}"
            )

        return outcome.seconds

    def noticed(self, fault: Fault) -> Outcome:
        """Run the tests of a fault's area with it."""
        copy = self._idle.get()
        try:
            with copy.planted(fault):
                return copy.test(self._tests[fault.area])
        finally:
            self._idle.put(copy)


def run(names: Sequence[str]) -> int:
    """Run the selected faults and print the results; return the exit code."""
    tests, every = read_list()
    faults = selected(every, names)
    areas = dict.fromkeys(fault.area for fault in faults)
    escaped: list[Fault] = []
    status = ["git", "-C", str(TOP), "status", "--porcelain", "--untracked-files=no"]
    if subprocess.run(status, check=True, capture_output=True).stdout:
        print("note: the copies are of the last commit, without your changes", file=sys.stderr)

    with tempfile.TemporaryDirectory(prefix="hankweave-mutants-") as folder:
        copies = [Copy.made(Path(folder, f"copy-{n}")) for n in range(1, SIDE_BY_SIDE + 1)]
        for fault in faults:
            fault.planted((copies[0].path / fault.file).read_text())

        campaign = Campaign(copies, tests)
        pool = ThreadPoolExecutor(SIDE_BY_SIDE)
        try:
            for area, seconds in zip(areas, pool.map(campaign.baseline, areas), strict=True):
                _print(f"    {area:<9} passes without a fault  {seconds:.1f} s")

            for fault, outcome in zip(faults, pool.map(campaign.noticed, faults), strict=True):
                _print(described(fault, outcome))
                if outcome.noticed_by is None:
                    escaped.append(fault)
        finally:
            pool.shutdown(cancel_futures=True)

    _print(f"{len(faults) - len(escaped)} of {len(faults)} noticed")
    for fault in escaped:
        _print(f"{fault.number:>3} {fault.area:<9} {fault.file}: {fault.effect}")

    return 0 if len(escaped) <= (0 if names else len(every) - REQUIRED) else 1


def described(fault: Fault, outcome: Outcome) -> str:
    """Return the line that reports a fault."""
    found = outcome.noticed_by
    told = "ESCAPED" if found is None else "hung" if found == "hung" else f"noticed by {found}"
    flaky = "".join(f"\n    FLAKY {test}" for test in outcome.flaky)
    return f"{fault.number:>3} {fault.area:<9} {told}  {outcome.seconds:.1f} s{flaky}"


def _print(line: str) -> None:
    print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Count the planted faults that the tests notice.")
    parser.add_argument("names", nargs="*", metavar="NUMBER|AREA", help="all faults without any")
    try:
        sys.exit(run(parser.parse_args().names))
    except Unusable as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main()
