"""Prompts built from files, frontmatter and variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from hankweave_protocol.events import PromptMetadata
from hankweave_protocol.hank import Codon, Hank
from hankweave_server.hank.prompts import HankFiles, PromptFault, read_prompt_file, render, resolve


def a_codon(**fields: object) -> Codon:
    return Codon(id="a", name="A", model="m", continuation_mode="fresh", **fields)  # type: ignore[arg-type]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "one.md").write_text("---\nname: One\ntags: [a, 2]\nversion: 1.0\n---\nFirst.\n")
    (tmp_path / "two.md").write_text("---\nname: Two\n---\nSecond.\n")
    return tmp_path


def test_files_are_joined_with_a_blank_line_and_the_first_ones_metadata(directory: Path) -> None:
    """Frontmatter is stripped from every file; the first file's is kept (Hankweave, prompts)."""
    codon = a_codon(prompt_file=("one.md", "two.md"))
    prompt = resolve(Hank(hank=(codon,)), codon, HankFiles(directory).prompt)
    assert prompt.text == "First.\n\n\nSecond.\n"
    assert prompt.metadata == PromptMetadata(name="One", tags=("a", "2"), version="1.0")


def test_the_file_wins_over_the_text(directory: Path) -> None:
    """A codon with both uses the file."""
    codon = a_codon(prompt_file="two.md", prompt_text="Not this.")
    assert resolve(Hank(hank=(codon,)), codon, HankFiles(directory).prompt).text == "Second.\n"


def test_a_text_is_a_prompt_without_metadata(directory: Path) -> None:
    """`promptText` is used without metadata, with its comments removed."""
    codon = a_codon(prompt_text="Do<!-- not --> it.")
    prompt = resolve(Hank(hank=(codon,)), codon, HankFiles(directory).prompt)
    assert (prompt.text, prompt.metadata, prompt.system_prompt) == ("Do it.", None, None)


def test_the_global_system_prompt_comes_before_the_codons(directory: Path) -> None:
    """The system prompt is the global prompt, a blank line and the codon's prompt."""
    codon = a_codon(prompt_text="p", append_system_prompt_file="two.md")
    hank = Hank(hank=(codon,), global_system_prompt_text="Everywhere.")
    assert (
        resolve(hank, codon, HankFiles(directory).prompt).system_prompt
        == "Everywhere.\n\nSecond.\n"
    )


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a<!-- x -->\nb", "ab"),
        ("a\n<!-- x\ny -->\n\nb", "a\n\nb"),
        ("a<!-- x -->\r\nb", "ab"),
        ("a <!-- one --> b <!-- two --> c", "a  b  c"),
        ("a <!-- open", "a <!-- open"),
    ],
)
def test_comments_go_with_one_line_end(directory: Path, text: str, left: str) -> None:
    """HTML comments never reach the agent; one line end after each is removed too."""
    (directory / "c.md").write_bytes(text.encode())
    assert read_prompt_file(directory / "c.md").text == left


@pytest.mark.parametrize(
    ("text", "left", "name"),
    [
        ("---\nname: N\n---\nBody", "Body", "N"),
        ("---\r\nname: N\r\n---\r\nBody", "Body", "N"),
        ("---\nname: N\n---", "", "N"),
        ("---\n---\nBody", "Body", None),
        ("---\nJust prose.\n---\nMore.", "---\nJust prose.\n---\nMore.", None),
        ("---\nno end", "---\nno end", None),
        ("Text\n---\nname: N\n---\n", "Text\n---\nname: N\n---\n", None),
        ("\ufeff---\nname: N\n---\nBody", "Body", "N"),
    ],
)
def test_frontmatter_is_what_yaml_between_two_rules_at_the_top_says(
    directory: Path, text: str, left: str, name: str | None
) -> None:
    """Horizontal rules inside a page are not frontmatter."""
    (directory / "f.md").write_bytes(text.encode())
    prompt = read_prompt_file(directory / "f.md")
    assert prompt.text == left
    assert (prompt.metadata and prompt.metadata.name) == name


def test_frontmatter_makes_no_objects(directory: Path) -> None:
    """YAML tags that would run code are refused."""
    (directory / "f.md").write_text("---\na: !!python/object/apply:os.getpid []\n---\n")
    with pytest.raises(PromptFault):
        read_prompt_file(directory / "f.md")


def test_variables_are_filled_in_once() -> None:
    """Three names mean the work tree, one the data; a value like a variable is not expanded."""
    text = "<%AGENT_ROOT%> <%PROJECT_DIR%> <%EXECUTION_DIR%> <%DATA_DIR%> <%OTHER%>"
    root, data = Path("/e/<%DATA_DIR%>"), Path("/d")
    tree = "/e/<%DATA_DIR%>"
    assert render(text, root, data) == f"{tree} {tree} {tree} /d <%OTHER%>"
