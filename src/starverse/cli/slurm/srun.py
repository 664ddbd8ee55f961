"""``srun`` inside a job: start ranks on the node with the environment that Slurm gives them.

Exit code: the highest of all ranks, 128 and more for one that a signal ended (srun manual page, RETURN
VALUE).
TERM, INT, HUP and QUIT are passed on to every rank; USR1 is not taken here, because the platform sends it to
the ranks themselves. Standard input goes to rank 0 (Slurm copies it to all).
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

from starverse.cli.remote.session import Session
from starverse.cli.slurm.options import Read, Table, read_options

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
    stops=True,
)
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_NO_JOB = (
    "srun: error: there is no job around this command: srun starts ranks inside a job\n"
    "srun: error: use: sbatch --wait --wrap 'srun COMMAND', or call srun in the script that sbatch submits"
)


@dataclass(frozen=True, slots=True)
class Step:
    """What to run: ``ranks`` times ``command``; ``label`` puts ``rank: `` before each line."""

    command: tuple[str, ...]
    ranks: int
    step_id: int
    label: bool = False
    kill_on_bad_exit: bool = False
    folder: str | None = None
    output: str | None = None
    error: str | None = None
    append: bool = False
    input: str | None = None
    cpus_per_task: str | None = None
    gpus_per_task: int | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


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
    problem = _problem(read, environ)
    if problem:
        session.note(f"srun: error: {problem}")
        return 1
    return run_step(_step(read, environ), environ, session)


def _problem(read: Read, environ: Mapping[str, str]) -> str | None:
    if not read.words:
        return "No command given to execute."
    if "multi-prog" in read:
        return "--multi-prog is not supported; branch on SLURM_PROCID in the script"
    if read.get("nodes", "1").partition("-")[0] != "1" or environ.get("SLURM_NNODES", "1") != "1":
        return "ranks on several nodes are not supported in this version; ask for one node"
    for name in ("ntasks", "ntasks-per-node", "cpus-per-task"):
        if name in read and not (read.get(name).isdecimal() and int(read.get(name))):
            return f"Invalid numeric value {read.get(name)!r} for --{name}."
    if not _has_processors(read, environ):
        job = environ["SLURM_JOB_ID"]
        return f"Unable to create step for job {job}: More processors requested than permitted"
    gpus = read.get("gpus-per-task").rpartition(":")[2]
    if gpus and not gpus.isdecimal():
        return f"Invalid value {read.get('gpus-per-task')!r} for --gpus-per-task."
    return None


def _has_processors(read: Read, environ: Mapping[str, str]) -> bool:
    """Whether the job has a processor for each of the ranks asked for, where both are known."""
    has = environ.get("SLURM_CPUS_ON_NODE", "")
    each = read.get("cpus-per-task") or environ.get("SLURM_CPUS_PER_TASK", "1")
    known = "ntasks" in read and has.isdecimal() and each.isdecimal()
    return not known or "overcommit" in read or int(read.get("ntasks")) * int(each) <= int(has)


def _step(read: Read, environ: Mapping[str, str]) -> Step:
    ranks = read.get("ntasks") or read.get("ntasks-per-node") or environ.get("SLURM_NTASKS") or "1"
    gpus = read.get("gpus-per-task").rpartition(":")[2]
    kill = read.get("kill-on-bad-exit", "1") if "kill-on-bad-exit" in read else "0"
    return Step(
        command=tuple(read.words),
        ranks=int(ranks),
        step_id=_next_step_id(environ),
        label="label" in read,
        kill_on_bad_exit=kill != "0",
        folder=read.get("chdir") or None,
        output=read.get("output") or None,
        error=read.get("error") or None,
        append=read.get("open-mode").startswith("a"),
        input=read.get("input") or None,
        cpus_per_task=read.get("cpus-per-task") or environ.get("SLURM_CPUS_PER_TASK"),
        gpus_per_task=int(gpus) if gpus else None,
        variables=_exported(read.get("export"), environ),
    )


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


def rank_environment(step: Step, rank: int, node: str) -> dict[str, str]:
    """What one rank sees (srun manual page, OUTPUT ENVIRONMENT VARIABLES; interfaces.md)."""
    ranks = str(step.ranks)
    made = {
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank),
        "SLURM_NODEID": "0",
        "SLURM_NTASKS": ranks,
        "SLURM_NPROCS": ranks,
        "SLURM_TASKS_PER_NODE": ranks,
        "SLURM_GTIDS": ",".join(map(str, range(step.ranks))),
        "SLURM_STEP_ID": str(step.step_id),
        "SLURM_STEPID": str(step.step_id),
        "SLURM_STEP_NUM_TASKS": ranks,
        "SLURM_STEP_NUM_NODES": "1",
        "SLURM_STEP_TASKS_PER_NODE": ranks,
        "SLURM_STEP_NODELIST": node,
        "SLURMD_NODENAME": node,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": ranks,
    }
    if step.cpus_per_task:
        made["SLURM_CPUS_PER_TASK"] = step.cpus_per_task
    cards = [card for card in step.variables.get("CUDA_VISIBLE_DEVICES", "").split(",") if card]
    if step.gpus_per_task is not None and cards:
        own = cards[rank * step.gpus_per_task : (rank + 1) * step.gpus_per_task]
        made["CUDA_VISIBLE_DEVICES"] = ",".join(own)
    return {**step.variables, **made}


def run_step(step: Step, environ: Mapping[str, str], session: Session) -> int:
    """Start all ranks, wait for all, tell of bad ends; the highest code."""
    node = environ.get("SLURMD_NODENAME") or environ.get("SLURM_JOB_NODELIST") or os.uname().nodename
    processes: list[subprocess.Popen[bytes]] = []
    threads: list[threading.Thread] = []

    def pass_on(number: int, frame: object) -> None:
        for process in processes:
            if process.poll() is None:
                process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    try:
        _empty_outputs(step, node, session.folder)
        for rank in range(step.ranks):
            try:
                process = _start(step, rank, node, session)
            except OSError as error:
                if error.filename not in (None, step.command[0]):
                    raise
                session.note(f"slurmstepd: error: execve(): {step.command[0]}: {error.strerror}")
                pass_on(signal.SIGTERM, None)
                return error.errno or 1
            processes.append(process)
            threads += _label_threads(process, rank, step, session)
        return _wait_all(step, processes, node, session)
    finally:
        for process in processes:
            process.wait()
        for thread in threads:
            thread.join()
        for number, handler in before.items():
            signal.signal(number, handler)


def _start(step: Step, rank: int, node: str, session: Session) -> subprocess.Popen[bytes]:
    with ExitStack() as files:

        def opened(pattern: str, mode: str) -> IO[bytes]:
            path = session.folder / _file_name(pattern, step, rank, node)
            return files.enter_context(cast(IO[bytes], path.open(mode)))

        piped = subprocess.PIPE if step.label else None
        stdin: IO[bytes] | int | None = subprocess.DEVNULL if rank or step.input == "none" else None
        if step.input not in (None, "none", "all"):
            stdin = opened(step.input or "", "rb")
        stdout = opened(step.output, "ab") if step.output else piped
        stderr: IO[bytes] | int | None = subprocess.STDOUT if step.output else piped
        if step.error:
            stderr = opened(step.error, "ab")
        return subprocess.Popen(
            step.command,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=step.folder or session.folder,
            env=rank_environment(step, rank, node),
        )


def _empty_outputs(step: Step, node: str, folder: Path) -> None:
    """Output files start empty; ranks then append, so that several may share one."""
    patterns = [pattern for pattern in (step.output, step.error) if pattern]
    for pattern in () if step.append else patterns:
        for name in {_file_name(pattern, step, rank, node) for rank in range(step.ranks)}:
            (folder / name).open("wb").close()


def _file_name(pattern: str, step: Step, rank: int, node: str) -> str:
    """``%t`` rank, ``%n`` node number, ``%N`` node, ``%s`` step, ``%j %J`` job (srun manual page)."""
    job = step.variables.get("SLURM_JOB_ID", "")
    values = {
        "t": str(rank),
        "n": "0",
        "N": node,
        "s": str(step.step_id),
        "j": job,
        "J": f"{job}.{step.step_id}",
        "x": step.variables.get("SLURM_JOB_NAME", ""),
        "%": "%",
    }
    parts = pattern.split("%")
    text, at = parts[0], 1
    while at < len(parts):
        part = parts[at]
        if not part and at + 1 < len(parts):
            text += "%" + parts[at + 1]
            at += 2
            continue
        text += values.get(part[:1], "%" + part[:1]) + part[1:]
        at += 1
    return text


def _label_threads(
    process: subprocess.Popen[bytes], rank: int, step: Step, session: Session
) -> list[threading.Thread]:
    """With ``-l``: copy whole lines of a rank with its number before each."""
    width = len(str(step.ranks - 1))
    label = f"{rank:>{width}}: ".encode()
    threads = []
    for source, target in ((process.stdout, session.stdout), (process.stderr, session.stderr)):
        if source is not None:
            thread = threading.Thread(target=_copy_lines, args=(source, target, label), daemon=True)
            thread.start()
            threads.append(thread)
    return threads


_WRITING = threading.Lock()


def _copy_lines(source: IO[bytes], target: IO[str], label: bytes) -> None:
    raw = getattr(target, "buffer", None)
    with source:
        for line in source:
            whole = label + line + (b"" if line.endswith(b"\n") else b"\n")
            with _WRITING:
                if raw is None:
                    target.write(whole.decode("utf-8", "replace"))
                else:
                    target.flush()
                    raw.write(whole)
                target.flush()


def _wait_all(step: Step, processes: Sequence[subprocess.Popen[bytes]], node: str, session: Session) -> int:
    """Wait in the order in which ranks end; with ``-K`` the first bad end stops the others."""
    ended: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
    for rank, process in enumerate(processes):
        threading.Thread(
            target=lambda rank, process: ended.put((rank, process.wait())), args=(rank, process), daemon=True
        ).start()
    codes: list[int] = []
    stopped = False
    for _ in processes:
        rank, code = ended.get()
        codes.append(128 - code if code < 0 else code)
        if code:
            session.note(f"srun: error: {node}: task {rank}: {_ending(code)}")
        if code and step.kill_on_bad_exit and not stopped:
            stopped = True
            session.note(f"srun: Terminating StepId={step.variables.get('SLURM_JOB_ID')}.{step.step_id}")
            for process in processes:
                if process.poll() is None:
                    process.terminate()
    return max(codes)


def _ending(code: int) -> str:
    if code > 0:
        return f"Exited with exit code {code}"
    return signal.strsignal(-code) or f"Signal {-code}"
