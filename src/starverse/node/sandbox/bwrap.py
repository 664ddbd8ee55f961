"""bubblewrap: what the sandbox shows, and how its first process gets there.

A root platform stages every folder in a private mount namespace (so that folders below 0700 parents
work, and so that read-only holds by a lock the workload cannot lift), drops to the team's user, and from
there does what an ordinary user does: an own user and mount namespace, then bubblewrap with a second
user namespace. bubblewrap is never started with host root's capabilities: it would keep them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

from starverse.domain.workloads.launch import LaunchSpec
from starverse.node import instance_agent, secrets_folder
from starverse.node.folder import AllocationFolder
from starverse.node.host_setup import INSIDE_UID, INTERNET_RESOLVER, HostSetup
from starverse.node.network.pasta import refusal as network_refusal
from starverse.node.plugs.places import ROOT as PLUGS
from starverse.node.sandbox import inside, oci_inside, oci_root
from starverse.node.sandbox.driver import (
    IMAGE,
    Places,
    Start,
    StartRefused,
    check_user,
    enter_own_cgroups,
    working_folder,
)
from starverse.node.sandbox.staging import enter_with_plugs

PLACES = Places(
    home="/root",
    temporary="/tmp",
    workspace="/workspace",
    checkpoint="/checkpoint",
    run="/run/starverse",
)


@dataclass(frozen=True, slots=True)
class Bind:
    """A host path shown inside. ``kind``: ``ro``, ``rw``, ``dev`` or ``plugs``."""

    source: str
    target: str
    kind: str = "ro"


class BwrapDriver:
    """The sandbox of every workload that does not ask for another by name."""

    name = "bwrap"
    cannot = (
        "with --net host and on several nodes: the host's network and its abstract sockets are reachable",
    )

    def places(self, spec: LaunchSpec, folder: AllocationFolder) -> Places:
        del spec, folder
        return PLACES

    def check(self, spec: LaunchSpec, host: HostSetup) -> None:
        check_user(spec, os.geteuid())
        if not host.bwrap:
            raise StartRefused("bubblewrap is not installed: apt-get install bubblewrap")
        secrets_folder.check_names(spec.secrets)
        if spec.network not in ("none", "internet", "host"):
            raise StartRefused(f"network {spec.network!r}: expected none, internet or host")
        if spec.network == "internet" and (why := network_refusal(host.pasta)):
            raise StartRefused(f"network internet cannot be had: {why}")

    def start(self, start: Start) -> int:
        if oci_root.is_root_image(start.spec.image):
            owner = start.spec.unix_uid if os.geteuid() == 0 else None
            oci_root.make_layer(start.spec, start.folder, start.host, owner)
        launcher = os.getpid()
        entered, may_go = os.pipe()
        child = os.fork()
        if child:
            os.close(entered)
            _enter_cgroups(start, child, may_go)
            return child
        try:
            os.close(may_go)
            _become(start, launcher, entered)
        except BaseException as error:
            os.write(start.start_errors, f"{type(error).__name__}: {error}\n".encode())
        os._exit(125)


def _enter_cgroups(start: Start, child: int, may_go: int) -> None:
    """What the parent does while the child stages: on version 2 it takes some milliseconds."""
    try:
        for path in start.cgroup_files:
            if not path.endswith("/tasks"):
                Path(path).write_text(str(child))
        os.write(may_go, b"1")
    finally:
        os.close(may_go)


def _become(start: Start, launcher: int, entered: int) -> None:
    """In the forked child: from the launcher's user and namespaces to bubblewrap."""
    enter_own_cgroups(start.cgroup_files)
    root = oci_root.look(start.spec, start.folder, start.host)
    binds = list_binds(start.spec, start.folder, start.host, root)
    sources, plugs = enter_with_plugs(
        [(bind.source, bind.kind == "ro") for bind in binds],
        start.spec.unix_uid,
        launcher,
        str(start.folder / "plugs"),
        own_network=start.spec.network == "internet",
        root=None if root is None else root.layers,
    )
    staged = [replace(bind, source=source) for bind, source in zip(binds, sources, strict=True)]
    if plugs:
        staged.insert(0, Bind(plugs, PLUGS, "plugs"))
    if root is not None:
        staged.insert(0, Bind(root.layers.mount(), "/", "rw"))
    os.dup2(start.start_errors, 2)
    os.dup2(start.start_errors, 1)
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    for handle in start.pipes:
        os.set_inheritable(handle, True)
    os.umask(0o022)
    if os.read(entered, 1) != b"1":
        raise OSError("the control groups could not be entered")
    os.write(start.pipes[0], f"entered {plugs}\n".encode())
    os.execve(start.host.bwrap, build_arguments(start, staged, root), tag_environment(start.spec))


def tag_environment(spec: LaunchSpec) -> dict[str, str]:
    """All that bubblewrap and the supervisor get: what tells whose they are, nothing of the job's."""
    return {"STARVERSE_ALLOCATION_ID": spec.allocation_id}


def list_binds(
    spec: LaunchSpec, folder: AllocationFolder, host: HostSetup, root: oci_root.RootImage | None = None
) -> list[Bind]:
    """Every host path that the workload sees, in the order in which they are laid over each other; what is
    below ``/`` of a container image is not among them."""
    if root is not None:
        return [
            *(Bind(source, target) for source, target in oci_root.shown(host, root, folder.run)),
            *(bind for bind in _own_binds(spec, folder, host) if bind.target != PLACES.home),
        ]
    binds = [Bind("/usr", "/usr")]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_dir() and not path.is_symlink():
            binds.append(Bind(str(path), str(path)))
    binds.append(Bind(host.etc, "/etc"))
    binds += _own_binds(spec, folder, host)
    binds += [Bind(path, path) for path in host.python_folders]  # after /root, below which one may lie
    if spec.image:
        binds.append(Bind(spec.image, IMAGE))
    return binds


