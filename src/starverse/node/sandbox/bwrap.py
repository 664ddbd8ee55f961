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

from starverse.domain.workloads.launch import LaunchSpec
from starverse.node.folder import AllocationFolder
from starverse.node.host_setup import HostSetup
from starverse.node.sandbox import inside
from starverse.node.sandbox.driver import Places, Start, StartRefused, check_user, working_folder
from starverse.node.sandbox.staging import enter

INSIDE_UID = 1000
HOST_ETC = (
    "alternatives",
    "ca-certificates",
    "ca-certificates.conf",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "pki",
    "services",
    "protocols",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
)
"""What of the host's ``/etc`` is shown (read-only): how programs find libraries, time and certificates."""

PLACES = Places(
    home="/root",
    temporary="/tmp",  # noqa: S108  (inside the sandbox)
    workspace="/workspace",
    checkpoint="/checkpoint",
    run="/run/starverse",
)


@dataclass(frozen=True, slots=True)
class Bind:
    """A host path shown inside. ``kind``: ``ro``, ``rw`` or ``dev``."""

    source: str
    target: str
    kind: str = "ro"


class BwrapDriver:
    """The sandbox of every workload that does not ask for another by name."""

    name = "bwrap"
    cannot = ("with --net host: the host's network and its abstract sockets are reachable",)

    def places(self, spec: LaunchSpec, folder: AllocationFolder) -> Places:
        del spec, folder
        return PLACES

    def check(self, spec: LaunchSpec, host: HostSetup) -> None:
        check_user(spec, os.geteuid())
        if not host.bwrap:
            raise StartRefused("bubblewrap is not installed: apt-get install bubblewrap")
        if spec.network not in ("none", "host"):
            raise StartRefused(f"network {spec.network!r}: expected none or host")

    def start(self, start: Start) -> int:
        write_etc(start.folder / "etc", start.spec.node)
        launcher = os.getpid()
        child = os.fork()
        if child:
            return child
        try:
            _become(start, launcher)
        except BaseException as error:  # noqa: BLE001  (the only way to tell is the exit)
            os.write(start.start_errors, f"{type(error).__name__}: {error}\n".encode())
        os._exit(125)


def _become(start: Start, launcher: int) -> None:
    """In the forked child: from the launcher's user and namespaces to bubblewrap."""
    for path in start.cgroup_files:
        with open(path, "w") as file:  # noqa: PTH123
            file.write(str(os.getpid()))
    binds = list_binds(start.spec, start.folder, start.host)
    sources = enter([(bind.source, bind.kind == "ro") for bind in binds], start.spec.unix_uid, launcher)
    staged = [replace(bind, source=source) for bind, source in zip(binds, sources, strict=True)]
    os.dup2(start.start_errors, 2)
    os.dup2(start.start_errors, 1)
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    for handle in start.pipes:
        os.set_inheritable(handle, True)
    os.umask(0o022)
    os.execve(start.host.bwrap, build_arguments(start, staged), tag_environment(start.spec))


def tag_environment(spec: LaunchSpec) -> dict[str, str]:
    """All that bubblewrap and the supervisor get: what tells whose they are, nothing of the job's."""
    return {"STARVERSE_ALLOCATION_ID": spec.allocation_id}


def list_binds(spec: LaunchSpec, folder: AllocationFolder, host: HostSetup) -> list[Bind]:
    """Every host path that the workload sees, in the order in which they are laid over each other."""
    binds = [Bind("/usr", "/usr")]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_dir() and not path.is_symlink():
            binds.append(Bind(str(path), str(path)))
    binds += [
        Bind(str(Path("/etc", name)), f"/etc/{name}") for name in HOST_ETC if Path("/etc", name).exists()
    ]
    binds += [Bind(str(path), f"/etc/{path.name}") for path in sorted((folder / "etc").iterdir())]
    binds += [
        Bind(str(folder / "home"), PLACES.home, "rw"),
        Bind(str(folder / "tmp"), PLACES.temporary, "rw"),
        Bind(spec.workspace, PLACES.workspace, "rw"),
        Bind(spec.checkpoints, PLACES.checkpoint, "rw"),
        Bind(str(folder.run), PLACES.run),
    ]
    if host.shims:
        binds.append(Bind(host.shims, f"{PLACES.run}/bin"))
    binds += [Bind(path, path) for path in host.python_folders]
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


def build_arguments(start: Start, binds: list[Bind]) -> list[str]:
    """The whole bubblewrap command line; ``binds`` carry the paths as they are where bubblewrap starts."""
    spec = start.spec
    command = [start.host.bwrap, "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    command += ["--unshare-user", "--uid", str(INSIDE_UID), "--gid", str(INSIDE_UID)]
    command += ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    if start.host.bwrap_can_disable_userns:
        command.append("--disable-userns")
    if spec.network == "none":
        command.append("--unshare-net")
    command += ["--hostname", spec.node, "--proc", "/proc", "--dev", "/dev"]
    command += ["--size", str(spec.limits.memory_bytes), "--tmpfs", "/dev/shm"]  # noqa: S108
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            command += ["--symlink", str(path.readlink()), str(path)]
    command += ["--dir", "/var", "--symlink", "/tmp", "/var/tmp"]  # noqa: S108
    option = {"ro": "--ro-bind", "rw": "--bind", "dev": "--dev-bind"}
    for bind in binds:
        command += [option[bind.kind], bind.source, bind.target]
    command += ["--remount-ro", "/", "--chdir", "/", "--"]
    return command + supervisor_command(start)


def supervisor_command(start: Start) -> list[str]:
    numbers = [str(number) for number in (*start.pipes, start.processes)]
    folder = working_folder(start.spec, PLACES)
    script = f"{PLACES.run}/script"
    text = Path(inside.__file__).read_text()
    return [
        *(start.host.python, "-I", "-S", "-c", text),
        *numbers,
        folder,
        script,
        *start.spec.arguments,
    ]


def write_etc(folder: Path, node: str) -> None:
    """The sandbox's own passwd, group, hosts and resolver files."""
    folder.mkdir(exist_ok=True)
    resolver = Path("/etc/resolv.conf")
    files = {
        "passwd": f"user:x:{INSIDE_UID}:{INSIDE_UID}:user:/root:/bin/bash\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        "group": f"user:x:{INSIDE_UID}:\nnogroup:x:65534:\n",
        "hosts": f"127.0.0.1 localhost {node}\n::1 localhost ip6-localhost\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
        "resolv.conf": resolver.read_text() if resolver.exists() else "",
        "hostname": f"{node}\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
