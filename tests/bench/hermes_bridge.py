"""Run the CheckpointManager of an installed Hermes Agent: python hermes_bridge.py PROJECT.

Each line of stdin is ["snapshot", NAME], ["find", NAME] or ["restore", COMMIT]; each is answered by
one line of JSON.
"""

from __future__ import annotations

import json
import sys

from tools.checkpoint_manager import CheckpointManager  # type: ignore[import-not-found]

MANY = 10_000
"""With the default of 20, a snapshot rewrites the others, and restores in between fail."""


def main(project: str) -> None:
    manager = CheckpointManager(enabled=True, max_snapshots=MANY)
    print("[true]", flush=True)
    for line in sys.stdin:
        what, word = json.loads(line)
        if what == "snapshot":
            manager.new_turn()
            answer = manager.ensure_checkpoint(project, word)
        elif what == "find":
            answer = next(
                (c["hash"] for c in manager.list_checkpoints(project) if c["reason"] == word), None
            )
        else:
            answer = manager.restore(project, word)["success"]

        print(json.dumps([answer]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
