"""Fuzz one parser of untrusted input; atheris keeps and mutates inputs that reach new lines.

    python guided.py READER FOLDER RUNS

It is a program of its own, because libFuzzer takes over the whole process and ends it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

READERS = ("codec", "journal", "hank")


def _check(reader: str, folder: Path) -> tuple[Callable[[bytes], None], list[bytes]]:
    """Return the function that checks each input, and the seed inputs."""
    readers = importlib.import_module("intruders.readers")
    match reader:
        case "codec":
            return readers.assert_decoded_or_refused, readers.FRAMES
        case "journal":
            path = folder / "events" / "events.jsonl"
            return lambda data: readers.assert_opened_or_corrupt(path, data), [readers.WHOLE]
        case _:
            (folder / "prompt.md").write_text("Do it.\n")
            file = folder / "hank.json"
            return lambda data: readers.assert_loaded_or_rejected(file, data), [readers.hank_text()]


def main(reader: str, folder: Path, runs: str) -> None:
    import atheris  # atheris is an extra: the tests that are skipped without it import this module.

    with atheris.instrument_imports(include=["hankweave_protocol", "hankweave_server"]):
        check, valid = _check(reader, folder)

    corpus = folder / "corpus"
    corpus.mkdir()
    for number, data in enumerate(valid):
        (corpus / str(number)).write_bytes(data)

    # No memory limit: libFuzzer's measurement starts with the peak of the parent process.
    flags = [f"-runs={runs}", "-rss_limit_mb=0"]
    atheris.Setup([sys.argv[0], str(corpus), *flags], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
