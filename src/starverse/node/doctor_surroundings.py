"""What of disks and networks workloads can have on this machine: probes behind ``starverse doctor``."""

from __future__ import annotations

import mmap
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from starverse.node import project_quotas
from starverse.node.disk_files import has_bytes_at_once
from starverse.node.findings import Finding, Health
from starverse.node.limits import device_of, find_cgroups
from starverse.node.network import pasta
from starverse.node.network.rates import kernel_refusal as kernel_refusal_of_rates
from starverse.node.network.reject_rules import kernel_refusal
from starverse.node.network.resolvers import find_resolvers
from starverse.node.plugs import block_disks, mount_trees
from starverse.node.sandbox import syscalls

TryInChild = Callable[[Callable[[], None]], str]
"""Does something in a child as the user that workloads get; answers the refusal."""

_SHARING = ("bfq",)
"""Schedulers of disks that share by control group; the cost model of version 2 (``io.cost``) does too."""
_WRITTEN_MAX = 64 * 1024**2


def probe_plugs(try_in_child: TryInChild) -> Finding:
    """Whether a mount can be made that is nowhere yet."""

    def make() -> None:
        syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS)
        os.close(mount_trees.clone_tree(os.open("/usr/bin", os.O_PATH), read_only=True))

    refusal = try_in_child(make)
    if refusal:
        what = f"disks cannot come into sandboxes: {refusal}"
        return Finding("hot plug", Health.MISSING, what, "Linux 5.12 or newer, and user namespaces (above)")
    return Finding("hot plug", Health.OK, "disks come into running sandboxes and go, read-only ones too")


def probe_block_disks(data: Path) -> Finding:
    refusal, how = block_disks.refusal(), "by loop devices" if os.geteuid() == 0 else "by fuse2fs"
    if refusal:
        what, _, remedy = refusal.rpartition(": ")
        return Finding("block disks", Health.WARN, f"{what or 'none'}; shared disks work", remedy)
    if not has_bytes_at_once(_existing(data)):
        what = f"{how}; the data folder's file system sets no bytes aside for them: together they may fill it"
        return Finding(
            "block disks", Health.WARN, what, "keep room for their sizes, or use NFS 4.2, ext4, xfs"
        )
    return Finding("block disks", Health.OK, f"{how}; one writer by flock, between nodes where it is shared")


def probe_shared_disks(data: Path) -> Finding:
    """Whether shared disks can be held to their sizes."""
    what, _, remedy = project_quotas.refusal(_existing(data)).partition(": ")
    if not what:
        return Finding("shared disks", Health.OK, "held to their sizes by project quotas")
    what = f"counted every ten minutes, not held to their sizes: {what}"
    return Finding("shared disks", Health.WARN, what, remedy)


def probe_internet(try_in_child: TryInChild) -> Finding:
    """Everything but pasta itself, which each start tries: the device, the rules, the names."""
    name = "internet of workloads"
    refusal = pasta.refusal(shutil.which("pasta") or "")
    if refusal:
        what, _, remedy = refusal.rpartition(": ")
        return Finding(name, Health.WARN, f"{what}; instances have none, --net internet is refused", remedy)

    def close_off() -> None:
        syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNET)
        if why := kernel_refusal():
            raise OSError(0, why)

    refusal = try_in_child(close_off)
    if refusal:
        remedy = "modprobe nf_tables nft_reject_inet"
        return Finding(name, Health.WARN, f"private addresses cannot be closed off: {refusal}", remedy)
    what = (
        "by pasta; private addresses, this host's and its neighbours' are closed off, so that instances of a"
        " team reach each other by ssh -L and -R alone; jobs on several nodes and --net host have the host's"
        " own network"
    )
    if not find_resolvers():
        remedy = "name a resolver that is not on the loopback in /etc/resolv.conf"
        return Finding(name, Health.WARN, f"{what}; names are not resolved inside", remedy)
    return Finding(name, Health.OK, what)


