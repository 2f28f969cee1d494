"""Codon 3: generate Python from the schema: a frozen dataclass per object, a check per field.

Writes the package src/earthquakes, which has no dependencies:

    import earthquakes
    event = earthquakes.parse(row)      # an Earthquake, or earthquakes.Invalid with all problems
    event.properties.mag_type           # typed: Literal["mb", "ml", ...]

Its records.py is generated, its checks.py a copy of the one beside this program.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

from infer import SCHEMA_FILE, Schema
from rendering import class_names_of, init_of, records_of
from transcript import Transcript

PACKAGE = "src/earthquakes"


def package_of(schema: Schema) -> dict[str, str]:
    """Return the files of the package by path; the same schema produces the same bytes."""
    root = schema["title"]
    return {
        f"{PACKAGE}/__init__.py": init_of(root),
        f"{PACKAGE}/checks.py": (Path(__file__).parent / "checks.py").read_text(encoding="utf-8"),
        f"{PACKAGE}/records.py": records_of(root, schema),
    }


def read_schema() -> Schema:
    schema: Schema = json.loads(Path(SCHEMA_FILE).read_text(encoding="utf-8"))
    return schema


def generated_code() -> Any:
    """Import the current package in the work tree."""
    sys.path.insert(0, str(Path(PACKAGE).parent))
    return importlib.import_module(Path(PACKAGE).name)


def main() -> None:
    with Transcript("generate") as transcript:
        schema = transcript.use("Read", {"file_path": SCHEMA_FILE}, read_schema, json.dumps)
        for path, content in package_of(schema).items():
            transcript.write(path, content)

        names = class_names_of(schema["title"], schema)
        transcript.say(f"{PACKAGE} now has {', '.join(names)} and parse().")


if __name__ == "__main__":
    main()
