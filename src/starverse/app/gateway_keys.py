"""The keys of the SSH gateway: files in ``DATA/gateway``, made once and shared by all servers of the folder.

::

    ca_key      ca_key.pub           signs host keys; people trust it once and for all servers
    host_key    host_key-cert.pub    what the gateway shows to people
    client_key  client_key.pub       what the gateway shows to the sshd inside an instance

Made with :mod:`cryptography` alone, so that whoever needs a public key loads no SSH library. Private keys are
0600. Of two servers that make a key at once, both get the one that came first.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import SSHCertificateBuilder, SSHCertificateType

_FOR_EVER = 2**64 - 1
_COMMENT = "starverse"


@dataclass(frozen=True, slots=True)
class GatewayKeys:
    """Where the private keys lie, and the public ones as lines of OpenSSH."""

    folder: Path
    ca_public: str
    client_public: str

    @property
    def host_key(self) -> Path:
        return self.folder / "host_key"

    @property
    def host_certificate(self) -> Path:
        return self.folder / "host_key-cert.pub"

    @property
    def client_key(self) -> Path:
        return self.folder / "client_key"


def keep_gateway_keys(folder: Path) -> GatewayKeys:
    """The keys of a data folder, made where there are none. Raises ``OSError`` where that cannot be done,
    ``ValueError`` where a file is no key."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    ca, host, client = (_keep_key(folder / name) for name in ("ca_key", "host_key", "client_key"))
    for name, key in (("ca_key", ca), ("host_key", host), ("client_key", client)):
        _write(folder / f"{name}.pub", public_line(key.public_key()) + "\n", 0o644)
    certificate = folder / "host_key-cert.pub"
    if not certificate.exists():
        _write(certificate, _certificate_line(host.public_key(), ca) + "\n", 0o644)
    return GatewayKeys(folder, public_line(ca.public_key()), public_line(client.public_key()))


def public_line(key: Ed25519PublicKey) -> str:
    """A public key as OpenSSH writes it, without the end of the line."""
    encoding, form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    return f"{key.public_bytes(encoding, form).decode()} {_COMMENT}"


def known_hosts_line(keys: GatewayKeys, host: str, port: int) -> str:
    """What makes OpenSSH trust the gateway at an address, whichever server answers there."""
    place = host if port == 22 else f"[{host}]:{port}"
    return f"@cert-authority {place} {keys.ca_public}"


def _keep_key(path: Path) -> Ed25519PrivateKey:
    if not path.exists():
        made = Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
        aside = _written_aside(path, made.decode(), 0o600)
        try:
            os.link(aside, path)
        except FileExistsError:
            pass  # a rival was first: its key is the one
        finally:
            aside.unlink()
    key = serialization.load_ssh_private_key(path.read_bytes(), password=None)
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(f"{path} is no Ed25519 key")
    return key


def _certificate_line(host: Ed25519PublicKey, ca: Ed25519PrivateKey) -> str:
    """A host certificate for every name: by which one people reach the gateway is theirs to choose."""
    builder: Any = SSHCertificateBuilder()
    certificate = (
        builder.public_key(host)
        .serial(secrets.randbits(63))
        .type(SSHCertificateType.HOST)
        .key_id(b"starverse gateway")
        .valid_for_all_principals()
        .valid_after(0)
        .valid_before(_FOR_EVER)
        .sign(ca)
    )
    return str(certificate.public_bytes(), "ascii")


def _write(path: Path, text: str, mode: int) -> None:
    if not path.exists() or path.read_text("utf-8") != text:
        _written_aside(path, text, mode).replace(path)


def _written_aside(path: Path, text: str, mode: int) -> Path:
    aside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return aside
