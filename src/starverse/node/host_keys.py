"""Host keys of instances, made in this process: a twentieth of what a process of ``ssh-keygen`` costs."""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)


def write_host_key(path: Path, owner: int | None) -> None:
    """A new Ed25519 key, the private part (0600) at ``path`` and last of all, beside it that with ``.pub``.

    ``owner`` ``None``: this user's own.
    """
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    path.with_suffix(".pub").write_bytes(public + b"\n")
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    if owner is not None:
        os.chown(path, owner, owner)
