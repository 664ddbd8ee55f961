"""A plain process: for hosts without user namespaces, and by name only."""

from __future__ import annotations

import os
from pathlib import Path

from starverse.domain.workloads.launch import LaunchSpec
from starverse.node.folder import AllocationFolder
from starverse.node.host_setup import HostSetup
from starverse.node.sandbox import inside, syscalls
from starverse.node.sandbox.driver import (
    Places,
    Start,
    StartRefused,
    check_user,
    enter_own_cgroups,
    working_folder,
)
from starverse.node.sandbox.staging import enter_as_user, staged_paths


class ProcessDriver:
    """Starts the script as the team's user and isolates nothing else."""

    name = "process"
    cannot = (
        "files: the workload reads what its unix user may read",
        "network: always the host's",
        "processes: those of the same unix user can be seen and signalled",
        "mounts: datasets, models and disks cannot be shown",
        "cards: device files of other cards can be opened",
    )

    def places(self, spec: LaunchSpec, folder: AllocationFolder) -> Places:
        return Places(*_places(spec, folder))

    def check(self, spec: LaunchSpec, host: HostSetup) -> None:
        del host
        check_user(spec, os.geteuid())
        if spec.mounts:
            raise StartRefused(f"driver process cannot show {spec.mounts[0].target}; use driver bwrap")

    def start(self, start: Start) -> int:
        child = os.fork()
        if child:
            return child
        try:
            self._supervise(start)
        except BaseException as error:
            os.write(start.start_errors, f"{type(error).__name__}: {error}\n".encode())
        finally:
            inside.kill_below(os.getpid())
            os._exit(125)

    def _supervise(self, start: Start) -> None:
        enter_own_cgroups(start.cgroup_files)
        for path in start.cgroup_files:
            if not path.endswith("/tasks"):
                Path(path).write_text(str(os.getpid()))
        _close_all_but((0, 1, 2, start.start_errors, *start.pipes))
        places = self.places(start.spec, start.folder)
        enter_as_user(_sources(start.spec, start.folder), start.spec.unix_uid)
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
        os.setpgid(0, 0)
        os.umask(0o022)
        script = f"{places.run}/script"
        # RLIMIT_NPROC would count every process of the unix user, so it is not set here.
        command = [script, *start.spec.arguments]
        inside.supervise(start.pipes, working_folder(start.spec, places), 0, command)


def _sources(spec: LaunchSpec, folder: AllocationFolder) -> list[tuple[str, bool]]:
    """The workload's folders on the host (path, read-only), in the order of :class:`Places`."""
    return [
        (str(folder / "home"), False),
        (str(folder / "tmp"), False),
        (spec.workspace, False),
        (spec.checkpoints, False),
        (str(folder.run), True),
    ]


def _places(spec: LaunchSpec, folder: AllocationFolder) -> list[str]:
    """The same paths as on the host; under a root platform where they are staged, since the platform's
    own folders cannot be passed by the team's user.
    """
    sources = _sources(spec, folder)
    if os.geteuid() == 0 and spec.unix_uid:
        return staged_paths(len(sources))
    return [path for path, _ in sources]


def _close_all_but(kept: tuple[int, ...]) -> None:
    """Nothing of the launcher stays open here: above all not its claim, which must end with it."""
    low = 0
    for handle in sorted(set(kept)):
        if low < handle:  # an empty range would close everything
            os.closerange(low, handle)
        low = handle + 1
    os.closerange(low, 65536)
