"""Bound the responses that the library requests reads for other libraries.

The exporter of OpenTelemetry and apprise send with requests. It reads a response whole, whatever
its size, and its time limit is one for each read, so an endpoint that never stops answering fills
the memory of the server. The libraries take no other transport in all places where they send, so
`install` replaces the adapter with which each new session of requests begins.

Redirects are refused: headers and URLs often contain a key, which is for the host that was named.
"""

from __future__ import annotations

import io
import time
from typing import Any

import requests.sessions
from requests.adapters import HTTPAdapter

LARGEST = 4 * 1024 * 1024
"""Bytes of a response; the other SDKs of OpenTelemetry allow as many."""

LONGEST = 30.0
"""Seconds in which a response must have been read, from its headers on."""


class ResponseRefused(requests.RequestException):
    """A response that is not used; its message has no URL."""


class BoundedAdapter(HTTPAdapter):
    """An adapter that returns complete responses of a bounded size, and no redirects."""

    def send(self, request: requests.PreparedRequest, *_: Any, **settings: Any) -> Any:
        """Send a request and read the response; raise ResponseRefused, or what requests raises."""
        response = super().send(request, **{**settings, "stream": True})
        try:
            if 300 <= response.status_code < 400:
                raise ResponseRefused(
                    f"the endpoint redirects ({response.status_code}), and redirects are not"
                    " followed; name the address where it answers"
                )

            body = _read(response.raw)
        finally:
            response.raw.close()

        response.raw = io.BytesIO(body)
        return response


def _read(raw: Any) -> bytes:
    deadline, body = time.monotonic() + LONGEST, bytearray()
    while chunk := raw.read1(65_536, decode_content=True):
        body += chunk
        if len(body) > LARGEST:
            raise ResponseRefused(f"the response is larger than {LARGEST >> 20} MiB")

        if time.monotonic() > deadline:
            raise ResponseRefused(f"the response took longer than {LONGEST:g} s")

    return bytes(body)


def install() -> None:
    """Make each later session of requests in this process use the bounded adapter."""
    requests.sessions.HTTPAdapter = BoundedAdapter  # type: ignore[attr-defined]
