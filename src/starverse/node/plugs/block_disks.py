"""Block disks: a file with an ext4 in it, of one writer, shown in a running sandbox.

Who has it mounted holds an exclusive ``flock`` on the file: as root the kernel's loop device does, through
the very descriptor that was locked here; without root the fuse2fs that serves it. So the lock lasts exactly
as long as the file system is mounted somewhere, however its launcher ended, and a device that nobody has
mounted frees itself. Nothing of this needs to be cleaned up.

Between nodes the lock holds where the file system passes ``flock`` on: NFS 4, Lustre mounted with ``flock``,
GPFS, BeeGFS with ``tuneUseGlobalFileLocks``. Elsewhere the platform's own row of the one writer has to do.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import struct
import time

from starverse.node.plugs import fuse_disks, inside_mounts, mount_trees
from starverse.node.plugs.places import PlugRefused, open_file

_LOOP_CONTROL = "/dev/loop-control"
_LOOP_GET_FREE, _LOOP_CONFIGURE = 0x4C82, 0x4C0A
_LOOP_READ_ONLY, _LOOP_AUTOCLEAR = 1, 4
_TRIES = 20  # another one may have got the free device first
_TOOLS = "/usr/sbin:/sbin:/usr/bin:/bin"
_CHECKED = (0, 1)
"""Exit codes of ``e2fsck`` that leave a sound file system (its manual page)."""


def show_block(sandbox: int, source: str, target: str, *, read_only: bool, tag: str) -> None:
    """Show the file system in ``source`` at ``target``, as :func:`inside_mounts.show_folder` does a folder.

    ``tag`` is an entry of the environment of what serves it. An unclean end is mended first. Raises
    :class:`PlugRefused` or ``OSError`` with nothing changed; then somebody else may have it.
    """
    if os.geteuid() != 0 and (why := fuse_disks.refusal()):
        raise PlugRefused(why)
    handle = open_file(source, write=True)
    try:
        lock(handle)
        check_file_system(handle)
        if os.geteuid() == 0:
            tree = _mount_loop(handle, read_only)
            inside_mounts.enter(sandbox)
            inside_mounts.show(tree, target)
        else:
            inside_mounts.enter(sandbox)
            fuse_disks.show(handle, target, read_only=read_only, tag=tag)
    finally:
        os.close(handle)


def mount_here(source: str, place: str, *, read_only: bool) -> None:
    """Mount the file system in ``source`` at a folder of the caller's own mount namespace, with which it
    goes; root's only. Raises as :func:`show_block`."""
    handle = open_file(source, write=True)
    try:
        lock(handle)
        check_file_system(handle)
        mount_trees.attach_tree(_mount_loop(handle, read_only), place)
    finally:
        os.close(handle)


def serve_here(source: str, place: str, *, read_only: bool, tag: str) -> None:
    """As :func:`mount_here` without root: the user namespace is the caller's own too, and ``tag`` as in
    :func:`show_block`."""
    if why := fuse_disks.refusal():
        raise PlugRefused(why)
    handle = open_file(source, write=True)
    try:
        lock(handle)
        check_file_system(handle)
        fuse_disks.show(handle, place, read_only=read_only, tag=tag)
    finally:
        os.close(handle)


def take_out_block(sandbox: int, source: str, target: str, seconds: float) -> None:
    """Write back, unmount, and see that nobody has the file any more, ``seconds`` after that at most."""
    handle = open_file(source, write=True)
    try:
        inside_mounts.take_out(sandbox, target, seconds, sync=True)
        wait_until_free(handle, seconds)
    finally:
        os.close(handle)


def lock(handle: int) -> None:
    """Raises :class:`PlugRefused` where somebody else has the file."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise PlugRefused("the disk is in use: somebody has it mounted, and it has one writer") from error
    except OSError as error:
        raise PlugRefused(f"the disk's file cannot be locked here: {error.strerror}") from error


def wait_until_free(handle: int, seconds: float) -> None:
    """Until nobody else has the file; ``OSError`` EBUSY where somebody still has."""
    give_up = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > give_up:
                raise OSError(errno.EBUSY, "its file system is still being written back") from None
        else:
            return
        time.sleep(0.005)


def wait_until_free_here(source: str, seconds: float) -> None:
    """As :func:`wait_until_free`, of a file by its path; what is not free by then is left as it is."""
    with contextlib.suppress(OSError, PlugRefused):
        handle = open_file(source, write=True)
        try:
            wait_until_free(handle, seconds)
        finally:
            os.close(handle)


def check_file_system(handle: int) -> None:
    """Mend what an unclean end left; at once where there is nothing to mend. The lock lasts as long as the
    program that does."""
    program = shutil.which("e2fsck", path=_TOOLS)
    if program is None:
        raise PlugRefused("block disks need e2fsck: apt-get install e2fsprogs")
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.set_inheritable(handle, True)
            os.dup2(tell, 1)
            os.dup2(tell, 2)
            os.execv(program, [program, "-p", f"/proc/self/fd/{handle}"])
        finally:
            os._exit(125)
    os.close(tell)
    with os.fdopen(told, "rb") as file:
        said = file.read().decode(errors="replace").strip().splitlines()
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status) not in _CHECKED:
        raise PlugRefused(f"its file system cannot be mended by itself: {' '.join(said[-2:])[:300]}")


def refusal() -> str:
    """Why nobody can have a block disk on this machine, and after a colon what helps; ``""``: they can."""
    why = loop_refusal() if os.geteuid() == 0 else fuse_disks.refusal()
    if not why and shutil.which("e2fsck", path=_TOOLS) is None:
        return "e2fsck is not installed: apt-get install e2fsprogs"
    return why


def loop_refusal() -> str:
    """Why root cannot mount a file here; ``""``: it can."""
    try:
        os.close(os.open(_LOOP_CONTROL, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return f"no loop devices ({_LOOP_CONTROL}: {error.strerror}): modprobe loop"
    return ""


def _mount_loop(handle: int, read_only: bool) -> int:
    device, number = _bind_loop(handle, read_only)
    try:
        return mount_trees.mount_device("ext4", f"/dev/loop{number}", read_only=read_only)
    except OSError as error:
        raise PlugRefused(f"its file system cannot be mounted: {error.strerror}") from error
    finally:
        os.close(device)  # the mount keeps it; without one it is free again


def _bind_loop(handle: int, read_only: bool) -> tuple[int, int]:
    """A loop device on the open file: its descriptor and number. It frees itself with its last user."""
    flags = _LOOP_AUTOCLEAR | (_LOOP_READ_ONLY if read_only else 0)
    info = struct.pack("=5Q4L64s64s32s2Q", 0, 0, 0, 0, 0, 0, 0, 0, flags, b"starverse", b"", b"", 0, 0)
    wanted = struct.pack("=LL", handle, 0) + info + bytes(64)
    try:
        control = os.open(_LOOP_CONTROL, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise PlugRefused(loop_refusal()) from error
    try:
        for _ in range(_TRIES):
            number = fcntl.ioctl(control, _LOOP_GET_FREE)
            device = os.open(f"/dev/loop{number}", os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(device, _LOOP_CONFIGURE, wanted)
            except OSError as error:
                os.close(device)
                if error.errno != errno.EBUSY:
                    raise PlugRefused(f"no loop device can be had: {error.strerror}") from error
            else:
                return device, number
    except OSError as error:
        raise PlugRefused(f"no loop device can be had: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            os.close(control)
    raise PlugRefused("no loop device can be had: all that are free are taken at once")
