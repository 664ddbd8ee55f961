"""A plain process: for hosts without user namespaces, and by name only."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from starverse.domain.workloads.launch import LaunchSpec
from starverse.node.folder import AllocationFolder
from starverse.node.host_setup import HostSetup
from starverse.node.processes import close_all_but
from starverse.node.sandbox import inside, syscalls
from starverse.node.sandbox.driver import (
    Places,
    Start,
    StartRefused,
    check_user,
    enter_own_cgroups,
    working_folder,
)
from starverse.node.sandbox.staging import enter_in_place, first_impassable


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
        return Places(*(os.path.realpath(path) for path, _ in _sources(spec, folder)))

    def check(self, spec: LaunchSpec, host: HostSetup) -> None:
        del host
        check_user(spec, os.geteuid())
        if spec.interactive:
            raise StartRefused("driver process cannot keep an instance; use driver bwrap")
        if spec.secrets:
            raise StartRefused("driver process cannot keep secrets off the disk; use driver bwrap")
        if spec.mounts:
            raise StartRefused(f"driver process cannot show {spec.mounts[0].target}; use driver bwrap")
        if spec.plugs:
            raise StartRefused(f"driver process cannot show {spec.plugs[0].target}; use driver bwrap")

    def start(self, start: Start) -> int:
        if start.host.shims:  # nothing can be laid over it here as in a sandbox
            shutil.copytree(start.host.shims, start.folder.run / "bin", dirs_exist_ok=True)
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
        close_all_but((0, 1, 2, start.start_errors, *start.pipes))
        places = self.places(start.spec, start.folder)
        uid = start.spec.unix_uid
        enter_in_place([*_sources(start.spec, start.folder), *_python(start.host, uid)], uid)
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
        os.setpgid(0, 0)
        os.umask(0o022)
        script = f"{places.run}/script"
        os.write(start.pipes[0], b"entered \n")
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


def _python(host: HostSetup, uid: int | None) -> list[tuple[str, bool]]:
    """The platform's Python, for the shims and for ``STARVERSE_PYTHON``, where the user cannot reach it."""
    if not uid:
        return []
    return [(path, True) for path in host.python_folders if first_impassable(os.path.realpath(path), uid)]
