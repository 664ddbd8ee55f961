"""Which addresses a workload may not reach: private ones, and those where this host and its neighbours are.

What pasta sends it sends as a process of this host, which reaches more than a workload should. So the
workload's own network namespace rejects what goes there (:mod:`starverse.node.network.reject_rules`).
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

Net = ipaddress.IPv4Network | ipaddress.IPv6Network

NEVER = (
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "224.0.0.0/3",
    "::/127",
    "::ffff:0:0/96",
    "64:ff9b::/96",
    "fc00::/7",
    "fe80::/10",
    "ff00::/8",
)
"""Private, shared, link-local (the clouds' metadata among them), multicast and embedded IPv4 addresses
(RFC 6890)."""

_RTF_GATEWAY = 2


@dataclass(frozen=True, slots=True)
class HostTables:
    """The kernel's own words: ``/proc/net/route``, ``fib_trie``, ``if_inet6`` and ``ipv6_route``."""

    route: str = ""
    fib_trie: str = ""
    if_inet6: str = ""
    ipv6_route: str = ""


def read_host_tables(folder: Path = Path("/proc/net")) -> HostTables:
    found = {}
    for name in ("route", "fib_trie", "if_inet6", "ipv6_route"):
        with contextlib.suppress(OSError):
            found[name] = (folder / name).read_text()
    return HostTables(**found)


def off_limits(tables: HostTables) -> list[Net]:
    """:data:`NEVER`, every address of this host, and every network that it is in itself; the fewest that say
    so."""
    found: list[Net] = [ipaddress.ip_network(text) for text in NEVER]
    found += [*_own_v4(tables.fib_trie), *_near_v4(tables.route)]
    found += [*_own_v6(tables.if_inet6), *_near_v6(tables.ipv6_route)]
    return collapse(net for net in found if net.prefixlen)


def collapse(nets: Iterable[Net]) -> list[Net]:
    """Without those that lie in another one; IPv4 first."""
    every = list(nets)
    v4 = [net for net in every if isinstance(net, ipaddress.IPv4Network)]
    v6 = [net for net in every if isinstance(net, ipaddress.IPv6Network)]
    return [*ipaddress.collapse_addresses(v4), *ipaddress.collapse_addresses(v6)]


def _near_v4(route: str) -> Iterable[Net]:
    """Destinations without a gateway."""
    for line in route.splitlines()[1:]:
        parts = line.split()
        if len(parts) > 7 and not int(parts[3], 16) & _RTF_GATEWAY:
            address, mask = (_v4(parts[column]) for column in (1, 7))
            yield ipaddress.ip_network(f"{address}/{mask}", strict=False)


def _v4(text: str) -> str:
    return socket.inet_ntoa(struct.pack("=L", int(text, 16)))


def _own_v4(fib_trie: str) -> Iterable[Net]:
    address = ""
    for line in fib_trie.splitlines():
        words = line.split()
        if line.rstrip().endswith("host LOCAL"):
            with contextlib.suppress(ValueError):
                yield ipaddress.ip_network(address)
        elif words:
            address = words[-1]


def _own_v6(if_inet6: str) -> Iterable[Net]:
    for line in if_inet6.splitlines():
        with contextlib.suppress(ValueError):
            address = ipaddress.IPv6Address(bytes.fromhex(line.split()[0]))
            yield ipaddress.ip_network(f"{address}/128")


def _near_v6(ipv6_route: str) -> Iterable[Net]:
    for line in ipv6_route.splitlines():
        parts = line.split()
        with contextlib.suppress(ValueError, IndexError):
            if int(parts[8], 16) & _RTF_GATEWAY or parts[9] == "lo":
                continue
            address = ipaddress.IPv6Address(bytes.fromhex(parts[0]))
            yield ipaddress.ip_network(f"{address}/{int(parts[1], 16)}", strict=False)
