"""What a workload may send and receive a second: two token buckets (``tbf``) in its own network namespace.

What it sends waits at its network device. What comes waits at a device of its own (``ifb``) to which the
kernel diverts it: it is delayed and not dropped, so TCP finds the rate by itself, and pasta, which carries
all of it as one process, is busy in proportion. Told to the kernel over netlink: needs no program on the node
and no right on the host; what runs inside without a capability cannot undo it. Numbers are those of
``linux/rtnetlink.h``, ``pkt_sched.h``, ``pkt_cls.h`` and ``tc_act/tc_mirred.h``.
"""

from __future__ import annotations

import errno
import os
import socket
import struct

_NEW_LINK, _NEW_QDISC, _NEW_FILTER = 16, 36, 44
_REQUEST, _ACK, _EXCLUSIVE, _CREATE = 1, 4, 0x200, 0x400
_NESTED = 0x8000
_ROOT, _INGRESS, _INGRESS_HANDLE = 0xFFFFFFFF, 0xFFFFFFF1, 0xFFFF0000
_ETHERNET = 1
_UP = 1
_EVERY_PROTOCOL = 0x0300  # ETH_P_ALL, in network order
_STOLEN, _REDIRECT_OUT = 4, 1
INCOMING = "incoming0"
"""The device at which waits what comes in."""
_QUEUE_BYTES_MIN = 8 * 1024**2
"""More than one connection has under way (``tcp_rmem``), so that a lone one loses nothing."""
_BURST_BYTES_MIN = 256 * 1024
"""Several of the 64 KiB packets that pasta passes."""


def hold_rates(bytes_per_second: int) -> None:
    """From now on the caller's network namespace sends, and receives, so much at most over each device but
    its loopback. Raises ``OSError`` where the kernel does not take it, or where there is no device.
    """
    devices = [index for index, name in socket.if_nameindex() if name != "lo"]
    if not devices:
        raise OSError(errno.ENODEV, "no network device")
    with _open_line() as line:
        _ask(line, _NEW_LINK, _queue_device(INCOMING))
        incoming = socket.if_nametoindex(INCOMING)
        _ask(line, _NEW_QDISC, _bucket(incoming, bytes_per_second))
        for device in devices:
            _ask(line, _NEW_QDISC, _bucket(device, bytes_per_second))
            _ask(line, _NEW_QDISC, _ingress(device))
            _ask(line, _NEW_FILTER, _divert(device, incoming))


def kernel_refusal() -> str:
    """Try it in the caller's namespace, which is changed; ``""``, or why not."""
    try:
        with _open_line() as line:
            _ask(line, _NEW_LINK, _queue_device("probe0"))
        hold_rates(_BURST_BYTES_MIN)
    except OSError as error:
        return in_words(error.errno or 0)
    return ""


def in_words(number: int) -> str:
    """What the error of :func:`hold_rates` means."""
    names = {
        errno.EPERM: "not allowed",
        errno.ENOENT: "sch_tbf, sch_ingress, cls_u32 or act_mirred is not in this kernel",
        errno.EOPNOTSUPP: "ifb is not in this kernel",
    }
    return names.get(number, os.strerror(number))


def _open_line() -> socket.socket:
    line = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
    line.settimeout(5)
    line.bind((0, 0))
    return line


def _ask(line: socket.socket, kind: int, body: bytes) -> None:
    flags = _REQUEST | _ACK | _CREATE | _EXCLUSIVE
    line.send(struct.pack("=LHHLL", 16 + len(body), kind, flags, kind, 0) + body)
    answer = line.recv(1 << 16)
    code = struct.unpack_from("=l", answer, 16)[0]
    if code:
        raise OSError(-code, f"rtnetlink: {os.strerror(-code)}")


def _queue_device(name: str) -> bytes:
    kind = _attribute(1, b"ifb\0")
    head = struct.pack("=BxHiII", 0, 0, 0, _UP, _UP)
    return head + _attribute(3, name.encode() + b"\0") + _attribute(18 | _NESTED, kind)


def _bucket(device: int, rate: int) -> bytes:
    queue = max(_QUEUE_BYTES_MIN, rate // 4)
    burst = max(_BURST_BYTES_MIN, rate // 100)
    ratespec = struct.pack("=BBHhHI", 0, _ETHERNET, 0, 0, 0, min(rate, 0xFFFFFFFF))
    parameters = ratespec + bytes(12) + struct.pack("=III", min(queue, 0xFFFFFFFF), 0, 0)
    options = _attribute(1, parameters) + _attribute(4, struct.pack("=Q", rate))
    options += _attribute(6, struct.pack("=I", min(burst, 0x7FFFFFFF)))
    return _traffic(device, 0, _ROOT, 0) + _attribute(1, b"tbf\0") + _attribute(2 | _NESTED, options)


def _ingress(device: int) -> bytes:
    return _traffic(device, _INGRESS_HANDLE, _INGRESS, 0) + _attribute(1, b"ingress\0")


def _divert(device: int, incoming: int) -> bytes:
    """Whatever comes to ``device`` goes to the queue of ``incoming`` first."""
    every = struct.pack("=BBBxHHhhI", 1, 0, 1, 0, 0, 0, 0, 0) + bytes(16)  # terminal, one key that all match
    mirred = struct.pack("=IIiiiiI", 0, 0, _STOLEN, 0, 0, _REDIRECT_OUT, incoming)
    action = _attribute(1, b"mirred\0") + _attribute(2 | _NESTED, _attribute(2, mirred))
    options = _attribute(5, every) + _attribute(7 | _NESTED, _attribute(1 | _NESTED, action))
    head = _traffic(device, 0, _INGRESS_HANDLE, (1 << 16) | _EVERY_PROTOCOL)
    return head + _attribute(1, b"u32\0") + _attribute(2 | _NESTED, options)


def _traffic(device: int, handle: int, parent: int, info: int) -> bytes:
    return struct.pack("=BxHiIII", 0, 0, device, handle, parent, info)


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)
