"""From the server to the sandbox of one copy: the first process, which becomes bubblewrap.

``python -m starverse.node.rclone.starting`` reads its order (:class:`Order`, after its length in 8 digits)
from standard input and leaves what comes after for the copy inside. The configuration with its credentials
and the order go into memory files that bubblewrap reads: they are in no argument, environment or file of the
host.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from starverse.node.host_setup import HOST_ETC, INSIDE_UID, find_python_folders
from starverse.node.network.keeper import make_network
from starverse.node.network.pasta import NetworkRefused, Pasta
from starverse.node.network.resolvers import find_resolvers, write_resolvers
from starverse.node.plugs.block_disks import mount_here, serve_here
from starverse.node.plugs.places import PlugRefused
from starverse.node.rclone import inside
from starverse.node.sandbox import syscalls
from starverse.node.sandbox.staging import enter_private_mounts, enter_with_plugs

LENGTH_DIGITS = 8
ASIDE_OF_PULLS = ".incoming-"
_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


@dataclass(frozen=True, slots=True)
class Order:
    """``tree`` is the disk's folder on the host, which holds ``data`` or the ``block_file``. ``network`` is
    ``internet`` with the private networks ``reachable``, or ``host``. ``inside`` is for :mod:`inside`."""

    tree: str
    block_file: str | None
    read_only: bool
    unix_uid: int | None
    config: str
    network: str
    reachable: tuple[str, ...]
    inside: dict[str, Any]

    def to_bytes(self) -> bytes:
        text = json.dumps(asdict(self)).encode()
        return f"{len(text):0{LENGTH_DIGITS}}".encode() + text


def read_order(readable: int) -> Order:
    """Exactly the order, so that what follows is left to whoever reads next."""
    told = json.loads(_read_exactly(readable, int(_read_exactly(readable, LENGTH_DIGITS))))
    return Order(**told | {"reachable": tuple(told["reachable"])})


def main() -> int:
    order = read_order(0)
    remove_leftovers(order)
    if not order.read_only and order.block_file is None:
        _make_aside(order, Path(order.tree))
    if order.network == "host":
        _become(order, os.getppid(), lambda: None)
    return _with_own_network(order)


def remove_leftovers(order: Order) -> None:
    """Remove what a try in this direction has beside the disk's files, whoever was killed between; with its
    folder goes the pasta of its network."""
    shutil.rmtree(_own_folder(order), ignore_errors=True)
    if not order.read_only and order.block_file is None:
        for left in Path(order.tree).glob(f"{ASIDE_OF_PULLS}*"):
            shutil.rmtree(left, ignore_errors=True)


def _with_own_network(order: Order) -> int:
    """The sandbox as a child in a network namespace that reaches the internet alone; its exit code.

    This process has to outlive it, as what cleans up: it ends by SIGTERM when the server does.
    """
    signal.signal(signal.SIGTERM, _end)
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGTERM)
    entered, has_entered = os.pipe()
    waits, may_go = os.pipe()
    own, folder = os.getpid(), _own_folder(order)
    child = os.fork()
    if child == 0:
        os.close(may_go)
        _become(order, own, lambda: _wait_to_go(has_entered, waits))
    for number in (has_entered, waits):
        os.close(number)
    try:
        if os.read(entered, 1) == b"1":
            folder.mkdir(mode=0o755, exist_ok=True)
            pasta = Pasta(shutil.which("pasta") or "", folder, child, order.unix_uid, order.inside["aside"])
            pasta.link()
            reachable = [ipaddress.ip_network(text) for text in order.reachable]
            make_network(pasta, os.pidfd_open(child), reachable)
            os.write(may_go, b"1")
        os.close(may_go)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 255
    except NetworkRefused as error:
        os.write(1, f"no network: {error}\n".encode())
        return 125
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def _become(order: Order, parent: int, before: Callable[[], None]) -> NoReturn:
    """From here to bubblewrap; ``before`` is called when the namespaces stand."""
    try:
        as_root = os.geteuid() == 0
        disk = order.tree
        if order.block_file is not None:
            disk = _place_for_block(order)
            if as_root:
                enter_private_mounts()
                mount_here(order.block_file, disk, read_only=order.read_only)
                _make_aside_anew(order, Path(disk))
        binds, own_network = list_binds(order, disk), order.network != "host"
        sources = [(source, kind == "ro") for source, _, kind in binds]
        staged, _ = enter_with_plugs(sources, order.unix_uid, parent, None, own_network=own_network)
        if order.block_file is not None and not as_root:  # only in a namespace of its own it may be mounted
            tag = f"STARVERSE_SYNC={order.inside['aside']}"
            serve_here(order.block_file, disk, read_only=order.read_only, tag=tag)
            _make_aside_anew(order, Path(disk))
        placed = [(source, target, kind) for source, (_, target, kind) in zip(staged, binds, strict=True)]
        files = [(order.config, inside.CONFIG), (json.dumps(order.inside), inside.ORDER)]
        if own_network:
            files.append((_resolvers(), "/etc/resolv.conf"))
        before()
        bwrap = shutil.which("bwrap") or "bwrap"
        os.umask(0o022)
        os.execve(bwrap, build_arguments(bwrap, placed, [(_in_memory(t), name) for t, name in files]), {})
    except PlugRefused as error:
        os.write(1, f"{error}\n".encode())
    except BaseException as error:
        os.write(1, f"{type(error).__name__}: {error}\n".encode())
    os._exit(125)


def _place_for_block(order: Order) -> str:
    place = _own_folder(order) / "mounted"
    place.mkdir(mode=0o755, parents=True)
    return str(place)


def _make_aside_anew(order: Order, mounted: Path) -> None:
    """On a block disk that was mounted for this copy."""
    if not order.read_only:
        for left in mounted.glob(f"{ASIDE_OF_PULLS}*"):
            shutil.rmtree(left, ignore_errors=True)
        _make_aside(order, mounted)


def _wait_to_go(has_entered: int, waits: int) -> None:
    os.write(has_entered, b"1")
    os.close(has_entered)
    if os.read(waits, 1) != b"1":
        os._exit(125)  # who waited for it has said why
    os.close(waits)


def _resolvers() -> str:
    host = Path("/etc/resolv.conf")
    return write_resolvers(host.read_text() if host.exists() else "", find_resolvers())


def _own_folder(order: Order) -> Path:
    return Path(order.tree, f".sync-{'push' if order.read_only else 'pull'}")


def _end(_number: int, _frame: object) -> NoReturn:
    raise SystemExit(125)


def list_binds(order: Order, disk: str) -> list[tuple[str, str, str]]:
    """Host path, path inside, ``ro`` or ``rw``: programs, what names and certificates need, the disk."""
    paths = ["/usr", *(f"/{name}" for name in _LINKS if Path("/", name).is_dir())]
    binds = [(path, path, "ro") for path in paths if not Path(path).is_symlink()]
    names = (*HOST_ETC, "hosts", "nsswitch.conf", *(("resolv.conf",) if order.network == "host" else ()))
    for name in dict.fromkeys(names):
        if Path("/etc", name).exists():
            binds.append((os.path.realpath(f"/etc/{name}"), f"/etc/{name}", "ro"))
    binds += [(folder, folder, "ro") for folder in find_python_folders()]
    return [*binds, (disk, "/disk", "ro" if order.read_only else "rw")]


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
        command += ["--perms", "0644" if name.startswith("/etc/") else "0600", "--file", str(number), name]
    command += ["--clearenv", "--setenv", "HOME", "/tmp", "--setenv", "USER", "user"]
    command += ["--setenv", "PATH", "/usr/bin:/bin", "--setenv", "LANG", "C.UTF-8"]
    command += ["--remount-ro", "/", "--chdir", "/", "--"]
    return [*command, sys.executable, "-I", "-S", inside.__file__]


def _make_aside(order: Order, place: Path) -> None:
    """The folder into which rclone writes, the team's own."""
    aside = place / order.inside["aside"]
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
