"""`hankweave resume URL`: take the lease of a mirror when that is safe, and restore.

The command has the options of `run`, which serves the execution afterwards.

    fetch      all that the ref leads to
    wait       until the lease has not changed for its whole time to live; not if it was released
    build      the execution, under a temporary name
    take       replace the lease that was fetched, and no other
    publish    one rename: from here on, the execution exists on this machine

To take the lease over from an owner that may still live, it is taken before the execution is built:
from then on, that owner cannot push. It stops its agent when it notices, or when its own lease has
run out, so the execution is published only after that.

A crash leaves a folder that nothing takes for an execution, and perhaps an orphaned lease. The next
`resume` to the same place removes the folder, and the lease can be taken like that of any owner
that does not answer.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from hankweave_protocol import instants
from hankweave_protocol.errors import Refused
from hankweave_protocol.ids import Sha
from hankweave_protocol.records import ExecutionMeta
from hankweave_protocol.state_directory import STATE_DIRECTORY
from hankweave_server import fsutil
from hankweave_server.checkpoints.errors import RestoreIncomplete
from hankweave_server.clock import Clock, SystemClock
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.execution.branch.location import place_of, remove_unpublished
from hankweave_server.execution.rollback.unrestored import exceptions_of, in_one
from hankweave_server.features.mirror.contents import (
    MirrorContents,
    MirrorDamaged,
    MirrorRepository,
)
from hankweave_server.features.mirror.lease import Lease, NotALease, free_from, taken
from hankweave_server.features.mirror.record import (
    MirrorRecord,
    owner_of,
    with_nonce,
    write_record,
)
from hankweave_server.features.mirror.remote import (
    LEASE_REF,
    BadAddress,
    Pushed,
    Remote,
    Unreachable,
    checked,
)
from hankweave_server.features.mirror.restore import (
    LocalData,
    LocalParts,
    meta_in,
    record_in,
    restore,
)
from hankweave_server.features.mirror.source import DATA_HASH
from hankweave_server.git.errors import InsufficientSpace, ShadowRepositoryError
from hankweave_server.local.executions import executions_root, nothing_at
from hankweave_server.paths import Layout
from hankweave_server.worktree import data_source

TEMPORARY: Final = f"{STATE_DIRECTORY}-resume-"
"""Prefix of the name under which an execution is built; no checkpoint ever holds such a name."""

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

REQUEST_SECONDS = 60.0
"""Timeout for reading the ref, or for pushing a new lease."""

BETWEEN_NOTICES = 5.0
"""Seconds between two lines that say how long the wait still takes."""

MOST_CHANGES = 20
"""How often a lease that is taken over may have changed since it was fetched."""


@dataclass(frozen=True, slots=True)
class ResumeOptions:
    """An execution to be resumed, and the way."""

    address: str
    executions_root: Path
    execution: Path | None = None
    """The directory of the execution; None for one with a managed name."""
    hank: Path | None = None
    """The hank.json to run; None for that of the mirror."""
    data: Path | None = None
    """The data; None for those in the mirror, or at the recorded path."""
    copies_data: bool = False
    takes_over: bool = False
    """Take the lease of an owner that may still live."""
    is_forced: bool = False
    """Use data with other contents."""


def _on_stderr(line: str) -> None:
    with suppress(OSError, ValueError):  # stderr may be closed.
        click.echo(line, err=True)


def resume(
    wanted: ResumeOptions,
    clock: Clock | None = None,
    *,
    nap: Callable[[float], None] = time.sleep,
    report: Callable[[str], None] = _on_stderr,
) -> Path:
    """Take the lease and restore the execution; return its directory. It blocks.

    `nap` takes seconds; `report` gets a line for people whenever something takes long. Raises Stop;
    then nothing is left on this machine.
    """
    clock = SystemClock() if clock is None else clock
    name = data_source.managed_name(instants.epoch_ms(clock.now()), None)
    chosen = None if wanted.execution is None else os.path.abspath(wanted.execution.expanduser())
    try:
        place = place_of(chosen, wanted.executions_root / name, None)
    except Refused as refused:
        raise Stop(refused.message, ExitCode.USAGE, hint=refused.hint) from None

    with _temporary_folder(place.parent) as temporary, _faults_of(wanted.address):
        resumption = _Resumption(wanted, temporary, clock, nap, report)
        return resumption.published(None if chosen is None else place)


@contextmanager
def _temporary_folder(parent: Path) -> Iterator[Path]:
    """Provide a new folder below a directory, and remove those that dead processes have left there.

    A folder is locked as long as its process lives, and the directory while it is made.
    """
    folder = parent / f"{TEMPORARY}{secrets.token_hex(6)}"
    with ExitStack() as stack:
        with fsutil.opened(parent, _FOLDER) as directory:
            _is_locked(directory, fcntl.LOCK_EX)
            for left in filter(Path.is_dir, parent.glob(f"{TEMPORARY}*")):
                with fsutil.opened(left, _FOLDER) as descriptor:
                    if _is_locked(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB):
                        remove_unpublished(left)

            folder.mkdir(mode=fsutil.PRIVATE_DIRECTORY)
            _is_locked(stack.enter_context(fsutil.opened(folder, _FOLDER)), fcntl.LOCK_EX)
            stack.callback(remove_unpublished, folder)

        yield folder


def _is_locked(descriptor: int, how: int) -> bool:
    """Lock a folder; return False if another process has it, or the file system has no locks."""
    try:
        fcntl.flock(descriptor, how)
    except OSError:
        return False

    return True


@contextmanager
def _faults_of(address: str) -> Iterator[None]:
    """Turn faults of the remote, of what it has, and of the disk into Stop."""
    try:
        yield
    except Unreachable as problem:
        raise Stop(
            f"The mirror {address} cannot be reached: {problem}",
            ExitCode.UNAVAILABLE,
            hint="Check the address, the network and your access to it, and try again.",
        ) from None
    except (MirrorDamaged, NotALease) as problem:
        raise Stop(
            f"{address} does not have an execution that can be restored: {problem}.",
            ExitCode.BAD_DATA,
            hint="Continue in its own directory, if that still exists.",
        ) from None
    except RestoreIncomplete as incomplete:
        found = exceptions_of(incomplete.unrestored)
        raise Stop(
            f"This disk cannot store all files of the execution. {in_one(found, len(found))}",
            ExitCode.CANNOT_CREATE,
            hint="Name a directory on another file system with --execution.",
        ) from None
    except (InsufficientSpace, ShadowRepositoryError) as error:
        raise Stop(
            f"The execution cannot be restored: {error}",
            ExitCode.IO_ERROR,
            hint="Free some space or correct the cause, and run the command again.",
        ) from None


class _Resumption:
    """One attempt to resume an execution; its folder is temporary."""

    def __init__(
        self,
        wanted: ResumeOptions,
        folder: Path,
        clock: Clock,
        nap: Callable[[float], None],
        report: Callable[[str], None],
    ) -> None:
        self._wanted = wanted
        self._folder = folder
        self._clock = clock
        self._nap = nap
        self._report = report
        self._repository = MirrorRepository(folder / "fetched", None)
        self._layout = Layout.of_execution(folder / "execution")

    def published(self, place: Path | None) -> Path:
        """Restore the execution, and return its directory: `place`, or one with a managed name."""
        if self._remote().tip(REQUEST_SECONDS) is None:
            raise Stop(
                f"{self._wanted.address} is not a mirror: it has no {LEASE_REF}.",
                ExitCode.NO_INPUT,
                hint="Name the address that was given to `hankweave run --mirror URL`.",
            )

        sha, contents = self._fetched()
        takes_over = self._wanted.takes_over and not contents.lease.released
        if not (contents.lease.released or takes_over):
            sha, contents = self._unchanged(sha, contents)

        local = self._local_parts(contents)
        if place is None:
            place = self._wanted.executions_root / data_source.managed_name(
                instants.epoch_ms(self._clock.now()), _data_hash(contents, local)
            )

        record = self._recorded(contents)
        if takes_over:
            contents = self._taken_over(sha, contents, record, place)
            free_at = free_from(self._clock.boottime(), contents.lease.ttl)
            restore(self._repository, contents, self._layout, place, local)
            self._wait_for_former(contents.lease, free_at)
        else:
            restore(self._repository, contents, self._layout, place, local)
            self._require(self._push(sha, contents, record, place))

        self._layout.root.rename(place)
        fsutil.sync_directory(place.parent)
        return place

    def _remote(self) -> Remote:
        return Remote(self._wanted.address, self._repository.path, os.environ)

    def _fetched(self) -> tuple[Sha, MirrorContents]:
        sha = self._remote().fetch()
        return sha, self._repository.contents(sha)

    def _recorded(self, contents: MirrorContents) -> MirrorRecord:
        """Write the record by which the server of the execution knows that the lease is its own."""
        fsutil.make_private_directory(self._layout.state_directory)
        record = msgspec.structs.replace(
            record_in(contents), address=self._wanted.address, nonces=(), place=""
        )
        record = with_nonce(record, self._layout)
        write_record(self._layout, record)
        return record

    # --- wait ------------------------------------------------------------------------------------

    def _unchanged(self, sha: Sha, contents: MirrorContents) -> tuple[Sha, MirrorContents]:
        """Return what the mirror has when its owner has no agent at work any more.

        Raises Stop if the owner renews the lease.
        """
        lease = contents.lease
        until = free_from(self._clock.boottime(), lease.ttl)
        self._report(
            f"{lease.owner} has the lease of {self._wanted.address}. Waiting "
            f"{until - self._clock.boottime():.0f} s to see whether it is renewed."
        )
        between = lease.ttl / 6
        remote = self._remote()
        if self._wait(until, between, lambda: remote.tip(REQUEST_SECONDS) == sha):
            return sha, contents

        sha, contents = self._fetched()
        if contents.lease.released:
            return sha, contents

        again = f"hankweave resume {shlex.quote(self._wanted.address)} --take-over"
        raise Stop(
            f"{contents.lease.owner} has the lease of {self._wanted.address}, and renewed it "
            f"within the last {between:.0f} s.",
            ExitCode.LOCK_HELD,
            hint=f"Stop that server first, or take the execution from it: `{again}`.",
        )

    def _wait_for_former(self, former: Lease, until: float) -> None:
        left = until - self._clock.boottime()
        if left > 0:
            self._report(
                f"The lease is taken. Waiting {left:.0f} s for {former.owner} to stop its agent."
            )
            self._wait(until, BETWEEN_NOTICES, lambda: True)

    def _wait(self, until: float, between: float, check: Callable[[], bool]) -> bool:
        """Wait until a moment of CLOCK_BOOTTIME; return False as soon as `check` returns False.

        It checks every `between` seconds, and once after that moment.
        """
        due = until - self._clock.boottime() - BETWEEN_NOTICES
        while (left := until - self._clock.boottime()) > 0:
            if left <= due:
                due -= BETWEEN_NOTICES
                self._report(f"{left:.0f} s left.")

            self._nap(min(between, left))
            if not check():
                return False

        return True

    # --- take ------------------------------------------------------------------------------------

    def _taken_over(
        self, sha: Sha, contents: MirrorContents, record: MirrorRecord, place: Path
    ) -> MirrorContents:
        """Take the lease of an owner that may be pushing; return what it has pushed last."""
        former = contents.lease
        for _ in range(MOST_CHANGES):
            done = self._push(sha, contents, record, place)
            if done.outcome != "refused":
                break

            sha, contents = self._fetched()
            if contents.lease.nonce != former.nonce:
                break

        self._require(done)
        return contents

    def _push(
        self, sha: Sha, contents: MirrorContents, record: MirrorRecord, place: Path
    ) -> Pushed:
        lease = taken(
            contents.lease,
            execution_id=record.execution_id,
            owner=owner_of(Layout.of_execution(place)),
            nonce=record.nonces[-1],
            ttl=record.ttl,
        )
        new = self._repository.retaken(sha, lease)
        return self._remote().push(new, sha, REQUEST_SECONDS)

    def _require(self, done: Pushed) -> None:
        address = self._wanted.address
        if done.outcome == "not done":
            raise Stop(
                f"It is not known whether the lease of {address} was taken: {done.problem}",
                ExitCode.UNAVAILABLE,
                hint="No execution was restored. Try again when the mirror can be reached.",
            )

        if done.outcome == "refused":
            _, contents = self._fetched()
            raise Stop(
                f"{contents.lease.owner} has taken or renewed the lease of {address} meanwhile.",
                ExitCode.LOCK_HELD,
                hint="No execution was restored.",
            )

    # --- parts from this machine -----------------------------------------------------------------

    def _local_parts(self, contents: MirrorContents) -> LocalParts:
        """Return the data and the hank of this machine that are used; raise Stop."""
        meta, hank = meta_in(contents), self._wanted.hank
        if hank is None and contents.hank is None and meta.hank_path is not None:
            raise Stop(
                f"The mirror {self._wanted.address} does not have the hank: it may have a secret.",
                ExitCode.NO_INPUT,
                hint=f"Name it: `hankweave resume {shlex.quote(self._wanted.address)} HANK`.",
            )

        return LocalParts(self._local_data(contents, meta), hank)

    def _local_data(self, contents: MirrorContents, meta: ExecutionMeta) -> LocalData | None:
        named, recorded = self._wanted.data, meta.read_only_source_resolved_data_path
        if meta.link_type == "none":
            if named is not None:
                raise Stop("The execution has no data.", ExitCode.USAGE, hint="Omit --data.")

            return None

        if named is None and contents.data is not None:
            return None

        path = Path(recorded or "") if named is None else named.expanduser().absolute()
        if named is not None and not path.exists():
            raise nothing_at("data", path)

        if named is None and (recorded is None or not path.exists()):
            raise Stop(
                f"The data of this execution are not on this machine: {recorded}.",
                ExitCode.NO_INPUT,
                hint="Name them with --data PATH.",
            )

        self._require_same(path, contents, meta)
        return LocalData(path, self._wanted.copies_data or meta.link_type == "copy")

    def _require_same(self, path: Path, contents: MirrorContents, meta: ExecutionMeta) -> None:
        """Raise Stop for data that are not those of the execution, unless that is forced."""
        expected = contents.state.get(DATA_HASH, b"").decode() or meta.data_hash or ""
        if DATA_HASH in contents.state:
            found = data_source.content_hash(path.resolve())
        else:
            found = data_source.data_hash(path)

        if found != expected and not self._wanted.is_forced:
            raise Stop(
                f"{path} is not the data of this execution: its hash is {found[:12]}, and that of "
                f"the data was {expected[:12]}.",
                ExitCode.USAGE,
                hint="Name the right data with --data PATH, or use these with --force.",
            )


def _data_hash(contents: MirrorContents, local: LocalParts) -> str | None:
    """Return the hash of the data by which an execution is found."""
    if local.data is None:
        return meta_in(contents).data_hash

    return data_source.data_hash(local.data.path)


# --- command ---

EPILOG: Final = (
    "`hankweave resume URL` continues an execution from its mirror, on any machine; "
    "`hankweave resume URL --help` has its options."
)
"""The last sentence in the help of `resume`."""

_HOST_AND_PATH: Final = re.compile(r"[^-/:\s][^/:\s]*:[^:\s].*")

_NOT_OF_RESUME: Final = frozenset(
    {
        *("hank", "data", "config", "input", "mirror"),
        *("workspace", "state_dir", "adopt_state", "new", "no_wipe"),
        *("as_hankweave", "default_hank", "default_data", "for_a_moment"),
    }
)
"""Options of `run` that say which execution to serve, or how to begin a new one."""


def is_source(word: str) -> bool:
    """Return whether a word of the command line is the address of a mirror."""
    if "://" in word:
        return not word.startswith("-")

    path = os.path.expanduser(word)
    if os.path.exists(path):
        return any(_has_lease(folder) for folder in (Path(path), Path(path, ".git")))

    return _HOST_AND_PATH.fullmatch(word) is not None


def _has_lease(repository: Path) -> bool:
    """Return whether a folder is a git repository with the ref of a mirror."""
    try:
        if (repository / LEASE_REF).is_file():
            return True

        return f" {LEASE_REF}\n" in (repository / "packed-refs").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def command() -> click.Command:
    """Return the command."""
    from hankweave_server.cli.run import run

    own = (
        click.Argument(["address"], metavar="URL", callback=_checked_address),
        click.Argument(["hank"], type=click.Path(path_type=Path), required=False),
        click.Option(
            ["--take-over"],
            is_flag=True,
            help="Do not wait to see whether the owner renews the lease.",
        ),
    )
    options = [each for each in run.params if each.name not in _NOT_OF_RESUME]
    return click.Command(
        "resume",
        params=[*own, *options],
        callback=_resume,
        help=_HELP,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


_HELP = """Continue the execution in the mirror at URL, on this machine.

