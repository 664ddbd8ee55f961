"""Kill -9 at random moments of a writer that saves one checkpoint after the other, and look at what is left.

The content of a checkpoint follows from its step, so that a mixture of two steps is told from a whole one.
Used by the tests and by benchmark 5. Run as a module it is the writer.
"""

from __future__ import annotations

import os
import random
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from starverse.checkpoint import Checkpointer, Published

MODES = ("files", "arrays", "async")
_PARTS = 3


@dataclass(frozen=True, slots=True)
class KillLoop:
    """What to do: so many kills per mode, each within ``spread_seconds`` of the writer's start of work."""

    root: Path
    kills: int
    seed: int
    part_bytes: int = 200_000
    spread_seconds: float = 0.15


@dataclass(frozen=True, slots=True)
class KillOutcome:
    """What was found: all the faults are zero when the promise holds.

    ``torn``: ``latest()`` was not verified or its content not that of its step; ``older``: it was older
    than the last step that the writer reported published; ``published``: steps reported in all.
    """

    kills: int
    torn: int
    older: int
    published: int
    leftovers: int


def kill_loop(plan: KillLoop) -> KillOutcome:
    """Run the loop; the modes take turns, each in its own folder."""
    chance = random.Random(plan.seed)
    torn = older = total = leftovers = 0
    for turn in range(plan.kills):
        mode = MODES[turn % len(MODES)]
        root = plan.root / mode
        before = _latest_step(root)
        reported = _write_until_killed(plan, mode, chance.uniform(0, plan.spread_seconds))
        total += len(reported)
        expected = max([*reported, *([] if before is None else [before])], default=None)
        leftovers += sum(1 for _ in root.glob(".writing-*")) if root.is_dir() else 0
        found = Checkpointer(root, handle_signal=False, environment={}).latest()
        if found is None:
            older += expected is not None
        else:
            older += expected is not None and found.step < expected
            torn += not is_whole(found, plan.part_bytes)
    return KillOutcome(plan.kills, torn, older, total, leftovers)


def is_whole(found: Published, part_bytes: int) -> bool:
    """Whether every part of a checkpoint has exactly the content of its step."""
    parts = sorted(path for path in found.path.rglob("*.bin"))
    return len(parts) == _PARTS and all(
        path.read_bytes() == part(found.step, index, part_bytes) for index, path in enumerate(parts)
    )


def part(step: int, index: int, part_bytes: int) -> bytes:
    """The content of one part of the checkpoint of ``step``."""
    return random.Random(step * _PARTS + index).randbytes(part_bytes)


def _latest_step(root: Path) -> int | None:
    found = Checkpointer(root, handle_signal=False, environment={}).latest()
    return None if found is None else found.step


def _write_until_killed(plan: KillLoop, mode: str, after_seconds: float) -> list[int]:
    """Start a writer, kill it ``after_seconds`` after it began to work; returns the steps it reported."""
    command = [sys.executable, "-m", __name__, str(plan.root / mode), mode, str(plan.part_bytes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as writer:
        assert writer.stdout is not None
        if writer.stdout.read(6) != b"ready\n":
            raise RuntimeError(f"the writer ended with {writer.wait()} before it began")
        text = b"".join(_read_for(writer.stdout, after_seconds))
        writer.send_signal(signal.SIGKILL)
        text += writer.stdout.read()
        writer.wait()
    return [int(line) for line in text.split(b"\n")[:-1]]


def _read_for(stream: IO[bytes], seconds: float) -> Iterator[bytes]:
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            if selector.select(left):
                yield os.read(stream.fileno(), 65536)


def _write_for_ever(root: Path, mode: str, part_bytes: int) -> None:
    checkpointer = Checkpointer(root, keep_last=2, environment={})
    found = checkpointer.latest()
    step = 0 if found is None else found.step + 1
    os.write(1, b"ready\n")
    while True:
        parts = [part(step, index, part_bytes) for index in range(_PARTS)]
        if mode == "files":
            with checkpointer.save(step) as folder:
                for index, content in enumerate(parts):
                    (folder / f"part{index}.bin").write_bytes(content)
        elif mode == "arrays":
            checkpointer.save_arrays(step, {f"part{index}": content for index, content in enumerate(parts)})
        else:
            checkpointer.save_async(step, {f"part{index}": content for index, content in enumerate(parts)})
            checkpointer.wait()
        os.write(1, b"%d\n" % step)
        step += 1


if __name__ == "__main__":
    _write_for_ever(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
