"""Read what the mirror gets from an execution that is served.

The rig archive is read after the intents and the manifest: what was archived in between is in the
mirror before the manifest names it, and a restored execution archives it again. The other way
round, the mirror would lose files that the manifest names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from hankweave_protocol.ids import Sha
from hankweave_server.features.mirror.contents import (
    CapturedExecution,
    MirrorDamaged,
    MirrorRepository,
    Segments,
)
from hankweave_server.features.mirror.lease import Lease, renewed
from hankweave_server.features.mirror.pushing import CannotBeComposed, Composed, Position
from hankweave_server.features.mirror.record import file_of
from hankweave_server.fsutil import content_of
from hankweave_server.git.errors import ShadowRepositoryError
from hankweave_server.git.repo import ShadowRepo
from hankweave_server.hank.references import references_in
from hankweave_server.paths import Layout
from hankweave_server.worktree import data_source
from hankweave_server.worktree.names import is_reserved
from hankweave_server.worktree.stat_index import Signature, signature_of

DATA_HASH = "mirror/data.sha256"
"""The path below the state directory of the content hash of the data, in hex."""

MOST_DATA_HASHED = 1 << 30
"""Bytes of data up to which their contents are hashed."""


class ExecutionSource:
    """Captures one execution, and writes it into the repository that is pushed from."""

    def __init__(
        self,
        layout: Layout,
        repository: MirrorRepository,
        *,
        quiesced: Callable[[], AbstractContextManager[None]],
        newest: Callable[[], Position],
        clean: Callable[[bytes], bytes],
        folders: Mapping[str, Sha],
        data_hash: str | None = None,
    ) -> None:
        """`quiesced` keeps refs and intents from moving; `newest` is the durable journal.

        `clean` removes secrets. `folders` are trees that the mirror has as well: hank and data.
        `data_hash` is that of `hash_of_data`.
        """
        self._layout = layout
        self._repository = repository
        self._quiesced = quiesced
        self._newest = newest
        self._clean = clean
        self._folders = folders
        self._data_hash = data_hash
        self._archived: tuple[dict[str, Signature], Sha] | None = None
        """The files of the rig archive as they were stored last, and their tree."""
        self._thread = anyio.CapacityLimiter(1)

    async def compose(self, former: Composed, uploaded: Sha | None, *, released: bool) -> Composed:
        """Capture the execution, and write the commit of the lease that follows `former`.

        `uploaded` is another commit that the remote has. Raises CannotBeComposed, for example if
        the disk is full.
        """
        known = (former.sha,) if uploaded is None else (former.sha, uploaded)
        compose = partial(self.composed, former.lease, former.segments, known, released=released)
        return await anyio.to_thread.run_sync(compose, limiter=self._thread)

    async def renew(self, former: Composed) -> Composed:
        """Write the commit of a lease that follows `former`, with the same contents.

        Raises CannotBeComposed, for example if the disk is full.
        """
        return await anyio.to_thread.run_sync(self._renewed, former, limiter=self._thread)

    def _renewed(self, former: Composed) -> Composed:
        position = former.position
        lease = renewed(
            former.lease,
            last_event_seq=position.last_event_seq,
            journal_bytes=position.journal_bytes,
            released=False,
        )
        with _as_cannot_be_composed():
            sha = self._repository.retaken(former.sha, lease)

        return Composed(sha, lease, former.segments)

    def composed(
        self, lease: Lease, segments: Segments, known: Sequence[Sha] = (), *, released: bool = False
    ) -> Composed:
        """Do the blocking part of `compose`, with all commits that the remote has; raise as it."""
        with _as_cannot_be_composed():
            return self._composed(lease, segments, known, released)

    def _composed(
        self, lease: Lease, segments: Segments, known: Sequence[Sha], released: bool
    ) -> Composed:
        with self._quiesced():
            position = self._newest()
            captured = self._captured()
            archive = self._archive()

        folders = {**self._folders, **({} if archive is None else {"archive": archive})}
        segments = self._repository.extend(segments, self._layout.journal, position.journal_bytes)
        lease = renewed(
            lease,
            last_event_seq=position.last_event_seq,
            journal_bytes=segments.journal_bytes,
            released=released,
        )
        sha = self._repository.compose(lease, captured, segments, folders, known)
        return Composed(sha, lease, segments)

    def _captured(self) -> CapturedExecution:
        with closing(ShadowRepo(self._layout.shadow_repository)) as shadow:
            refs = shadow.references()

        head = (self._layout.shadow_repository / "HEAD").read_text(encoding="utf-8").strip()
        state = {
            path.relative_to(self._layout.state_directory).as_posix(): self._clean(content)
            for path in files_of(self._layout)
            if (content := content_of(path)) is not None
        }
        if self._data_hash is not None:
            state[DATA_HASH] = self._data_hash.encode()

        return CapturedExecution(head, refs, state)

    def _archive(self) -> Sha | None:
        """Return the tree of the rig archive, which is stored only if it has changed."""
        while True:
            try:
                files = files_below(self._layout.rig_archive)
                found = {name: signature_of(file.lstat()) for name, file in files.items()}
                if not files:
                    return None

                if self._archived is None or self._archived[0] != found:
                    self._archived = found, self._repository.store(files)
            except FileNotFoundError:
                continue  # It is being moved.

            return self._archived[1]


@contextmanager
def _as_cannot_be_composed() -> Iterator[None]:
    try:
        yield
    except (OSError, ShadowRepositoryError, MirrorDamaged) as error:
        raise CannotBeComposed(f"it cannot be prepared here: {error}") from error


def files_of(layout: Layout) -> Iterator[Path]:
    """Yield the small files of the state directory that another machine needs."""
    yield layout.meta
    yield file_of(layout)
    yield layout.archive_manifest
    yield layout.rollback_intent
    yield layout.archive_intent
    yield layout.aftermath_intent
    for home in (layout.redactions, layout.sentinel_outputs):
        for folder, _, names in os.walk(home):
            yield from (Path(folder, name) for name in sorted(names))


def files_below(folder: Path) -> dict[str, Path]:
    """Return the files and links below a folder by their paths in it; it may be missing.

    Names that git rejects are left out. Raises OSError.
    """
    found: dict[str, Path] = {}
    waiting = [("", folder)] if folder.is_dir() else []
    while waiting:
        prefix, place = waiting.pop()
        with os.scandir(place) as entries:
            for each in entries:
                name = f"{prefix}{each.name}"
                if is_reserved(os.fsencode(each.name)):
                    continue

                if each.is_dir(follow_symlinks=False):
                    waiting.append((f"{name}/", Path(each.path)))
                elif each.is_symlink() or each.is_file():
                    found[name] = Path(each.path)

    return found


def files_of_hank(hank: Path) -> dict[str, Path]:
    """Return a hank.json and the files that it names by their paths below its folder.

    Raises OSError.
    """
    folder = hank.absolute().parent.resolve()
    found = {hank.name: hank.resolve()}
    for reference, path in references_in(hank):
        name = os.path.relpath(folder / reference, folder)
        found |= {name: path} if path.is_file() else _prefixed(f"{name}/", files_below(path))

    return found


def store_hank(
    repository: MirrorRepository, hank: Path, may_have_secret: Callable[[bytes], bool]
) -> Sha | None:
    """Store a hank.json and the files that it names; return None if one may have a secret.

    Raises OSError.
    """
    files = files_of_hank(hank)
    contents = (file.read_bytes() for file in files.values() if file.is_file())
    return None if any(map(may_have_secret, contents)) else repository.store(files)


def _prefixed(prefix: str, files: Mapping[str, Path]) -> dict[str, Path]:
    return {prefix + name: path for name, path in files.items()}


def files_of_data(layout: Layout) -> dict[str, Path] | None:
    """Return the files of the data by their paths below their folder; None if there are no data.

    Raises OSError.
    """
    data = data_source.linked_file(layout) or layout.data_source
    if data.is_file():
        return {data.name: data}

    return files_below(data) if data.exists() else None


def hash_of_data(layout: Layout) -> str | None:
    """Return the content hash of the data, in hex; None if there are none, or too many.

    Raises OSError.
    """
    files = files_of_data(layout)
    if files is None or sum(each.lstat().st_size for each in files.values()) > MOST_DATA_HASHED:
        return None

    return data_source.content_hash(data_source.linked_file(layout) or layout.data_source)
