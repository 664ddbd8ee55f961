"""pasta (Debian: passt): carries what a network namespace sends, as a process of the workload's own user.

It lives as long as the link ``netns`` is in the allocation's folder ``network``: it watches it, and so it
goes too where a killed launcher could not end it and the folder is removed. Of what it would offer (ports
of the host, the host's loopback) nothing is asked for.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
from dataclasses import dataclass
from pathlib import Path

from starverse.node.sandbox import syscalls
from starverse.node.sandbox.staging import drop_to, enter_private_mounts, mount_stage

_FOLDER, _LINK = "network", "netns"
_TUN, _TUN_NUMBER = "/dev/net/tun", os.makedev(10, 200)
_OPTIONS = (
    "--config-net",
    "--quiet",
    "--no-map-gw",
    *["-t", "none", "-u", "none", "-T", "none", "-U", "none"],
)

UNSENT_BYTES_MAX = 512 * 1024
"""2 GB/s between namespaces, 10 MB/s a connection to a peer 50 ms away: the larger, the more it stalls."""

UNSENT_BYTES_MAX_LIMITED = 4 * 1024**2
"""Where its rate is limited: what waits for the rate counts too, and pasta's socket is never full."""


class NetworkRefused(Exception):
    """A network of its own cannot be had; the text says why and what helps."""


@dataclass(frozen=True, slots=True)
class Pasta:
    """How it is started for one workload. ``child`` is the process in whose namespaces the sandbox is made,
    ``uid`` (``None``: the own one) its user."""

    program: str
    folder: Path
    child: int
    uid: int | None
    allocation_id: str

    def link(self) -> None:
        """Make what it will watch."""
        watched = self.folder / _FOLDER
        watched.mkdir(exist_ok=True)
        watched.chmod(0o755)
        with contextlib.suppress(FileNotFoundError):
            (watched / _LINK).unlink()
        (watched / _LINK).symlink_to(f"/proc/{self.child}/ns/net")

    def connect(self) -> None:
        """Give the namespace its network, which is there afterwards; raises :class:`NetworkRefused`.

        Called in a process that is single-threaded and may wait.
        """
        errors = os.memfd_create("pasta")
        starter = os.fork()
        if starter == 0:
            self._become(errors)
        _, status = os.waitpid(starter, 0)
        if status:
            os.lseek(errors, 0, os.SEEK_SET)
            lines = os.read(errors, 1 << 16).decode(errors="replace").splitlines()
            said = [line for line in lines if "syslog" not in line and line.strip()]
            raise NetworkRefused(f"pasta: {'; '.join(said[-2:]) or f'exit status {status}'}")

    def _become(self, errors: int) -> None:
        """In the forked child: pasta, which goes on in the background when the network is there."""
        try:
            for number in (1, 2):
                os.dup2(errors, number)
            watched = str(self.folder / _FOLDER)
            if os.geteuid() == 0 and self.uid:
                watched = _prepare_as_root(watched)
                drop_to(self.uid)
            arguments = [self.program, *_OPTIONS]
            arguments += ["--netns", f"{watched}/{_LINK}", "--userns", f"/proc/{self.child}/ns/user"]
            environment = {"STARVERSE_ALLOCATION_ID": self.allocation_id, "PATH": "/usr/sbin:/usr/bin"}
            os.chdir("/")
            for number in (
                signal.SIGPIPE,
                signal.SIGXFSZ,
            ):  # Python ignores them; pasta takes that for an error
                signal.signal(number, signal.SIG_DFL)
            os.execve(self.program, arguments, environment)
        except BaseException as error:
            os.write(2, f"{error}\n".encode())
        finally:
            os._exit(125)


def bound_unsent(most: int) -> None:
    """Let a connection of this process's network namespace have ``most`` bytes on their way to pasta.

    pasta hands it on to a socket of the host and drops what that does not take at once; with the kernel's own
    4 MiB a fast upload comes to a stop there again and again, and is reset in the end (passt 2023-03-09).
    """
    Path("/proc/sys/net/ipv4/tcp_wmem").write_text(f"4096 16384 {most}")


def unlink(folder: Path) -> None:
    """Let the pasta of this allocation's folder go."""
    with contextlib.suppress(OSError):
        (folder / _FOLDER / _LINK).unlink()


def refusal(program: str) -> str:
    """Why no workload can have a network of its own here, and what helps; ``""``: it can. ``program`` is the
    path of pasta, ``""``: not there."""
    if not program:
        return "pasta is not installed: apt-get install passt"
    try:
        facts = Path(_TUN).stat()
    except OSError:
        return f"{_TUN} is not there: modprobe tun"
    if os.geteuid() != 0 and not os.access(_TUN, os.R_OK | os.W_OK):
        return f"{_TUN} is for others only: chmod 666 {_TUN} (as udev sets it)"
    return "" if stat.S_ISCHR(facts.st_mode) else f"{_TUN} is no device"


def _prepare_as_root(watched: str) -> str:
    """In a mount namespace of this process: the folder and a tap device where the workload's user reaches
    them. Answers the folder's path."""
    enter_private_mounts()
    handle = os.open(watched, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    stage = mount_stage(devices=True)
    place = f"{stage}/{_FOLDER}"
    Path(place).mkdir(mode=0o755)
    syscalls.mount(f"/proc/self/fd/{handle}", place, None, syscalls.MS_BIND)
    device = f"{stage}/tun"
    os.mknod(device, 0o666 | stat.S_IFCHR, _TUN_NUMBER)
    Path(device).chmod(0o666)
    syscalls.mount(device, _TUN, None, syscalls.MS_BIND)
    return place
