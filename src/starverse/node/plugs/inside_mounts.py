"""Putting a mount into a running sandbox and taking it out, in a process that may enter its namespaces.

bubblewrap's own process stays in a mount namespace of the workload's user in which the folder of plugs is a
shared mount; what is mounted there appears in the sandbox at once, what is unmounted there goes, or is busy
where somebody inside has it open. A process that entered is the workload's user there and nobody else.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator

from starverse.node.plugs import mount_trees
from starverse.node.plugs.places import PlugRefused, open_folder
from starverse.node.sandbox import syscalls

_TRY_SECONDS = 0.1


def show_folder(sandbox: int, source: str, target: str, *, read_only: bool) -> None:
    """Show the folder ``source`` of the host at ``target``, a path where the sandbox is made.

    ``sandbox`` is a pidfd of bubblewrap's own process. Raises :class:`PlugRefused` or ``OSError``, and then
    nothing was changed.
    """
    if os.geteuid() == 0:
        with _closing(open_folder(source)) as handle, _closing(_clone(handle, read_only)) as tree:
            enter(sandbox)
            show(tree, target)
    else:  # only in there it may be mounted; the host's folders are seen there too
        enter(sandbox)
        with _closing(open_folder(source)) as handle, _closing(_clone(handle, read_only)) as tree:
            show(tree, target)


def enter(sandbox: int) -> None:
    """Become the workload's user in the namespaces where its sandbox is made. For good."""
    syscalls.setns(sandbox, syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS)
    if os.getuid() != 0:  # a root platform: its own user is nobody there
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)


def show(tree: int, target: str) -> None:
    """Mount the detached ``tree`` at ``target``, whose folders are made; after :func:`enter`."""
    made = not os.path.isdir(target)  # noqa: PTH112
    os.makedirs(target, 0o755, exist_ok=True)  # noqa: PTH103
    try:
        mount_trees.attach_tree(tree, target)
    except OSError:
        if made:
            _remove_empty(target)
        raise


def take_out(sandbox: int, target: str, seconds: float, *, sync: bool = False) -> None:
    """Unmount ``target``, tried for ``seconds``; ``OSError`` EBUSY where somebody inside has it open."""
    enter(sandbox)
    give_up = time.monotonic() + seconds
    while True:
        try:
            if sync:
                with _closing(os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as handle:
                    syscalls.syncfs(handle)
            syscalls.umount(target)
            break
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                break  # nothing is mounted there
            if error.errno != errno.EBUSY or time.monotonic() > give_up:
                raise
        time.sleep(_TRY_SECONDS)
    _remove_empty(target)


def _clone(handle: int, read_only: bool) -> int:
    try:
        return mount_trees.clone_tree(handle, read_only=read_only)
    except OSError as error:
        if error.errno == errno.ENOSYS:
            raise PlugRefused("this node's kernel cannot: Linux 5.12 or newer is needed") from error
        raise


def _remove_empty(target: str) -> None:
    """The folders that were made for it, up to the first one that another plug needs."""
    with contextlib.suppress(OSError):
        os.removedirs(target)


@contextlib.contextmanager
def _closing(handle: int) -> Iterator[int]:
    try:
        yield handle
    finally:
        os.close(handle)