def _own_binds(spec: LaunchSpec, folder: AllocationFolder, host: HostSetup) -> list[Bind]:
    """What is the workload's own, whatever it runs on."""
    binds = []
    if spec.network == "internet":
        binds.append(Bind(f"{host.etc}/{INTERNET_RESOLVER}", "/etc/resolv.conf"))
    if (folder / "hosts").exists():  # of several nodes
        binds.append(Bind(str(folder / "hosts"), "/etc/hosts"))
    binds += [
        Bind(spec.home or str(folder / "home"), PLACES.home, "rw"),
        Bind(str(folder / "tmp"), PLACES.temporary, "rw"),
        Bind(spec.workspace, PLACES.workspace, "rw"),
        Bind(spec.checkpoints, PLACES.checkpoint, "rw"),
        Bind(str(folder.run), PLACES.run),
    ]
    if host.shims:
        binds.append(Bind(host.shims, f"{PLACES.run}/bin"))
    binds += [Bind(mount.source, mount.target, "ro" if mount.read_only else "rw") for mount in spec.mounts]
    binds += [Bind(path, path, "dev") for path in list_devices(spec)]
    return binds


def list_devices(spec: LaunchSpec) -> list[str]:
    """Device files of the granted cards only: a script that asks for another card finds none.

    The minor number is looked up by UUID in ``/proc/driver/nvidia``; a card not found there is refused.
    """
    wanted = {card.uuid for card in spec.cards if not card.declared}
    if not wanted:
        return []
    minors = {}
    for file in Path("/proc/driver/nvidia/gpus").glob("*/information"):
        facts = dict(line.split(":", 1) for line in file.read_text().splitlines() if ":" in line)
        minors[facts.get("GPU UUID", "").strip()] = facts.get("Device Minor", "").strip()
    missing = sorted(wanted - minors.keys())
    if missing:
        raise StartRefused(f"granted card {missing[0]} is not known to the driver of this node")
    shared = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
    names = [f"nvidia{minors[uuid]}" for uuid in sorted(wanted)]
    return [f"/dev/{name}" for name in (*names, *shared) if Path("/dev", name).exists()]


def build_arguments(start: Start, binds: list[Bind], root: oci_root.RootImage | None = None) -> list[str]:
    """The whole bubblewrap command line; ``binds`` carry the paths as they are where bubblewrap starts."""
    spec = start.spec
    command = [start.host.bwrap, "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    if root is None or not root.is_root_inside:  # else the supervisor enters one, see oci_inside.py
        command += ["--unshare-user", "--uid", str(INSIDE_UID), "--gid", str(INSIDE_UID)]
        command += ["--disable-userns"] if start.host.bwrap_can_disable_userns else []
    command += ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    if spec.network == "none":
        command.append("--unshare-net")
    option = {"ro": "--ro-bind", "rw": "--bind", "dev": "--dev-bind", "plugs": "--bind"}
    shown = [[option[bind.kind], bind.source, bind.target] for bind in binds]
    if root is not None:
        command += shown.pop(0)
        command += oci_root.folder_arguments(PLACES.home, [bind.target for bind in binds])
    command += ["--hostname", spec.node, "--proc", "/proc", "--dev", "/dev"]
    command += ["--size", str(spec.limits.memory_bytes), "--tmpfs", "/dev/shm"]
    command += _host_links() if root is None else []
    command += [word for words in shown for word in words]
    command += secrets_folder.bwrap_arguments(spec.secrets, PLACES.run)
    if any(bind.kind == "plugs" for bind in binds):  # the folder alone: what is mounted in it is as it says
        command += ["--remount-ro", PLUGS]
    command += [] if root is not None else ["--remount-ro", "/"]
    command += ["--chdir", "/", "--"]
    return command + supervisor_command(start, root)


def _host_links() -> list[str]:
    """Links at the host's top, such as ``/bin``."""
    command = []
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            command += ["--symlink", str(path.readlink()), str(path)]
    return [*command, "--dir", "/var", "--symlink", "/tmp", "/var/tmp"]


def supervisor_command(start: Start, root: oci_root.RootImage | None = None) -> list[str]:
    numbers = [str(number) for number in (*start.pipes, start.processes)]
    folder, beside = working_folder(start.spec, PLACES), "" if root is None else oci_root.BESIDE
    packages = f"{beside}{Path(instance_agent.__file__).parents[2]}"
    script = [f"{PLACES.run}/script", *start.spec.arguments]
    if start.spec.interactive:
        script = [inside.AGENT, f"{beside}{compiled_file(instance_agent)}", PLACES.run, packages]
        script += [start.spec.network, str(start.host.look_seconds)]
        script += [] if root is None else [*root.starter, f"{beside}{instance_agent.SSHD}"]
    if root is None:
        supervisor = [start.host.python, "-I", "-S", compiled_file(inside)]
    else:
        supervisor = [*root.python, "-I", "-S", f"{beside}{compiled_file(oci_inside)}"]
        supervisor += [packages, str(root.layers.inner_namespace() if root.is_root_inside else -1)]
    return [*supervisor, *numbers, folder, *script]


def compiled_file(module: ModuleType) -> str:
    """A module as compiled when this process imported it, where that was kept; else its source.

    Python compiles a script named by its source again at each start.
    """
    compiled: str = getattr(module, "__cached__", None) or ""
    return compiled if compiled and Path(compiled).exists() else str(module.__file__)
