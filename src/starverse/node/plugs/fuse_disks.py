"""Block disks without root: fuse2fs (Debian: fuse2fs) serves the file system in a process of its own.

It is started in a mount namespace of its own, from where its mount is taken over into the sandbox's; when
that is unmounted or gone, the kernel tells it and it ends by itself, the file system clean.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import time
from pathlib import Path

from starverse.node.plugs import inside_mounts, mount_trees
from starverse.node.plugs.places import PlugRefused
from starverse.node.sandbox import syscalls

_SECONDS_MAX = 20.0
_DEVICE = "/dev/fuse"


def refusal() -> str:
    """Why an ordinary user can have no block disk here, and what helps; ``""``: they can."""
    if shutil.which("fuse2fs") is None:
        return "block disks without root need fuse2fs: apt-get install fuse2fs"
    if not os.access(_DEVICE, os.R_OK | os.W_OK):
        return f"block disks without root need {_DEVICE}: chmod 666 {_DEVICE} (as udev sets it)"
    return ""


def show(handle: int, target: str, *, read_only: bool, tag: str) -> None:
    """Serve the file that is open (and locked) as ``handle`` at ``target``; after ``enter``."""
    os.makedirs(target, 0o755, exist_ok=True)  # noqa: PTH103
    before = Path(target).stat().st_dev
    errors = os.memfd_create("fuse2fs")
    server = os.fork()
    if server == 0:
        _serve(handle, target, read_only, tag, errors)
    served = False
    try:
        own = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        process = os.pidfd_open(server)
        _wait_for_mount(server, process, target, before, errors)
        syscalls.setns(process, syscalls.CLONE_NEWNS)
        folder = os.open(target, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        tree = mount_trees.clone_tree(folder, read_only=read_only)
        os.close(folder)
        syscalls.umount(target, lazy=True)
        syscalls.setns(own, syscalls.CLONE_NEWNS)
        inside_mounts.show(tree, target)
        served = True
    finally:
        if not served:
            with contextlib.suppress(ProcessLookupError):
                os.kill(server, signal.SIGKILL)


def _wait_for_mount(server: int, process: int, target: str, before: int, errors: int) -> None:
    poll = select.poll()
    poll.register(process, select.POLLIN)
    give_up = time.monotonic() + _SECONDS_MAX
    while True:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{server}/root{target}").stat().st_dev != before:
                return
        if poll.poll(5) or time.monotonic() > give_up:
            os.lseek(errors, 0, os.SEEK_SET)
            said = os.read(errors, 1 << 16).decode(errors="replace").strip().splitlines()
            raise PlugRefused(f"fuse2fs cannot serve it: {' '.join(said[-2:])[:300] or 'it says nothing'}")


def _serve(handle: int, target: str, read_only: bool, tag: str, errors: int) -> None:
    """In the forked child: fuse2fs, which outlives the act that began it."""
    try:
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, 0)
        os.setsid()
        syscalls.unshare(syscalls.CLONE_NEWNS)
        syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
        null = os.open("/dev/null", os.O_RDWR)
        for number, opened in ((0, null), (1, errors), (2, errors)):
            os.dup2(opened, number)
        os.set_inheritable(handle, True)
        program = shutil.which("fuse2fs") or ""
        options = "ro" if read_only else "rw"
        command = [program, f"/proc/self/fd/{handle}", target, "-f", "-s", "-o", options]
        name, _, value = tag.partition("=")
        os.closerange(3, handle)
        os.closerange(handle + 1, 65536)
        os.execve(program, command, {name: value, "PATH": "/usr/bin:/bin"})
    except BaseException as error:
        os.write(2, f"{error}\n".encode())
    finally:
        os._exit(125)
