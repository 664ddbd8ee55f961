"""What of disks and networks workloads can have on this machine: probes behind ``starverse doctor``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from starverse.node.findings import Finding, Health
from starverse.node.limits import device_of, find_cgroups
from starverse.node.network import pasta
from starverse.node.network.reject_rules import kernel_refusal
from starverse.node.network.resolvers import find_resolvers
from starverse.node.plugs import block_disks, fuse_disks, mount_trees
from starverse.node.sandbox import syscalls

TryInChild = Callable[[Callable[[], None]], str]
"""Does something in a child as the user that workloads get; answers the refusal."""

_SHARING = ("bfq",)
"""Schedulers of disks that share by control group; the cost model of version 2 (``io.cost``) does too."""


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


def probe_block_disks() -> Finding:
    if os.geteuid() == 0:
        refusal, how = block_disks.loop_refusal(), "by loop devices"
    else:
        refusal, how = fuse_disks.refusal(), "by fuse2fs"
    if not refusal and shutil.which("e2fsck", path="/usr/sbin:/sbin:/usr/bin:/bin") is None:
        refusal = "e2fsck is not installed: apt-get install e2fsprogs"
    if refusal:
        what, _, remedy = refusal.rpartition(": ")
        return Finding("block disks", Health.WARN, f"{what or 'none'}; shared disks work", remedy)
    return Finding("block disks", Health.OK, f"{how}; one writer by flock, between nodes where it is shared")


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
        "by pasta; private addresses, this host's and its neighbours' are closed off; jobs on several nodes"
        " and --net host have the host's own network"
    )
    if not find_resolvers():
        remedy = "name a resolver that is not on the loopback in /etc/resolv.conf"
        return Finding(name, Health.WARN, f"{what}; names are not resolved inside", remedy)
    return Finding(name, Health.OK, what)


def probe_shares(data: Path) -> Finding:
    """Whether a neighbour that writes flat out leaves the others their share of the disk."""
    name = "share of the disk"
    scheduler = _scheduler_of(data)
    support = find_cgroups()
    if support.blkio and (scheduler in _SHARING or _has_cost_model(support.blkio)):
        return Finding(name, Health.OK, f"equal for workloads that write at once ({scheduler})")
    what = f"nobody's: the disk's scheduler is {scheduler or 'unknown'}"
    if not support.blkio:
        return Finding(name, Health.WARN, "nobody's: no control group for disk I/O", "see limits, above")
    remedy = "echo bfq > /sys/block/DISK/queue/scheduler, or engine.disk_bytes_per_second"
    return Finding(name, Health.WARN, what, remedy)


def _scheduler_of(data: Path) -> str:
    while not data.is_dir():
        data = data.parent
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
