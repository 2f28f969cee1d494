"""The git remote of a mirror: one ref, which only a compare-and-swap push moves.

The git program does it, with the settings of the user: their ssh, their credentials. It never asks
(there is no terminal), and it is given up after some seconds, with all that it has started: when a
network drops packets silently, a push would otherwise hang for ever.

A push is without force. `--force-with-lease` names the value that the ref must have; a `+` before
the refspec would defeat it. What a push did may stay unknown, if it was given up or its connection
broke: then the remote is asked, and if it cannot be, the push is repeated as it is later. It has
the same outcome whether or not the first one arrived.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from hankweave_protocol.ids import Sha
from hankweave_server.plain_text import one_line

LEASE_REF: Final = "refs/hankweave/lease"
"""The only ref of a mirror that counts."""


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

_SHA: Final = re.compile("[0-9a-f]{40}")
_SIZE: Final = re.compile(rb"Writing objects: 100% [^\r\n]*?, ([\d.]+) (bytes|KiB|MiB|GiB)")
_UNITS: Final = {b"bytes": 1, b"KiB": 1 << 10, b"MiB": 1 << 20, b"GiB": 1 << 30}

Outcome = Literal["done", "refused", "not done"]
"""What a push did: moved the ref; found another value there; nothing, so it may be repeated."""


class Unreachable(Exception):
    """The remote did not answer as it should; the message has git's words."""


class BadAddress(ValueError):
    """An address cannot be that of a mirror."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """The outcome of a push."""

    outcome: Outcome
    found: Sha | None = None
    """What the ref names, if the push was refused."""
    sent_bytes: int = 0
    problem: str = ""


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
        self._blocked: tuple[tuple[int, int], float] | None = None
        """A lock file of the ref that no push has removed: what identifies it, and since when."""
        if "GIT_SSH_COMMAND" not in environment and "GIT_SSH" not in environment:
            self._environment["GIT_SSH_COMMAND"] = _SSH

    def tip(self, within: float) -> Sha | None:
        """Return what the ref names; None if it does not exist. Raises Unreachable."""
        done = self._git("ls-remote", self.address, LEASE_REF, within=within)
        if done.returncode:
            raise Unreachable(_error_text(done))

        for line in done.stdout.decode().splitlines():
            sha, _, name = line.partition("\t")
            if name == LEASE_REF and _SHA.fullmatch(sha):
                return Sha(sha)

        return None

    def fetch(self, within: float, *, only_commit: bool = False) -> Sha:
        """Fetch everything that the ref leads to, and return what it names; raise Unreachable.

        With `only_commit`, fetch the commit that the ref names, without its parents. The repository
        is incomplete afterwards: it is one that nothing is pushed from.
        """
        options = ("--depth=1",) if only_commit else ()
        spec = f"+{LEASE_REF}:{LEASE_REF}"
        fetched = self._git(
            *("fetch", "--no-tags", "--no-write-fetch-head", *options, self.address, spec),
            within=within,
        )
        if fetched.returncode:
            raise Unreachable(_error_text(fetched))

        found = self._git("rev-parse", "--verify", LEASE_REF, within=within)
        return Sha(found.stdout.decode().strip())

    def push(self, new: Sha, expected: Sha | None, within: float) -> Pushed:
        """Let the ref name `new` if it names `expected`, or does not exist if that is None.

        It never raises: what is not known is "not done", and may be repeated.
        """
        lease = f"--force-with-lease={LEASE_REF}:{expected or ''}"
        command: tuple[str, ...]
        command = ("push", "--porcelain", "--progress", "--no-verify", lease, self.address)
        if self._is_path:
            command = (command[0], _AS_PACKS, *command[1:])

        try:
            done = self._git(*command, f"{new}:{LEASE_REF}", within=within)
        except Unreachable as problem:
            return self._asked(new, expected, str(problem), within)

        sent = _sent(done.stderr)
        if done.returncode == 0:
            return Pushed("done", sent_bytes=sent)

        return self._asked(new, expected, _error_text(done), within, sent)

    def keep(self, commit: Sha, ref: str, within: float) -> bool:
        """Create a ref that no other owner uses; return whether it is there now."""
        try:
            done = self._git("push", "--porcelain", self.address, f"{commit}:{ref}", within=within)
        except Unreachable:
            return False

        return done.returncode == 0

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

    def _asked(
        self, new: Sha, expected: Sha | None, problem: str, within: float, sent: int = 0
    ) -> Pushed:
        """Find out what became of a push that did not succeed."""
        try:
            found = self.tip(within)
        except Unreachable:
            return Pushed("not done", None, sent, problem)

        if found == new:
            return Pushed("done", None, sent)

        return Pushed("not done" if found == expected else "refused", found, sent, problem)

    def _git(
        self, *command: str, within: float, place: Path | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Run git; raise Unreachable if it is given up, or cannot be started."""
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
                output, errors = process.communicate(timeout=within)
            except BaseException as ended:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

                if isinstance(ended, subprocess.TimeoutExpired):
                    raise Unreachable(f"no answer within {within:.0f} s") from None

                raise

        return subprocess.CompletedProcess(command, process.returncode, output, errors)


def _error_text(done: subprocess.CompletedProcess[bytes]) -> str:
    """Return why git failed: its last line about it."""
    lines = [*done.stderr.decode("utf-8", "replace").splitlines()]
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
