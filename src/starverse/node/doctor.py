"""What this machine offers to workloads, each answer with a remedy: the probes behind ``starverse doctor``.

Nothing here guesses: each probe does the thing once and reports what happened.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from starverse.node import fabric_tools
from starverse.node.cards.nvml import NoDriver, open_nvml
from starverse.node.doctor_surroundings import (
    Rates,
    probe_block_disks,
    probe_disk_shares,
    probe_internet,
    probe_network_shares,
    probe_plugs,
    probe_shared_disks,
)
from starverse.node.findings import Finding, Health
from starverse.node.host_setup import find_python_folders
from starverse.node.images.probes import what_builds
from starverse.node.instance_agent import SSHD
from starverse.node.interactive import sshd_config
from starverse.node.limits import find_cgroups
from starverse.node.log_cap import cap_log, first_byte
from starverse.node.rclone.copier import RcloneCopier
from starverse.node.sandbox import syscalls
from starverse.node.sandbox.staging import drop_to

PROBE_UID = 65_534
"""The user that a root platform tries sandboxes with."""

FREE_DISK_BYTES_WANTED = 10 * 1024**3


def examine(data: Path, disk: Rates, network: Rates) -> tuple[Finding, ...]:
    """All probes, in the order in which a newcomer should mend things. ``data`` is the data folder, ``disk``
    and ``network`` are what the operator says of them."""
    probes: tuple[Callable[[], Finding], ...] = (
        probe_bubblewrap,
        probe_user_namespaces,
        probe_sandbox,
        probe_python,
        probe_cgroups,
        lambda: probe_plugs(_try_in_child),
        lambda: probe_shared_disks(data),
        lambda: probe_block_disks(data),
        lambda: probe_internet(_try_in_child),
        lambda: probe_disk_shares(data, disk),
        lambda: probe_network_shares(network, _try_in_child),
        probe_cards,
        probe_ssh,
        probe_syncs,
        probe_images,
        probe_measures,
        lambda: probe_holes(data),
        lambda: probe_locks(data),
        lambda: probe_disk(data),
    )
    return tuple(probe() for probe in probes)


def probe_bubblewrap() -> Finding:
    path = shutil.which("bwrap")
    if path is None:
        return Finding("bubblewrap", Health.MISSING, "not installed", "apt-get install bubblewrap")
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    help_text = subprocess.run([path, "--help"], capture_output=True, text=True, check=False).stdout
    if "--disable-userns" not in help_text:
        what = f"{version} at {path}, which cannot forbid further user namespaces inside"
        return Finding("bubblewrap", Health.WARN, what, "install bubblewrap 0.8 or newer")
    return Finding("bubblewrap", Health.OK, f"{version} at {path}")


def probe_user_namespaces() -> Finding:
    """As the user that workloads get: never as root."""
    refusal = _try_in_child(lambda: syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS))
    who = "an ordinary user" if os.geteuid() == 0 else "this user"
    if not refusal:
        return Finding("user namespaces", Health.OK, f"{who} may make them")
    return Finding("user namespaces", Health.MISSING, f"{who} may not: {refusal}", _userns_remedy())


def probe_sandbox() -> Finding:
    """Start the real thing, as the user that workloads get."""
    path = shutil.which("bwrap")
    if path is None:
        return Finding("sandbox", Health.MISSING, "needs bubblewrap", "apt-get install bubblewrap")
    command = [path, "--unshare-user", "--unshare-pid", "--unshare-net", "--cap-drop", "ALL"]
    command += ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--", "true"]
    answer = subprocess.run(
        command, capture_output=True, text=True, check=False, preexec_fn=_drop if os.geteuid() == 0 else None
    )
    if answer.returncode == 0:
        return Finding("sandbox", Health.OK, "bubblewrap starts with namespaces of its own")
    what = answer.stderr.strip().splitlines()[-1:] or [f"exit {answer.returncode}"]
    return Finding("sandbox", Health.MISSING, what[0], _userns_remedy())


def probe_python() -> Finding:
    """The platform's Python is shown to workloads by path."""
    folders = find_python_folders()
    missing = [folder for folder in folders if not os.access(folder, os.R_OK | os.X_OK)]
    if missing:
        return Finding(
            "python", Health.MISSING, f"{missing[0]} cannot be read", "make the folder readable for this user"
        )
    return Finding("python", Health.OK, f"{sys.executable}, shown from {', '.join(folders) or '/usr'}")


