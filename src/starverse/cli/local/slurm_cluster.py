"""Asking a live Slurm cluster: its settings through ``scontrol``, its nodes through one short job each.

Nothing is changed, and what was submitted is cancelled when its time is over. Slurm's commands are found by
absolute path, since ours have the same names; each call has a time limit.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from starverse import __version__
from starverse.cli.local.slurm_rest import ask_rest
from starverse.config import Config
from starverse.domain.errors import Invalid, Unavailable
from starverse.domain.pricing.price_book_yaml import load_price_book, shipped_price_book_text
from starverse.domain.slurm_cluster.facts import ClusterFacts, Finding, NodeFacts, Verdict, Wanted
from starverse.domain.slurm_cluster.reading import read_cluster
from starverse.domain.slurm_cluster.rules_nodes import judge_pinning
from starverse.domain.slurm_cluster.samples import Expected, Sample, read_sample
from starverse.domain.workloads.specs import TIME_LIMIT_SECONDS_DEFAULT
from starverse.engines.slurm.batch import END_SECONDS, START_SECONDS
from starverse.engines.slurm.nodes import model_name
from starverse.engines.slurm.settings import unix_uid_of
from starverse.main import slurm_settings
from starverse.node.cluster_sample import NONCE_FILE, sample_script

POLL_SECONDS = 0.25
JOB_NAME = "starverse-check"
COMMAND_PATH = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin:/opt/slurm/bin"
SAMPLE_BYTES_MAX = 10_000


class SlurmSilent(Unavailable):
    """Slurm's commands do not answer; look whether slurmctld runs and slurm.conf is the right one."""

    code = "slurm_silent"


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach the cluster. ``conf`` ``""``: where Slurm looks by itself.

    ``models`` names gres types as the settings do, ``users`` are the Unix users of workloads; ``declared``:
    cards need no driver.
    """

    conf: str = ""
    python: str = "/usr/bin/python3"
    data: Path = Path()
    channel: str = ""
    path: str = COMMAND_PATH
    call_seconds: float = 10.0
    models: Mapping[str, str] = field(default_factory=dict)
    users: tuple[str, ...] = ()
    declared: bool = False
    clock: Callable[[], float] = field(default=time.time, repr=False)
    pause: Callable[[float], None] = field(default=time.sleep, repr=False)

    def call(self, *words: str, standard_input: str | None = None) -> str:
        """What a command of Slurm prints; raises ``SlurmSilent`` where it is missing, fails or hangs."""
        program = shutil.which(words[0], path=self.path)
        if program is None:
            raise SlurmSilent(f"{words[0]} is not in {self.path}", hint="apt-get install slurm-client")
        environment = {"PATH": self.path, "LANG": "C.UTF-8"}
        conf = self.conf or os.environ.get("SLURM_CONF", "")
        if conf and not Path(conf).is_file():
            raise SlurmSilent(f"{conf} is not there", hint="see slurm.conf")  # Slurm would search for it
        if conf:
            environment["SLURM_CONF"] = conf
        try:
            done = subprocess.run(
                [program, *words[1:]],
                env=environment,
                input=standard_input,
                stdin=subprocess.DEVNULL if standard_input is None else None,
                capture_output=True,
                text=True,
                timeout=self.call_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise SlurmSilent(f"{words[0]} did not answer within {self.call_seconds:g} s") from error
        except OSError as error:
            raise SlurmSilent(f"{words[0]}: {error}") from error
        if done.returncode != 0:
            told = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise SlurmSilent(f"{words[0]}: {told[0] if told else f'exit {done.returncode}'}")
        return done.stdout


def read_facts(access: Access) -> ClusterFacts:
    """Settings, partitions and nodes as slurmctld has them now."""
    facts = read_cluster(
        access.call("scontrol", "show", "config"),
        access.call("scontrol", "-o", "show", "partitions"),
        access.call("scontrol", "-o", "show", "nodes"),
    )
    return replace(facts, nodes=tuple(_with_our_names(node, access.models) for node in facts.nodes))


def _with_our_names(node: NodeFacts, models: Mapping[str, str]) -> NodeFacts:
    """The card models as the engine names them."""
    cards = tuple(replace(card, model=model_name(card.kind, models)) for card in node.cards)
    return replace(node, cards=cards)


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
    with _shared_folder(access.data, nonce) as folder, _listening(access.channel):
        expected = Expected(
            nonce, __version__, str(access.data), access.channel, access.declared, _uids(access.users)
        )
        script = sample_script(str(folder), access.python, access.channel, sorted(expected.uids))
        asked, refused = _submit_all(access, nodes, partitions, script)
        try:
            answers = _collect(access, folder, asked, wait_seconds)
        finally:
            _cancel(access, asked)
    return (*refused, *answers), expected


@contextlib.contextmanager
def _listening(channel: str) -> Iterator[None]:
    """Something answers at the channel's address while nodes try it: the server, or else this process."""
    host, _, port = channel.rpartition(":")
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, ValueError):  # the server listens there, or it is another machine's
            if channel:
                stack.enter_context(socket.create_server((host.strip("[]"), int(port)), backlog=1024))
        yield


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
        kind = next((card.kind for card in node.cards if card.count), None)
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
        words += [f"--gres=gpu:{kind}:1" if kind else "--gres=gpu:1"] if kind is not None else []
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
    slurm = slurm_settings(config)
    return Access(
        conf=slurm.conf,
        python=slurm.python,
        data=config.server.data,
        channel=config.server.channel,
        path=f"{slurm.commands}:{COMMAND_PATH}" if slurm.commands else COMMAND_PATH,
        call_seconds=slurm.call_seconds_max,
        models=slurm.models,
        users=tuple(sorted(set(slurm.unix_users.values()))),
        declared=slurm.declared,
    )


