"""Score an attempt at the schema: print how many of all rows fit it.

`hankweave explore` runs this in the work tree of each attempt. The rows are checked by the code
that `generate` would make of the schema, as in the review.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from pathlib import Path

from dataset import read_rows
from generate import package_of, read_schema
from review import failures_of


def main() -> None:
    rows = read_rows()
    with tempfile.TemporaryDirectory() as folder:
        for name, content in package_of(read_schema()).items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")

        sys.path.insert(0, str(Path(folder, "src")))
        code = importlib.import_module("earthquakes")
        failures = failures_of(rows, code.problems_of)

    print(f"{len(rows) - len(failures)}")


if __name__ == "__main__":
    main()
