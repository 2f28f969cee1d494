"""The git remote of a mirror: one ref, which only a compare-and-swap push moves.

The git program does it, with the settings of the user: their ssh, their credentials. It never asks
(there is no terminal), and it is given up after some seconds, with all that it has started: when a
network drops packets silently, a push would otherwise hang for ever. What transfers a lot may take
as long as something moves.

A push is without force. `--force-with-lease` names the value that the ref must have; a `+` before
the refspec would defeat it. What a push did may stay unknown, if it was given up or its connection
broke: then the remote is asked, and if it cannot be, the push is repeated as it is later. It has
the same outcome whether or not the first one arrived.

Each push has to end in time, because it renews the lease. What is too much for that is *uploaded*
first: pushed to a ref of its own, from which nothing is read, so that little is left for the push.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from hankweave_protocol.ids import Sha
from hankweave_server.plain_text import one_line

LEASE_REF: Final = "refs/hankweave/lease"
"""The only ref of a mirror that counts."""

UPLOAD_REF: Final = "refs/hankweave/upload"
"""The ref that keeps what is being uploaded until the lease leads to it."""

STALLED_SECONDS: Final = 60.0
"""Seconds without progress after which a transfer is given up."""


def side_ref(execution_id: str, commit: Sha) -> str:
    """Return the ref for what a former owner had not pushed when the lease was lost."""
    return f"refs/hankweave/side/{execution_id}-{commit[:12]}"


TIDY_SECONDS: Final = 600.0
"""Seconds after which packing is given up."""

_QUIETLY: Final = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "SSH_ASKPASS": "true",
    "GCM_INTERACTIVE": "never",
    "LC_ALL": "C",
}
_SSH: Final = "ssh -o BatchMode=yes -o ConnectTimeout=10"
_OPTIONS: Final = (
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false"),
    *("-c", "push.followTags=false"),
    *("-c", "push.gpgSign=false"),
    *("-c", "push.recurseSubmodules=no"),
    *("-c", "fetch.recurseSubmodules=no"),
)
_REPOSITORY_VARIABLES: Final = frozenset(
    {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"}
)
_PACKING: Final = ("repack", "-d", "-l", "-q", "--geometric=2")
_CLEANING: Final = ("-c", "gc.cruftPacks=true", "gc", "--quiet", "--prune=1.minute.ago")
_AS_PACKS: Final = (
    "--receive-pack=git -c receive.unpackLimit=1 -c receive.autogc=false receive-pack"
)
"""Lets a repository on a path keep each push as one pack, not as many small files.

Only `clean_up` packs there: what git does by itself makes a small file of each superfluous object.
"""

_LEAVES_OUT: Final = "--upload-pack=git -c uploadpack.allowFilter=true upload-pack"
"""Lets a repository on a path send less than everything."""

_SHA: Final = re.compile("[0-9a-f]{40}")
_PROGRESS: Final = re.compile("(remote: )?(Compressing|Counting|Enumerating|Resolving|Total) ")
_SIZE: Final = re.compile(rb"Writing objects: 100% [^\r\n]*?, ([\d.]+) (bytes|KiB|MiB|GiB)")
_UNITS: Final = {b"bytes": 1, b"KiB": 1 << 10, b"MiB": 1 << 20, b"GiB": 1 << 30}

Outcome = Literal["done", "refused", "not done"]
"""What a push did: moved the ref; found another value there; nothing, so it may be repeated."""


class Unreachable(Exception):
    """The remote did not answer as it should; the message has git's words."""


class NoAnswer(Unreachable):
    """The remote did not answer in time."""


class BadAddress(ValueError):
    """An address cannot be that of a mirror."""


@dataclass(frozen=True, slots=True)
class Uploaded:
    """The outcome of an upload."""

    problem: str | None
    sent_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Pushed:
    """The outcome of a push."""

    outcome: Outcome
    found: Sha | None = None
    """What the ref names, if the push was refused."""
    sent_bytes: int = 0
    problem: str = ""
    is_slow: bool = False
    """Whether the push was given up although the remote can be reached: it may be too large."""


def checked(address: str) -> str:
    """Return the address of a remote, a local one as an absolute path; raise BadAddress."""
    if not address or address.startswith("-") or "\n" in address or "::" in address:
        raise BadAddress(f"{address!r} is not the address of a git repository")

    if "://" in address:
        parts = urlsplit(address)
        if parts.password is not None:
            raise BadAddress(
                "the address contains a password, which would be stored and shown; "
                "let a credential helper of git know it"
            )

        if parts.scheme not in ("https", "http", "ssh", "git", "file"):
            raise BadAddress(f"{parts.scheme}:// is not a transport for a mirror")

        return address

    is_of_ssh = ":" in address.split("/", 1)[0]
    return address if is_of_ssh else str(Path(address).expanduser().absolute())


def _never() -> bool:
    return False


