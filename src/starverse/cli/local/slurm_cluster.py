"""Asking a live Slurm cluster: its settings through ``scontrol``, its nodes through one short job each.

Nothing is changed, and what was submitted is cancelled when its time is over. Slurm's commands are found by
absolute path, since ours have the same names; each call has a time limit.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starverse import __version__
from starverse.cli.local.slurm_rest import ask_rest
from starverse.config import Config
from starverse.domain.errors import Unavailable
from starverse.domain.pricing.price_book_yaml import load_price_book, shipped_price_book_text
from starverse.domain.slurm_cluster.facts import ClusterFacts, Finding, NodeFacts, Wanted
from starverse.domain.slurm_cluster.reading import read_cluster
from starverse.domain.slurm_cluster.samples import Expected, Sample, read_sample
from starverse.domain.workloads.specs import TIME_LIMIT_SECONDS_DEFAULT
from starverse.node.cluster_sample import NONCE_FILE, sample_script

CALL_SECONDS = 20.0
POLL_SECONDS = 0.25
JOB_NAME = "starverse-check"
COMMAND_PATH = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin:/opt/slurm/bin"
SAMPLE_BYTES_MAX = 10_000


class SlurmSilent(Unavailable):
    """Slurm does not answer."""


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach the cluster. ``conf`` ``""``: where Slurm looks by itself; ``user`` ``""``: as we are."""

    conf: str = ""
    user: str = ""
    python: str = "/usr/bin/python3"
    data: Path = Path()
    channel: str = ""
    path: str = COMMAND_PATH
    clock: Callable[[], float] = field(default=time.time, repr=False)
    pause: Callable[[float], None] = field(default=time.sleep, repr=False)

    def call(self, *words: str, standard_input: str | None = None) -> str:
        """What a command of Slurm prints; raises ``SlurmSilent`` where it is missing, fails or hangs."""
        program = shutil.which(words[0], path=self.path)
        if program is None:
            raise SlurmSilent(f"{words[0]} is not in {self.path}", hint="apt-get install slurm-client")
        environment = {"PATH": self.path, "LANG": "C.UTF-8"}
        conf = self.conf or os.environ.get("SLURM_CONF", "")
        if conf:
            environment["SLURM_CONF"] = conf
        try:
            done: subprocess.CompletedProcess[str] = subprocess.run(
                [program, *words[1:]],
                env=environment,
                input=standard_input,
                stdin=subprocess.DEVNULL if standard_input is None else None,
                capture_output=True,
                text=True,
                timeout=CALL_SECONDS,
                check=False,
                **self._identity(),
            )
        except subprocess.TimeoutExpired as error:
            raise SlurmSilent(f"{words[0]} did not answer within {CALL_SECONDS:g} s") from error
        except OSError as error:
            raise SlurmSilent(f"{words[0]} as {self.user or 'this user'}: {error}") from error
        if done.returncode != 0:
            told = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise SlurmSilent(f"{words[0]}: {told[0] if told else f'exit {done.returncode}'}")
        return done.stdout

    def _identity(self) -> dict[str, Any]:
        """The service user with its groups, where root may become it."""
        if not self.user or os.geteuid() != 0:
            return {}
        try:
            entry = pwd.getpwnam(self.user)
        except KeyError as error:
            raise SlurmSilent(f"there is no Unix user {self.user!r}", hint="see slurm.user") from error
        groups = os.getgrouplist(self.user, entry.pw_gid)
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": groups}


def read_facts(access: Access) -> ClusterFacts:
    """Settings, partitions and nodes as slurmctld has them now."""
    return read_cluster(
        access.call("scontrol", "show", "config"),
        access.call("scontrol", "-o", "show", "partitions"),
        access.call("scontrol", "-o", "show", "nodes"),
    )


@dataclass(slots=True)
class _Asked:
    """A job on its way."""

    node: str
    job_id: str
    asked_at: float


def sample_nodes(
    access: Access, nodes: Iterable[NodeFacts], partitions: frozenset[str], wait_seconds: float
) -> tuple[tuple[Sample, ...], Expected]:
    """Run a short job with one card on each of these nodes and read what it wrote; bounded by the wait.

    Raises ``SlurmSilent`` where no job can be submitted at all.
    """
    nonce = secrets.token_hex(16)
    with _shared_folder(access.data, nonce) as folder:
        expected = Expected(nonce, __version__, str(access.data), access.channel)
        script = sample_script(str(folder), access.python, access.channel)
        asked, refused = _submit_all(access, nodes, partitions, script)
        try:
            answers = _collect(access, folder, asked, wait_seconds)
        finally:
            _cancel(access, asked)
    return (*refused, *answers), expected


