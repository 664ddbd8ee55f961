"""The authority of the channel is kept, its server certificate renewed, its keys readable by nobody else."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from starverse.node.addresses import Address, join_host, parse_addresses, split_host
from starverse.node.link import client_context
from starverse.node.tls import SERVER_DAYS, Identity, keep_identity, make_identity, server_context

NOW = datetime.now(UTC)


def shakes_hands(identity: Identity, authority: str, name: str = "starverse") -> bool:
    """Whether a client of this authority accepts the server; without any socket."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context(authority).wrap_bio(to_client, to_server, server_hostname=name)
    server = server_context(identity).wrap_bio(to_server, to_client, server_side=True)
    done = 0
    for _ in range(10):
        done = 0
        for side in (client, server):
            try:
                side.do_handshake()
                done += 1
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return False
    return done == 2


def test_the_identity_is_kept_and_its_files_are_the_owners_alone(tmp_path: Path) -> None:
    first = keep_identity(tmp_path / "tls", NOW)
    assert keep_identity(tmp_path / "tls", NOW) == first
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "tls").iterdir()}
    assert set(modes) == {"ca.pem", "ca.key", "server.pem", "server.key", "lock"}
    assert set(modes.values()) == {0o600}
    assert (tmp_path / "tls").stat().st_mode & 0o777 == 0o700


def test_a_certificate_near_its_end_is_made_anew_by_the_same_authority(tmp_path: Path) -> None:
    first = keep_identity(tmp_path / "tls", NOW - timedelta(days=SERVER_DAYS - 30))
    second = keep_identity(tmp_path / "tls", NOW)
    assert second.authority == first.authority
    assert second.certificate != first.certificate
    assert shakes_hands(second, first.authority)


def test_a_damaged_certificate_is_made_anew(tmp_path: Path) -> None:
    first = keep_identity(tmp_path / "tls", NOW)
    (tmp_path / "tls" / "server.pem").write_text("half a certifi")
    assert shakes_hands(keep_identity(tmp_path / "tls", NOW), first.authority)


def test_a_damaged_authority_is_said_and_never_replaced(tmp_path: Path) -> None:
    """Launchers that run have pinned it: a new one would lock them out without a word."""
    keep_identity(tmp_path / "tls", NOW)
    (tmp_path / "tls" / "ca.pem").write_text("half")
    (tmp_path / "tls" / "server.pem").unlink()
    with pytest.raises(ValueError, match="PEM"):
        keep_identity(tmp_path / "tls", NOW)


def test_only_the_pinned_authority_and_the_one_name_are_trusted() -> None:
    mine, other = make_identity(NOW), make_identity(NOW)
    assert shakes_hands(mine, mine.authority)
    assert not shakes_hands(mine, other.authority)
    assert not shakes_hands(mine, mine.authority, name="localhost")


def test_an_authority_cannot_be_a_server() -> None:
    loaded = x509.load_pem_x509_certificate(make_identity(NOW).authority.encode())
    assert loaded.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    with pytest.raises(x509.ExtensionNotFound):
        loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName)


def test_addresses_are_sockets_and_hosts() -> None:
    assert parse_addresses("/a/b.sock,10.0.0.1:80,[::1]:81,gpu1:82") == (
        Address(path="/a/b.sock"),
        Address(host="10.0.0.1", port=80),
        Address(host="::1", port=81),
        Address(host="gpu1", port=82),
    )
    assert parse_addresses("") == ()
    assert [join_host(*split_host(text)) for text in ("[::1]:81", "gpu1:82")] == ["[::1]:81", "gpu1:82"]


@pytest.mark.parametrize("text", ["gpu1", "gpu1:", ":80", "gpu1:x", "gpu1:65536", "relative/path"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_addresses(text)
