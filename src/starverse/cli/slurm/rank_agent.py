"""The agent in the sandbox of a job's further node: starts the ranks that ``srun`` asks for there.

Its launcher hands it one connection for each step. A step whose ``srun`` is gone ends with it. After TERM no
step begins; the agent goes when the ranks are gone.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO

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

KILL_SECONDS = 2.0
"""From TERM to KILL for the ranks of a step whose ``srun`` is gone."""

DRAIN_SECONDS = 0.05
"""How often it is looked whether the last rank has ended, once TERM came."""

_INPUT_WAITING_MAX = 64


def main(environ: Mapping[str, str] | None = None) -> int:
    """Serve until the launcher hangs up, or after TERM until no rank is left."""
    own = os.environ if environ is None else environ
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    steps: list[threading.Thread] = []
    with connect(own["STARVERSE_RANKS"]) as launcher:
        while True:
            steps = [step for step in steps if step.is_alive()]
            if told and not steps:
                return 0
            waited_for = [woken] if told else [woken, launcher.fileno()]
            ready, _, _ = select.select(waited_for, [], [], DRAIN_SECONDS if told else None)
            if woken in ready:
                os.read(woken, 512)
            if launcher.fileno() in ready and not told:
                word, handles, _, _ = socket.recv_fds(launcher, 1, 1)
                if not word:
                    return 0
                for handle in handles:
                    line = FrameLine(socket.socket(fileno=handle))
                    steps.append(threading.Thread(target=_serve, args=(line, own), daemon=True))
                    steps[-1].start()


def _serve(line: FrameLine, own: Mapping[str, str]) -> None:
    with line.socket, contextlib.suppress(OSError, ValueError, TypeError):
        frames = line.read()
        kind, node, payload = next(frames, (b"", 0, b""))
        if kind != START:
            return
        ranks = FarRanks(Step.from_json(payload.decode()), node, line, own)
        try:
            ranks.start()
            for kind, rank, payload in frames:
                if kind == SIGNAL:
                    ranks.signal(int(payload))
                elif kind == INPUT:
                    ranks.give(rank, payload)
        finally:
            ranks.end()


class FarRanks:
    """The ranks of one step on this node."""

    def __init__(self, step: Step, node: int, line: FrameLine, own: Mapping[str, str]) -> None:
        self._step = step
        self._node = node
        self._line = line
        self._own = own
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._threads: list[threading.Thread] = []
        self._inputs: dict[int, queue.Queue[bytes]] = {}

    def start(self) -> None:
        """Start them all; what cannot be executed is told, and the step goes no further."""
        for rank in self._step.ranks_of(self._node):
            try:
                self._start(rank)
            except OSError as error:
                self._line.send(FAILED, rank, f"{error.errno or 1} {error.strerror}".encode())
                return

    def signal(self, number: int) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(number)

    def give(self, rank: int, data: bytes) -> None:
        """Standard input for a rank; ``b""`` ends it."""
        if rank in self._inputs:
            self._inputs[rank].put(data)

    def end(self) -> None:
        """Whatever is left ends: TERM, then KILL, with all that the ranks started."""
        left = [process for process in self._processes.values() if process.poll() is None]
        for process in left:
            process.terminate()
        for process in left:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(KILL_SECONDS)
        for process in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _start(self, rank: int) -> None:
        step = self._step
        folder = Path(step.folder or ".")
        gets_input = rank == 0 and step.input in (None, "all")
        with contextlib.ExitStack() as files:
            stdin: IO[bytes] | int = subprocess.PIPE if gets_input else subprocess.DEVNULL
            if step.input not in (None, "none", "all"):
                stdin = files.enter_context((folder / file_name(step.input or "", step, rank)).open("rb"))
            process = subprocess.Popen(
                step.command,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if step.output and not step.error else subprocess.PIPE,
                cwd=folder,
                env=rank_environment(step, rank, self._own),
                start_new_session=True,
            )
        self._processes[rank] = process
        if process.stdin is not None:
            waiting: queue.Queue[bytes] = queue.Queue(_INPUT_WAITING_MAX)
            self._inputs[rank] = waiting
            threading.Thread(target=_feed, args=(waiting, process.stdin), daemon=True).start()
        pumps = [
            threading.Thread(target=self._pump, args=(source, kind, rank), daemon=True)
            for source, kind in ((process.stdout, OUTPUT), (process.stderr, ERROR))
            if source is not None
        ]
        for pump in pumps:
            pump.start()
        threading.Thread(target=self._wait, args=(rank, process, pumps), daemon=True).start()

    def _pump(self, source: IO[bytes], kind: bytes, rank: int) -> None:
        with source, contextlib.suppress(OSError):
            while part := os.read(source.fileno(), 65536):
                self._line.send(kind, rank, part)

    def _wait(self, rank: int, process: subprocess.Popen[bytes], pumps: list[threading.Thread]) -> None:
        """Tell the end after the last output; what outlives the rank keeps neither waiting for long."""
        code = process.wait()
        for pump in pumps:
            pump.join(KILL_SECONDS)
        with contextlib.suppress(OSError):
            self._line.send(EXIT, rank, str(code).encode())


def _feed(waiting: queue.Queue[bytes], target: IO[bytes]) -> None:
    with contextlib.suppress(OSError), target:
        while data := waiting.get():
            target.write(data)
            target.flush()
