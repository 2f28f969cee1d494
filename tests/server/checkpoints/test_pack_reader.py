"""The pack reader returns the same bytes as git, in bounded memory, and never wrong ones."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hankweave_server.checkpoints.contents import Contents
from hankweave_server.git.objects import STREAMED_FROM
from hankweave_server.git.pack_reader import OPEN_PACKS, PIECE, PackDamaged, PackReader
from hankweave_server.git.repack import Pace
from hankweave_server.git.repo import LIBGIT2_OPEN_PACKS, ShadowRepo

MEBIBYTE = 1 << 20


def reader_of(lab) -> PackReader:
    return PackReader(lab.layout.shadow_repository / "objects")


def everything(lab) -> dict[bytes, tuple[str, int]]:
    """Return every object of the repository, as the git program lists it."""
    lines = lab.git("cat-file", "--batch-all-objects", "--batch-check").splitlines()
    found = [line.split() for line in lines]
    return {bytes.fromhex(name): (kind, int(size)) for name, kind, size in found}


def content_of(lab, digest: bytes, kind: str) -> bytes:
    return lab.git_bytes("cat-file", kind, digest.hex())


def name_of(kind: str, data: bytes) -> bytes:
    return hashlib.sha1(b"%s %d\0%s" % (kind.encode(), len(data), data)).digest()


def several_checkpoints(lab) -> None:
    for step in range(3):
        for number in range(40):
            lab.write(f"d{number % 5}/f{number}", f"{step} {number}\n" * (number * 50 + 1))

        lab.write("noise", os.urandom(300_000))
        lab.write("empty")
        lab.checkpoint()


def test_every_object_reads_as_git_reads_it(lab):
    """Kind, size and content of each packed object equal git's."""
    several_checkpoints(lab)
    reader = reader_of(lab)
    for digest, (kind, size) in everything(lab).items():
        assert reader.size(digest) == size
        assert reader.read(digest) == (kind, content_of(lab, digest, kind))


def test_an_object_that_is_not_in_a_pack_is_no_error(lab):
    """A missing or loose object gives None, so that another reader can look for it."""
    several_checkpoints(lab)
    reader, nowhere = reader_of(lab), bytes(20)

    assert (reader.read(nowhere), reader.size(nowhere), reader.pieces(nowhere)) == (None,) * 3


def test_deltas_are_left_to_libgit2(lab):
    """After `git gc`, our reader skips deltas that point to their bases by a distance."""
    several_checkpoints(lab)
    known = everything(lab)
    lab.git("gc", "-q", "--prune=now", "--aggressive")
    reader, repo = reader_of(lab), ShadowRepo(lab.layout.shadow_repository)
    passed_over = [digest for digest in known if reader.read(digest) is None]

    assert passed_over
    for digest, (kind, _) in known.items():
        assert repo.read(digest) == (kind, content_of(lab, digest, kind))

    repo.close()


def test_the_versions_of_a_path_are_read_without_libgit2(lab):
    """Our own deltas name their bases; what was read last is at hand for the next one."""
    draw = random.Random(3)  # Reproducible, not secret.
    lines = [f"{draw.getrandbits(96):024x}\n" for _ in range(300)]
    for _ in range(40):
        lines[draw.randrange(300)] = f"{draw.getrandbits(96):024x}\n"
        lab.write("long/file", "".join(lines))
        lab.checkpoint()

    lab.engine.housekeeping.consolidate(Pace(lambda: False))
    reader, known = reader_of(lab), everything(lab)
    deltas = [digest for digest in known if reader.size(digest) is None]
    assert len(deltas) > 40
    for digest in deltas:
        kind, _ = known[digest]
        assert reader.read(digest) == (kind, content_of(lab, digest, kind))


def test_packs_that_come_and_go_are_noticed(lab):
    """Objects are found in a newer pack, and again after a repack removed every old pack."""
    reader = reader_of(lab)
    lab.write("a", "1" * 1000)
    first = lab.checkpoint()
    assert reader.size(bytes.fromhex(first.tree)) is not None
    lab.write("b", "2" * 1000)
    second = lab.checkpoint()
    assert reader.size(bytes.fromhex(second.tree)) is not None
    before = lab.packs()

    lab.git("repack", "-q", "-a", "-d", "--window=0")

    assert not set(before) & set(lab.packs())
    fresh = reader_of(lab)
    for sha in (first.tree, second.tree):
        digest = bytes.fromhex(sha)
        kept, found = reader.read(digest), fresh.read(digest)
        assert kept == found == ("tree", content_of(lab, digest, "tree"))