@contextlib.contextmanager
def _shared_folder(data: Path, nonce: str) -> Iterator[Path]:
    """A folder in the data folder that a job of any Unix user can write into, for the time of the check."""
    folder = data.absolute() / f"slurm-check-{secrets.token_hex(8)}"
    folder.mkdir(parents=True)
    try:
        folder.chmod(0o1777)
        (folder / NONCE_FILE).write_text(nonce + "\n")
        (folder / NONCE_FILE).chmod(0o644)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _submit_all(
    access: Access, nodes: Iterable[NodeFacts], partitions: frozenset[str], script: str
) -> tuple[list[_Asked], list[Sample]]:
    asked, refused = [], []
    for node in nodes:
        now = access.clock()
        where = sorted(node.partitions & partitions if partitions else node.partitions)
        model = next((card.model for card in node.cards if card.count), None)
        words = ["sbatch", "--parsable", f"--job-name={JOB_NAME}", f"--nodelist={node.name}", "--nodes=1"]
        words += [
            "--ntasks=1",
            "--mem=64M",
            "--time=2",
            "--no-requeue",
            "--output=/dev/null",
            "--export=NONE",
        ]
        words += [f"--partition={where[0]}"] if where else []
        words += [f"--gres=gpu:{model}:1" if model else "--gres=gpu:1"] if model is not None else []
        words += ["--chdir=/"]
        try:
            job_id = access.call(*words, standard_input=script).strip().partition(";")[0]
            asked.append(_Asked(node.name, job_id, now))
        except SlurmSilent as error:
            refused.append(Sample(node.name, now, now, None, f"refused: {error.detail}"))
    return asked, refused


def _collect(access: Access, folder: Path, asked: list[_Asked], wait_seconds: float) -> list[Sample]:
    """Read answers until all are there, all jobs have ended, or the time is over."""
    deadline = access.clock() + wait_seconds
    found: dict[str, Sample] = {}
    while len(found) < len(asked) and access.clock() < deadline:
        states = _states(access)
        for one in asked:
            if one.node in found:
                continue
            text = _read(folder / f"{one.node}.sample")
            if text is not None:
                found[one.node] = Sample(one.node, one.asked_at, access.clock(), read_sample(text))
            elif states.get(one.job_id, "COMPLETED").startswith(_ENDED):
                state = states.get(one.job_id, "COMPLETED")
                found[one.node] = _last_look(access, folder, one, state)
        access.pause(POLL_SECONDS)
    states = _states(access) if len(found) < len(asked) else {}
    for one in asked:
        if one.node not in found:
            found[one.node] = _last_look(access, folder, one, states.get(one.job_id, "unknown"))
    return [found[one.node] for one in asked]


_ENDED = (
    "COMPLETED",
    "FAILED",
    "CANCELLED",
    "TIMEOUT",
    "NODE_FAIL",
    "BOOT_FAIL",
    "OUT_OF_MEMORY",
    "DEADLINE",
)
SHARED_SECONDS = 5.0
"""How long a file written on a node may take to be seen here (attribute caches of NFS)."""


def _last_look(access: Access, folder: Path, one: _Asked, state: str) -> Sample:
    """The job has ended: its answer may still be on its way through the file system's caches."""
    until = access.clock() + (SHARED_SECONDS if state.startswith("COMPLETED") else 0.0)
    while True:
        text = _read(folder / f"{one.node}.sample")
        if text is not None:
            return Sample(one.node, one.asked_at, access.clock(), read_sample(text))
        if access.clock() >= until:
            return Sample(one.node, one.asked_at, access.clock(), None, state)
        list(folder.iterdir())  # makes NFS look again
        access.pause(POLL_SECONDS)


def _states(access: Access) -> Mapping[str, str]:
    """State and reason of the jobs by id; empty while Slurm does not answer: then nothing is concluded."""
    text = access.call("squeue", "-h", "-a", "-t", "all", "-n", JOB_NAME, "-o", "%A %T %r")
    found = {}
    for line in text.splitlines():
        job_id, _, state = line.partition(" ")
        found[job_id] = state
    return found


def _read(path: Path) -> str | None:
    """A file that another user may have put there: never through a link, never much of it."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        return file.read(SAMPLE_BYTES_MAX).decode("utf-8", "replace")


def _cancel(access: Access, asked: list[_Asked]) -> None:
    """What still waits is not left behind; what has ended already is no fault."""
    with contextlib.suppress(SlurmSilent):
        if asked:
            access.call("scancel", "--quiet", *(one.job_id for one in asked))


def ping(access: Access) -> str:
    """What ``scontrol ping`` says of the controllers."""
    return "; ".join(line.strip() for line in access.call("scontrol", "ping").splitlines() if line.strip())


def access_of(config: Config) -> Access:
    """How the settings say to reach the cluster."""
    return Access(
        conf=_setting(config, "conf"),
        user=_setting(config, "user"),
        python=_setting(config, "python") or sys.executable,
        data=config.server.data,
        channel=str(getattr(config.server, "channel", "") or ""),
    )


def wanted_of(config: Config) -> Wanted:
    """What the platform is going to do with it."""
    policy = config.policy
    extra = policy.start_timeout_seconds + policy.grace_seconds + policy.kill_after_seconds
    return Wanted(
        partitions=frozenset(_words(_setting(config, "partitions"))),
        job_seconds_max=TIME_LIMIT_SECONDS_DEFAULT + extra,
        kill_after_seconds=policy.kill_after_seconds,
        rest=_setting(config, "transport") == "rest",
        several_users=bool(_setting(config, "unix_users")),
        card_models=frozenset(load_price_book(shipped_price_book_text()).models),
    )


def rest_of(config: Config) -> tuple[Finding, ...]:
    """Whether slurmrestd lets the platform in, as the settings name it."""
    if _setting(config, "transport") == "commands":
        return ()
    key = _setting(config, "jwt_key")
    user = _setting(config, "user") or pwd.getpwuid(os.geteuid()).pw_name
    return ask_rest(_setting(config, "rest_url"), Path(key) if key else None, user)


def _setting(config: Config, name: str) -> str:
    value = getattr(getattr(config, "slurm", None), name, None)
    return "" if value is None else str(value)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
