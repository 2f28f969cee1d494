"""Price lists on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from hankweave_protocol.state import Tokens
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.hank.price_files import load_prices, usual_place

ONE = Tokens(input_tokens=1_000_000, output_tokens=0, cache_creation_tokens=0, cache_read_tokens=0)
OWN = '{"models": {"local/mine": {"input": 42, "output": 1}}}'


def test_the_packaged_prices_are_there_without_any_file(tmp_path: Path) -> None:
    """The installed package contains prices."""
    prices = load_prices(None, tmp_path / "none.json")
    assert prices.price_of("sonnet", ONE) == 2
    assert prices.price_of("mine", ONE) is None


def test_the_usual_file_is_read_if_it_is_there(tmp_path: Path) -> None:
    """The file is at the XDG location, or else in ~/.config."""
    usual = usual_place(str(tmp_path))
    assert usual == tmp_path / "hankweave" / "prices.json"
    assert usual_place(None) == Path("~/.config/hankweave/prices.json").expanduser()
    usual.parent.mkdir()
    usual.write_text(OWN)
    assert load_prices(None, usual).price_of("mine", ONE) == 42


def test_a_chosen_file_replaces_the_usual_one(tmp_path: Path) -> None:
    """Two lists are never merged, so that it is clear which one counts."""
    usual, chosen = tmp_path / "usual.json", tmp_path / "chosen.json"
    usual.write_text(OWN)
    chosen.write_text(OWN.replace("mine", "other"))
    prices = load_prices(chosen, usual)
    assert (prices.price_of("mine", ONE), prices.price_of("other", ONE)) == (None, 42)


def test_a_chosen_file_must_be_there(tmp_path: Path) -> None:
    """A missing chosen file is an error: a budget is not enforced with other prices."""
    with pytest.raises(Stop) as stop:
        load_prices(tmp_path / "none.json", tmp_path / "usual.json")

    assert stop.value.exit_code == ExitCode.NO_INPUT
    assert "none.json" in stop.value.message


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b"\xff\xfe", b'{"models": {"m": {"input": "3"}}}', b"[" * 99_999]
)
def test_a_wrong_file_says_what_and_how(tmp_path: Path, content: bytes) -> None:
    """The message has the path, the hint an example; no entry is silently ignored."""
    usual = tmp_path / "usual.json"
    usual.write_bytes(content)
    with pytest.raises(Stop) as stop:
        load_prices(None, usual)

    assert stop.value.exit_code == ExitCode.CONFIGURATION
    assert str(usual) in stop.value.message
    assert stop.value.hint is not None
    assert '"models"' in stop.value.hint
