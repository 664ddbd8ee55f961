"""``srun`` inside a job: start ranks on its nodes with the environment that Slurm gives them.

Exit code: the highest of all ranks, 128 and more for one that a signal ended (srun manual page, RETURN
VALUE).
TERM, INT, HUP and QUIT are passed on to every rank; USR1 is not taken here, because the platform sends it to
the ranks themselves. Standard input goes to rank 0 (Slurm copies it to all). On a job of several nodes the
script's own node starts steps, through the launchers of the others.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from starverse.cli.remote.session import Session
from starverse.cli.slurm.options import Read, Table, read_options
from starverse.cli.slurm.step import Step, Wanted, expand_hosts, lay_out
from starverse.cli.slurm.step_run import JobNode, StepRun

_TABLE = Table(
    flags={
        "label": "l",
        "unbuffered": "u",
        "exclusive": "",
        "overlap": "",
        "overcommit": "O",
        "exact": "",
        "whole": "",
        "quiet": "Q",
        "verbose": "v",
        "disable-status": "X",
        "multi-prog": "",
        "pty": "",
        "version": "V",
        "help": "h",
        "usage": "",
        "no-kill": "k",
    },
    values={
        "ntasks": "n",
        "nodes": "N",
        "ntasks-per-node": "",
        "cpus-per-task": "c",
        "output": "o",
        "error": "e",
        "input": "i",
        "chdir": "D",
        "export": "",
        "wait": "W",
        "gpus": "G",
        "gpus-per-task": "",
        "gpus-per-node": "",
        "gres": "",
        "gpu-bind": "",
        "job-name": "J",
        "time": "t",
        "mem": "",
        "mem-per-cpu": "",
        "mpi": "",
        "cpu-bind": "",
        "distribution": "m",
        "nodelist": "w",
        "partition": "p",
        "account": "A",
        "qos": "q",
        "jobid": "",
        "open-mode": "",
    },
    optional=frozenset({"kill-on-bad-exit"}),
    optional_letters={"K": "kill-on-bad-exit"},
    stops=True,
)
_NO_JOB = (
    "srun: error: there is no job around this command: srun starts ranks inside a job\n"
    "srun: error: use: sbatch --wait --wrap 'srun COMMAND', or call srun in the script that sbatch submits"
)


def main(arguments: Sequence[str], session: Session) -> int:
    read = read_options(arguments, _TABLE)
    if "version" in read:
        from starverse import __version__

        session.write(f"starverse {__version__}\n")
        return 0
    if "help" in read or "usage" in read:
        session.write("Usage: srun [OPTIONS...] executable [args...]\n")
        return 0
    environ = session.environ
    if not environ.get("SLURM_JOB_ID"):
        session.note(_NO_JOB)
        return 1
    problem = _problem(read)
    if problem:
        session.note(f"srun: error: {problem}")
        return 1
    nodes = _job_nodes(environ)
    try:
        step = _step(read, session, _chosen(read, nodes, environ))
    except ValueError as refusal:
        session.note(f"srun: error: {refusal}")
        return 1
    return StepRun(step, nodes, environ.get("STARVERSE_GANG", ""), session).run()


def _problem(read: Read) -> str | None:
    if not read.words:
        return "No command given to execute."
    if "multi-prog" in read:
        return "--multi-prog is not supported; branch on SLURM_PROCID in the script"
    for name in ("ntasks", "ntasks-per-node", "cpus-per-task"):
        if name in read and not (read.get(name).isdecimal() and int(read.get(name))):
            return f"Invalid numeric value {read.get(name)!r} for --{name}."
    least = read.get("nodes", "1").partition("-")[0]
    if not (least.isdecimal() and int(least)):
        return f"Invalid numeric value {read.get('nodes')!r} for --nodes."
    gpus = read.get("gpus-per-task").rpartition(":")[2]
    if gpus and not gpus.isdecimal():
        return f"Invalid value {read.get('gpus-per-task')!r} for --gpus-per-task."
    return None


def _job_nodes(environ: Mapping[str, str]) -> tuple[JobNode, ...]:
    """The nodes that this command can start ranks on."""
    listed = [entry.partition("=") for entry in environ.get("STARVERSE_NODES", "").split(",") if entry]
    if not listed:
        own = environ.get("SLURMD_NODENAME") or environ.get("SLURM_JOB_NODELIST") or os.uname().nodename
        return (JobNode(0, own),)
    return tuple(JobNode(index, name, address) for index, (name, _, address) in enumerate(listed))


def _chosen(read: Read, nodes: tuple[JobNode, ...], environ: Mapping[str, str]) -> tuple[JobNode, ...]:
    """Those of the job's nodes that ``--nodelist`` names; raises ``ValueError``."""
    if len(nodes) > 1 and not environ.get("STARVERSE_GANG"):
        raise ValueError("steps of a job on several nodes are started by its script, on its first node")
    if "nodelist" not in read:
        return nodes
    names = set(expand_hosts(read.get("nodelist")))
    if not names <= {node.name for node in nodes}:
        job = environ["SLURM_JOB_ID"]
        raise ValueError(
            f"Unable to create step for job {job}: Requested node configuration is not available"
        )
    return tuple(node for node in nodes if node.name in names)


