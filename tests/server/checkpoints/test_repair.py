"""Repairs find lost objects again or give them up, and change nothing else."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.server.checkpoints.conftest import EVERYTHING, Lab

from hankweave_protocol.ids import RunId, Sha
from hankweave_server.checkpoints.detach import DetachedRef, DetachedRefs
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.checkpoints.errors import CheckpointDamaged, CheckpointNotFound
from hankweave_server.checkpoints.repair import NoRepository, repository_source
from hankweave_server.paths import Layout
from support.damage import WAYS, Way, damage, unpack
from support.git_facts import GitWitness

OTHER = RunId("1736000000001-bbbbbb-bbbbbb")


class Store:
    """A store of five checkpoints on two branches, with every object in its own file."""

    def __init__(self, root: Path) -> None:
        lab = Lab(root)
        lab.write("a.txt", "one")
        lab.write("private", "secret", 0o600)
        (lab.tree / "deep" / "empty").mkdir(parents=True)
        lab.write("deep/d.txt", "d")
        self.shas = [lab.checkpoint().sha]
        lab.write("a.txt", "two")
        self.shas.append(lab.checkpoint().sha)
        lab.write("deep/d.txt", "changed")
        self.shas.append(lab.checkpoint().sha)
        lab.detach(self.shas[1])
        lab.write("b.txt", "another line")
        self.shas.append(lab.checkpoint(run=OTHER).sha)
        lab.write("c.txt", "now")
        self.shas.append(lab.checkpoint(run=OTHER).sha)
        lab.engine.pins.pin(self.shas[2], "kept")
        lab.engine.close()
        unpack(lab.layout.shadow_repository)
        self.root = root

    def objects(self) -> list[str]:
        found = self.root.glob(".hankweave/checkpoints/.hankweavecheckpoints/objects/??/*")
        return sorted(path.parent.name + path.name for path in found)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store") / "execution")


def copies(store: Store, place: Path, way: Way) -> Iterator[tuple[str, Layout]]:
    """Yield a copy of the store for each of its objects, which is damaged there."""
    for name in store.objects():
        copy = place / name
        shutil.copytree(store.root, copy, symlinks=True)
        layout = Layout.of_execution(copy)
        damage(layout.root, name, way)
        yield name, layout
        shutil.rmtree(copy)


def restorable(engine: CheckpointEngine, shas: list[Sha]) -> set[Sha]:
    found = set()
    for sha in shas:
        try:
            engine.plan_restore(sha, EVERYTHING)
        except (CheckpointDamaged, CheckpointNotFound):
            continue

        found.add(sha)

    return found


@pytest.mark.parametrize("way", WAYS)
def test_whatever_object_is_lost_new_checkpoints_and_all_others_work(
    store: Store, tmp_path: Path, way: Way
) -> None:
    """With any one object gone or damaged, the list has everything but a lost commit, every
    checkpoint that does not need the object can be restored, and the next new one is whole.

    Others can be restored only if the object exists, and no file is written from it."""
    for name, layout in copies(store, tmp_path, way):
        engine = CheckpointEngine.open(layout)
        engine.note_recorded(frozenset(store.shas))
        listed = {facts.sha for facts in engine.commits(store.shas)}
        assert set(store.shas) - listed <= {name}
        whole = restorable(engine, store.shas)
        hit = {sha for sha in store.shas if engine.verify(sha)}
        assert whole >= set(store.shas) - hit
        assert way != "removed" or not whole & hit
        for sha in whole & hit:
            plan = engine.plan_restore(sha, EVERYTHING)
            written = {entry.path for entry in (*plan.added, *plan.updated)}
            assert not written & {damage.path for damage in engine.verify(sha)}, name

        lab = Lab.__new__(Lab)
        lab.layout, lab.tree, lab.engine, lab._count = layout, layout.work_tree, engine, 10
        new = lab.checkpoint(run=OTHER)
        assert engine.verify(new.sha) == [], name
        assert restorable(engine, [new.sha]) == {new.sha}, name
        engine.close()


@pytest.mark.parametrize("way", WAYS)
def test_after_a_repair_neither_we_nor_git_find_a_fault(
    store: Store, tmp_path: Path, way: Way
) -> None:
    """After the loss of any object, content of the work tree is stored again, the rest is given up
    and detached, each other checkpoint is intact and on a ref, and a second repair has nothing to
    do."""
    for name, layout in copies(store, tmp_path, way):
        engine = CheckpointEngine.open(layout)
        recorded = frozenset(store.shas)
        hit = {sha for sha in store.shas if engine.verify(sha)}
        made = engine.repair(recorded, EVERYTHING, (), "1")
        assert set(made.lost) <= hit, name
        kept = [sha for sha in store.shas if sha not in made.lost]
        assert restorable(engine, kept) == set(kept), name
        assert {facts.sha for facts in engine.commits()} == set(kept), name
        git = GitWitness(layout.root)
        git.assert_sound()
        assert set(git.run("log", "--all", "--format=%H").split()) >= set(kept)
        again = engine.repair(recorded - set(made.lost), EVERYTHING, (), "2")
        assert not again.has_changed, name
        assert all(ref.ref for ref in made.detached)
        engine.close()


def test_what_the_work_tree_has_comes_back(store: Store, tmp_path: Path) -> None:
    """If a lost blob and tree are still in the work tree, no checkpoint is lost."""
    copy = tmp_path / "copy"
    shutil.copytree(store.root, copy, symlinks=True)
    layout = Layout.of_execution(copy)
    git = GitWitness(copy)
    newest = store.shas[-1]
    names = [git.run("rev-parse", f"{newest}:{path}").strip() for path in ("c.txt", "deep", "")]
    for name in names:
        damage(layout.root, name, "flipped")

    engine = CheckpointEngine.open(layout)
    made = engine.repair(frozenset(store.shas), EVERYTHING, (), "1")
    assert (set(made.rewritten), made.lost) == (set(names), ())
    assert made.quarantine is not None
    assert len(list(made.quarantine.rglob("objects/??/*"))) == len(names)
    engine.close()


def test_a_mirror_gives_everything_back(store: Store, tmp_path: Path) -> None:
    """Every lost object that another repository has is written again, commits included."""
    copy = tmp_path / "copy"
    shutil.copytree(store.root, copy, symlinks=True)
    layout = Layout.of_execution(copy)
    for name in store.objects():
        damage(layout.root, name, "removed")

    engine = CheckpointEngine.open(layout)
    source = repository_source(store.root)
    made = engine.repair(frozenset(store.shas), EVERYTHING, (source,), "1")
    assert made.lost == ()
    assert restorable(engine, store.shas) == set(store.shas)
    GitWitness(copy).assert_sound()
    engine.close()


def test_a_folder_without_objects_is_no_mirror(tmp_path: Path) -> None:
    """A folder that is not a repository is refused before anything changes."""
    with pytest.raises(NoRepository):
        repository_source(tmp_path)


def test_a_damaged_pack_gives_back_what_is_whole(tmp_path: Path) -> None:
    """A flipped byte in a pack, or a lost index, loses only the objects that it affects."""
    for place, hurt in (("flipped", _flip_a_byte), ("without-index", _lose_index)):
        root = tmp_path / place / "execution"
        store = Store(root)
        git = GitWitness(root)
        git.run("repack", "-a", "-d", "--depth=0", "--window=0")
        git.run("prune-packed")
        packs = root / ".hankweave/checkpoints/.hankweavecheckpoints/objects/pack"
        (pack,) = packs.glob("*.pack")
        hurt(pack)
        engine = CheckpointEngine.open(Layout.of_execution(root))
        made = engine.repair(frozenset(store.shas), EVERYTHING, (), "1")
        kept = [sha for sha in store.shas if sha not in made.lost]
        assert len(made.lost) < len(store.shas)
        assert restorable(engine, kept) == set(kept)
        GitWitness(root).assert_sound()
        engine.close()


def _flip_a_byte(pack: Path) -> None:
    pack.chmod(0o600)
    content = bytearray(pack.read_bytes())
    content[len(content) * 3 // 4] ^= 1
    pack.write_bytes(content)


def _lose_index(pack: Path) -> None:
    index = pack.with_suffix(".idx")
    index.chmod(0o600)
    index.write_bytes(index.read_bytes()[:100])


def test_each_detached_ref_is_reported_once_however_two_threads_interleave() -> None:
    """A checkpoint that moves a ref can run while the event loop reports an earlier one."""
    refs, taken, count = DetachedRefs(), list[DetachedRef](), 50_000

    def move() -> None:
        for number in range(count):
            refs.add(DetachedRef(str(number), Sha("0" * 40), None))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread = threading.Thread(target=move)
        thread.start()
        while thread.is_alive():
            taken.extend(refs.take())
    finally:
        sys.setswitchinterval(interval)

    taken.extend(refs.take())
    assert [int(ref.ref) for ref in taken] == list(range(count))
