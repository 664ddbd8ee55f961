"""Rules of nf_tables in the caller's own network namespace, told to the kernel over netlink.

Needs no program on the node, and no right on the host: whoever owns the namespace may set them, and what
runs in there without a capability cannot undo them. Numbers are those of ``linux/netfilter/nf_tables.h``.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Iterable

from starverse.node.network.off_limits import Net
from starverse.node.network.resolvers import PORT, Address

_NETLINK_NETFILTER, _SUBSYSTEM = 12, 10
_BATCH_BEGIN, _BATCH_END = 16, 17
_NEW_TABLE, _NEW_CHAIN, _NEW_RULE = 0, 3, 6
_REQUEST, _ACK, _CREATE, _APPEND = 1, 4, 0x400, 0x800
_NESTED = 0x8000
_IPV4, _IPV6 = 2, 10
_LOCAL_OUT = 3
_NETWORK_HEADER, _TRANSPORT_HEADER = 1, 2
_EQUAL, _AT_MOST, _AT_LEAST = 0, 3, 5
_REGISTER, _VERDICT_REGISTER, _ACCEPT = 1, 0, 1
_META_OUT_INDEX = 5
_LOOPBACK_INDEX = 1
_ICMP_FILTERED, _ICMPV6_PROHIBITED = 13, 1
_ICMPV6, _NEIGHBOUR_FIRST, _NEIGHBOUR_LAST = 58, 133, 137
_TABLE, _CHAIN = b"starverse\0", b"output\0"


def reject(nets: Iterable[Net], reachable: Iterable[Net], resolvers: Iterable[Address]) -> None:
    """From now on nothing of this namespace reaches ``nets`` but over its own loopback, save what is in
    ``reachable`` and the port of the ``resolvers``. Raises ``OSError`` where the kernel does not take it.
    """
    every, kept = list(nets), list(reachable)
    asked: list[Net] = [ipaddress.ip_network(address) for address in resolvers]
    name_port = _load(_TRANSPORT_HEADER, 2, 2) + _compare(_EQUAL, struct.pack(">H", PORT))
    messages = [_message(_BATCH_BEGIN, b"", batch=True)]
    for family, bits in ((_IPV4, 32), (_IPV6, 128)):
        messages += [_table(family), _chain(family)]
        rules = [_is_out_on_loopback() + _verdict_accept()]
        if family == _IPV6:
            rules.append(_is_neighbour_discovery() + _verdict_accept())
        rules += [_goes_to(net) + name_port + _verdict_accept() for net in asked if net.max_prefixlen == bits]
        rules += [_goes_to(net) + _verdict_accept() for net in kept if net.max_prefixlen == bits]
        rules += [_goes_to(net) + _refuse(family) for net in every if net.max_prefixlen == bits]
        messages += [_rule(family, rule) for rule in rules]
    messages.append(_message(_BATCH_END, b"", batch=True))
    _tell(messages)


def _tell(messages: list[bytes]) -> None:
    """All at once, as one transaction."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_NETFILTER) as line:
        line.settimeout(5)
        line.bind((0, 0))
        numbered = [
            part[:8] + struct.pack("=L", number) + part[12:] for number, part in enumerate(messages, start=1)
        ]
        line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        line.sendto(b"".join(numbered), (0, 0))
        awaited = set(range(2, len(messages)))
        while awaited:
            answer = line.recv(1 << 16)
            while len(answer) >= 20:
                length, kind, _, number = struct.unpack("=LHHL", answer[:12])
                code = struct.unpack("=l", answer[16:20])[0] if kind == 2 else 0
                if code:
                    raise OSError(-code, f"nf_tables: {os.strerror(-code)}")
                awaited.discard(number)
                answer = answer[(length + 3) & ~3 :]


def _message(kind: int, body: bytes, *, batch: bool = False, family: int = 0, flags: int = 0) -> bytes:
    head = struct.pack(">BBH", family, 0, _SUBSYSTEM if batch else 0)
    length = 16 + len(head) + len(body)
    number = kind if batch else (_SUBSYSTEM << 8) | kind
    flags |= _REQUEST if batch else _REQUEST | _ACK
    return struct.pack("=LHHLL", length, number, flags, 0, 0) + head + body


