"""Connecting to the platform or to a head launcher from a thread that may wait."""

from __future__ import annotations

import socket
from pathlib import Path

from starverse.domain.workloads.launch import LaunchSpec
from starverse.node.addresses import SERVER_NAME, Address, parse_addresses
from starverse.node.api_proxy import ApiProxy
from starverse.node.channel import hello_line
from starverse.node.link import DIAL_SECONDS_MAX, client_context, keep_awake
from starverse.node.unix_sockets import connect_unix


def dial(addresses: str, authority: str, hello: bytes) -> socket.socket:
    """The first of the addresses that answers; by TLS ``hello`` is said at once, a Unix socket needs none.

    Raises ``OSError`` where none does.
    """
    problem = OSError("no address to dial")
    for address in parse_addresses(addresses):
        try:
            return _dial_unix(address) if address.path else _dial_tls(address, authority, hello)
        except OSError as error:
            problem = error
    raise problem


def make_api_proxy(spec: LaunchSpec, run: Path, addresses: str) -> ApiProxy:
    """The socket inside a sandbox through which shims reach the platform, wherever it is."""
    hello = hello_line(spec, "api")
    return ApiProxy(run / "api.sock", lambda: dial(addresses, spec.channel_ca, hello), spec.unix_uid)


def _dial_unix(address: Address) -> socket.socket:
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connect_unix(line, Path(address.path))
    except OSError:
        line.close()
        raise
    return line


def _dial_tls(address: Address, authority: str, hello: bytes) -> socket.socket:
    plain = socket.create_connection((address.host, address.port), timeout=DIAL_SECONDS_MAX)
    try:
        keep_awake(plain)
        line = client_context(authority).wrap_socket(plain, server_hostname=SERVER_NAME)
    except OSError:
        plain.close()
        raise
    try:
        line.sendall(hello)
        line.settimeout(None)
    except OSError:
        line.close()
        raise
    return line