def _step(read: Read, session: Session, nodes: tuple[JobNode, ...]) -> Step:
    """Raises ``ValueError`` where the ranks do not fit, in srun's words."""
    environ = session.environ
    of_job = environ.get("SLURM_NTASKS", "1")
    wanted = Wanted(
        ranks=int(read.get("ntasks")) if "ntasks" in read else None,
        per_node=int(read.get("ntasks-per-node")) if "ntasks-per-node" in read else None,
        nodes_min=int(read.get("nodes").partition("-")[0]) if "nodes" in read else None,
        ranks_of_job=int(of_job) if of_job.isdecimal() else 1,
    )
    counts = lay_out(wanted, len(nodes))
    if not _has_processors(read, environ, max(counts)):
        job = environ["SLURM_JOB_ID"]
        raise ValueError(f"Unable to create step for job {job}: More processors requested than permitted")
    gpus = read.get("gpus-per-task").rpartition(":")[2]
    kill = read.get("kill-on-bad-exit", "1") if "kill-on-bad-exit" in read else "0"
    used = nodes[: len(counts)]
    given = read.get("input")
    return Step(
        command=tuple(read.words),
        step_id=_next_step_id(environ),
        nodes=tuple(node.name for node in used),
        counts=counts,
        addresses=tuple(node.address for node in used if node.address),
        label="label" in read,
        kill_on_bad_exit=kill != "0",
        folder=str(session.folder / read.get("chdir")),
        output=read.get("output") or None,
        error=read.get("error") or None,
        append=read.get("open-mode").startswith("a"),
        input=str(session.folder / given) if given not in ("", "none", "all") else given or None,
        cpus_per_task=read.get("cpus-per-task") or environ.get("SLURM_CPUS_PER_TASK"),
        gpus_per_task=int(gpus) if gpus else None,
        variables=_exported(read.get("export"), environ),
    )


def _has_processors(read: Read, environ: Mapping[str, str], ranks: int) -> bool:
    """Whether a node has a processor for each of its ranks, where they were asked for and it is known."""
    has = environ.get("SLURM_CPUS_ON_NODE", "")
    each = read.get("cpus-per-task") or environ.get("SLURM_CPUS_PER_TASK", "1")
    known = "ntasks" in read and has.isdecimal() and each.isdecimal()
    return not known or "overcommit" in read or ranks * int(each) <= int(has)


def _exported(text: str, environ: Mapping[str, str]) -> dict[str, str]:
    """``--export``: everything by default and with ``ALL``, else only Slurm's own and what is named."""
    names = [item for item in text.split(",") if item]
    if not names or "ALL" in names:
        chosen = dict(environ)
    else:
        keep = ("SLURM_", "STARVERSE_", "CUDA_", "NCCL_", "MASTER_")
        chosen = {name: value for name, value in environ.items() if name.startswith(keep)}
        chosen.setdefault("PATH", environ.get("PATH", os.defpath))
    for item in names:
        name, equals, value = item.partition("=")
        if equals:
            chosen[name] = value
        elif name in environ and name not in ("ALL", "NONE", "NIL"):
            chosen[name] = environ[name]
    return chosen


def _next_step_id(environ: Mapping[str, str]) -> int:
    """Steps of a job count from 0; the counter is a file in the job's own /tmp."""
    import fcntl

    name = f".starverse-steps-{os.getuid()}-{environ.get('SLURM_JOB_ID')}"
    place = Path(environ.get("TMPDIR") or "/tmp") / name
    try:
        with place.open("a+", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            step_id = int(file.read() or 0)
            file.seek(0)
            file.truncate()
            file.write(str(step_id + 1))
            return step_id
    except (OSError, ValueError):
        return 0
