"""The inputs of a map: files, folders, and rows of a JSON Lines or CSV file.

An input is identified by its key, and its content by a hash: times do not matter, so a copied or
touched file is the same input. A row with an id is identified by file and id, any other by its
content, so that rows can be inserted without running others again.

The content of a row becomes a file, which is the data of its execution, and its fields become
variables of the hank: `{"city": "Oslo"}` replaces `{{city}}`. Every item has the variables
`map.item`, its name, and `map.input`, the path of its data as agents see it.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from hankweave_protocol import instants
from hankweave_server import fsutil
from hankweave_server.clock import Clock
from hankweave_server.domain.variables import NAME, text_of
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.features.map.directory import MapJournal
from hankweave_server.features.map.plan import Item, ItemAdded, ItemKind, MapBegun, WantedItem
from hankweave_server.hank.references import references_in
from hankweave_server.paths import DATA_SOURCE
from hankweave_server.worktree.data_source import content_hash

ROW_FILE = "row.json"
ID_FIELDS = ("id", "name")
"""Fields that name a row, unless the command line names another one."""

_LONGEST_NAME = 80
_UNSUITED = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class MapInput:
    """One input of a command line."""

    key: str
    kind: ItemKind
    label: str
    """What it is called, if no other item has that name."""
    path: Path
    """The data; for a row, the file with all rows."""
    row: bytes | None = None
    """The content of a row, as JSON."""


# --- files and folders ----------------------------------------------------------------------------


def inputs_of(paths: Iterable[Path]) -> Iterator[MapInput]:
    """Yield an input for each path; raise Stop for one that is neither a file nor a folder."""
    for path in paths:
        place = _place(path)
        try:
            mode = place.stat().st_mode
        except FileNotFoundError:
            raise Stop(
                f"There is no input at {place}.",
                ExitCode.NO_INPUT,
                hint="Name files or folders that exist, or rows with --from FILE.",
            ) from None

        if stat.S_ISDIR(mode):
            yield MapInput(str(place), "folder", place.name, place)
        elif stat.S_ISREG(mode):
            yield MapInput(str(place), "file", place.name, place)
        else:
            raise Stop(
                f"{place} is neither a file nor a folder.",
                ExitCode.NO_INPUT,
                hint="Name files or folders, or rows with --from FILE.",
            )


def _place(path: Path) -> Path:
    return Path(os.path.abspath(path.expanduser()))


# --- rows -----------------------------------------------------------------------------------------


def rows_of(path: Path, id_field: str | None = None) -> Iterator[MapInput]:
    """Yield an input for each row of a file: CSV with a header if its name says so, or JSON Lines.

    Raises Stop for a row that cannot be used.
    """
    place = _place(path)
    read = _csv_rows if place.suffix.lower() == ".csv" else _json_rows
    seen: dict[str, int] = {}
    try:
        for number, value in read(place):
            yield _row(place, number, value, id_field, seen)
    except FileNotFoundError:
        raise Stop(
            f"There is no file {place}.",
            ExitCode.NO_INPUT,
            hint="Name a JSON Lines file, or a CSV file with a header, with --from.",
        ) from None


def _json_rows(place: Path) -> Iterator[tuple[int, object]]:
    with place.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    yield number, json.loads(line)
                except (ValueError, RecursionError) as fault:
                    raise _unusable(
                        f"{place}:{number}: The line is not JSON: {fault}.",
                        'Each line is one input, for example {"id": "oslo", "city": "Oslo"}; '
                        "the name of a CSV file ends in .csv.",
                    ) from None


def _csv_rows(place: Path) -> Iterator[tuple[int, object]]:
    with place.open(encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file, strict=True)
        try:
            header = next(lines, [])
            if len(set(header)) < len(header) or "" in header:
                raise _unusable(
                    f"{place}:1: Two columns have the same name, or one has none.",
                    "The first line of a CSV file names its columns, for example id,city.",
                )

            for fields in lines:
                if fields and len(fields) != len(header):
                    raise _unusable(
                        f"{place}:{lines.line_num}: The row has {len(fields)} fields, and the "
                        f"header {len(header)}.",
                        "Put a field that contains a comma into double quotes.",
                    )

                if fields:
                    yield lines.line_num, dict(zip(header, fields, strict=True))
        except (csv.Error, UnicodeDecodeError) as fault:
            raise _unusable(
                f"{place}:{lines.line_num}: The file is not CSV in UTF-8: {fault}.",
                "Save it as CSV with commas and UTF-8.",
            ) from None


def _row(
    place: Path, number: int, value: object, id_field: str | None, seen: dict[str, int]
) -> MapInput:
    try:
        content = json.dumps(value, ensure_ascii=False, indent=2).encode()
    except UnicodeEncodeError:
        raise _unusable(
            f"{place}:{number}: The row has half of a character, such as \\ud83d alone.",
            "Write both halves, or the character itself.",
        ) from None

    named = _id_in(value, id_field)
    if named is None and id_field is not None:
        raise _unusable(
            f"{place}:{number}: The row has no field {id_field!r} with a text or a number.",
            "Omit --id to name rows by their line.",
        )

    identity = f"id:{named}" if named is not None else f"sha256:{row_folder(content)}"
    count = seen[identity] = seen.get(identity, 0) + 1
    if count > 1 and named is not None:
        raise _unusable(
            f"{place}:{number}: A row before has the same id {named!r}.",
            "Name a field with unique values with --id, or remove the row.",
        )

    key = f"{place}#{identity}" + (f"#{count}" if count > 1 else "")
    label = named if named is not None else f"{place.stem}-{number:04}"
    return MapInput(key, "row", label, place, content)


def _unusable(message: str, hint: str) -> Stop:
    return Stop(message, ExitCode.BAD_DATA, hint=hint)


def _id_in(value: object, id_field: str | None) -> str | None:
    if not isinstance(value, dict):
        return None

    for name in ID_FIELDS if id_field is None else (id_field,):
        found = value.get(name)
        if isinstance(found, str | int) and not isinstance(found, bool) and str(found).strip():
            return str(found)

    return None


def row_folder(content: bytes) -> str:
    """Return the name of the folder for the content of a row."""
    return hashlib.sha256(content).hexdigest()[:16]


def free_name(label: str, taken: Set[str]) -> str:
    """Return a name for an item: a part of a path, and not one of `taken`, which are lower case."""
    plain = _UNSUITED.sub("-", label).strip(".-")[:_LONGEST_NAME] or "item"
    name, number = plain, 2
    while name.lower() in taken:
        name = f"{plain}-{number}"
        number += 1

    return name


# --- content --------------------------------------------------------------------------------------


def hank_hash(hank: Path) -> str:
    """Hash a hank.json and all files below its folder that it names, directly or through others.

    Every text in it that is the path of a file or a folder counts as a reference. Raises OSError.
    """
    digest = hashlib.sha256(hank.read_bytes())
    for reference, path in references_in(hank):
        digest.update(b"\0" + os.fsencode(reference) + content_hash(path).encode())

    return digest.hexdigest()


# --- items ---------------------------------------------------------------------------------------


def wanted_items(
    journal: MapJournal, named: Sequence[MapInput], begun: MapBegun | None, clock: Clock
) -> list[WantedItem]:
    """Name all inputs and hash their contents; without any, those of the last command."""
    names = _named(journal, named, instants.to_text(clock.now()))
    if begun is not None and not named:
        names = [name for name in begun.items if name in journal.state.items]

    return [_hashed(journal.state.items[name]) for name in names]


def _named(journal: MapJournal, found: Iterable[MapInput], now: str) -> list[str]:
    """Record the inputs that are new; return the names of all."""
    known = journal.state.by_key()
    taken = {name.lower() for name in journal.state.items}
    added, names, has_rows = [], [], False
    for each in found:
        path = each.path
        if each.row is not None:
            path = journal.directory.inputs / row_folder(each.row) / ROW_FILE
            has_rows = _store(path, each.row) or has_rows

        item = known.get(each.key)
        name = free_name(each.label, taken) if item is None else item.name
        taken.add(name.lower())
        names.append(name)
        if item is None or item.path != str(path):
            added.append(ItemAdded(at=now, item=name, key=each.key, kind=each.kind, path=str(path)))

    if has_rows:
        fsutil.sync_filesystem(journal.directory.inputs)

    journal.append(added)
    return names


def _store(path: Path, content: bytes) -> bool:
    """Write the content of a row, unless it is there; return whether it was written."""
    if path.exists() and path.read_bytes() == content:
        return False

    fsutil.make_private_directory(path.parent)
    fsutil.replace(path, content)
    return True


def _hashed(item: Item) -> WantedItem:
    path = Path(item.path)
    try:
        return WantedItem(item.name, content_hash(path))
    except FileNotFoundError:
        raise Stop(
            f"The input of {item.name} is gone: {path}.",
            ExitCode.NO_INPUT,
            hint="Put it back, or name the inputs without it.",
        ) from None


# --- variables ------------------------------------------------------------------------------------


def variables_of(item: Item) -> dict[str, str]:
    """Return the variables of an item; of a row, its fields with a usable name. Raises OSError."""
    path = Path(item.path)
    data = DATA_SOURCE if item.kind == "folder" else f"{DATA_SOURCE}/{path.name}"
    found = _fields_of(path) if item.kind == "row" else {}
    return found | {"map.item": item.name, "map.input": data}


def _fields_of(path: Path) -> dict[str, str]:
    value = json.loads(path.read_bytes())
    fields = value if isinstance(value, dict) else {"value": value}
    return {name: _text(each) for name, each in fields.items() if re.fullmatch(NAME, name)}


def _text(value: object) -> str:
    try:
        return text_of(value)
    except TypeError:
        return json.dumps(value, ensure_ascii=False)