def test_an_open_pack_outlives_its_name(lab):
    """A pack whose name was removed stays readable for an open reader until `forget` is called."""
    lab.write("a", "1" * 1000)
    tree = bytes.fromhex(lab.checkpoint().tree)
    reader = reader_of(lab)
    before = reader.read(tree)
    for pack in lab.packs():
        pack.unlink()
        pack.with_suffix(".idx").unlink()

    assert before is not None
    assert reader.read(tree) == before
    reader.forget()
    assert reader.read(tree) is None


def test_what_another_program_removed_exists_no_more(lab):
    """The test for existing objects follows packs that come and go, and sees no removed one."""
    repo = ShadowRepo(lab.layout.shadow_repository)
    lab.write("a", "1" * 1000)
    first = bytes.fromhex(lab.checkpoint().tree)
    assert repo.existing()(first)
    lab.write("a", "2" * 1000)
    second = bytes.fromhex(lab.checkpoint().tree)
    assert repo.existing()(second)

    for pack in lab.packs():
        if repo.packs.read(first) is not None:
            pack.with_suffix(".idx").unlink()
            pack.unlink()
            repo.packs.forget()

    assert not repo.existing()(first)
    repo.close()


def test_descriptors_do_not_grow_with_the_packs(lab):
    """Reading the whole history of a store with many packs keeps a bounded number of them open."""
    count = OPEN_PACKS + LIBGIT2_OPEN_PACKS + 12
    for number in range(count):
        lab.write("a", f"{number}\n" * 1000)
        lab.checkpoint()

    assert len(lab.packs()) >= count
    known, before = everything(lab), open_packs()
    repo, most = ShadowRepo(lab.layout.shadow_repository), 0
    for _ in range(2):
        assert len(list(repo.commits())) >= count
        for digest in known:
            repo.read(digest)
            most = max(most, open_packs() - before)

    assert 0 < most <= OPEN_PACKS + LIBGIT2_OPEN_PACKS
    repo.close()


def test_a_pack_is_opened_once_for_objects_that_are_read_one_after_the_other(lab, monkeypatch):
    """Also if more packs exist than stay open: reading pack by pack opens each of them once."""
    for number in range(OPEN_PACKS + 3):
        lab.write("a", f"{number}\n" * 1000)
        lab.checkpoint()

    opened: list[str] = []
    by_system = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *how: opened.append(str(path)) or by_system(path, *how)
    )
    reader = reader_of(lab)
    for pack in lab.packs():
        for digest in objects_in(pack):
            assert reader.read(digest) is not None

    assert sorted(path for path in opened if path.endswith(".pack")) == [*map(str, lab.packs())]


def objects_in(pack: Path) -> list[bytes]:
    words = ["git", "show-index"]
    index = pack.with_suffix(".idx").read_bytes()
    listed = subprocess.run(words, input=index, capture_output=True, check=True).stdout
    return [bytes.fromhex(line.split()[1].decode()) for line in listed.splitlines()]


def open_packs() -> int:
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return sum(os.readlink(link).endswith(".pack") for link in links if os.path.lexists(link))


def test_no_harm_to_a_pack_gives_wrong_bytes(lab):
    """With any bytes of pack or index changed, cut or added, an object is right or missing."""
    several_checkpoints(lab)
    known = everything(lab)
    chance = random.Random(7)  # Reproducible, not secret.
    files = [file for pack in lab.packs() for file in (pack, pack.with_suffix(".idx"))]
    refused = 0
    for _ in range(150):
        file = chance.choice(files)
        whole = file.read_bytes()
        file.chmod(0o600)
        file.write_bytes(_harmed(whole, chance))
        reader = reader_of(lab)
        for digest in chance.sample(sorted(known), 30):
            found = reader.read(digest)
            size = reader.size(digest)
            refused += found is None
            assert found is None or name_of(*found) == digest
            assert size is None or size >= 0
            assert _streamed(reader, digest) in (None, found and found[1])

        file.write_bytes(whole)

    assert refused


