"""What every sandbox driver offers, and the folders a workload sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from starverse.domain.workloads.launch import LaunchSpec
from starverse.node.folder import AllocationFolder
from starverse.node.host_setup import HostSetup

IMAGE = "/opt/image"
"""Where the image is found inside; its ``bin`` comes first on the path."""


class StartRefused(Exception):
    """The workload cannot be started as asked; the text says why and becomes the report's ``failure``."""


@dataclass(frozen=True, slots=True)
class Places:
    """Paths as the workload sees them."""

    home: str
    temporary: str
    workspace: str
    checkpoint: str
    run: str


@dataclass(frozen=True, slots=True)
class Start:
    """All that a driver needs. ``pipes``: status (write), control (read), log of stdout and of stderr,
    environment (read).

    ``cgroup_files``: where the first process is entered. ``processes`` 0: limited elsewhere.
        ``start_errors`` is an open file for what goes wrong before the script's first exec.
    """

    spec: LaunchSpec
    folder: AllocationFolder
    host: HostSetup
    pipes: tuple[int, int, int, int, int]
    cgroup_files: tuple[str, ...]
    processes: int
    start_errors: int


class SandboxDriver(Protocol):
    """Starts a workload. ``cannot`` names what the driver does not isolate."""

    @property
    def name(self) -> str: ...

    @property
    def cannot(self) -> tuple[str, ...]: ...

    def places(self, spec: LaunchSpec, folder: AllocationFolder) -> Places:
        """Where the workload finds its folders."""
        ...

    def check(self, spec: LaunchSpec, host: HostSetup) -> None:
        """Raises :class:`StartRefused` for what this driver or host cannot do."""
        ...

    def start(self, start: Start) -> int:
        """Fork the first process, which dies with the launcher; answers its process id.

        Called from the launcher's main thread, before it has any other.
        """
        ...


def working_folder(spec: LaunchSpec, places: Places) -> str:
    """``--chdir`` as the workload sees it: relative to the workspace, or absolute inside the sandbox."""
    if spec.chdir.startswith("/"):
        return spec.chdir
    return f"{places.workspace}/{spec.chdir}".rstrip("/").removesuffix("/.")


def enter_own_cgroups(files: tuple[str, ...]) -> None:
    """Enter the groups of version 1, by the process itself."""
    for path in files:
        if path.endswith("/tasks"):
            with open(path, "w") as file:  # noqa: PTH123  (this process has just been forked)
                file.write("0")


def check_user(spec: LaunchSpec, own_uid: int) -> None:
    """A workload never runs as host uid 0; raises :class:`StartRefused`."""
    if own_uid == 0 and not spec.unix_uid:
        raise StartRefused("the platform runs as root and no unix user was given for the team")
    if own_uid != 0 and spec.unix_uid not in (None, own_uid):
        raise StartRefused(f"cannot become unix user {spec.unix_uid}: the platform does not run as root")
