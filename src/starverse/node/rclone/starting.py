"""From the server to the sandbox of one copy: the first process, which becomes bubblewrap.

``python -m starverse.node.rclone.starting`` reads its order (:class:`Order`, after its length in 8 digits)
from standard input and leaves what comes after for the copy inside. The configuration with its credentials
and the order go into memory files that bubblewrap reads: they are in no argument, environment or file of the
host.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from starverse.node.host_setup import HOST_ETC, INSIDE_UID, find_python_folders
from starverse.node.rclone import inside
from starverse.node.sandbox.staging import enter

LENGTH_DIGITS = 8
ASIDE_OF_PULLS = ".incoming-"
_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


@dataclass(frozen=True, slots=True)
class Order:
    """``tree`` is the disk's folder on the host, which holds ``data``. ``inside`` is for :mod:`inside`."""

    tree: str
    read_only: bool
    unix_uid: int | None
    config: str
    inside: dict[str, Any]

    def to_bytes(self) -> bytes:
        text = json.dumps(asdict(self)).encode()
        return f"{len(text):0{LENGTH_DIGITS}}".encode() + text


def read_order(readable: int) -> Order:
    """Exactly the order, so that what follows is left to whoever reads next."""
    return Order(**json.loads(_read_exactly(readable, int(_read_exactly(readable, LENGTH_DIGITS)))))


def main() -> int:
    order = read_order(0)
    if not order.read_only:
        _make_aside(order)
    binds = list_binds(order)
    staged = enter([(source, kind == "ro") for source, _, kind in binds], order.unix_uid, os.getppid())
    placed = [(source, target, kind) for source, (_, target, kind) in zip(staged, binds, strict=True)]
    files = [(_in_memory(order.config), inside.CONFIG), (_in_memory(json.dumps(order.inside)), inside.ORDER)]
    os.umask(0o022)
    bwrap = shutil.which("bwrap") or "bwrap"
    os.execve(bwrap, build_arguments(bwrap, placed, files), {})


def list_binds(order: Order) -> list[tuple[str, str, str]]:
    """Host path, path inside, ``ro`` or ``rw``: programs, what names and certificates need, the disk."""
    paths = ["/usr", *(f"/{name}" for name in _LINKS if Path("/", name).is_dir())]
    binds = [(path, path, "ro") for path in paths if not Path(path).is_symlink()]
    names = (*HOST_ETC, "resolv.conf", "hosts", "nsswitch.conf", "ssl/certs")
    for name in dict.fromkeys(names):
        if Path("/etc", name).exists():
            binds.append((os.path.realpath(f"/etc/{name}"), f"/etc/{name}", "ro"))
    binds += [(folder, folder, "ro") for folder in find_python_folders()]
    return [*binds, (order.tree, "/disk", "ro" if order.read_only else "rw")]


def build_arguments(bwrap: str, binds: list[tuple[str, str, str]], files: list[tuple[int, str]]) -> list[str]:
    """The whole command line: nothing of the order is in it but where things lie."""
    command = [bwrap, "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    command += ["--unshare-user", "--uid", str(INSIDE_UID), "--gid", str(INSIDE_UID)]
    command += ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    command += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run/rclone"]
    for name in _LINKS:
        path = Path("/", name)
        if path.is_symlink():
            command += ["--symlink", str(path.readlink()), str(path)]
    for source, target, kind in binds:
        command += ["--ro-bind" if kind == "ro" else "--bind", source, target]
    for number, name in files:
        command += ["--perms", "0600", "--file", str(number), name]
    command += ["--clearenv", "--setenv", "HOME", "/tmp", "--setenv", "USER", "user"]
    command += ["--setenv", "PATH", "/usr/bin:/bin", "--setenv", "LANG", "C.UTF-8"]
    command += ["--remount-ro", "/", "--chdir", "/", "--"]
    return [*command, sys.executable, "-I", "-S", inside.__file__]


def _make_aside(order: Order) -> None:
    """The folder into which rclone writes, the team's own; what a copy that was killed left there goes."""
    tree = Path(order.tree)
    for left in tree.glob(f"{ASIDE_OF_PULLS}*"):
        shutil.rmtree(left, ignore_errors=True)
    aside = tree / order.inside["aside"]
    aside.mkdir(mode=0o700)
    if os.geteuid() == 0 and order.unix_uid:
        os.chown(aside, order.unix_uid, order.unix_uid)


def _in_memory(text: str) -> int:
    descriptor = os.memfd_create("starverse-sync", 0)
    view = memoryview(text.encode())
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _read_exactly(readable: int, count: int) -> bytes:
    parts = []
    while count:
        part = os.read(readable, count)
        if not part:
            raise EOFError("the order is cut off")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


if __name__ == "__main__":
    sys.exit(main())
