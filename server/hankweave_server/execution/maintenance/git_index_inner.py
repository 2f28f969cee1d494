"""Writes the index that stock git compares HEAD and the work tree with."""

from __future__ import annotations

from hankweave_server.checkpoints.errors import disk_faults
from hankweave_server.fsutil import replace
from hankweave_server.git.repo import ShadowRepo
from hankweave_server.paths import Layout

MARKER = "hankweave-index"
"""Names the tree that the index was last written for."""


def bring_up_to_date(layout: Layout) -> bool:
    """Write the index for HEAD unless it was written for the same tree; return whether it was.

    Raises InsufficientSpace, ShadowRepositoryError and OSError with the index as it was.
    """
    marker, index = layout.shadow_repository / MARKER, layout.shadow_repository / "index"
    with disk_faults(layout.root):
        repo = ShadowRepo(layout.shadow_repository)
        try:
            head = repo.head()
            commit = None if head is None else repo.commit(head)
            if commit is None:
                return False

            tree = f"{commit.tree}\n".encode()
            if index.exists() and marker.exists() and marker.read_bytes() == tree:
                return False

            marker.unlink(missing_ok=True)
            repo.write_index(commit.tree)
            replace(marker, tree)
            return True
        except KeyError:
            return False  # HEAD is damaged: a repair comes first.
        finally:
            repo.close()
