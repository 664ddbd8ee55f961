"""Tries, from inside a sandbox, what a workload must not be able to do; prints one JSON object.

``{"name": "refused: why" | "allowed: what"}`` for each attempt, plain facts beside. Run by the contract
test as the script of a workload; standard library only. Arguments: a JSON object with what to try:
``sibling_paths``, ``host_pids``, ``sockets``, ``abstract_sockets``, ``port``, ``read_only``.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import stat
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)
_MS_REMOUNT, _MS_BIND, _MS_NOSUID, _MS_NODEV = 32, 4096, 2, 4


def main(asked: dict[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "uid": os.getuid(),
        "capabilities": _capabilities(),
        "pids": sorted(int(name.name) for name in Path("/proc").iterdir() if name.name.isdigit()),
        "routes": len(Path("/proc/net/route").read_text().splitlines()) - 1,
        "no_new_privileges": _status("NoNewPrivs"),
        "hostname": socket.gethostname(),
    }
    attempts: dict[str, Callable[[], object]] = {
        "mount a tmpfs": lambda: _mount("tmpfs", "/tmp", "tmpfs", 0),
        "remount / writable": lambda: _mount("none", "/", None, _MS_REMOUNT | _MS_BIND),
        "remount /usr writable": lambda: _mount(
            "none", "/usr", None, _MS_REMOUNT | _MS_BIND | _MS_NOSUID | _MS_NODEV
        ),
        "new user namespace": lambda: _check(_libc.unshare(0x10000000)),
        "make a block device": lambda: os.mknod(
            "/tmp/disk",
            stat.S_IFBLK | 0o600,
            os.makedev(8, 0),
        ),
        "become root": lambda: os.setuid(0),
        "chroot": lambda: os.chroot("/tmp"),
        "set the hostname": lambda: _check(_libc.sethostname(b"x", 1)),
        "write /proc/sys/kernel/hostname": lambda: Path("/proc/sys/kernel/hostname").write_text("x"),
        "write /proc/sys/vm/drop_caches": lambda: Path("/proc/sys/vm/drop_caches").write_text("1"),
        "write /proc/sysrq-trigger": lambda: Path("/proc/sysrq-trigger").write_text("h"),
        "write into /usr": lambda: Path("/usr/planted").write_text("x"),
        "write into /etc": lambda: Path("/etc/passwd").open("a").close(),
        "write into /": lambda: Path("/planted").write_text("x"),
        "forge a notice": lambda: Path("/run/starverse/notice.json").write_text("{}"),
        "reach the internet": lambda: _connect(socket.AF_INET, ("192.0.2.1", 80)),
        "reach the host's loopback": lambda: _connect(socket.AF_INET, ("127.0.0.1", asked["port"])),
    }
    for path in asked["read_only"]:
        attempts[f"write into {path}"] = partial(Path(path, "planted").write_text, "x")
        flags = _MS_REMOUNT | _MS_BIND | _MS_NOSUID | _MS_NODEV
        attempts[f"remount {path} writable"] = partial(_mount, "none", path, None, flags)
    for path in asked["sibling_paths"]:
        attempts[f"see {path}"] = partial(os.stat, path)
    for pid in asked["host_pids"]:
        attempts[f"signal host process {pid}"] = partial(os.kill, pid, 0)
    for path in asked["sockets"]:
        attempts[f"connect to {path}"] = partial(_connect, socket.AF_UNIX, path)
    for name in asked["abstract_sockets"]:
        attempts[f"connect to @{name}"] = partial(_connect, socket.AF_UNIX, "\0" + name)
    for pid in facts["pids"]:
        attempts[f"leave through /proc/{pid}/root"] = partial(_escape, pid)
    facts["attempts"] = {name: _attempt(act) for name, act in attempts.items()}
    return facts


def _attempt(act: Callable[[], object]) -> str:
    try:
        answer = act()
    except (OSError, ValueError) as error:
        return f"refused: {error}"
    return f"allowed: {answer}"


def _escape(pid: int) -> object:
    """The root of every process visible in here must be this sandbox's own."""
    root = Path(f"/proc/{pid}/root")
    own, other = os.stat("/"), root.stat()  # noqa: PTH116
    if (own.st_dev, own.st_ino) == (other.st_dev, other.st_ino):
        raise PermissionError("the same root")
    return sorted(path.name for path in root.iterdir())


def _connect(family: int, address: Any) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as line:
        line.settimeout(2)
        line.connect(address)


def _mount(source: str, target: str, kind: str | None, flags: int) -> None:
    _check(
        _libc.mount(
            source.encode(), target.encode(), kind.encode() if kind else None, ctypes.c_ulong(flags), None
        )
    )


def _check(answer: int) -> None:
    if answer != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _capabilities() -> dict[str, int]:
    return {name: int(_status(name), 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}


def _status(key: str) -> str:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return line.split()[1]
    return ""


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(json.loads(sys.argv[1]))) + "\n")
