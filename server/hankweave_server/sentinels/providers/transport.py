"""The HTTP client of the SDKs, with bounded responses.

By default they read a response whole, whatever its size, and follow redirects, with the key in a
header. A long silence ends a request in any case (`timeout`); here that many seconds bound the
body as well.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx2
from anyio import fail_after

LARGEST = 32 * 1024 * 1024
"""Bytes of a response, after decompression."""

_NO_MORE_TRUE = ("content-encoding", "content-length", "transfer-encoding")


class BoundedClient(httpx2.AsyncClient):
    """A client that reads bounded responses and follows no redirect."""

    def __init__(self, timeout: timedelta) -> None:
        super().__init__(timeout=timeout.total_seconds(), follow_redirects=False)
        self._longest = timeout.total_seconds()

    async def send(self, request: httpx2.Request, **settings: Any) -> httpx2.Response:
        response = await super().send(
            request, **{**settings, "stream": True, "follow_redirects": False}
        )
        try:
            with fail_after(self._longest):
                body = await _read(response)
        except TimeoutError:
            raise httpx2.ReadTimeout("The response took too long.", request=request) from None
        finally:
            await response.aclose()

        headers = httpx2.Headers(
            [each for each in response.headers.multi_items() if each[0] not in _NO_MORE_TRUE]
        )
        return httpx2.Response(response.status_code, headers=headers, content=body, request=request)


def reason(error: Any) -> str:
    """Return why a call of an SDK failed; its own message hides what is said here."""
    cause = error.__cause__
    return str(cause if isinstance(cause, httpx2.DecodingError) else error.message)


async def _read(response: httpx2.Response) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > LARGEST:
            message = f"The response is larger than {LARGEST >> 20} MiB."
            raise httpx2.DecodingError(message, request=response.request)

    return bytes(body)
