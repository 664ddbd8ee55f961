"""Secrets of the installation: files in the data folder that only the platform's own user may read."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_secret(path: Path, secret: str) -> None:
    """Write a secret (0600), whole or not at all."""
    aside = _written_aside(path, secret)
    aside.replace(path)


def read_or_make_secret(path: Path) -> str:
    """The secret in a file; of two processes that make it at once, both get the one that came first."""
    if not path.exists():
        aside = _written_aside(path, secrets.token_urlsafe(32))
        try:
            os.link(aside, path)
        except FileExistsError:
            pass  # a rival was first: its secret is the one
        finally:
            aside.unlink()
    return path.read_text("utf-8").strip()


def _written_aside(path: Path, secret: str) -> Path:
    aside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(secret + "\n")
        file.flush()
        os.fsync(file.fileno())
    return aside
