"""Secrets of a team: set once, never shown again, given to its workloads and syncs alone.

A value is sealed (AES-256-GCM) with a key that lies in the data folder, not in the database, and bound to its
team and name, so that a sealed text that was moved to another row does not open. Values are in no event, log,
answer or error.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Collection, Iterable
from datetime import datetime
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import Connection

from starverse.app.identity import Identity
from starverse.app.platform import Platform
from starverse.app.secret_files import read_or_make_secret
from starverse.db import secrets
from starverse.db.events import Event, record
from starverse.db.secrets import Secret
from starverse.domain.errors import FieldFault, Invalid, LimitExceeded, NotFound, Unavailable

KEY_FILE = "secrets.key"
VALUE_BYTES_MAX = 64 * 1024
SECRETS_MAX = 200
NAME_EXPECTED = "1 to 64 of A-Z, a-z, 0-9, '_', '-' and '.', beginning with a letter or '_'"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", re.ASCII)
_VERSION, _NONCE_BYTES = "1", 12


class SecretSealed(Unavailable):
    """A secret cannot be opened: it was sealed with another key than there is; set it again."""

    code = "secret_sealed"


def is_secret_name(name: str) -> bool:
    """Whether a secret may be called so."""
    return _NAME.fullmatch(name) is not None


def set_secret(platform: Platform, identity: Identity, name: str, value: str) -> Secret:
    """Set a secret of the caller's team, or replace its value. What runs already keeps the old one."""
    faults = []
    if not is_secret_name(name):
        faults.append(FieldFault("name", name[:64], NAME_EXPECTED))
    size = len(value.encode("utf-8", "surrogatepass"))
    if not 1 <= size <= VALUE_BYTES_MAX:
        faults.append(FieldFault("value", f"{size} bytes", f"1 to {VALUE_BYTES_MAX} bytes"))
    if faults:
        raise Invalid(faults=faults)
    sealed = _seal(platform.settings.data, identity.team_id, name, value)

    def act(connection: Connection) -> Secret:
        now = platform.clock.now()
        there = secrets.sealed_of(connection, identity.team_id, [name])
        if not there and secrets.count(connection, identity.team_id) >= SECRETS_MAX:
            raise LimitExceeded(
                f"Team {identity.team_name} has {SECRETS_MAX} secrets.",
                hint="Remove some: `starverse secret rm NAME`.",
            )
        put = secrets.put(connection, identity.team_id, Secret(platform.ids.uuid7(), name, now, now), sealed)
        record(connection, _told(now, identity, put.id, "changed" if there else "set", name))
        return put

    return platform.database.write_retrying(act)


def list_secrets(platform: Platform, identity: Identity) -> tuple[Secret, ...]:
    """Names and dates of the secrets of the caller's team."""
    with platform.database.read() as connection:
        return secrets.list_all(connection, identity.team_id)


def remove_secret(platform: Platform, identity: Identity, name: str) -> None:
    """Forget a secret; raises :class:`NotFound` where the team has none of this name."""

    def act(connection: Connection) -> None:
        removed = secrets.remove(connection, identity.team_id, name)
        if removed is None:
            raise NotFound(f"There is no secret {name[:64]!r} in team {identity.team_name}.")
        record(connection, _told(platform.clock.now(), identity, removed, "removed", name))

    platform.database.write_retrying(act)


def missing_names(connection: Connection, team_id: str, names: Collection[str]) -> tuple[str, ...]:
    """Those of the names that the team has no secret of, in their order."""
    there = secrets.sealed_of(connection, team_id, names)
    return tuple(name for name in names if name not in there)


def values_of(
    connection: Connection, platform: Platform, team_id: str, names: Iterable[str]
) -> tuple[tuple[str, str], ...]:
    """Name and value of each, in the order of the names.

    Raises :class:`Unavailable` for one that the team has no more, :class:`SecretSealed` for one that cannot
    be opened; both name it and hold no value.
    """
    wanted = tuple(dict.fromkeys(names))
    if not wanted:
        return ()
    sealed = secrets.sealed_of(connection, team_id, wanted)
    missing = [name for name in wanted if name not in sealed]
    if missing:
        raise Unavailable(
            f"the secret {missing[0]} is not there any more",
            hint=f"set it: `starverse secret set {missing[0]}`",
        )
    return tuple((name, _open(platform.settings.data, team_id, name, sealed[name])) for name in wanted)


def _told(now: datetime, identity: Identity, secret_id: str, what: str, name: str) -> Event:
    return Event(now, "secret", secret_id, what, "", name, identity.team_id, identity.account_id)


def _seal(data: Path, team_id: str, name: str, value: str) -> str:
    nonce = os.urandom(_NONCE_BYTES)
    closed = AESGCM(_key(read_or_make_secret(data / KEY_FILE))).encrypt(
        nonce, value.encode(), _bound_to(team_id, name)
    )
    return f"{_VERSION}:{base64.b64encode(nonce + closed).decode()}"


def _open(data: Path, team_id: str, name: str, sealed: str) -> str:
    """Nothing of what is sealed, nor of the key, gets into the error."""
    try:
        version, _, text = sealed.partition(":")
        if version != _VERSION:
            raise ValueError(f"sealed in version {version[:8]!r}")
        raw = base64.b64decode(text, validate=True)
        key = _key((data / KEY_FILE).read_text("utf-8").strip())
        return AESGCM(key).decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], _bound_to(team_id, name)).decode()
    except (InvalidTag, ValueError, binascii.Error, OSError) as error:
        raise SecretSealed(
            f"the secret {name} cannot be opened: it was sealed with another key than this installation has",
            hint=f"set it again: `starverse secret set {name}`",
            context={"key": str(data / KEY_FILE), "why": type(error).__name__},
        ) from None


def _key(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _bound_to(team_id: str, name: str) -> bytes:
    return f"{team_id}\0{name}".encode()