def _harmed(whole: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(whole))
    match chance.randrange(4):
        case 0:
            return whole[:place]
        case 1:
            return (
                whole[:place]
                + bytes([whole[place] ^ 1 << chance.randrange(8)])
                + whole[place + 1 :]
            )
        case 2:
            return whole[:place] + chance.randbytes(60) + whole[place + 60 :]
        case _:
            return whole[:place] + chance.randbytes(9) + whole[place:]


def _streamed(reader: PackReader, digest: bytes) -> bytes | None:
    pieces = reader.pieces(digest)
    try:
        return None if pieces is None else b"".join(pieces)
    except PackDamaged:
        return None


def test_a_pack_truncated_while_open_raises_no_signal(lab):
    """A pack truncated while it is open returns no object and raises no signal."""
    lab.write("a", os.urandom(400_000))
    lab.checkpoint()
    reader, known = reader_of(lab), everything(lab)
    assert all(reader.size(digest) is not None for digest in known)

    for pack in lab.packs():
        pack.chmod(0o600)
        os.truncate(pack, 12)

    assert all(reader.read(digest) is None for digest in known)


def test_two_threads_read_at_once(lab):
    """Threads that share a reader get the right objects while packs are replaced."""
    several_checkpoints(lab)
    known = everything(lab)
    reader = reader_of(lab)

    def all_read(turn: int) -> bool:
        if turn == 3:
            lab.git("repack", "-q", "-a", "-d", "--window=0")

        found = [(digest, reader.read(digest)) for digest in known]
        return all(item is None or name_of(*item) == digest for digest, item in found)

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(all_read, range(10)))


def large_blob_in_a_pack(lab, size: int) -> bytes:
    lab.write("large", os.urandom(MEBIBYTE) * (size // MEBIBYTE))
    made = lab.checkpoint()
    lab.git("repack", "-q", "-a", "-d", "--window=0")
    return bytes.fromhex(lab.git("rev-parse", f"{made.sha}:large").strip())


def test_a_large_packed_blob_comes_in_bounded_pieces(lab):
    """A large blob that stock git packed is read in pieces of one mebibyte, with equal content."""
    digest = large_blob_in_a_pack(lab, 2 * STREAMED_FROM)
    repo = ShadowRepo(lab.layout.shadow_repository)

    pieces = list(Contents(repo).pieces(digest))

    assert max(map(len, pieces)) <= PIECE
    assert name_of("blob", b"".join(pieces)) == digest
    repo.close()


_READ_ALL = """
import resource, sys
from pathlib import Path
from hankweave_server.checkpoints.contents import Contents
from hankweave_server.git.repo import ShadowRepo
contents = Contents(ShadowRepo(Path(sys.argv[1])))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
total = sum(len(piece) for piece in contents.pieces(bytes.fromhex(sys.argv[2])))
print(total, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_large_packed_blob_needs_little_memory(lab):
    """Reading 96 MiB out of a pack takes less than a quarter of that in memory."""
    digest = large_blob_in_a_pack(lab, 96 * MEBIBYTE)
    command = [sys.executable, "-c", _READ_ALL, str(lab.layout.shadow_repository), digest.hex()]

    done = subprocess.run(command, capture_output=True, check=True, text=True)
    total, grown = map(int, done.stdout.split())

    assert total == 96 * MEBIBYTE
    assert grown * 1024 < 24 * MEBIBYTE


def test_a_damaged_large_blob_is_a_key_error(lab):
    """Damage in the middle of a large packed blob raises KeyError by the end of its last piece."""
    digest = large_blob_in_a_pack(lab, 2 * STREAMED_FROM)
    (pack,) = lab.packs()
    whole = bytearray(pack.read_bytes())
    whole[len(whole) // 3] ^= 4
    pack.chmod(0o600)
    pack.write_bytes(whole)
    repo = ShadowRepo(lab.layout.shadow_repository)

    with pytest.raises(KeyError):
        list(Contents(repo).pieces(digest))

    repo.close()
