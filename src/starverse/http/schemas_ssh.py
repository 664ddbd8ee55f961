"""Shapes of SSH keys, the gateway, and links to apps."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from starverse.app.ssh_keys import KEY_CHARACTERS_MAX
from starverse.http.shapes import In, InstantText, Out

_EXAMPLE = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJfyo1n/Gzp+vb93Fwz8DiNGwb3jVZ5hxcBBwgTcuCsQ wang@laptop"


class SshKeyIn(In):
    """A public key as in a ``.pub`` file. ``name`` empty: the key's comment."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "laptop", "public_key": _EXAMPLE}]})

    name: Annotated[str, Field(max_length=200)] = ""
    public_key: Annotated[str, Field(max_length=KEY_CHARACTERS_MAX)]


class SshKeyOut(Out):
    """A public key of the account; ``last_used_at`` null: never used."""

    id: str
    name: str
    public_key: str
    fingerprint: str
    created_at: InstantText
    last_used_at: InstantText | None


class GateOut(Out):
    """Where ``ssh INSTANCE@HOST -p PORT`` goes; ``known_hosts`` is the line that makes OpenSSH trust it."""

    host: str
    port: int
    ca_public_key: str
    known_hosts: str


class AppLinkIn(In):
    """``jupyter``, or the port on which something listens inside."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"app": "jupyter"}, {"app": 6006}]})

    app: str | int


class AppLinkOut(Out):
    """A link that opens an app in a browser; it works once signed in by it, until ``expires_at``."""

    url: str
    expires_at: InstantText
