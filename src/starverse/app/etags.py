"""Versions of what people change with PATCH: compared in the writing transaction, shown as ETag."""

from __future__ import annotations

import hashlib

from starverse.domain.errors import Conflict


class Changed(Conflict):
    """Someone changed it since you read it; read it again, then repeat the change."""

    code = "changed"


def version_of(view: object) -> str:
    """A short text that differs whenever the frozen view differs."""
    return hashlib.sha256(repr(view).encode()).hexdigest()[:24]


def require_version(expected: str | None, view: object) -> None:
    """Raises :class:`Changed` unless ``view`` still has the version the caller read (``None``: any)."""
    if expected is not None and expected != version_of(view):
        raise Changed
