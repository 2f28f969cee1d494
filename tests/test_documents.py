"""Claims about the documents: their links lead somewhere, and the site has every page."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import documents
from documents import ROOT_PAGES, TOP, checked_pages, pages_of_docs
from hankweave_server.hank.load import load
from hankweave_server.hank.pipelines.load import load_pipeline
from support import documented_hanks
from support.documented_commands import calls, commands, fault, spans

ELSEWHERE = re.compile(
    r"<(?:script|link|img|source|iframe)\b[^>]*\b(?:src|href)=\"(https?:[^\"]*)\""
)


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
    printed = [*spans(page.read_text())]
    printed += [each for block in documents.blocks(page) for each in commands(block)]
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

        printed = json.loads(block.text)
        if "mcp" in printed:
            continue  # The settings of OpenCode.

        hank = documented_hanks.completed(printed)
        assert hank is not None, f"line {block.line} is no hank; say above it what it is"
        folder = tmp_path / str(block.line)
        folder.mkdir()
        load(documented_hanks.write(hank, folder))


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
