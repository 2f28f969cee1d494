"""Packages: files and folders for another machine, and where they are kept on the way.

A package is tar, compressed with zstd. A folder may change while it is packed, because agents work
in it. Names are therefore opened in the folder that was listed, and links are not followed: an
agent cannot make a package contain a file that it may not read itself. What is gone when its turn
comes is left out, and a file that becomes shorter is filled with zeros.

A storage keeps a package whole or not at all, under a name with `/` between its parts, until it is
replaced by another of the same name. It is a folder, or whatever fsspec has a protocol for.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import tarfile
from collections.abc import Collection, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import IO, Any, Protocol, cast

import zstandard

from hankweave_server import fsutil
from hankweave_server.errors import ExitCode, Stop

_LEVEL = 1
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


# --- packing --------------------------------------------------------------------------------------


def pack(package: Path, content: Mapping[str, Path], without: Collection[Path] = ()) -> None:
    """Write a package of files and folders, by their names in it.

    A link is followed if it is named, and no other. Sockets, FIFOs and devices are left out, as are
    the paths `without` and all below them. Raises OSError.
    """
    left_out = {str(path.parent.resolve() / path.name) for path in without}
    with (
        package.open("wb") as file,
        zstandard.ZstdCompressor(_LEVEL).stream_writer(file) as compressed,
        tarfile.open(fileobj=compressed, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, path in content.items():
            place = path.resolve()
            if place.is_dir():
                _add_folder(tar, name, place, left_out)
            else:
                _add(tar, name, str(place), None)


def _add_folder(tar: tarfile.TarFile, name: str, top: Path, left_out: Collection[str]) -> None:
    for folder, folders, files, descriptor in os.fwalk(top):
        inner = os.path.normpath(os.path.join(name, os.path.relpath(folder, top)))
        tar.addfile(_Opened(descriptor).described(tar, inner))
        folders[:] = [each for each in folders if os.path.join(folder, each) not in left_out]
        for each in (*folders, *files):
            if os.path.join(folder, each) not in left_out:
                _add(tar, os.path.join(inner, each), each, descriptor)


def _add(tar: tarfile.TarFile, inner: str, name: str, folder: int | None) -> None:
    """Add a file or a link; folders are added by the walk."""
    with contextlib.suppress(FileNotFoundError):
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            tar.addfile(_Link(inner, os.readlink(name, dir_fd=folder)))
        elif stat.S_ISREG(mode):
            descriptor = os.open(name, _FLAGS, dir_fd=folder)
            try:
                content = _Opened(descriptor)
                tar.addfile(content.described(tar, inner), content)
            finally:
                os.close(descriptor)


class _Link(tarfile.TarInfo):
    """The entry of a symbolic link."""

    def __init__(self, name: str, target: str) -> None:
        super().__init__(name)
        self.type = tarfile.SYMTYPE
        self.linkname = target


class _Opened:
    """An open file that always has as many bytes as are asked for, or an open folder."""

    def __init__(self, descriptor: int) -> None:
        self.name = ""
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def described(self, tar: tarfile.TarFile, name: str) -> tarfile.TarInfo:
        """Return the entry of the file: of a second link to one that is there, a link to that."""
        return tar.gettarinfo(arcname=name, fileobj=cast(IO[bytes], self))

    def read(self, size: int = 0, /) -> bytes:
        content = b""
        while len(content) < size and (piece := os.read(self._descriptor, size - len(content))):
            content += piece

        return content.ljust(size, b"\0")


def unpack(package: Path, folder: Path) -> None:
    """Unpack into a folder, which is created; files belong to this user. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        package.open("rb") as file,
        zstandard.ZstdDecompressor().stream_reader(file) as plain,
        _OfThisUser.open(fileobj=plain, mode="r|") as tar,
    ):
        tar.extractall(folder, _inside(tar))


class _OfThisUser(tarfile.TarFile):
    """A package whose files become this user's, with their modes as they are."""

    @staticmethod
    def extraction_filter(member: tarfile.TarInfo, _folder: str) -> tarfile.TarInfo:
        return member

    def chown(self, *_others: object, **_options: object) -> None:
        """Leave a file to the user who unpacks it."""