def _table(family: int) -> bytes:
    return _message(_NEW_TABLE, _attribute(1, _TABLE), family=family, flags=_CREATE)


def _chain(family: int) -> bytes:
    hook = _attribute(1, struct.pack(">L", _LOCAL_OUT)) + _attribute(2, struct.pack(">l", 0))
    body = _attribute(1, _TABLE) + _attribute(3, _CHAIN) + _attribute(4 | _NESTED, hook)
    body += _attribute(5, struct.pack(">L", _ACCEPT)) + _attribute(7, b"filter\0")
    return _message(_NEW_CHAIN, body, family=family, flags=_CREATE)


def _rule(family: int, expressions: bytes) -> bytes:
    body = _attribute(1, _TABLE) + _attribute(2, _CHAIN) + _attribute(4 | _NESTED, expressions)
    return _message(_NEW_RULE, body, family=family, flags=_CREATE | _APPEND)


def _goes_to(net: Net) -> bytes:
    size, offset = (4, 16) if net.max_prefixlen == 32 else (16, 24)
    mask = _value(net.netmask.packed)
    bitwise = _number(1, _REGISTER) + _number(2, _REGISTER) + _number(3, size)
    bitwise += _attribute(4 | _NESTED, mask) + _attribute(5 | _NESTED, _value(bytes(size)))
    return (
        _load(_NETWORK_HEADER, offset, size)
        + _expression(b"bitwise", bitwise)
        + _compare(_EQUAL, net.network_address.packed)
    )


def _is_out_on_loopback() -> bytes:
    load = _number(1, _REGISTER) + _number(2, _META_OUT_INDEX)
    return _expression(b"meta", load) + _compare(_EQUAL, struct.pack("=L", _LOOPBACK_INDEX))


def _is_neighbour_discovery() -> bytes:
    """Without it no address of the link could be found."""
    kind = _load(_NETWORK_HEADER, 6, 1) + _compare(_EQUAL, bytes([_ICMPV6]))
    first = _load(_TRANSPORT_HEADER, 0, 1) + _compare(_AT_LEAST, bytes([_NEIGHBOUR_FIRST]))
    return kind + first + _compare(_AT_MOST, bytes([_NEIGHBOUR_LAST]))


def _verdict_accept() -> bytes:
    verdict = _attribute(2 | _NESTED, _number(1, _ACCEPT))
    return _expression(b"immediate", _number(1, _VERDICT_REGISTER) + _attribute(2 | _NESTED, verdict))


def _refuse(family: int) -> bytes:
    """So that programs hear at once that it is forbidden."""
    code = _ICMP_FILTERED if family == _IPV4 else _ICMPV6_PROHIBITED
    return _expression(b"reject", _number(1, 0) + _attribute(2, bytes([code])))


def _load(base: int, offset: int, size: int) -> bytes:
    body = _number(1, _REGISTER) + _number(2, base) + _number(3, offset) + _number(4, size)
    return _expression(b"payload", body)


def _compare(how: int, value: bytes) -> bytes:
    body = _number(1, _REGISTER) + _number(2, how) + _attribute(3 | _NESTED, _value(value))
    return _expression(b"cmp", body)


def _expression(name: bytes, body: bytes) -> bytes:
    return _attribute(1 | _NESTED, _attribute(1, name + b"\0") + _attribute(2 | _NESTED, body))


def _value(value: bytes) -> bytes:
    return _attribute(1, value)


def _number(kind: int, value: int) -> bytes:
    return _attribute(kind, struct.pack(">L", value))


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def kernel_refusal() -> str:
    """Try it in the caller's namespace, which is changed; ``""``, or why not."""
    try:
        reject([ipaddress.ip_network("10.0.0.0/8")], [], [])
    except OSError as error:
        names = {errno.EPERM: "not allowed", errno.EPROTONOSUPPORT: "nf_tables is not in this kernel"}
        return names.get(error.errno or 0, str(error))
    return ""