@dataclass(frozen=True, slots=True)
class Rates:
    """What the operator says of disk or network, bytes a second: a limit for each workload, and what a node
    has; ``None``: not said."""

    limit: int | None = None
    node: int | None = None

    def __str__(self) -> str:
        said = []
        if self.node is not None:
            said.append(f"{_in_mb(self.node)} divided by cards")
        if self.limit is not None:
            said.append(f"{_in_mb(self.limit)} for each workload at most")
        return ", ".join(said)


def probe_network_shares(rates: Rates, try_in_child: TryInChild) -> Finding:
    """Whether a neighbour that goes flat out leaves the others their share of the network."""
    name = "share of the network"

    def hold() -> None:
        syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNET)
        if why := kernel_refusal_of_rates():
            raise OSError(0, why)

    refusal = try_in_child(hold)
    if refusal:
        remedy = "modprobe -a sch_tbf sch_ingress cls_u32 act_mirred ifb"
        return Finding(name, Health.WARN, f"nobody's, a rate cannot be limited: {refusal}", remedy)
    if not str(rates):
        remedy = "set engine.network_node_bytes_per_second to what this node's network carries"
        return Finding(name, Health.WARN, "nobody's: workloads compete, no rate is set", remedy)
    return Finding(name, Health.OK, f"{rates}, each way; jobs on several nodes and --net host: no limit")


def probe_disk_shares(data: Path, rates: Rates) -> Finding:
    """Whether a neighbour that writes flat out leaves the others their share of the disk."""
    name = "share of the disk"
    data = _existing(data)
    scheduler = _scheduler_of(data)
    support = find_cgroups()
    if not support.blkio:
        return Finding(name, Health.WARN, "nobody's: no control group for disk I/O", "see limits, above")
    if str(rates):
        what = str(rates)
        if support.version == 1:
            what += "; cgroup v1 does not count what is written through the page cache"
        return Finding(name, Health.OK, what)
    if scheduler in _SHARING or _has_cost_model(support.blkio):
        how = scheduler if scheduler in _SHARING else "io.cost"
        return Finding(
            name, Health.OK, f"equal parts of what it does, for workloads that write at once ({how})"
        )
    what = f"nobody's: the disk's scheduler is {scheduler or 'unknown'}, no rate is set"
    measured = write_rate(data)
    figure = f" = {measured} (as one writer did just now)" if measured else ""
    remedy = f"engine.disk_node_bytes_per_second{figure}, or echo bfq > /sys/block/DISK/queue/scheduler"
    return Finding(name, Health.WARN, what, remedy)


def write_rate(folder: Path) -> int:
    """Bytes a second that one writer gets past the page cache just now, in two figures; 0 where that cannot
    be told. Writes 64 MiB at most, and for a quarter of a second."""
    block, written = mmap.mmap(-1, 1 << 20), 0
    try:
        handle = os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC, 0o600)
    except OSError:
        return 0
    began = time.monotonic()
    try:
        while written < _WRITTEN_MAX and time.monotonic() < began + 0.25:
            written += os.write(handle, block)
    except OSError:
        return 0
    finally:
        os.close(handle)
    return int(float(f"{written / (time.monotonic() - began):.1e}"))


def _in_mb(rate: int) -> str:
    return f"{rate / 1e6:,.0f} MB/s"


def _existing(path: Path) -> Path:
    """The folder, or its nearest parent that exists."""
    while not path.is_dir():
        path = path.parent
    return path


def _scheduler_of(data: Path) -> str:
    try:
        folder = Path("/sys/dev/block") / device_of(str(data)) / "queue/scheduler"
        text = folder.read_text()
    except OSError:
        return ""
    return text.partition("[")[2].partition("]")[0] or text.strip()


def _has_cost_model(parent: str) -> bool:
    for folder in (Path(parent), *Path(parent).parents):
        try:
            return "enable=1" in (folder / "io.cost.qos").read_text()
        except OSError:
            continue
    return False
