"""Where names are asked for by who has a network of its own: the host's resolvers, on their port for it only.

A resolver on the host's own loopback cannot be reached from there; systemd-resolved, the usual one, says in
a file of its own whom it asks.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterable
from pathlib import Path

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

PORT = 53
FILES = ("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf")
_USED_MAX = 3  # by the C library


def find_resolvers(files: Iterable[str] = FILES) -> list[Address]:
    """Those of the first file that names any but of the host's own loopback; none: names are not resolved."""
    for name in files:
        with contextlib.suppress(OSError):
            if found := _read(Path(name).read_text()):
                return found[:_USED_MAX]
    return []


def write_resolvers(host: str, found: Iterable[Address]) -> str:
    """The text of a ``resolv.conf``: the host's with these resolvers instead of its own."""
    kept = [line for line in host.splitlines() if line.split()[:1] not in (["nameserver"], [])]
    return "\n".join([*(f"nameserver {address}" for address in found), *kept, ""])


def _read(text: str) -> list[Address]:
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) > 1 and words[0] == "nameserver":
            with contextlib.suppress(ValueError):
                address = ipaddress.ip_address(words[1])
                if not address.is_loopback and not address.is_link_local:
                    found.append(address)
    return found
