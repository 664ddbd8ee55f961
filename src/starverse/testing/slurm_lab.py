"""A real Slurm of many nodes on this machine, in a folder and on ports of its own, for tests and the demo.

::

    with SlurmLab(nodes=4) as lab:
        lab.command("sinfo", "-N")        # its commands, with its SLURM_CONF
        lab.conf, lab.jwt_key, lab.rest_url

munge, slurmctld, one slurmd for each node and slurmrestd with JWT. Cards are character devices that lead
nowhere. An ordinary user's lab has no authentication: never use one where others could reach it. Everything
is started and ended by process id; :meth:`SlurmLab.sweep` ends what a killed owner left.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

from starverse.testing import lab_folders
from starverse.testing.slurm_lab_files import CARDS_PER_NODE, LabPlan, gres_conf, slurm_conf, topology_conf

PREFIX = "starverse-lab-"
PORTS = (17_000, 31_000)
"""Below the ports that connections get by themselves."""
NOBODY = "65534"
PROGRAMS = ("slurmctld", "slurmd", "slurmrestd", "sinfo", "squeue", "sbatch", "scancel", "scontrol", "srun")
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"


class LabBroken(RuntimeError):
    """The lab did not come up or did not go away."""


class SlurmLab:
    """``folder`` ``None``: a new one below the temporary folder, removed at the end.

    ``port`` ``None``: a free block. ``names`` of the nodes, if not gpu001 and so on. ``extra`` lines end up
    in slurm.conf. A folder has to be short (socket paths) and open to other users where root starts a lab
    (munge and slurmrestd run as users of their own).
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        nodes: int = 8,
        port: int | None = None,
        card_type: str = "rtx4090",
        extra: str = "",
        names: tuple[str, ...] = (),
    ) -> None:
        self._own_folder = folder is None
        self._wanted = (folder, len(names) or nodes, port, card_type, extra, names)
        self._rest: subprocess.Popen[bytes] | None = None
        self._reserved: list[socket.socket] = []
        self._owner: int | None = None
        self.plan: LabPlan | None = None

    @staticmethod
    def missing() -> str:
        """Why there can be no lab on this machine; ``""`` where there can."""
        absent = [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]
        if absent:
            return f"Slurm is not installed ({', '.join(absent)}): apt-get install slurm-wlm slurmrestd"
        if os.geteuid() == 0 and shutil.which("munged", path=_PATH) is None:
            return "munge is not installed: apt-get install munge"
        return ""

    @property
    def folder(self) -> Path:
        return self._plan().folder

    @property
    def conf(self) -> Path:
        return self.folder / "etc" / "slurm.conf"

    @property
    def jwt_key(self) -> Path:
        return self.folder / "etc" / "jwt.key"

    @property
    def rest_url(self) -> str:
        return f"http://127.0.0.1:{self._plan().rest_port}"

    @property
    def node_names(self) -> tuple[str, ...]:
        plan = self._plan()
        return tuple(plan.name(number) for number in range(1, plan.nodes + 1))

    def __enter__(self) -> SlurmLab:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Bring everything up; returns when every node is idle and steps really run. Seconds."""
        if why := self.missing():
            raise LabBroken(why)
        self.plan = self._make_plan()
        self._write_files()
        if self.plan.munge:
            self._start_munge()
        self.start_controller()
        for name in self.node_names:
            self.start_node(name)
        self._await_nodes()
        self.start_rest()

    def is_as_new(self, patience_seconds: float = 6) -> bool:
        """Whether, once what ends has ended, no job is queued, all nodes are idle and slurmrestd answers."""
        wanted = {f"{name} idle" for name in self.node_names}

        def quiet() -> bool:
            queue = self.command("squeue", "-h", "-o", "%j", check=False)
            return not queue.strip() and wanted <= set(self._states()) and _answers(self._plan().rest_port)

        return _wait(quiet, patience_seconds)

    def stop(self) -> None:
        """End all of it; a folder of its own goes too."""
        if self.plan is not None:
            self.stop_rest()
            _end_lab(self.folder)
            if self._own_folder:
                shutil.rmtree(self.folder, ignore_errors=True)
            self.plan = None
        for reserved in self._reserved:
            reserved.close()
        self._reserved = []
        if self._owner is not None:
            os.close(self._owner)
            self._owner = None

    @staticmethod
    def sweep(folder: Path) -> None:
        """End whatever a lab in this folder left running, also after ``kill -9`` of its owner."""
        _end_lab(folder)

    @staticmethod
    def sweep_abandoned() -> list[Path]:
        """End and remove the labs of this user below the temporary folder whose owners are dead."""
        found = []
        for folder in lab_folders.abandoned(PREFIX):
            _end_lab(folder)
            shutil.rmtree(folder, ignore_errors=True)
            found.append(folder)
        return found

    def command(self, *words: str, timeout_seconds: float = 30, check: bool = True) -> str:
        """Run a Slurm command on this lab; what it prints. Raises ``LabBroken`` where it fails."""
        program = shutil.which(words[0], path=_PATH)
        assert program is not None
        done = subprocess.run(
            [program, *words[1:]],
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
        )
        if check and done.returncode != 0:
            raise LabBroken(f"{' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def environment(self) -> dict[str, str]:
        """For processes that are to speak with this lab."""
        kept = {name: os.environ[name] for name in ("LANG", "HOME", "TMPDIR") if name in os.environ}
        return {**kept, "PATH": _PATH, "SLURM_CONF": str(self.conf)}

    # -- parts, for tests that break things

    def start_controller(self) -> None:
        self._daemon("slurmctld", "-f", str(self.conf))

    def kill_controller(self) -> None:
        """``kill -9``."""
        self._kill(self.folder / "run" / "slurmctld.pid")

    def start_node(self, name: str) -> None:
        (self.folder / "spool" / name).mkdir(parents=True, exist_ok=True)
        self._daemon("slurmd", "-f", str(self.conf), "-N", name)

    def kill_node(self, name: str) -> None:
        """The death of a node: its slurmd, and all that runs for jobs on it, with ``kill -9``."""
        self._kill(self.folder / "run" / f"slurmd.{name}.pid")
        _kill_all(lambda: _job_processes(self.folder, name))

    def set_node(self, name: str, state: str, reason: str = "test") -> None:
        """``scontrol update``: down, drain, resume."""
        why = [] if state == "resume" else [f"reason={reason}"]
        self.command("scontrol", "update", f"nodename={name}", f"state={state}", *why)

    def start_rest(self) -> None:
        """slurmrestd refuses to be root, so that nobody runs it there."""
        plan = self._plan()
        words = ["slurmrestd", "-f", str(self.conf), "-a", "rest_auth/jwt", "-s", "openapi/v0.0.38"]
        drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        with (plan.folder / "log" / "slurmrestd.log").open("ab") as log:
            self._rest = subprocess.Popen(
                [*(drop if os.geteuid() == 0 else []), *words, f"127.0.0.1:{plan.rest_port}"],
                env={**self.environment(), "SLURM_JWT": "daemon"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )
        (plan.folder / "run" / "slurmrestd.pid").write_text(f"{self._rest.pid}\n")
        if not _wait(lambda: _answers(plan.rest_port), 10):
            raise LabBroken(f"slurmrestd does not answer; see {plan.folder}/log/slurmrestd.log")

    def stop_rest(self) -> None:
        if self._rest is not None:
            self._rest.kill()
            self._rest.wait()
            self._rest = None

    # -- how

    def _plan(self) -> LabPlan:
        if self.plan is None:
            raise LabBroken("the lab is not started")
        return self.plan

    def _make_plan(self) -> LabPlan:
        folder, nodes, port, card_type, extra, names = self._wanted
        if folder is None:
            self.sweep_abandoned()
            folder = self._own_new_folder()
        else:
            folder.mkdir(parents=True, exist_ok=True)
            self._own(folder)
        root = os.geteuid() == 0
        return LabPlan(
            folder=folder.resolve(),
            nodes=nodes,
            port=self._reserve(port, nodes + 2),
            host=socket.gethostname().partition(".")[0],
            user=getpass.getuser() if not root else "root",
            munge=root,
            card_type=card_type,
            devices=_make_devices(folder),
            extra=extra,
            names=names,
        )

    def _own_new_folder(self) -> Path:
        """It gets its name when it has its owner: a sweep of another lab sees no folder without one."""
        made = Path(tempfile.mkdtemp(prefix=f".{PREFIX}"))
        self._own(made)
        return made.rename(made.with_name(made.name.removeprefix(".")))

    def _own(self, folder: Path) -> None:
        folder.chmod(0o755)
        self._owner = lab_folders.own(folder)

    def _reserve(self, port: int | None, count: int) -> int:
        """A block of free ports, kept from other labs by a name in the kernel until this one stops."""
        first = range(PORTS[0], PORTS[1] - count, 10) if port is None else (port,)
        for base in first:
            taken: list[socket.socket] = []
            if _take_names(base, count, taken) and all(map(_is_free, range(base, base + count))):
                self._reserved = taken
                return base
            for name in taken:
                name.close()
        raise LabBroken(f"no {count} free ports")

    def _write_files(self) -> None:
        plan = self._plan()
        for name in ("etc", "state", "log", "run", "spool", "munge", "sock"):
            (plan.folder / name).mkdir(exist_ok=True, mode=0o755)
        self.jwt_key.write_bytes(secrets.token_bytes(32))
        self.jwt_key.chmod(0o600)
        self.conf.write_text(slurm_conf(plan))
        (plan.folder / "etc" / "gres.conf").write_text(gres_conf(plan))
        (plan.folder / "etc" / "topology.conf").write_text(topology_conf(plan))

    def _start_munge(self) -> None:
        folder = self.folder / "munge"
        (folder / "munge.key").write_bytes(secrets.token_bytes(1024))
        (folder / "munge.key").chmod(0o600)
        for path in (folder, folder / "munge.key", self.folder / "sock"):
            shutil.chown(path, "munge", "munge")
        folder.chmod(0o700)
        names = ("pid-file=munged.pid", "log-file=munged.log", "seed-file=munged.seed", "key-file=munge.key")
        self._daemon(
            *("setpriv", "--reuid=munge", "--regid=munge", "--clear-groups", "munged", "--num-threads=2"),
            *(f"--{name.partition('=')[0]}={folder / name.partition('=')[2]}" for name in names),
            f"--socket={self.folder}/sock/munge.socket",
        )

    def _daemon(self, *words: str) -> None:
        """A program that goes to the background by itself."""
        log = self.folder / "log" / "starts.log"
        with log.open("ab") as out:
            done = subprocess.run(
                words,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd="/",
                timeout=60,
                check=False,
            )
        if done.returncode != 0:
            raise LabBroken(f"{words[0]} does not start:\n{log.read_text()[-2000:]}")

    def _await_nodes(self) -> None:
        """An idle node may still refuse a step: one has to run on each half."""
        plan = self._plan()
        wanted = {f"{name} idle" for name in self.node_names}
        if not _wait(lambda: wanted <= set(self._states()), 30 + plan.nodes / 5):
            raise LabBroken(f"nodes do not come up: {self._states()}")
        for part in ("ib", "eth")[: min(2, plan.nodes)]:
            if not _wait(lambda part=part: self._runs(part), 20):  # type: ignore[misc]
                raise LabBroken(f"no step runs in partition {part}")

    def _states(self) -> list[str]:
        return self.command("sinfo", "-h", "-N", "-o", "%N %T", check=False).splitlines()

    def _runs(self, partition: str) -> bool:
        with contextlib.suppress(LabBroken, subprocess.TimeoutExpired):
            self.command("srun", "-Q", "-p", partition, "-N1", "true", timeout_seconds=10)
            return True
        return False

    def _kill(self, pid_file: Path) -> None:
        pid = _read_pid(pid_file)
        if pid is not None and _names_folder(pid, self.folder):
            _kill_all(lambda: [pid] if _names_folder(pid, self.folder) else [])


def _make_devices(folder: Path) -> str:
    """Cards need character devices: new ones that lead nowhere, or, without root, terminals nobody opens."""
    if os.geteuid() != 0:
        return f"/dev/tty[0-{CARDS_PER_NODE - 1}]"
    for index in range(CARDS_PER_NODE):
        path = folder.resolve() / f"fakegpu{index}"
        if not path.exists():
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(240, index))
    return f"{folder.resolve()}/fakegpu[0-{CARDS_PER_NODE - 1}]"


def _take_names(base: int, count: int, taken: list[socket.socket]) -> bool:
    for port in range(base, base + count):
        name = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        taken.append(name)
        try:
            name.bind(f"\0{PREFIX}{port}")
        except OSError:
            return False
    return True


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _end_lab(folder: Path) -> None:
    """Jobs first: their scripts outlive the daemons. Then the daemons, then what is still there."""
    folder = folder.resolve()
    _kill_all(lambda: _job_processes(folder))
    daemons = [pid for pid in _daemons(folder) if _names_folder(pid, folder)]
    for pid in daemons:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    _wait(lambda: not any(_names_folder(pid, folder) for pid in daemons), 2)
    _kill_all(lambda: [pid for pid in daemons if _names_folder(pid, folder)])
    _kill_all(lambda: _job_processes(folder))


def _daemons(folder: Path) -> Iterator[int]:
    for file in [*(folder / "run").glob("*.pid"), folder / "munge" / "munged.pid"]:
        pid = _read_pid(file)
        if pid is not None:
            yield pid


def _read_pid(file: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(file.read_text())
    return None


def _names_folder(pid: int, folder: Path) -> bool:
    """Whether this process is one of the lab's: its command line names the folder, and it lives."""
    with contextlib.suppress(OSError):
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return False
        return f"{folder}/".encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _job_processes(folder: Path, node: str = "") -> list[int]:
    """What runs for the lab's jobs, by the environment that Slurm gave it, and the slurmstepd above it.

    (A slurmstepd itself writes its title over its environment.)
    """
    wanted = f"SLURM_CONF={folder}/etc/slurm.conf".encode()
    on_node = f"SLURMD_NODENAME={node}".encode()
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError, IndexError):
            names = (entry / "environ").read_bytes().split(b"\0")
            if wanted not in names or not any(name.startswith(b"SLURMD_NODENAME=") for name in names):
                continue
            if node and on_node not in names:
                continue
            found.add(int(entry.name))
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if Path(f"/proc/{parent}/comm").read_text().startswith("slurmstepd"):
                found.add(parent)
    return sorted(found)


def _kill_all(find: Callable[[], list[int]]) -> None:
    def none_left() -> bool:
        left = find()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left

    if not _wait(none_left, 10):
        raise LabBroken(f"processes do not end: {find()}")


def _wait(condition: Callable[[], bool], patience_seconds: float) -> bool:
    give_up = time.monotonic() + patience_seconds
    while not condition():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.05)
    return True
