"""Claims about the documents: links, commands, hanks and pipelines in them, and the site."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import documents
from documents import ROOT_PAGES, TOP, checked_pages, pages_of_docs
from hankweave_protocol.hank import Codon, Hank, Variant
from hankweave_server.features.architect.yaml.load import load_pipeline
from hankweave_server.hank.load import load
from support.documented_commands import calls, commands, fault
from support.reader import Reader
from support.scripted_hank import write_hank
from support.sentinels import a_sentinel

ELSEWHERE = re.compile(
    r"<(?:script|link|img|source|iframe)\b[^>]*\b(?:src|href)=\"(https?:[^\"]*)\""
)
CODON = {
    "id": "a",
    "name": "A",
    "model": "sonnet",
    "continuationMode": "fresh",
    "promptText": "Do it.",
}
SENTINEL = a_sentinel(model="scripted/any")


class Loader(yaml.SafeLoader):
    """A loader for mkdocs.yml, which names functions of Python."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def relative(page: Path) -> str:
    return page.relative_to(TOP).as_posix()


def pages_of_the_navigation(items: list[Any]) -> list[str]:
    found = []
    for item in items:
        (entry,) = item.values()
        found += [entry] if isinstance(entry, str) else pages_of_the_navigation(entry)
    return found


def completed(printed: dict[str, Any]) -> dict[str, Any] | None:
    """Return the hank that an object is, or is a part of: a codon, a variant, or its settings."""
    fields = {name: value for name, value in printed.items() if name != "..."}
    names = fields.keys()
    if "hank" in names:
        return fields

    if "trigger" in names:
        return {"hank": [{**CODON, "sentinels": [{"sentinelConfig": fields}]}]}

    if names <= {*Variant.__struct_encode_fields__} and "name" in names:
        return {"hank": [{**CODON, "attempts": {"variants": [fields]}}]}

    if names <= {*Codon.__struct_encode_fields__}:
        return {"hank": [{**CODON, **fields}]}

    if names <= {*Hank.__struct_encode_fields__}:
        return {**fields, "hank": [CODON]}

    return None


def files_of(value: Any) -> Iterator[str]:
    """Yield the names of the files that a hank refers to."""
    if isinstance(value, list):
        for each in value:
            yield from files_of(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            if name.lower().endswith("promptfile"):
                yield from [each] if isinstance(each, str) else each
            elif name == "from" or (name == "sentinelConfig" and isinstance(each, str)):
                yield each
            else:
                yield from files_of(each)


@pytest.mark.parametrize("page", checked_pages(), ids=relative)
def test_each_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert documents.broken_links(page) == []


@pytest.mark.parametrize("page", [*pages_of_docs(), *map(TOP.joinpath, ROOT_PAGES)], ids=relative)
def test_each_list_is_the_same_on_the_site(page: Path) -> None:
    assert documents.unnested_blocks(page) == []


def test_the_navigation_has_every_page_once() -> None:
    """A page that nothing leads to is not read, and one that is missing cannot be."""
    navigation = pages_of_the_navigation(yaml.load((TOP / "mkdocs.yml").read_text(), Loader)["nav"])
    there = {*map(relative, pages_of_docs()), *ROOT_PAGES}
    assert sorted(navigation) == sorted(there)


@pytest.mark.full
def test_the_site_is_built_without_a_warning_and_needs_no_other_host(tmp_path: Path) -> None:
    shutil.copy(TOP / "mkdocs.yml", tmp_path)
    documents.write_tree(tmp_path / ".site")
    program = Path(sys.executable).with_name("zensical")
    done = subprocess.run(
        [program, "build", "--strict"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = [*(tmp_path / "site").rglob("*.html")]
    assert len(pages) > len(pages_of_docs())
    assert {
        page.name: found for page in pages if (found := ELSEWHERE.findall(page.read_text()))
    } == {}


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        (
            "[a](page.md) [b](#a-heading) [c](page.md#a-heading-1)\n\n# A heading\n\n# A heading\n",
            [],
        ),
        ("[a](none.md)", ["docs/page.md:1: none.md does not exist"]),
        ('text\n\n<img src="none.png">', ["docs/page.md:3: none.png does not exist"]),
        ("[a](#none)", ["docs/page.md:1: #none: no heading has this name"]),
        ("`[a](none.md)`\n\n```\n[a](none.md)\n```\n", []),
        ("[a](../../none.md)", ["docs/page.md:1: ../../none.md does not exist"]),
        ("[a](https://example.org/none.md)", []),
        ("As `docs/page.md` says.", []),
        ("As `docs/none.md` says.", ["docs/page.md:1: /docs/none.md does not exist"]),
        ("## `state.json`, *old*\n\n[a](#statejson-old)", []),
    ],
)
def test_a_broken_link_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, faults: list[str]
) -> None:
    monkeypatch.setattr(documents, "TOP", tmp_path)
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text(text)
    assert documents.broken_links(page) == faults


