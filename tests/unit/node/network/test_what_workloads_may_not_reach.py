"""Which addresses are closed off, from what the kernel says of the host."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest

from starverse.node.network.off_limits import HostTables, off_limits
from starverse.node.network.resolvers import find_resolvers, write_resolvers

NONE = "0" * 32
TABLES = HostTables(
    route=(
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
        "eth0\t00000000\t017100CB\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
        "eth0\t007100CB\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
    ),
    fib_trie=(
        "Local:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 127.0.0.1\n        /32 host LOCAL\n"
        "     |-- 198.51.100.9\n        /32 host LOCAL\n"
    ),
    if_inet6="20010db8000000000000000000000002 02 40 00 80     eth0\n",
    ipv6_route=(
        f"20010db8000000000000000000000000 40 {NONE} 00 {NONE} 00000100 1 0 00000001 eth0\n"
        f"{NONE} 00 {NONE} 00 20010db8000000000000000000000001 00000400 1 0 00000003 eth0\n"
    ),
)


@pytest.mark.parametrize(
    ("address", "closed"),
    [
        ("10.1.2.3", True),
        ("192.168.1.1", True),
        ("172.31.255.255", True),
        ("100.64.0.1", True),
        ("169.254.169.254", True),
        ("127.0.0.53", True),
        ("224.0.0.1", True),
        ("203.0.113.77", True),  # of the host's own network
        ("198.51.100.9", True),  # the host itself
        ("198.51.100.10", False),
        ("8.8.8.8", False),
        ("::1", True),
        ("fe80::1", True),
        ("fd00::2", True),
        ("::ffff:10.0.0.1", True),
        ("2001:db8::77", True),
        ("2001:db8:1::77", False),
        ("2606:4700::1111", False),
    ],
)
def test_private_addresses_this_host_and_its_neighbours_are_closed(address: str, closed: bool) -> None:
    wanted = ipaddress.ip_address(address)
    found = any(wanted in net for net in off_limits(TABLES) if net.version == wanted.version)
    assert found == closed


def test_without_any_table_the_private_ones_are_closed_still() -> None:
    assert ipaddress.ip_network("10.0.0.0/8") in off_limits(HostTables())


def test_resolvers_of_the_hosts_loopback_are_not_used(tmp_path: Path) -> None:
    own, upstream = tmp_path / "resolv.conf", tmp_path / "upstream"
    own.write_text("nameserver 127.0.0.53\noptions edns0\nsearch example.org\n")
    upstream.write_text("nameserver 10.0.0.2\nnameserver fe80::1%eth0\nnameserver nonsense\n")
    found = find_resolvers([str(own), str(upstream), str(tmp_path / "none")])
    assert [str(address) for address in found] == ["10.0.0.2"]
    text = write_resolvers(own.read_text(), found)
    assert text == "nameserver 10.0.0.2\noptions edns0\nsearch example.org\n"
    assert find_resolvers([str(own)]) == []
