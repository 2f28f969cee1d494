"""The server: run a hank in an execution directory, checkpoint it, and journal every event.

See `docs/explanation/architecture.md` for the packages, their rows, and what each may import.
"""

__version__: str


def __getattr__(name: str) -> str:
    """Look up the version when it is needed: the lookup takes longer than to start a keeper."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("hankweave")
    except PackageNotFoundError:  # Run from a checkout that is not installed.
        return "0.0.0"