class Remote:
    """The remote of one mirror; blocking, so only for worker threads."""

    def __init__(self, address: str, repository: Path, environment: Mapping[str, str]) -> None:
        """`repository` is the bare repository that is pushed from and fetched into."""
        self.address = address
        self._repository = repository
        self._environment = {
            **{key: text for key, text in environment.items() if key not in _REPOSITORY_VARIABLES},
            **_QUIETLY,
        }
        self._has_upload = False
        """Whether the remote may have the ref of an upload."""
        self._blocked: tuple[tuple[int, int], float] | None = None
        """A lock file of the ref that no push has removed: what identifies it, and since when."""
        if "GIT_SSH_COMMAND" not in environment and "GIT_SSH" not in environment:
            self._environment["GIT_SSH_COMMAND"] = _SSH

    def tip(self, within: float) -> Sha | None:
        """Return what the ref names; None if it does not exist. Raises Unreachable."""
        done = self._git("ls-remote", self.address, LEASE_REF, UPLOAD_REF, within=within)
        if done.returncode:
            raise Unreachable(_error_text(done))

        lines = done.stdout.decode().splitlines()
        refs = {name: sha for sha, _, name in (line.partition("\t") for line in lines)}
        self._has_upload |= UPLOAD_REF in refs
        tip = refs.get(LEASE_REF)
        return Sha(tip) if tip is not None and _SHA.fullmatch(tip) else None

    def fetch(self, within: float | None = None, *, only_commit: bool = False) -> Sha:
        """Fetch everything that the ref leads to, and return what it names; raise Unreachable.

        Without `within`, it takes as long as something moves. With `only_commit`, fetch the commit
        that the ref names, without its parents, and without its tree if the remote can leave that
        out. The repository is incomplete afterwards: it is one that nothing is pushed from.
        """
        options: tuple[str, ...] = ()
        address = self.address
        if only_commit:
            options = ("--depth=1", "--filter=tree:0")
            if self._is_path:
                options = (_LEAVES_OUT, *options)
                address = Path(address).as_uri()  # Git takes no path with a filter.

        spec = f"+{LEASE_REF}:{LEASE_REF}"
        command = ("fetch", "--progress", "--no-tags", "--no-write-fetch-head", *options)
        fetched = self._git(*command, address, spec, within=within)
        if fetched.returncode:
            raise Unreachable(_error_text(fetched))

        found = self._git("rev-parse", "--verify", LEASE_REF, within=STALLED_SECONDS)
        return Sha(found.stdout.decode().strip())

    def push(self, new: Sha, expected: Sha | None, within: float | None = None) -> Pushed:
        """Let the ref name `new` if it names `expected`, or does not exist if that is None.

        Without `within`, it takes as long as something moves. It never raises: what is not known is
        "not done", and may be repeated.
        """
        lease = f"--force-with-lease={LEASE_REF}:{expected or ''}"
        try:
            done = self._push(f"{new}:{LEASE_REF}", lease, within=within)
        except Unreachable as problem:
            return self._asked(new, expected, problem, within)

        sent = _sent(done.stderr)
        if done.returncode == 0:
            return Pushed("done", sent_bytes=sent)

        return self._asked(new, expected, Unreachable(_error_text(done)), within, sent)

    def upload(self, commit: Sha, is_given_up: Callable[[], bool] = _never) -> Uploaded:
        """Send what a commit leads to, as long as something moves, and leave the lease alone.

        `is_given_up` is asked at least once a second. It never raises; `forget_upload` is for what
        arrived only in part, too.
        """
        self._has_upload = True
        try:
            done = self._push(f"+{commit}:{UPLOAD_REF}", is_given_up=is_given_up)
        except Unreachable as problem:
            return Uploaded(str(problem))

        return Uploaded(_error_text(done) if done.returncode else None, _sent(done.stderr))

    def forget_upload(self, within: float) -> None:
        """Remove the ref of an upload, if there is one; what it named stays while the lease does.

        It never raises: a ref that stays is removed the next time.
        """
        if not self._has_upload:
            return

        with suppress(Unreachable):
            done = self._push(f":{UPLOAD_REF}", within=within)
            self._has_upload = done.returncode != 0

    def keep(self, commit: Sha, ref: str) -> bool:
        """Create a ref that no other owner uses; return whether it is there now."""
        try:
            return self._push(f"{commit}:{ref}").returncode == 0
        except Unreachable:
            return False

    def unblock(self, after: float, now: float) -> None:
        """Remove a lock file that a push has left behind which died with its machine.

        That can be detected on a path of this machine alone: the file has been the same for `after`
        seconds, which no push takes. `now` is the time on a clock that does not stop.
        """
        lock = Path(self.address, f"{LEASE_REF}.lock")
        try:
            status = lock.stat() if self._is_path else None
        except OSError:
            status = None

        if status is None:
            self._blocked = None
            return

        found = status.st_ino, status.st_mtime_ns
        if self._blocked is None or self._blocked[0] != found:
            self._blocked = found, now
        elif now - self._blocked[1] >= after:
            self._blocked = None
            with suppress(OSError):  # The next push says what is wrong.
                lock.unlink()

    def clean_up(self, *, thoroughly: bool) -> None:
        """Pack the local repository, and the remote if it is on a path of this machine.

        Each push leaves some small objects that the next one makes superfluous; they are removed
        `thoroughly`, which takes longer. A remote with a server packs itself. Git tolerates pushes
        meanwhile: what is younger than a minute stays.
        """
        places = [self._repository]
        if self._is_path and os.access(self.address, os.W_OK):
            places.append(Path(self.address))

        for place in places:
            with suppress(Unreachable):  # It is packed the next time.
                command = _CLEANING if thoroughly else _PACKING
                self._git(*command, within=TIDY_SECONDS, place=place)

    @property
    def _is_path(self) -> bool:
        return os.path.isabs(self.address)

    def _push(
        self,
        refspec: str,
        *options: str,
        within: float | None = None,
        is_given_up: Callable[[], bool] = _never,
    ) -> subprocess.CompletedProcess[bytes]:
        """Push, for at most some seconds or as long as something moves; raise Unreachable."""
        packs = (_AS_PACKS,) if self._is_path else ()
        command = ("push", *packs, "--porcelain", "--progress", "--no-verify", *options)
        return self._git(*command, self.address, refspec, within=within, is_given_up=is_given_up)

    def _asked(
        self,
        new: Sha,
        expected: Sha | None,
        problem: Unreachable,
        within: float | None,
        sent: int = 0,
    ) -> Pushed:
        """Find out what became of a push that did not succeed."""
        try:
            found = self.tip(STALLED_SECONDS if within is None else within)
        except Unreachable:
            return Pushed("not done", None, sent, str(problem))

        if found == new:
            return Pushed("done", None, sent)

        if found != expected:
            return Pushed("refused", found, sent, str(problem))

        return Pushed("not done", found, sent, str(problem), isinstance(problem, NoAnswer))

    def _git(
        self,
        *command: str,
        within: float | None,
        place: Path | None = None,
        is_given_up: Callable[[], bool] = _never,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run git for at most some seconds, or as long as it prints something.

        Raises Unreachable if it is given up, or cannot be started.
        """
        try:
            process = subprocess.Popen(
                ("git", *_OPTIONS, *command),
                cwd=self._repository if place is None else place,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
            )
        except OSError as error:
            raise Unreachable(f"git cannot be started: {error}") from None

        with process:
            try:
                output, errors = _read_both(process, within, is_given_up)
            except BaseException:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

                raise

        return subprocess.CompletedProcess(command, process.returncode, output, errors)


def _read_both(
    process: subprocess.Popen[bytes], within: float | None, is_given_up: Callable[[], bool]
) -> tuple[bytes, bytes]:
    """Return what a process prints on stdout and stderr until its end; raise NoAnswer.

    Without `within`, it may take as long as it prints something.
    """
    assert process.stdout is not None, "it is a pipe"
    assert process.stderr is not None, "it is a pipe"
    limit = STALLED_SECONDS if within is None else within
    until = time.monotonic() + limit
    output = {process.stdout: bytearray(), process.stderr: bytearray()}
    with selectors.DefaultSelector() as readable:
        for pipe in output:
            readable.register(pipe, selectors.EVENT_READ, output[pipe])

        while readable.get_map():
            left = until - time.monotonic()
            if left <= 0 or is_given_up():
                raise NoAnswer(f"no answer within {limit:.0f} s")

            for key, _ in readable.select(min(left, 1.0)):
                content = os.read(key.fd, 1 << 16)
                key.data.extend(content)
                if not content:
                    readable.unregister(key.fileobj)
                elif within is None:
                    until = time.monotonic() + limit

    try:
        process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise NoAnswer(f"no end within {limit:.0f} s") from None

    return bytes(output[process.stdout]), bytes(output[process.stderr])


def _error_text(done: subprocess.CompletedProcess[bytes]) -> str:
    """Return why git failed: its last line about it."""
    lines = done.stderr.decode("utf-8", "replace").splitlines()
    lines = [line.rstrip() for line in lines if not _PROGRESS.match(line)]
    messages = [line for line in lines if line.startswith(("fatal:", "error:", "remote:", "ssh:"))]
    rejected = [
        line for line in done.stdout.decode("utf-8", "replace").splitlines() if line[:1] == "!"
    ]
    found = messages[:1] or rejected or lines[-1:]
    return one_line(found[0]) if found else f"git ended with exit code {done.returncode}"


def _sent(progress: bytes) -> int:
    """Return how many bytes a push says that it has sent."""
    found = _SIZE.search(progress)
    return 0 if found is None else round(float(found[1]) * _UNITS[found[2]])