@pytest.mark.parametrize("page", checked_pages(), ids=relative)
def test_each_command_exists_with_its_options(page: Path) -> None:
    """In blocks of shell and in code spans; nothing is run."""
    printed = [each for block in documents.blocks(page) for each in commands(block)]
    printed += [(line, each) for line, span in documents.code_spans(page) for each in calls(span)]
    wrong = [(line, shlex.join(words), fault(words)) for line, words in sorted(printed)]
    assert [each for each in wrong if each[-1] is not None] == []


@pytest.mark.parametrize("page", checked_pages(), ids=relative)
def test_each_hank_is_valid(page: Path, tmp_path: Path) -> None:
    """A block of JSON is a hank or a part of one, unless a comment above it says what it is.

    Pages of the reference are generated, and have examples of the wire and of files.
    """
    if page.parent.name == "reference":
        return

    for block in documents.blocks(page):
        if block.language != "json" or block.above.startswith("<!--"):
            continue

        hank = completed(json.loads(block.text))
        assert hank is not None, f"line {block.line} is no hank; say above it what it is"
        folder = tmp_path / str(block.line)
        for name in files_of(hank):
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(SENTINEL) if name.endswith(".json") else "Text.")

        load(write_hank(folder, **hank))


@pytest.mark.parametrize("page", checked_pages(), ids=relative)
def test_each_pipeline_is_valid(page: Path, tmp_path: Path) -> None:
    """A block of YAML with steps is a pipeline."""
    for block in documents.blocks(page):
        if block.language == "yaml" and re.search("^steps:", block.text, re.MULTILINE):
            file = tmp_path / f"{block.line}.yaml"
            file.write_text(block.text)
            load_pipeline(file)


def test_each_how_to_page_says_what_to_do_if_it_fails() -> None:
    """It has commands before that, and the page is short enough to be read while one needs it."""
    for page in TOP.glob("docs/how-to/*.md"):
        text = page.read_text()
        assert "\n## If it does not work\n" in text, page.name
        assert "```" in text.partition("\n## If it does not work\n")[0], page.name
        assert len(text.splitlines()) < 160, page.name


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("hankweave statsu", ["there is no command statsu"]),
        ("cd x && hankweave status --whole | head", ["No such option '--whole'."]),
        ("hankweave rollback --codon a --type strat", ["--type cannot be strat"]),
        ("HANKWEAVE_X=1 hankweave run --safe-points tool # --none", []),
        ("docker exec hankweave hankweave log --flolow", ["No such option '--flolow'."]),
        ("./scripts/run --nwe", ["No such option '--nwe'."]),
        ("hankweave pin $(hankweave checkpoints --jsn)", ["No such option '--jsn'."]),
        ("hankweave rollback --to", ["Option '--to' requires an argument."]),
        ("hankweave my-project data/ --headless", []),
        ("rm -rf hankweave --mistake", []),
    ],
)
def test_a_wrong_command_is_found(line: str, expected: list[str]) -> None:
    found = [fault(words) for words in calls(line)]
    assert [(each or "").partition(" Did you mean")[0] for each in found if each] == expected


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("1. a\n\n    b\n\n    ```\n    c\n    ```\n\n2. d\n   e\n", []),
        ("1. a\n\n   b\n\n   ```\n   c\n   ```\n", [3, 5]),
        ("- a\n  - b\n", [2]),
        ("- a\n    - b\n\n        c\n", []),
    ],
)
def test_a_block_that_leaves_its_list_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, lines: list[int]
) -> None:
    monkeypatch.setattr(documents, "TOP", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(text)
    assert [int(each.split(":")[1]) for each in documents.unnested_blocks(page)] == lines


@pytest.mark.parametrize(
    ("typed", "shown", "is_true"),
    [
        ("echo one; echo two; echo three", "one\n…\nthree", True),
        ("echo one; echo two", "one", False),
        ("echo took 2.5 s at 12:30:01", "took 0.1 s at 09:15:02", True),
        ("echo took 2.5 s", "took ages", False),
        ("echo 0a1b2c 0a1b2c", "111111 111111", True),
        ("echo 0a1b2c 3d4e5f", "111111 111111", False),
        ("false", "", False),
    ],
)
def test_an_output_that_differs_from_the_document_is_found(
    tmp_path: Path, typed: str, shown: str, is_true: bool
) -> None:
    """Times and identifiers may differ, but one identifier may not stand for two."""
    page = tmp_path / "page.md"
    page.write_text(f"```bash\n{typed}\n```\n\n```text\n{shown}\n```\n")
    difference = pytest.raises(AssertionError, match=r"page\.md, line 1 shows")
    with contextlib.nullcontext() if is_true else difference:
        Reader(tmp_path, {"PATH": os.environ["PATH"]}).follow(page)
