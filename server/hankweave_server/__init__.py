"""The daemon: runs a hank in an execution directory and remembers everything.

`server/README.md` has the map: rooms, layers and what each may import.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("hankweave")
except PackageNotFoundError:  # Run from a checkout that is not installed.
    __version__ = "0.0.0"
