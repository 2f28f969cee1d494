"""The address of a server's page, with the token that opens it."""

from __future__ import annotations

from pathlib import Path

from hankweave_protocol.executions import ExecutionAddress
from hankweave_protocol.records import RuntimeLock
from hankweave_server.local.living import living_server
from hankweave_server.paths import Layout
from hankweave_server.runtime_lock.lock_file import read_record
from hankweave_server.settings import LOOPBACK


def page_of(root: Path, page: str) -> str:
    """Return the address of a server's page, with the best token that this user may read."""
    layout = Layout.of_execution(root)
    token = token_in(layout.controller_token) or token_in(layout.viewer_token)
    return f"{page}{token}"


def address_in_lock(root: Path) -> str | None:
    """Return the address of the page without a token, as the last server there has noted it."""
    record = read_record(Layout.of_execution(root).runtime_lock)
    return None if record is None else page_in(record)


def page_in(record: RuntimeLock) -> str | None:
    """Return the address of the page without a token; None if the server does not listen yet."""
    if record.port is None:
        return None

    return f"{record.page_url or f'http://{LOOPBACK}:{record.port}'}/"


def address_of(root: str) -> ExecutionAddress | None:
    """Return where the page of a running server is, and the token of controllers if it has one."""
    layout = Layout.of_execution(Path(root))
    page = None if living_server(layout) is None else address_in_lock(layout.root)
    if page is None:
        return None

    token = token_in(layout.controller_token).removeprefix("#token=")
    return ExecutionAddress(page_url=page, token=token or None)


def viewer_token(root: Path) -> str:
    """Return the part of a fragment with the viewer's token; empty if there is none."""
    return token_in(Layout.of_execution(root).viewer_token).removeprefix("#")


def token_in(path: Path) -> str:
    """Return the URL fragment with the token of a file; empty if there is none or it is unreadable.

    It is a fragment because a browser never sends one to a server.
    """
    try:
        return f"#token={path.read_text().strip()}"
    except (FileNotFoundError, PermissionError):
        return ""