def probe_cgroups() -> Finding:
    support = find_cgroups()
    held = [name for name in ("memory", "cpu", "pids", "blkio") if name not in support.missing]
    if not support.missing:
        return Finding(
            "limits", Health.OK, f"cgroup v{support.version} limits memory, CPUs, processes, disk I/O"
        )
    instead = {
        "memory": "memory by a watcher of resident memory",
        "pids": "processes by RLIMIT_NPROC",
        "cpu": "CPUs not at all",
        "blkio": "disk I/O not at all",
    }
    rest = ", ".join(instead[name] for name in support.missing)
    what = f"cgroup v{support.version} limits {', '.join(held)}; " if held else "no cgroup can be written; "
    remedy = "run as root, or let systemd delegate: Delegate=yes in the service"
    return Finding("limits", Health.WARN, what + rest, remedy)


def probe_cards() -> Finding:
    found = open_nvml()
    if isinstance(found, NoDriver):
        return Finding("cards", Health.WARN, found.what, found.remedy)
    (node,) = found.probe()
    models: dict[str, int] = {}
    for card in node.cards:
        models[card.model] = models.get(card.model, 0) + 1
    sick = [f"card {card.index}: {card.message}" for card in node.cards if not card.healthy]
    what = ", ".join(f"{count} x {model}" for model, count in sorted(models.items()))
    if sick or not node.up:
        return Finding(
            "cards", Health.WARN, "; ".join([what, node.message, *sick]).strip("; "), "see nvidia-smi -q"
        )
    return Finding("cards", Health.OK, f"{what}, {len(node.links)} links")


def probe_ssh() -> Finding:
    """Have the real sshd judge a configuration like that of instances, as the user that workloads get."""
    remedy = "apt-get install openssh-server"
    if not os.access(SSHD, os.X_OK) or shutil.which("ssh-keygen") is None:
        return Finding("ssh", Health.WARN, "no OpenSSH server: instances cannot start", remedy)
    with tempfile.TemporaryDirectory() as folder:
        if os.geteuid() == 0:
            os.chown(folder, PROBE_UID, PROBE_UID)
        key, config = f"{folder}/key", Path(folder, "config")
        lines = sshd_config({"PATH": "/usr/bin:/bin"}).splitlines()
        kept = [line for line in lines if not line.startswith("HostKey ")]
        config.write_text("\n".join([f"HostKey {key}", *kept]) + "\n")
        config.chmod(0o644)
        for command in (
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key],
            [SSHD, "-t", "-f", str(config)],
        ):
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                check=False,
                preexec_fn=_drop if os.geteuid() == 0 else None,
            )
            if done.returncode != 0:
                said = done.stderr.strip().splitlines()[-1:] or [f"exit {done.returncode}"]
                return Finding("ssh", Health.WARN, f"{command[0]}: {said[0]}", "install OpenSSH 8.0 or newer")
    return Finding("ssh", Health.OK, f"instances are reached by {SSHD}")


def probe_syncs() -> Finding:
    """By whether rclone runs, and in a network of its own."""
    missing = RcloneCopier().missing()
    if missing:
        what, _, remedy = missing.partition(": ")
        return Finding("syncs", Health.WARN, f"disks are not copied to and from remotes: {what}", remedy)
    done = subprocess.run(["rclone", "version"], capture_output=True, text=True, check=False)
    version = done.stdout.partition("\n")[0] or "rclone"
    return Finding("syncs", Health.OK, f"disks are copied to and from remotes by {version}")


def probe_images() -> Finding:
    """By what images can be built here."""
    found, missing = what_builds()
    what = f"built by {', '.join(found)}" if found else "nothing can be built"
    if not missing:
        return Finding("images", Health.OK, what)
    lacks = ", ".join(name for name, _ in missing)
    return Finding("images", Health.WARN, f"{what}; not here: {lacks}", "; ".join(fix for _, fix in missing))