def _inside(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the members; raise OSError for one that leads out of the folder."""
    for member in tar:
        name = PurePosixPath(member.name)
        if name.is_absolute() or ".." in name.parts:
            raise OSError(f"A package has a file {member.name!r}, which is outside of it.")

        yield member


# --- storing --------------------------------------------------------------------------------------

_INCOMING = ".incoming"
_FILE = "file://"


class Storage(Protocol):
    """A place for packages that several machines reach; each method raises OSError."""

    def put(self, name: str, file: Path) -> None:
        """Store a copy of a file; when this returns, it is as durable as the place is."""

    def get(self, name: str, file: Path) -> None:
        """Copy a package to a file. Raises FileNotFoundError if there is none."""

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, in order; none if it does not exist."""

    def remove(self, name: str) -> None:
        """Remove a package, or a folder with all below it, if it exists."""


class FolderStorage:
    """A folder: of this machine, or of a file system that machines share."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, name: str, file: Path) -> None:
        place = self._root / name
        fsutil.make_private_directory(place.parent)
        incoming = place.with_name(f"{_INCOMING}-{secrets.token_hex(8)}")
        try:
            shutil.copyfile(file, incoming)
            fsutil.sync_file(incoming)
            incoming.replace(place)
        except OSError:
            with contextlib.suppress(OSError):
                incoming.unlink()

            raise

        fsutil.sync_directory(place.parent)

    def get(self, name: str, file: Path) -> None:
        shutil.copyfile(self._root / name, file)

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Return a piece of a package; empty at its end."""
        with (self._root / name).open("rb") as file:
            file.seek(offset)
            return file.read(size)

    def names(self, folder: str) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return sorted(
                name for name in os.listdir(self._root / folder) if not name.startswith(_INCOMING)
            )

        return []

    def remove(self, name: str) -> None:
        place = self._root / name
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)


class UrlStorage:
    """An object store that fsspec reaches, such as s3://bucket/maps; it stores objects whole."""

    def __init__(self, system: Any, root: str) -> None:
        self._system = system
        self._root = root.rstrip("/")

    def put(self, name: str, file: Path) -> None:
        place = self._at(name)
        self._system.makedirs(place.rpartition("/")[0], exist_ok=True)
        self._system.put_file(str(file), place)

    def get(self, name: str, file: Path) -> None:
        self._system.get_file(self._at(name), str(file))

    def names(self, folder: str) -> list[str]:
        self._system.invalidate_cache()
        with contextlib.suppress(FileNotFoundError):
            found = self._system.ls(self._at(folder), detail=False)
            return sorted(name.rstrip("/").rpartition("/")[2] for name in found)

        return []

    def remove(self, name: str) -> None:
        self._system.invalidate_cache()
        with contextlib.suppress(FileNotFoundError):
            self._system.rm(self._at(name), recursive=True)

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root


def storage_at(place: str) -> Storage:
    """Return the storage at a path or a URL. Raises Stop."""
    if "://" not in place or place.startswith(_FILE):
        return FolderStorage(Path(place.removeprefix(_FILE)))

    if find_spec("fsspec") is None:
        raise Stop(
            f"The storage {place} needs the package fsspec, which is not installed.",
            ExitCode.UNAVAILABLE,
            hint="Install it with: pip install 'hankweave[ray]'",
        )

    import fsspec

    try:
        system, root = fsspec.core.url_to_fs(place)
    except ImportError as fault:
        raise Stop(
            f"The storage {place} needs a package that is not installed: {fault}",
            ExitCode.UNAVAILABLE,
            hint="Install it, here and on every machine of the cluster: "
            f"pip install {_package_for(place)}",
        ) from None
    except (ValueError, OSError) as fault:
        raise Stop(
            f"The storage {place} cannot be used: {fault}",
            ExitCode.UNAVAILABLE,
            hint="Name a URL such as s3://bucket/maps, or a folder that all machines share.",
        ) from None

    return UrlStorage(system, root)


def _package_for(place: str) -> str:
    """Return the package of a protocol that is not installed, as fsspec knows it."""
    from fsspec.registry import known_implementations

    package: str = known_implementations[place.partition("://")[0]]["class"].partition(".")[0]
    return package if package != "fsspec" else "fsspec[full]"
