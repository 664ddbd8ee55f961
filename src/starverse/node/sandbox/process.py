"""A plain process: for hosts without user namespaces, and by name only."""

from __future__ import annotations

import os

from starverse.domain.workloads.launch import LaunchSpec
from starverse.node.folder import AllocationFolder
from starverse.node.host_setup import HostSetup
from starverse.node.sandbox import inside, syscalls
from starverse.node.sandbox.driver import Places, Start, StartRefused, check_user, working_folder
from starverse.node.sandbox.staging import drop_to


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
        return Places(
            home=str(folder / "home"),
            temporary=str(folder / "tmp"),
            workspace=spec.workspace,
            checkpoint=spec.checkpoints,
            run=str(folder.run),
        )

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
        except BaseException as error:  # noqa: BLE001  (the only way to tell is the exit)
            os.write(start.start_errors, f"{type(error).__name__}: {error}\n".encode())
        finally:
            inside.kill_below(os.getpid())
            os._exit(125)

    def _supervise(self, start: Start) -> None:
        for path in start.cgroup_files:
            with open(path, "w") as file:  # noqa: PTH123
                file.write(str(os.getpid()))
        _close_all_but((0, 1, 2, start.start_errors, *start.pipes))
        if os.geteuid() == 0 and start.spec.unix_uid:
            drop_to(start.spec.unix_uid)
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
        os.setpgid(0, 0)
        places = self.places(start.spec, start.folder)
        script = f"{places.run}/script"
        # RLIMIT_NPROC would count every process of the unix user, so it is not set here.
        command = [script, *start.spec.arguments]
        inside.supervise(start.pipes, working_folder(start.spec, places), 0, command)


def _close_all_but(kept: tuple[int, ...]) -> None:
    """Nothing of the launcher stays open here: above all not its claim, which must end with it."""
    low = 0
    for handle in sorted(set(kept)):
        os.closerange(low, handle)
        low = handle + 1
    os.closerange(low, 65536)
