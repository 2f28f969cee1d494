"""Arbitrary bytes in the three parsers of untrusted input raise only the parsers' own errors.

Each input starts as something valid and is then corrupted, because random bytes alone are refused
at the first byte. That every hank with odd *values* is loaded or reported is
`tests/server/hank/test_load.py`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hankweave_protocol.errors import Refused
from hankweave_protocol.transitions import TRANSITIONS
from hankweave_server.hank.prompts import PromptFault, PromptFile, read_prompt_file
from hankweave_server.ledger.journal import Journal, JournalCorrupt
from intruders import guided
from intruders.readers import (
    EVENT,
    FRAMES,
    READ,
    WHOLE,
    assert_decoded_or_refused,
    assert_loaded_or_rejected,
    assert_opened_or_corrupt,
    hank_text,
    read_transition,
)
from intruders.tier import IS_LONG, rounds
from support.outcomes import outcome
from support.running_server import environment
from support.tally import Tally

often = settings(
    max_examples=rounds(400, 20_000),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

RUNS = 1_000_000
"""Inputs for each parser under the guided fuzzer."""
SAMPLED_RUNS = 5_000
"""The same in a sample of the campaigns, for each of its points."""

NASTY = [
    b"\0", b"\xff", b"\xed\xa0\x80", b"\\ud800", b"\n", b"\r", b"\xe2\x80\xa8", b'"', b"\\", b"{",
    b"}", b"[", b"[" * 70, b"]", b",", b":", b"-", b"1e999", b"9" * 400, b"9" * 5_000, b"NaN",
    b"null", b"true", b"../", b'"type"', b'"seq"', b'"id":1,', b"\xef\xbb\xbf", b"---\n", b"&a ",
    b"*a", b"!!python/object:os.system ", b"0x" + b"f" * 6_000,
]  # fmt: skip


@st.composite
def spoiled(draw: st.DrawFn, originals: list[bytes]) -> bytes:
    """Return one of the originals with parts cut out, duplicated, overwritten or inserted."""
    data = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        until = min(len(data), at + draw(st.integers(0, 12)))
        match draw(st.sampled_from(["cut", "double", "put", "overwrite", "end"])):
            case "cut":
                del data[at:until]
            case "double":
                data[at:at] = data[at:until]
            case "put":
                data[at:at] = draw(st.sampled_from(NASTY) | st.binary(max_size=8))
            case "overwrite":
                data[at:until] = draw(st.binary(min_size=until - at, max_size=until - at))
            case "end":
                del data[at:]

    return bytes(data)


@pytest.fixture(autouse=True)
def counted(tally: Tally) -> Iterator[None]:
    before = READ.total()
    yield
    tally.add("fuzzed readers", rounds=READ.total() - before, of="inputs")


# --- the codec ------------------------------------------------------------------------------------


@often
@given(data=spoiled(FRAMES) | st.binary(max_size=300))
def test_the_codec_reads_or_refuses(data: bytes) -> None:
    """Any bytes, in any parser, decode to a value that can be encoded again, or raise `Refused`."""
    assert_decoded_or_refused(data)


@often
@given(name=st.sampled_from(TRANSITIONS.names), body=spoiled([b'{"codonId":"one","state":{}}']))
def test_a_transition_is_read_or_refused(name: str, body: bytes) -> None:
    """The part of the journal that becomes state decodes or raises `Refused` as well."""
    READ["transition"] += 1
    text = (EVENT % "state.transition").encode().replace(b"RunStarted", name.encode())
    value = outcome(Refused, read_transition, text.replace(b'"data":{}', b'"data":' + body))
    assert not isinstance(value, Refused) or value.path


# --- the journal ----------------------------------------------------------------------------------


@often
@given(content=spoiled([WHOLE, b"", WHOLE[:-1]]), durable=st.none() | st.integers(0, 6))
@example(content=WHOLE[:-30] + bytes(30), durable=5)
@example(content=WHOLE + b"[" * 200_000 + b"\n", durable=None)
def test_a_journal_is_opened_or_reported_as_corrupt(
    tmp_path: Path, content: bytes, durable: int | None
) -> None:
    """A journal opens with seqs 1..n and no lost byte, or is corrupt and its file unchanged."""
    assert_opened_or_corrupt(tmp_path / "events" / "events.jsonl", content, durable)


@often
@given(content=spoiled([WHOLE, WHOLE[:-1]]))
def test_reading_a_journal_changes_nothing(tmp_path: Path, content: bytes) -> None:
    """A reader opens the journals that the writer opens, and reports the others as corrupt."""
    path = tmp_path / "events.jsonl"
    path.write_bytes(content)
    with contextlib.suppress(JournalCorrupt):
        Journal.for_reading(path).close()

    assert path.read_bytes() == content


# --- the hank -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hank_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hank")
    (folder / "prompt.md").write_text("Do it.\n")
    return folder


@often
@given(content=spoiled([hank_text(), hank_text(overrides={"budget": {"maxDollars": 1}})]))
@example(
    content=hank_text().replace(b'"maxDollars": 1}, "env"', b'"maxDollars": %d}, "env"' % 10**400)
)
@example(content=hank_text().replace(b"0.5", b"1" + b"0" * 400))
@example(content=b"[" * 100_000)
def test_a_hank_is_loaded_or_its_problems_are_reported(hank_folder: Path, content: bytes) -> None:
    """Any hank.json is loaded, or HankInvalid has a place and a sentence for each fault."""
    assert_loaded_or_rejected(hank_folder / "hank.json", content)


PROMPT = (
    b"---\nname: One\ntags: [a, 2]\nversion: 1.0\ndescription: |\n  x\n---\nDo <!-- not --> it.\n"
)
LAUGHS = b"a: &a [x, x]\n" + b"".join(
    b"%c: &%c [*%c, *%c, *%c, *%c, *%c, *%c, *%c, *%c, *%c]\n" % (n + 1, n + 1, *[n] * 9)
    for n in range(ord("a"), ord("l"))
)


@often
@given(content=spoiled([PROMPT]))
@example(content=b"---\n" + LAUGHS + b"tags: *l\n---\n")
@example(content=b"---\nversion: 0x" + b"f" * 6_000 + b"\n---\n")
@example(content=b"---\nname: &a [*a]\n---\n")
def test_a_prompt_is_read_or_its_fault_is_reported(tmp_path: Path, content: bytes) -> None:
    """Any bytes as a prompt with frontmatter give a prompt, or PromptFault, without delay."""
    READ["prompt"] += 1
    file = tmp_path / "prompt.md"
    file.write_bytes(content)
    found = outcome(PromptFault, read_prompt_file, file)
    assert isinstance(found, PromptFile) or str(found)


# --- guided by what is reached --------------------------------------------------------------------


@pytest.mark.skipif(not IS_LONG, reason="the guided fuzzer runs in the long tier")
@pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None, reason="atheris is not installed: the extra `fuzz`"
)
@pytest.mark.parametrize("reader", guided.READERS)
def test_a_reader_holds_under_a_guided_fuzzer(
    reader: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """atheris, which mutates inputs that reach new lines of our code, finds none that breaks it."""
    runs = SAMPLED_RUNS * (pytestconfig.getoption("--sampled") or 0) or RUNS
    words = (sys.executable, guided.__file__, reader, str(tmp_path), str(runs))
    path = ":".join(entry for entry in sys.path if entry)
    done = subprocess.run(
        words, env=environment(PYTHONPATH=path), capture_output=True, cwd=tmp_path
    )
    output = done.stderr.decode(errors="replace")
    assert done.returncode == 0, output[-4_000:]
    done_runs = re.search(r"Done (\d+) (?:runs )?in", output)
    assert done_runs is not None, output[-4_000:]
    READ[reader] += int(done_runs[1])
