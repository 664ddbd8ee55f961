"""Certificates of the launchers' channels: an authority of our own and the server certificate it signs.

Launchers are given the authority (PEM) with their launch spec and trust no other; whoever they reach has to
be :data:`~starverse.node.addresses.SERVER_NAME` by it. They prove themselves by their token, not by a
certificate.
"""

from __future__ import annotations

import fcntl
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from starverse.node.addresses import SERVER_NAME
from starverse.node.folder import write_atomically

AUTHORITY_DAYS = 7300
SERVER_DAYS = 825
RENEW_DAYS = 60
"""A server certificate that ends sooner than this is made anew as its server starts."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a server shows (``certificate`` with its ``key``) and the ``authority`` to pin; all PEM."""

    authority: str
    certificate: str
    key: str


def make_identity(now: datetime) -> Identity:
    """An identity for one run of a server: the authority's key is thrown away at once."""
    authority, authority_key = _make_authority(now)
    certificate, key = _make_server(authority, authority_key, now)
    return Identity(_pem(authority), _pem(certificate), _key_pem(key))


def keep_identity(folder: Path, now: datetime) -> Identity:
    """The identity kept in ``folder`` (``ca.pem ca.key server.pem server.key``, 0600), made where it is not.

    Several servers may share the folder. A server certificate near its end is made anew by the same
    authority, so that launchers which pinned it go on. Raises ``OSError`` or ``ValueError`` where the folder
    cannot be used or holds something else.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _only_one(folder):
        if not (folder / "ca.pem").exists():
            authority, authority_key = _make_authority(now)
            write_atomically(folder / "ca.key", _key_pem(authority_key), durable=True)
            write_atomically(folder / "ca.pem", _pem(authority), durable=True)
        if _ends_soon(folder / "server.pem", now) or not (folder / "server.key").exists():
            authority = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
            certificate, key = _make_server(authority, _load_key(folder / "ca.key"), now)
            write_atomically(folder / "server.key", _key_pem(key), durable=True)
            write_atomically(folder / "server.pem", _pem(certificate), durable=True)
        return Identity(*((folder / name).read_text() for name in ("ca.pem", "server.pem", "server.key")))


def server_context(identity: Identity) -> ssl.SSLContext:
    """What a server wraps its connections with; raises ``ssl.SSLError`` where key and certificate differ."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    chain = os.memfd_create("certificate")  # OpenSSL reads it from a file; this one never touches a disk
    try:
        os.write(chain, (identity.certificate + identity.key).encode())
        context.load_cert_chain(f"/proc/self/fd/{chain}")
    finally:
        os.close(chain)
    return context


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _ends_soon(path: Path, now: datetime) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return True
    return certificate.not_valid_after_utc < now + timedelta(days=RENEW_DAYS)


def _make_authority(now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"{SERVER_NAME} authority")
    builder = (
        _builder(now, AUTHORITY_DAYS)
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return builder.sign(key, hashes.SHA256()), key


def _make_server(
    authority: x509.Certificate, authority_key: ec.EllipticCurvePrivateKey, now: datetime
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    builder = (
        _builder(now, SERVER_DAYS)
        .subject_name(_name(SERVER_NAME))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(SERVER_NAME)]), critical=False)
        .add_extension(issuer, critical=False)
    )
    return builder.sign(authority_key, hashes.SHA256()), key


def _builder(now: datetime, days: int) -> x509.CertificateBuilder:
    """Valid from a day ago, since clocks of a cluster's nodes differ."""
    start = now.astimezone(UTC) - timedelta(days=1)
    builder = x509.CertificateBuilder().serial_number(x509.random_serial_number())
    return builder.not_valid_before(start).not_valid_after(start + timedelta(days=days))


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{path} is not a key of ours")
    return key


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
