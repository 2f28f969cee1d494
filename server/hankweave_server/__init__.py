"""The server: run a hank in an execution directory, checkpoint it, and journal every event.

See `docs/architecture.md` for the packages, their rows, and what each may import.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("hankweave")
except PackageNotFoundError:  # Run from a checkout that is not installed.
    __version__ = "0.0.0"
