"""Where launchers dial: a list of Unix sockets and TLS addresses, tried in turn."""

from __future__ import annotations

from dataclasses import dataclass

SERVER_NAME = "starverse"
"""The name in every server certificate of ours: clients pin the authority, hosts may be called anything."""


@dataclass(frozen=True, slots=True)
class Address:
    """A Unix socket (``path``) or, with ``path`` ``""``, TLS over TCP at ``host`` and ``port``."""

    path: str = ""
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        return self.path or join_host(self.host, self.port)


def parse_addresses(text: str) -> tuple[Address, ...]:
    """``/run/channel.sock,10.0.0.1:8002,[::1]:8002``; raises ``ValueError`` naming what is neither."""
    return tuple(_parse(part) for part in text.split(",") if part)


def split_host(text: str) -> tuple[str, int]:
    """``HOST:PORT`` as its parts, brackets of IPv6 taken off; raises ``ValueError``."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{text!r} is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def join_host(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _parse(text: str) -> Address:
    if text.startswith("/"):
        return Address(path=text)
    host, port = split_host(text)
    return Address(host=host, port=port)
