"""The manifests, kept as git notes in a ref that names a notes tree directly.

Git fans notes out by the first two digits of the commit, so that adding one rewrites two small
trees however many there are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet

from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints.manifest import Manifest, ManifestCorrupt, decoded
from hankweave_server.git.repo import NOTES_REF, ShadowRepo
from hankweave_server.git.trees import FOLDER, REGULAR, Entry, encoded, parsed


class Notes:
    """Finds and adds the manifest of a commit."""

    def __init__(self, repo: ShadowRepo) -> None:
        self._repo = repo

    def manifest(self, sha: Sha) -> Manifest:
        """Gives what was noted of a checkpoint; no note means nothing out of the ordinary.

        Raises KeyError or ManifestCorrupt when there is a note and it cannot be read.
        """
        note = self._find(sha)
        return Manifest() if note is None else decoded(self._repo.read_blob(note))

    def every(self) -> Iterator[tuple[Sha, Manifest]]:
        """Gives the manifests, each with its commit; one that cannot be read is left out."""
        for name, entry in self._top().items():
            if entry.mode != FOLDER:
                below = {b"": entry}
            else:
                try:
                    below = dict(parsed(self._repo.read_tree(entry.digest)))
                except (KeyError, ValueError):
                    continue

            for rest, note in below.items():
                with contextlib.suppress(KeyError, ManifestCorrupt):
                    sha = (name + rest).decode("latin-1")
                    yield Sha(sha), decoded(self._repo.read_blob(note.digest))

    def unreadable_note(self, sha: Sha) -> bytes | None:
        """Names the object that keeps a checkpoint's manifest from being read, if any."""
        try:
            note = self._find(sha)
        except KeyError as problem:
            return bytes.fromhex(problem.args[0])

        if note is None:
            return None

        try:
            decoded(self._repo.read_blob(note))
        except (KeyError, ManifestCorrupt):
            return note

        return None

    def with_note(self, sha: Sha, content: bytes, add: Callable[[str, bytes], bytes]) -> Sha:
        """Writes the note and the trees above it; the caller moves the ref to what this gives."""
        top = self._top()
        fan, rest = sha[:2].encode(), sha[2:].encode()
        below = dict(parsed(self._repo.read_tree(top[fan].digest))) if fan in top else {}
        below[rest] = Entry(REGULAR, add("blob", content))
        top[fan] = Entry(FOLDER, add("tree", encoded(below)))
        return Sha(add("tree", encoded(top)).hex())

    def only_of(
        self,
        commits: AbstractSet[Sha],
        add: Callable[[str, bytes], bytes],
        *,
        past_damage: bool = False,
    ) -> Sha | None:
        """Write the notes without those of other commits; None if there are no others.

        The caller moves the ref to what this returns. An unreadable tree raises KeyError, or is
        left out with `past_damage`.
        """
        top = self._top()
        staying: dict[bytes, Entry] = {}
        for name, entry in top.items():
            if entry.mode != FOLDER:
                if name.decode("latin-1") in commits:
                    staying[name] = entry

                continue

            try:
                below = dict(parsed(self._repo.read_tree(entry.digest)))
            except KeyError:
                if past_damage:
                    continue

                raise

            noted = {
                rest: note
                for rest, note in below.items()
                if note.mode == FOLDER or (name + rest).decode("latin-1") in commits
            }
            if len(noted) == len(below):
                staying[name] = entry
            elif noted:
                staying[name] = Entry(FOLDER, add("tree", encoded(noted)))

        return None if staying == top else Sha(add("tree", encoded(staying)).hex())

    def _find(self, sha: Sha) -> bytes | None:
        top = self._top()
        fan, rest = sha[:2].encode(), sha[2:].encode()
        if fan in top:
            entry = dict(parsed(self._repo.read_tree(top[fan].digest))).get(rest)
        else:
            # Somebody's git may have written the notes anew without a fan-out.
            entry = top.get(sha.encode())

        return None if entry is None else entry.digest

    def _top(self) -> dict[bytes, Entry]:
        target = self._repo.target(NOTES_REF)
        if target is None:
            return {}

        kind, data = self._repo.read(bytes.fromhex(target))
        if kind == "commit":
            data = self._repo.read_tree(bytes.fromhex(data[5:45].decode()))

        return dict(parsed(data))