URL is that of the git repository which `hankweave run --mirror URL` was given. Without --take-over,
a lease that was not released is taken when it has not been renewed for its whole time. --execution
names a new or empty directory. --data is needed if the data are elsewhere on this machine, and HANK
if the mirror does not have the hank, because it may have a secret. All other options are those of
`hankweave run`, which serves the execution from then on.

\b
hankweave resume ssh://nas/mirrors/report.git --headless
"""


def _checked_address(_context: click.Context, _parameter: click.Parameter, text: str) -> str:
    try:
        return checked(text)
    except BadAddress as error:
        raise click.BadParameter(f"{error}.") from None


@click.pass_context
def _resume(context: click.Context, /, address: str, take_over: bool, **given: Any) -> None:
    from hankweave_server.cli.run import run
    from hankweave_server.cli.shared.hank_loading import file_of

    hank: Path | None = given["hank"]
    wanted = ResumeOptions(
        address=address,
        executions_root=executions_root(),
        execution=given["execution"],
        hank=None if hank is None else file_of(hank).absolute(),
        data=given["data_option"],
        copies_data=given["copy"],
        takes_over=take_over,
        is_forced=given["force"],
    )
    given |= {"execution": resume(wanted), "data_option": None, "copy": False}
    context.invoke(run, **given)
