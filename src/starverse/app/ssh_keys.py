"""The public keys with which an account's owner comes into instances."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from sqlalchemy.exc import IntegrityError

from starverse.app.gateway_keys import keep_gateway_keys, known_hosts_line
from starverse.app.idempotency import Once, claim
from starverse.app.identity import Identity
from starverse.app.platform import Platform
from starverse.db import ssh_keys
from starverse.db.events import Event, record
from starverse.db.ssh_keys import SshKey
from starverse.domain.errors import Conflict, FieldFault, Invalid, NotFound

RSA_BITS_MIN = 2048
KEYS_MAX = 100
KEY_CHARACTERS_MAX = 16_384
KINDS = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
    "ssh-rsa",
)
_EXPECTED = "one line of a public key file such as ~/.ssh/id_ed25519.pub"
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,64}")


@dataclass(frozen=True, slots=True)
class NewSshKey:
    """A key as pasted. ``name`` ``""``: the comment behind the key, else its kind."""

    name: str
    public_key: str
    once: Once | None = None


@dataclass(frozen=True, slots=True)
class Gate:
    """Where the gateway listens, as people reach it, and how to trust it."""

    host: str
    port: int
    ca_public_key: str
    known_hosts: str


@dataclass(frozen=True, slots=True)
class ReadKey:
    """A public key that was read and found good; ``line`` is kind and key without the comment."""

    kind: str
    line: str
    fingerprint: str
    comment: str


def add_key(platform: Platform, identity: Identity, new: NewSshKey) -> SshKey:
    """Add a key to the caller's account; raises :class:`Invalid` saying what is wrong with it,
    :class:`Conflict` when the account has it, or another of this name."""
    key = read_public_key(new.public_key)
    name = new.name or key.comment[:64].strip() or key.kind
    if _NAME.fullmatch(name) is None or name != name.strip():
        raise Invalid(faults=[FieldFault("name", name[:64], "1 to 64 printable characters")])
    made = SshKey(
        platform.ids.uuid7(), identity.account_id, name, key.line, key.fingerprint, platform.clock.now()
    )
    try:
        with platform.database.write() as connection:
            earlier = claim(connection, identity.account_id, new.once, made.id, made.created_at)
            mine = ssh_keys.of_account(connection, identity.account_id)
            if earlier is not None:
                return _named(mine, earlier)
            if len(mine) >= KEYS_MAX:
                raise Conflict(f"An account holds at most {KEYS_MAX} keys; remove one first.")
            _refuse_second(mine, made)
            ssh_keys.add(connection, made)
            record(connection, _event(identity, made, "added", made.created_at))
    except IntegrityError as error:
        raise Conflict("This key or a key of this name is there already.") from error
    return made


def list_keys(platform: Platform, identity: Identity) -> tuple[SshKey, ...]:
    """The account's own keys, oldest first."""
    with platform.database.read() as connection:
        return ssh_keys.of_account(connection, identity.account_id)


def remove_key(platform: Platform, identity: Identity, ref: str) -> None:
    """Remove one of the account's keys, named by id or name; sessions that it opened end."""
    with platform.database.write() as connection:
        now = platform.clock.now()
        key = _named(ssh_keys.of_account(connection, identity.account_id), ref)
        if ssh_keys.remove(connection, identity.account_id, key.id) is not None:
            record(connection, _event(identity, key, "removed", now))


def show_gate(platform: Platform) -> Gate:
    """How people reach the gateway; raises :class:`NotFound` where there is none."""
    host, port = platform.settings.ssh_host, platform.settings.ssh_port
    if not port:
        raise NotFound("This installation has no SSH gateway.", hint="the operator sets gateway.enabled")
    keys = keep_gateway_keys(platform.paths.gateway)
    return Gate(host, port, keys.ca_public, known_hosts_line(keys, host, port))


def read_public_key(text: str) -> ReadKey:
    """Read what someone pasted; raises :class:`Invalid` saying what it is instead of a good public key."""
    if "PRIVATE KEY" in text or text.startswith("PuTTY-User-Key-File"):
        raise _wrong(
            "a private key",
            "the PUBLIC key, the file that ends in .pub",
            "this private key has left your machine: make a new pair with `ssh-keygen -t ed25519`",
        )
    words = text.strip().split(None, 2)
    if len(text) > KEY_CHARACTERS_MAX or "\n" in text.strip() or len(words) < 2:
        raise _wrong(text[:40], _EXPECTED)
    kind, encoded, comment = words[0], words[1], words[2] if len(words) > 2 else ""
    if kind == "ssh-dss":
        raise _wrong("a DSA key", "a key that is still safe", "`ssh-keygen -t ed25519` makes one")
    if kind.endswith("-cert-v01@openssh.com"):
        raise _wrong("a certificate", "the public key itself, without -cert in its file's name")
    if kind not in KINDS:
        raise _wrong(kind[:40], f"a key of kind {', '.join(KINDS)}")
    blob = _decoded(encoded)
    try:
        loaded = load_ssh_public_key(f"{kind} {encoded}".encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _wrong(f"{kind} {encoded[:20]}...", f"{_EXPECTED}, whole") from error
    if isinstance(loaded, RSAPublicKey) and loaded.key_size < RSA_BITS_MIN:
        raise _wrong(
            f"an RSA key of {loaded.key_size} bits",
            f"RSA with {RSA_BITS_MIN} bits or more",
            "`ssh-keygen -t ed25519` makes a better one",
        )
    return ReadKey(kind, f"{kind} {encoded}", fingerprint_of(blob), _printable(comment))


def fingerprint_of(blob: bytes) -> str:
    """As ``ssh-keygen -l`` shows it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def _decoded(encoded: str) -> bytes:
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise _wrong(f"{encoded[:20]}...", f"{_EXPECTED}, whole") from error


def _printable(comment: str) -> str:
    return "".join(character for character in comment if character.isprintable())


def _wrong(given: str, expected: str, hint: str | None = None) -> Invalid:
    return Invalid(faults=[FieldFault("public_key", given, expected)], hint=hint)


def _named(keys: tuple[SshKey, ...], ref: str) -> SshKey:
    for key in keys:
        if ref in (key.id, key.name):
            return key
    raise NotFound(f"There is no key {ref[:80]!r} in your account.")


def _refuse_second(mine: tuple[SshKey, ...], made: SshKey) -> None:
    for key in mine:
        if key.fingerprint == made.fingerprint:
            raise Conflict(f"Your account has this key already, as {key.name!r}.")
        if key.name == made.name:
            raise Conflict(f"Your account has another key named {made.name!r}.", hint="Choose another name.")


def _event(identity: Identity, key: SshKey, kind: str, now: object) -> Event:
    return Event(
        now,  # type: ignore[arg-type]
        "ssh_key",
        key.id,
        kind,
        "",
        f"{key.name} {key.fingerprint}",
        account_id=identity.account_id,
    )