def wanted_of(config: Config) -> Wanted:
    """What the platform is going to do with it."""
    policy = config.policy
    around = START_SECONDS + policy.grace_seconds + policy.kill_after_seconds + END_SECONDS
    return Wanted(
        partitions=frozenset(slurm_settings(config).partitions),
        job_seconds_max=TIME_LIMIT_SECONDS_DEFAULT + around,
        kill_after_seconds=policy.kill_after_seconds,
        rest=config.slurm.transport == "rest",
        as_root=os.geteuid() == 0,
        card_models=frozenset(load_price_book(shipped_price_book_text()).models),
    )


def rest_of(config: Config, ours: Sequence[NodeFacts]) -> tuple[Finding, ...]:
    """Whether slurmrestd lets the platform in, as the settings name it, and can pin jobs to these nodes."""
    slurm = slurm_settings(config)
    if slurm.transport == "commands":
        return ()
    key = Path(slurm.jwt_key) if slurm.jwt_key else None
    found, version = ask_rest(slurm.rest_url, key, slurm.user or getpass.getuser())
    return found, *judge_pinning(ours, version, only_rest=slurm.transport == "rest")


def users_of(config: Config) -> tuple[Finding, ...]:
    """Whether each Unix user that workloads are to run as is safe."""
    settings = slurm_settings(config)
    findings = []
    for team, name in sorted(settings.unix_users.items()):
        try:
            unix_uid_of(settings, [team], None)
        except Invalid as error:
            needs = error.faults[0].expected if error.faults else "a Unix user"
            why = "a workload never runs as root, and only root may become somebody else"
            findings.append(
                Finding(f"slurm.unix_users/{team}", Verdict.BLOCKS, name, needs, why, "slurm.unix_users")
            )
    return tuple(findings)


def _uids(names: Iterable[str]) -> dict[str, int]:
    found = {}
    for name in names:
        with contextlib.suppress(KeyError):
            found[name] = pwd.getpwnam(name).pw_uid
    return found
