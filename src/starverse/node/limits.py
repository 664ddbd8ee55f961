"""Limits on memory, CPUs, processes and disk I/O: cgroups where they can be written, else the next best.

Version 1 and version 2 are looked for below the cgroup that this process is in, so a platform that is
itself limited never gives away more than it has. Without a memory controller a watcher counts resident
memory (not RLIMIT_AS: it breaks CUDA); without a process controller RLIMIT_NPROC is set inside the
sandbox's user namespace; CPUs and disk I/O then stay unlimited, and ``limits.json`` says so.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from starverse.domain.workloads.launch import Limits

CONTROLLERS = ("memory", "cpu", "pids", "blkio")


@dataclass(frozen=True, slots=True)
class CgroupSupport:
    """Parent folders by controller (``""``: not available); on version 2 all are the same folder."""

    version: int = 0
    memory: str = ""
    cpu: str = ""
    pids: str = ""
    blkio: str = ""

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(name for name in CONTROLLERS if not getattr(self, name))


class Cgroups:
    """The control groups of one allocation."""

    def __init__(self, support: CgroupSupport, name: str) -> None:
        self._support = support
        self._name = name
        self.folders: dict[str, Path] = {}
        self.refused: list[str] = []

    def create(self, limits: Limits, workspace: str) -> None:
        """Make the groups and set the limits; what the kernel refuses is listed in ``refused``."""
        for controller in CONTROLLERS:
            parent = getattr(self._support, controller)
            if not parent:
                self.refused.append(controller)
                continue
            folder = Path(parent) / self._name
            try:
                folder.mkdir(exist_ok=True)
                self._set(controller, folder, limits, workspace)
            except OSError:
                self.refused.append(controller)
            if folder.is_dir():
                self.folders[controller] = folder

    def process_files(self) -> tuple[str, ...]:
        """Where the first process is entered, before it drops its user.

        Version 1 offers ``tasks``: a thread that enters by itself (writes ``0``) does not make the kernel
        wait for everybody, which costs milliseconds.
        """
        name = "tasks" if self._support.version == 1 else "cgroup.procs"
        return tuple(sorted({str(folder / name) for folder in self.folders.values()}))

    def has_memory_limit(self) -> bool:
        return "memory" in self.folders and "memory" not in self.refused

    def has_process_limit(self) -> bool:
        return "pids" in self.folders and "pids" not in self.refused

    def was_out_of_memory(self) -> bool:
        """Whether the kernel killed a process of the group for memory."""
        folder = self.folders.get("memory")
        if folder is None:
            return False
        name = "memory.events" if self._support.version == 2 else "memory.oom_control"
        for line in _read_text(folder / name).splitlines():
            if line.startswith("oom_kill ") and int(line.split()[1]) > 0:
                return True
        return False

    def all_folders(self) -> list[str]:
        """Every folder that :meth:`create` may have made, now or in a process that died, on this host also
        for further nodes of the same allocation (``NAME-1``)."""
        parents = {Path(getattr(self._support, name)) for name in CONTROLLERS if getattr(self._support, name)}
        parts = [part for parent in parents for part in parent.glob(f"{self._name}-[0-9]*")]
        return sorted(str(folder) for folder in (*parts, *(parent / self._name for parent in parents)))

    def describe(self) -> str:
        """``limits.json``: which controllers hold, which were refused."""
        held = sorted(set(self.folders) - set(self.refused))
        return json.dumps(
            {"cgroup_version": self._support.version, "held": held, "refused": sorted(self.refused)}
        )

    def _set(self, controller: str, folder: Path, limits: Limits, workspace: str) -> None:
        if self._support.version == 2:
            _set_version_2(controller, folder, limits, workspace)
        else:
            _set_version_1(controller, folder, limits, workspace)


def _set_version_1(controller: str, folder: Path, limits: Limits, workspace: str) -> None:
    if controller == "memory":
        _write(folder / "memory.limit_in_bytes", str(limits.memory_bytes))
        if (folder / "memory.memsw.limit_in_bytes").exists():
            _write(folder / "memory.memsw.limit_in_bytes", str(limits.memory_bytes))
    elif controller == "cpu":
        _write(folder / "cpu.cfs_period_us", "100000")
        _write(folder / "cpu.cfs_quota_us", str(max(1000, int(limits.cpus * 100_000))))
    elif controller == "pids":
        _write(folder / "pids.max", str(limits.processes))
    elif limits.disk_bytes_per_second is not None:  # without a limit a group of its own has an equal share
        device = device_of(workspace)
        for direction in ("read", "write"):
            _write(
                folder / f"blkio.throttle.{direction}_bps_device", f"{device} {limits.disk_bytes_per_second}"
            )


def _set_version_2(controller: str, folder: Path, limits: Limits, workspace: str) -> None:
    if controller == "memory":
        _write(folder / "memory.max", str(limits.memory_bytes))
        with contextlib.suppress(OSError):  # no swap accounting: nothing to switch off
            _write(folder / "memory.swap.max", "0")
            _write(folder / "memory.oom.group", "1")
    elif controller == "cpu":
        _write(folder / "cpu.max", f"{max(1000, int(limits.cpus * 100_000))} 100000")
    elif controller == "pids":
        _write(folder / "pids.max", str(limits.processes))
    elif limits.disk_bytes_per_second is not None:
        speed = limits.disk_bytes_per_second
        _write(folder / "io.max", f"{device_of(workspace)} rbps={speed} wbps={speed}")


def remove_cgroups(folders: list[str], patience_seconds: float = 5.0) -> list[str]:
    """Kill what is inside, then remove the groups; answers those that would not go."""
    left = [Path(folder) for folder in folders if Path(folder).is_dir()]
    give_up = time.monotonic() + patience_seconds
    while True:
        for folder in left:
            for word in _read_text(folder / "cgroup.procs").split():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(int(word), 9)
            with contextlib.suppress(OSError):
                folder.rmdir()
        left = [folder for folder in left if folder.is_dir()]
        if not left or time.monotonic() > give_up:
            return [str(folder) for folder in left]
        time.sleep(0.01)


def find_cgroups() -> CgroupSupport:
    """Which controllers this process may use for its children, tried by making a group."""
    own = _own_paths()
    version_1 = {}
    for mount_point, kind, options in _cgroup_mounts():
        if kind != "cgroup":
            continue
        for controller in CONTROLLERS:
            if controller in options and controller in own:
                parent = Path(mount_point) / own[controller].lstrip("/")
                if not parent.is_dir():  # the mount shows a part of the tree only
                    parent = Path(mount_point)
                if _can_make(parent):
                    version_1[controller] = str(parent)
    if version_1:
        return CgroupSupport(1, **version_1)
    for mount_point, kind, _ in _cgroup_mounts():
        if kind == "cgroup2":
            return _find_version_2(Path(mount_point), Path(mount_point) / own.get("", "/").lstrip("/"))
    return CgroupSupport()


def _find_version_2(root: Path, own: Path) -> CgroupSupport:
    """The own group where it may hand controllers on, else the nearest one above that may."""
    for parent in (own, *own.parents):
        if not parent.is_relative_to(root) or not parent.is_dir():
            break
        names = {"memory": "memory", "cpu": "cpu", "pids": "pids", "blkio": "io"}
        available = set(_read_text(parent / "cgroup.controllers").split())
        for name in names.values():
            if name in available:
                with contextlib.suppress(OSError):
                    _write(parent / "cgroup.subtree_control", f"+{name}")
        enabled = set(_read_text(parent / "cgroup.subtree_control").split())
        found = {key: str(parent) for key, name in names.items() if name in enabled}
        if found and _can_make(parent):
            return CgroupSupport(2, **found)
    return CgroupSupport()


def _can_make(parent: Path) -> bool:
    probe = parent / f"starverse-probe-{os.getpid()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError:
        return False
    return True


def _own_paths() -> dict[str, str]:
    """Own group by controller of version 1; under ``""`` that of version 2."""
    paths = {}
    for line in _read_text(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def _cgroup_mounts() -> list[tuple[str, str, set[str]]]:
    found = []
    for line in _read_text(Path("/proc/self/mountinfo")).splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            found.append((left.split()[4], kind, set(options.split(","))))
    return found


def device_of(path: str) -> str:
    """The whole disk below the file system of ``path`` as ``major:minor`` (no partition can be throttled)."""
    device = Path(path).stat().st_dev
    name = f"{os.major(device)}:{os.minor(device)}"
    node = Path("/sys/dev/block") / name
    if (node / "partition").exists():
        return _read_text(node.resolve().parent / "dev").strip() or name
    return name


def _write(path: Path, text: str) -> None:
    with path.open("w") as file:
        file.write(text)


def _read_text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
