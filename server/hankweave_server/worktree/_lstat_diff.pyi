from collections.abc import Sequence

from hankweave_server.worktree.stat_index import Difference, Group

def differing(
    root: int, groups: Sequence[Group], block: bytearray, stride: int, /
) -> list[Difference]: ...
