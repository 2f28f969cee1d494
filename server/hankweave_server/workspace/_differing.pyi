from collections.abc import Sequence

from hankweave_server.workspace.differing import Difference, Group

def differing(
    root: int, groups: Sequence[Group], block: bytearray, stride: int, /
) -> list[Difference]: ...
