"""Running a step: ranks on this node as processes of ``srun`` itself, on others through their agents."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import IO, cast

from starverse.cli.remote.session import Session
from starverse.cli.slurm.step import Step, file_name, rank_environment
from starverse.cli.slurm.step_frames import (
    ERROR,
    EXIT,
    FAILED,
    INPUT,
    OUTPUT,
    SIGNAL,
    START,
    FrameLine,
    connect,
)

_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_LOST = 128 + signal.SIGKILL


@dataclass(frozen=True, slots=True)
class JobNode:
    """A node of the job: its number there, its name, and its address (``""``: not known)."""

    index: int
    name: str
    address: str = ""


@dataclass(frozen=True, slots=True)
class _Ended:
    """A rank that ended, as ``Popen.returncode`` says; ``None``: its node is no more."""

    rank: int
    code: int | None


@dataclass(frozen=True, slots=True)
class _NotStarted:
    """A rank that could not be executed."""

    error: int
    text: str


@dataclass(frozen=True, slots=True)
class _Signalled:
    number: int


_Event = _Ended | _NotStarted | _Signalled


class StepRun:
    """One step from its first rank to its last. ``gang`` is the way to other nodes, ``""``: there is none."""

    def __init__(self, step: Step, nodes: Sequence[JobNode], gang: str, session: Session) -> None:
        self._step = step
        self._nodes = nodes
        self._gang = gang
        self._session = session
        self._own_name = session.environ.get("SLURMD_NODENAME") or step.nodes[0]
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._far: dict[int, FrameLine] = {}
        self._threads: list[threading.Thread] = []
        self._output = StepOutput(step, session)

    def run(self) -> int:
        """Start all ranks, wait for all, tell of bad ends; the highest code."""
        before = {number: signal.signal(number, self._catch) for number in _PASSED_ON}
        try:
            self._output.empty_files()
            return self._start() or self._wait()
        finally:
            for line in self._far.values():
                with contextlib.suppress(OSError):
                    line.socket.shutdown(socket.SHUT_RDWR)
            for process in self._processes.values():
                process.wait()
            for thread in self._threads:
                thread.join()
            for line in self._far.values():
                line.socket.close()
            self._output.close()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _catch(self, number: int, frame: object) -> None:
        self._events.put(_Signalled(number))

    def _signal(self, number: int) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(number)
        for line in self._far.values():
            with contextlib.suppress(OSError):
                line.send(SIGNAL, 0, str(int(number)).encode())

    # -- start

    def _start(self) -> int:
        """The code to end with where not all of them could be started, else 0."""
        for number, name in enumerate(self._step.nodes):
            if name != self._own_name:
                try:
                    self._start_far(number)
                except OSError:
                    step = f"{self._step.variables.get('SLURM_JOB_ID')}.{self._step.step_id}"
                    self._session.note(
                        f"srun: error: Task launch for StepId={step} failed on node {name}:"
                        " Communication connection failure"
                    )
                    self._signal(signal.SIGTERM)
                    return 1
                continue
            for rank in self._step.ranks_of(number):
                try:
                    self._processes[rank] = self._start_here(rank)
                except OSError as error:
                    if error.filename not in (None, self._step.command[0]):
                        raise
                    return self._tell_not_started(error.errno or 1, error.strerror or "")
        return 0

    def _tell_not_started(self, error: int, text: str) -> int:
        self._session.note(f"slurmstepd: error: execve(): {self._step.command[0]}: {text}")
        self._signal(signal.SIGTERM)
        return error

    def _start_here(self, rank: int) -> subprocess.Popen[bytes]:
        step, session = self._step, self._session
        with ExitStack() as files:

            def opened(pattern: str, mode: str) -> IO[bytes]:
                path = session.folder / file_name(pattern, step, rank)
                return files.enter_context(cast(IO[bytes], path.open(mode)))

            piped = subprocess.PIPE if step.label else None
            stdin: IO[bytes] | int | None = subprocess.DEVNULL if rank or step.input == "none" else None
            if step.input not in (None, "none", "all"):
                stdin = opened(step.input or "", "rb")
            stdout = opened(step.output, "ab") if step.output else piped
            stderr: IO[bytes] | int | None = subprocess.STDOUT if step.output else piped
            if step.error:
                stderr = opened(step.error, "ab")
            process = subprocess.Popen(
                step.command,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=step.folder,
                env=rank_environment(step, rank),
            )
        for source, kind in ((process.stdout, OUTPUT), (process.stderr, ERROR)):
            if source is not None:
                self._in_thread(partial(self._copy, source, kind, rank))
        threading.Thread(target=lambda: self._events.put(_Ended(rank, process.wait())), daemon=True).start()
        return process

    def _copy(self, source: IO[bytes], kind: bytes, rank: int) -> None:
        with source:
            while part := os.read(source.fileno(), 65536):
                self._output.take(kind, rank, part)
        self._output.flush(rank, kind)

    def _start_far(self, number: int) -> None:
        """Reach the node's agent and hand it the step; raises ``OSError``."""
        name = self._step.nodes[number]
        index = next(node.index for node in self._nodes if node.name == name)
        line = connect(self._gang)
        try:
            line.sendall(json.dumps({"node_index": index}).encode() + b"\n")
        except OSError:
            line.close()
            raise
        far = self._far[number] = FrameLine(line)
        far.send(START, number, self._step.to_json().encode())
        self._in_thread(lambda: self._listen(number, far))
        if 0 in self._step.ranks_of(number) and self._step.input in (None, "all"):
            threading.Thread(target=self._send_input, args=(far,), daemon=True).start()

    def _in_thread(self, act: Callable[[], None]) -> None:
        thread = threading.Thread(target=act, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _send_input(self, far: FrameLine) -> None:
        with contextlib.suppress(OSError, ValueError):
            number = self._session.stdin.fileno()
            while part := os.read(number, 65536):
                far.send(INPUT, 0, part)
            far.send(INPUT, 0)

    def _listen(self, number: int, far: FrameLine) -> None:
        """What a far node says, until it hangs up; ranks that have not ended by then are lost."""
        running = set(self._step.ranks_of(number))
        for kind, rank, payload in far.read():
            if kind in (OUTPUT, ERROR):
                self._output.take(kind, rank, payload)
            elif kind == EXIT:
                self._output.flush(rank)
                running.discard(rank)
                self._events.put(_Ended(rank, int(payload)))
            elif kind == FAILED:
                error, _, text = payload.decode(errors="replace").partition(" ")
                self._events.put(_NotStarted(int(error), text))
        for rank in sorted(running):
            self._events.put(_Ended(rank, None))

    # -- wait

    def _wait(self) -> int:
        """In the order in which ranks end; a lost node, or with ``-K`` a bad end, stops the others."""
        codes: list[int] = []
        lost: set[str] = set()
        stopped = False
        while len(codes) < self._step.ranks:
            event = self._events.get()
            if isinstance(event, _Signalled):
                self._signal(event.number)
                continue
            if isinstance(event, _NotStarted):
                return self._tell_not_started(event.error, event.text)
            node = self._step.nodes[self._step.node_of(event.rank)]
            code = event.code
            codes.append(_LOST if code is None else 128 - code if code < 0 else code)
            if code is None:
                if node not in lost:
                    self._session.note(f"srun: error: Node failure on {node}")
                lost.add(node)
            elif code:
                self._session.note(f"srun: error: {node}: task {event.rank}: {_ending(code)}")
            if not stopped and (code is None or (code and self._step.kill_on_bad_exit)):
                stopped = True
                job = self._step.variables.get("SLURM_JOB_ID")
                self._session.note(f"srun: Terminating StepId={job}.{self._step.step_id}")
                self._signal(signal.SIGTERM)
        return max(codes)


class StepOutput:
    """Where output goes that passes through ``srun``: labelled lines, and all of far ranks."""

    def __init__(self, step: Step, session: Session) -> None:
        self._step = step
        self._session = session
        self._lock = threading.Lock()
        self._parts: dict[tuple[int, bytes], bytes] = {}
        self._files: dict[str, IO[bytes]] = {}
        self._width = len(str(step.ranks - 1))

    def empty_files(self) -> None:
        """Output files start empty; ranks then append, so that several may share one."""
        step = self._step
        patterns = [pattern for pattern in (step.output, step.error) if pattern]
        for pattern in () if step.append else patterns:
            for name in {file_name(pattern, step, rank) for rank in range(step.ranks)}:
                (self._session.folder / name).open("wb").close()

    def take(self, kind: bytes, rank: int, data: bytes) -> None:
        """Write what a rank wrote: with a label line by line, else as it comes."""
        with self._lock:
            if self._step.label and not self._pattern(kind):
                *lines, rest = (self._parts.pop((rank, kind), b"") + data).split(b"\n")
                self._parts[rank, kind] = rest
                data = b"".join(self._label(rank) + line + b"\n" for line in lines)
            self._write(kind, rank, data)

    def flush(self, rank: int, *kinds: bytes) -> None:
        """The rank has ended: its last line, though it has no end."""
        for kind in kinds or (OUTPUT, ERROR):
            with self._lock:
                rest = self._parts.pop((rank, kind), b"")
                if rest:
                    self._write(kind, rank, self._label(rank) + rest + b"\n")

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _pattern(self, kind: bytes) -> str | None:
        return self._step.output if kind == OUTPUT else self._step.error or self._step.output

    def _label(self, rank: int) -> bytes:
        return f"{rank:>{self._width}}: ".encode()

    def _write(self, kind: bytes, rank: int, data: bytes) -> None:
        pattern = self._pattern(kind)
        if not data:
            return
        if pattern:
            name = file_name(pattern, self._step, rank)
            if name not in self._files:
                self._files[name] = (self._session.folder / name).open("ab", buffering=0)
            self._files[name].write(data)
            return
        target = self._session.stdout if kind == OUTPUT else self._session.stderr
        raw = getattr(target, "buffer", None)
        if raw is None:
            target.write(data.decode("utf-8", "replace"))
        else:
            target.flush()
            raw.write(data)
        target.flush()


def _ending(code: int) -> str:
    if code > 0:
        return f"Exited with exit code {code}"
    return signal.strsignal(-code) or f"Signal {-code}"
