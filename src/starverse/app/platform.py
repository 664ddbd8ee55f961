"""The platform's shared parts, made once in ``main.py`` and passed to every use case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from starverse.app.passwords import Passwords
from starverse.app.ports import Clock, Copier, Ids, ImageStore, NoCopier, NoImages, Wakeups
from starverse.app.run_history import RunHistory
from starverse.db.node_memory import NodeMemory
from starverse.db.servers import Server
from starverse.db.session import Database
from starverse.domain.disk_kind import DiskKind
from starverse.domain.errors import Unavailable
from starverse.engines.base import Engine


@dataclass(frozen=True, slots=True)
class Settings:
    """Operator's choices that the use cases read (``config.py`` reads them from file, environment, flags).

    ``ssh_host`` and ``ssh_port`` are where people reach the SSH gateway; 0: there is none.
    """

    data: Path
    grace_seconds: int = 120
    kill_after_seconds: int = 10
    driver: str = "bwrap"
    host_network_allowed: bool = True
    disk_reserve_bytes: int = 1 * 1024**3
    folder_bytes_max: int = 100 * 1024**2
    log_cap_bytes: int = 1 * 1024**3
    queued_jobs_max: int = 20_000
    workspace_keep_days: int = 14
    checkpoint_interval_seconds: int = 1800
    checkpoints_kept: int = 3
    lease_seconds: int = 30
    start_timeout_seconds: int = 120
    disk_bytes_per_second: int | None = None
    disk_node_bytes_per_second: int | None = None
    network_bytes_per_second: int | None = None
    network_node_bytes_per_second: int | None = None
    network_reachable: tuple[str, ...] = ()
    unix_uid_first: int = 200_000
    drops_to_team_uid: bool = False
    registration_open: bool = True
    mock_gateway: bool = True
    instance_keep_days: int = 15
    instance_idle_seconds: int = 3600
    no_gpu_cpus: float = 0.5
    no_gpu_memory_bytes: int = 2 * 1024**3
    timezone: str = "Asia/Shanghai"
    image_installer: str = "auto"
    image_build_seconds_max: int = 3600
    image_bytes_max: int = 60 * 1024**3
    conda_base: str = ""
    ssh_host: str = "127.0.0.1"
    ssh_port: int = 2222


@dataclass(frozen=True, slots=True)
class Paths:
    """Where things lie in the data folder; every name is made from ids, never from what people typed."""

    data: Path

    @property
    def folders(self) -> Path:
        """Packed submit folders by content: ``<team>/<sha256>.tar.gz``."""
        return self.data / "folders"

    def workspace(self, workspace_id: str) -> Path:
        return self.data / "workspaces" / workspace_id

    def checkpoints(self, job_id: str) -> Path:
        return self.data / "checkpoints" / job_id

    def logs(self, job_id: str) -> Path:
        """``<attempt>.out`` and, where the streams are apart, ``<attempt>.err``."""
        return self.data / "logs" / job_id

    def allocation(self, allocation_id: str) -> Path:
        return self.data / "allocations" / allocation_id

    def disk(self, disk_id: str, kind: DiskKind) -> Path:
        """A shared disk's folder, a block disk's file."""
        return self.data / "disks" / disk_id / ("block.img" if kind is DiskKind.BLOCK else "data")

    @property
    def images(self) -> Path:
        return self.data / "images"

    def instance_home(self, instance_id: str) -> Path:
        """What an instance has as ``/root`` at each start."""
        return self.data / "instances" / instance_id / "home"

    def dataset(self, dataset_id: str) -> Path:
        return self.data / "datasets" / dataset_id

    @property
    def gateway(self) -> Path:
        """The keys of the SSH gateway."""
        return self.data / "gateway"

    @property
    def channel_socket(self) -> Path:
        return self.data / "channel.sock"

    @property
    def api_socket(self) -> Path:
        """The API on a Unix socket, for the shims inside sandboxes."""
        return self.data / "api.sock"


def no_copy(source: Path, target: Path) -> int:
    """For a platform that copies no trees."""
    raise Unavailable(f"This platform copies no folders, {source.name} to {target.name} neither.")


@dataclass(frozen=True, slots=True)
class Platform:
    """Database, engine, clock, ids, wake-ups and settings.

    ``servers`` gives those of its database that live, ``channels`` the ``HOST:PORT`` at which launchers on
    other machines reach them, ``channel_ca`` the authority (PEM) that signed what they show there. ``images``
    builds and keeps images, ``copier`` copies between disks and remotes.
    """

    database: Database
    engine: Engine
    clock: Clock
    ids: Ids
    wakeups: Wakeups
    settings: Settings
    servers: Callable[[], tuple[Server, ...]] = tuple
    channels: Callable[[], tuple[str, ...]] = tuple
    channel_ca: str = ""
    nodes: NodeMemory = field(default_factory=NodeMemory)
    images: ImageStore = field(default_factory=NoImages)
    copier: Copier = field(default_factory=NoCopier)
    passwords: Passwords = field(default_factory=Passwords)
    copy_tree: Callable[[Path, Path], int] = no_copy
    runs: RunHistory = field(default_factory=RunHistory)

    def channel_addresses(self) -> str:
        """Where launchers dial, tried in turn: this machine's socket, then the channels of all servers."""
        return ",".join((str(self.paths.channel_socket), *self.channels()))

    def api_addresses(self) -> str:
        """Where launchers reach the API for the shims inside, in the same way."""
        return ",".join((str(self.paths.api_socket), *self.channels()))

    @property
    def paths(self) -> Paths:
        return Paths(self.settings.data)
