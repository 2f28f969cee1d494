"""Claims about the notation of ages and sizes."""

from __future__ import annotations

import click
import pytest

from hankweave_server.cli.output.text import AGE, SIZE, size_text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("45s", 45),
        ("90m", 5_400),
        ("12h", 43_200),
        ("30d", 2_592_000),
        ("1.5h", 5_400),
        ("2W", 1_209_600),
    ],
)
def test_an_age_is_a_number_and_a_unit(text: str, seconds: int) -> None:
    """Units range from seconds to weeks, in either case, and fractions are accepted."""
    assert AGE.convert(text, None, None) == seconds


@pytest.mark.parametrize(
    ("text", "count"),
    [("0", 0), ("1000", 1000), ("500MB", 500_000_000), ("2 GiB", 2 << 30), ("1.5kb", 1_500)],
)
def test_a_size_is_a_number_and_perhaps_a_unit(text: str, count: int) -> None:
    """Units are powers of a thousand, or with an i of 1024; without a unit bytes."""
    assert SIZE.convert(text, None, None) == count


@pytest.mark.parametrize("text", ["", "d", "-1d", "1 fortnight", "1e3s", "٣d", "1d2h", "30"])
def test_what_is_no_age_is_refused(text: str) -> None:
    """Signs, other digits, several units and bare numbers are refused."""
    with pytest.raises(click.BadParameter):
        AGE.convert(text, None, None)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (1023, "1,023 bytes"),
        (1536, "1.5 KiB"),
        (5 << 30, "5.0 GiB"),
        (3 << 40, "3.0 TiB"),
    ],
)
def test_a_size_is_written_in_the_unit_that_suits_it(count: int, text: str) -> None:
    """Sizes are bytes up to a KiB, then have one decimal."""
    assert size_text(count) == text
