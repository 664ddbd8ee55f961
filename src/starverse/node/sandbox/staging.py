"""From the launcher's place to the place where bubblewrap may start: staged folders, dropped user."""

from __future__ import annotations

import os
import signal
import stat
from pathlib import Path

from starverse.node.sandbox import syscalls
from starverse.node.sandbox.layered_root import LayeredRoot

_STAGES = ("/mnt", "/media", "/srv", "/opt")


def enter(sources: list[tuple[str, bool]], uid: int | None, launcher: int) -> list[str]:
    """Stage ``sources`` (path, read-only), become ``uid``, enter own user and mount namespaces.

    Answers where each source is then to be found. As an ordinary user nothing is staged and nothing is
    dropped. Whatever comes next in this process dies with the launcher.
    """
    return enter_with_plugs(sources, uid, launcher, None)[0]


def enter_with_plugs(
    sources: list[tuple[str, bool]],
    uid: int | None,
    launcher: int,
    plugs: str | None,
    *,
    own_network: bool = False,
    root: LayeredRoot | None = None,
) -> tuple[list[str], str]:
    """As :func:`enter`, with ``own_network`` into a network namespace too; answers also a folder in which
    mounts may appear later, ``""`` where this host offers none. ``plugs`` is that folder for an ordinary
    user; ``None``: not asked for. ``root`` is made ready to be mounted.
    """
    staged = [path for path, _ in sources]
    if root is not None:
        root.prepare(uid)
    if os.geteuid() == 0:
        if not uid:
            raise PermissionError("a workload never runs as host uid 0")
        staged = _stage(sources)
        if plugs is not None:
            plugs = f"{_stage_folder()}/plugs"
            Path(plugs).mkdir()
        if root is not None:
            root.stage(_stage_folder())
        drop_to(uid)
    if not _enter_user_namespace(syscalls.CLONE_NEWNET if own_network else 0, root):
        plugs = None
    if plugs is not None:
        _make_shared(plugs)
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    die_with(launcher)
    return staged, plugs or ""


def _make_shared(folder: str) -> None:
    """An empty mount which passes on what is mounted in it to the sandbox that is made from here."""
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV
    syscalls.mount("tmpfs", folder, "tmpfs", flags, "mode=755,size=4m")
    syscalls.mount("none", folder, None, syscalls.MS_SHARED)


def enter_as_user(sources: list[tuple[str, bool]], uid: int | None) -> list[str]:
    """As a root platform: stage ``sources`` (path, read-only) and become ``uid``; else nothing.

    Answers where each is then to be found.
    """
    if os.geteuid() != 0 or not uid:
        return [path for path, _ in sources]
    staged = _stage(sources)
    drop_to(uid)
    return staged


def enter_in_place(sources: list[tuple[str, bool]], uid: int | None) -> None:
    """As a root platform: show ``sources`` (path, read-only) at their own paths and become ``uid``; else
    nothing.

    A folder above a source that ``uid`` cannot pass is covered by an empty one which holds the sources only.
    """
    if os.geteuid() != 0 or not uid:
        return
    enter_private_mounts()
    wanted = sorted((os.path.realpath(path), read_only) for path, read_only in sources)
    handles = [os.open(path, os.O_PATH | os.O_CLOEXEC) for path, _ in wanted]
    for cover in sorted({top for path, _ in wanted if (top := first_impassable(path, uid))}):
        syscalls.mount("tmpfs", cover, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "mode=755,size=1m")
    os.umask(0o022)
    for (path, read_only), handle in zip(wanted, handles, strict=True):
        _bind(handle, path, read_only)
    drop_to(uid)


def first_impassable(path: str, uid: int) -> str:
    """The outermost folder above ``path`` that ``uid``, in its own group only, cannot pass; ``""``: none."""
    for folder in reversed(Path(path).parents):
        facts = folder.stat()
        bit = stat.S_IXUSR if facts.st_uid == uid else stat.S_IXGRP if facts.st_gid == uid else stat.S_IXOTH
        if not facts.st_mode & bit:
            return str(folder)
    return ""


def staged_paths(count: int) -> list[str]:
    """Where a root platform's staged sources will be found, in order."""
    return [f"{_stage_folder()}/{number}" for number in range(count)]


def _stage_folder() -> str:
    return next(path for path in _STAGES if Path(path).is_dir())


def drop_to(uid: int) -> None:
    """Become the team's user and group for good, without any supplementary group."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)  # else /proc/self stays root's: no id map could be written


def die_with(launcher: int) -> None:
    """SIGKILL for this process when its parent ends. Set last: a change of user clears it."""
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != launcher:
        os._exit(125)


def _stage(sources: list[tuple[str, bool]]) -> list[str]:
    """Bind every source below one tmpfs in a private mount namespace.

    Sources are opened before, so that the tmpfs may cover their parents and no parent need be passable
    for the team's user.
    """
    enter_private_mounts()
    handles = [os.open(path, os.O_PATH | os.O_CLOEXEC) for path, _ in sources]
    mount_stage()
    staged = staged_paths(len(sources))
    for target, (_, read_only), handle in zip(staged, sources, handles, strict=True):
        _bind(handle, target, read_only)
    return staged


def enter_private_mounts() -> None:
    """A mount namespace of this process, which nothing leaves."""
    syscalls.unshare(syscalls.CLONE_NEWNS)
    syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)


def mount_stage(*, devices: bool = False) -> str:
    """An empty folder of one's own, after :func:`enter_private_mounts`; with ``devices`` device files work
    there. What it covers has to be open by then."""
    stage = _stage_folder()
    flags = syscalls.MS_NOSUID | (0 if devices else syscalls.MS_NODEV)
    syscalls.mount("tmpfs", stage, "tmpfs", flags, "mode=755,size=1m")
    return stage


def _bind(handle: int, target: str, read_only: bool) -> None:
    """Show what is open as ``handle`` (which is closed) at ``target``, made where it is not there."""
    if stat.S_ISDIR(os.fstat(handle).st_mode):
        os.makedirs(target, exist_ok=True)  # noqa: PTH103
    elif not os.path.lexists(target):
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
    syscalls.mount(f"/proc/self/fd/{handle}", target, None, syscalls.MS_BIND | syscalls.MS_REC)
    if read_only:
        _make_read_only(target)
    os.close(handle)


def _make_read_only(target: str) -> None:
    flags = syscalls.MS_REMOUNT | syscalls.MS_BIND | syscalls.MS_RDONLY
    kept = os.statvfs(target).f_flag & (syscalls.MS_NOSUID | syscalls.MS_NODEV)
    syscalls.mount("none", target, None, flags | kept)


def _enter_user_namespace(more: int = 0, root: LayeredRoot | None = None) -> bool:
    """An own user namespace with the rights to mount in it, and namespaces of the kinds ``more``; where that
    is forbidden (answers false), bubblewrap's must do. ``root`` needs it, and may have ids for it."""
    uid, gid = os.getuid(), os.getgid()
    try:
        syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS | more)
    except PermissionError:
        if more or root is not None:
            raise
        return False
    if root is not None and root.map_ids():
        return True
    for name, text in (("setgroups", "deny"), ("gid_map", f"0 {gid} 1"), ("uid_map", f"0 {uid} 1")):
        with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123
            file.write(text)
    return True