def probe_measures() -> Finding:
    """By what the network to other nodes can be measured from here (``starverse admin fabric check``)."""
    found = ["round trips and bandwidth by TCP"]
    missing = []
    if importlib.util.find_spec("torch") is not None:
        found.append("all-reduce by PyTorch")
    else:
        missing.append(f"PyTorch for {sys.executable}")
    tools = fabric_tools.present()
    found += tools
    missing += [name for name in fabric_tools.KNOWN if name not in tools]
    what = f"{', '.join(found)}; not here: {', '.join(missing)}" if missing else ", ".join(found)
    return Finding("network measures", Health.OK, what)


def probe_holes(data: Path) -> Finding:
    """Whether logs can be capped without moving offsets."""
    try:
        with tempfile.TemporaryFile(dir=_existing(data)) as file:
            file.write(b"x" * 65536)
            file.flush()
            cap_log(file.fileno(), 8192, 0)
            punched = first_byte(file.fileno()) > 0
    except OSError as error:
        punched, reason = False, str(error)
    else:
        reason = "the file kept its blocks"
    if punched:
        return Finding("log cap", Health.OK, "old parts of logs can be given back (PUNCH_HOLE)")
    remedy = "keep the data folder on ext4, xfs, btrfs or tmpfs"
    return Finding("log cap", Health.WARN, f"logs cannot be capped here: {reason}", remedy)


def probe_locks(data: Path) -> Finding:
    """Whether flock tells two openers apart: claims and the lock of the data folder stand on it."""
    try:
        holds = _lock_holds(_existing(data))
    except OSError as error:
        what = f"{_existing(data)} cannot be written: {error.strerror}"
        return Finding("locks", Health.MISSING, what, "choose another folder with --data")
    if holds:
        return Finding("locks", Health.OK, "flock holds in the data folder")
    remedy = "keep it on a local file system"
    return Finding("locks", Health.MISSING, "flock does not hold in the data folder", remedy)


def _lock_holds(folder: Path) -> bool:
    with tempfile.NamedTemporaryFile(dir=folder) as first, Path(first.name).open("rb") as second:
        fcntl.flock(first, fcntl.LOCK_EX)
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def probe_disk(data: Path) -> Finding:
    free = shutil.disk_usage(_existing(data)).free
    what = f"{free / 1024**3:.1f} GiB free at {_existing(data)}"
    if free < FREE_DISK_BYTES_WANTED:
        return Finding("disk", Health.WARN, what, "free some space, or choose another folder with --data")
    return Finding("disk", Health.OK, what)


def _existing(path: Path) -> Path:
    """The folder, or its nearest parent that exists."""
    while not path.is_dir():
        path = path.parent
    return path


def _drop() -> None:
    drop_to(PROBE_UID)


def _try_in_child(act: Callable[[], None]) -> str:
    """Do it in a forked child as the user that workloads get; answers the refusal, ``""`` for none."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        text = b""
        try:
            if os.geteuid() == 0:
                drop_to(PROBE_UID)
            act()
        except OSError as error:
            text = str(error.strerror).encode()
        finally:
            os.write(tell, text)
            os._exit(0)
    os.close(tell)
    with os.fdopen(told, "rb") as file:
        answer = file.read().decode()
    os.waitpid(child, 0)
    return answer


def _userns_remedy() -> str:
    """By what the kernel says of itself: three switches forbid user namespaces."""
    switches = {
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": (
            "1",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu 24.04), or an AppArmor profile",
        ),
        "/proc/sys/kernel/unprivileged_userns_clone": ("0", "sysctl -w kernel.unprivileged_userns_clone=1"),
        "/proc/sys/user/max_user_namespaces": ("0", "sysctl -w user.max_user_namespaces=15000"),
    }
    for path, (bad, remedy) in switches.items():
        try:
            if Path(path).read_text().strip() == bad:
                return remedy
        except OSError:
            continue
    return "in a container: start it with --security-opt seccomp=unconfined, or use --driver process by name"
