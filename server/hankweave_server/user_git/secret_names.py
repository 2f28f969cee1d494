"""Names of files that hold secrets: one that is not tracked yet is never committed for a person."""

from __future__ import annotations

from fnmatch import fnmatchcase

_SECRET = (
    ".env",
    ".env.*",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keystore",
    "*.kdbx",
    "id_rsa*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
    ".netrc",
    "_netrc",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".git-credentials",
    "credentials.json",
    "service-account*.json",
)
_HARMLESS = ("*.example", "*.sample", "*.template", "*.dist", "*.pub")


def holds_secrets(name: bytes) -> bool:
    """Tells whether a file of that name is likely to hold a key or a password."""
    text = name.decode("utf-8", "replace").lower()
    if any(fnmatchcase(text, pattern) for pattern in _HARMLESS):
        return False

    return any(fnmatchcase(text, pattern) for pattern in _SECRET)
