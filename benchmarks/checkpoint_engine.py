"""Benchmark 5: how long a save blocks, how quick a restore is, and whether a kill tears a checkpoint.

``python -m benchmarks.checkpoint_engine --gib 1 --kills 200 --json``. Blocking time is that of
``save_async`` beside one memory copy of the same arrays into memory that is there already; a restore (every
byte verified) beside a plain read of the same files into new memory, both from the page cache. Peers take
turns within each repeat, the figures are medians. Kills follow a seed.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.report import Figure, Report, emit, flush_p50_seconds
from starverse.checkpoint import Checkpointer
from starverse.checkpoint.hashing import default_algorithm
from starverse.testing.checkpoint_kills import KillLoop, kill_loop

NUMBER = 5
NAME = "checkpoint engine"
_SHARDS = 8

State = dict[str, npt.NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Settings:
    """``gib`` of state in eight arrays, ``repeats`` of each timing, ``kills`` in all, where to write."""

    gib: float = 1.0
    repeats: int = 5
    kills: int = 200
    seed: int = 5
    folder: Path | None = None


def measure(settings: Settings) -> Report:
    """Run the benchmark; needs room for four times the state on disk and in memory."""
    folder = Path(tempfile.mkdtemp(prefix="starverse-bench-", dir=settings.folder))
    try:
        state = _state(settings)
        figures = _saves(settings, folder, state) + _restores(settings, folder, state)
        torch_figures, missing = _torch(settings, folder, state)
        outcome = kill_loop(KillLoop(folder / "kills", settings.kills, settings.seed))
        figures += torch_figures
        figures += [
            Figure("torn restores", outcome.torn, f"of {outcome.kills} kills", at_most=0),
            Figure("restores older than reported", outcome.older, f"of {outcome.kills} kills", at_most=0),
        ]
        conditions = {
            "state_gib": settings.gib,
            "repeats": settings.repeats,
            "seed": settings.seed,
            "hash": default_algorithm(),
            "reads": "page cache",
            "flush_p50_ms": round(flush_p50_seconds(folder) * 1000, 3),
            "kills_during_a_write": outcome.leftovers,
            "checkpoints_published_between_kills": outcome.published,
        }
        return Report(NUMBER, NAME, figures, conditions, missing)
    finally:
        shutil.rmtree(folder)


def _state(settings: Settings) -> State:
    numbers = np.random.default_rng(settings.seed)
    count = int(settings.gib * 2**30) // 4 // _SHARDS
    return {f"layer{index}": numbers.random(count, dtype=np.float32) for index in range(_SHARDS)}


def _saves(settings: Settings, folder: Path, state: State) -> list[Figure]:
    checkpointer = Checkpointer(folder / "saves", keep_last=1, environment={}, handle_signal=False)
    checkpointer.reserve(state)
    target = {name: np.ones_like(value) for name, value in state.items()}
    copies, blocked, durable = [], [], []
    for step in range(settings.repeats + 1):
        copies.append(_timed(lambda: _copy(target, state)))
        begun = time.perf_counter()
        checkpointer.save_async(step, state)
        blocked.append(time.perf_counter() - begun)
        checkpointer.wait()
        durable.append(time.perf_counter() - begun)
    copy, block = statistics.median(copies[1:]), statistics.median(blocked[1:])
    write = _timed(lambda: _plain_write(folder / "plain", state))
    return [
        Figure("save_async blocks", block, "s", "memory copy", copy, at_most=1.3),
        Figure("save until durable", statistics.median(durable[1:]), "s", "plain write + fsync", write),
    ]


def _restores(settings: Settings, folder: Path, state: State) -> list[Figure]:
    checkpointer = Checkpointer(folder / "saves", environment={}, handle_signal=False)
    latest = checkpointer.latest()
    assert latest is not None
    files = sorted((latest.path / "arrays").iterdir())
    into = {name: np.ones_like(value) for name, value in state.items()}
    samples: dict[str, list[float]] = {"new": [], "read": [], "into": [], "readinto": []}
    for _ in range(settings.repeats):
        samples["read"].append(_timed(lambda: [np.fromfile(file, np.float32) for file in files]))
        samples["new"].append(_timed(lambda: checkpointer.restore()))
        samples["readinto"].append(_timed(lambda: _read_into(files, list(into.values()))))
        samples["into"].append(_timed(lambda: checkpointer.restore(into)))
    if any(not np.array_equal(into[name], state[name]) for name in state):
        raise RuntimeError("what was restored is not what was saved")
    median = {name: statistics.median(values) for name, values in samples.items()}
    return [
        Figure("restore, verified", median["new"], "s", "read", median["read"], at_most=1.25),
        Figure(
            "restore in place, verified", median["into"], "s", "readinto", median["readinto"], at_most=1.25
        ),
    ]


def _torch(settings: Settings, folder: Path, state: State) -> tuple[list[Figure], list[str]]:
    try:
        torch: Any = importlib.import_module("torch")
        dcp: Any = importlib.import_module("torch.distributed.checkpoint")
    except ImportError as error:
        return [], [f"torch.save and DCP async_save: PyTorch is not importable here ({error})"]
    tensors = {name: torch.from_numpy(value) for name, value in state.items()}
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    checkpointer = Checkpointer(folder / "torch", keep_last=1, environment={}, handle_signal=False)
    checkpointer.reserve(arrays)
    samples: dict[str, list[float]] = {"save": [], "dcp": [], "ours": []}
    for step in range(settings.repeats):
        samples["save"].append(_timed(lambda: torch.save(tensors, folder / "torch.pt")))
        begun = time.perf_counter()
        future = dcp.async_save(tensors, checkpoint_id=str(folder / f"dcp{step}"))
        samples["dcp"].append(time.perf_counter() - begun)
        future.result()
        shutil.rmtree(folder / f"dcp{step}")
        begun = time.perf_counter()
        checkpointer.save_async(step, arrays)
        samples["ours"].append(time.perf_counter() - begun)
        checkpointer.wait()
    median = {name: statistics.median(values) for name, values in samples.items()}
    return [
        Figure("save_async blocks, CPU tensors (1)", median["ours"], "s", "torch.save", median["save"]),
        Figure("save_async blocks, CPU tensors (2)", median["ours"], "s", "DCP async_save", median["dcp"]),
    ], []


def _copy(target: State, source: State) -> None:
    for name, value in source.items():
        np.copyto(target[name], value)


def _plain_write(folder: Path, state: Mapping[str, npt.NDArray[np.float32]]) -> None:
    folder.mkdir()
    for name, value in state.items():
        with (folder / name).open("wb") as file:
            file.write(value.data.cast("B"))
            file.flush()
            os.fsync(file.fileno())
    shutil.rmtree(folder)


def _read_into(files: list[Path], targets: list[npt.NDArray[np.float32]]) -> None:
    for path, target in zip(files, targets, strict=True):
        with path.open("rb", buffering=0) as file:
            view, at = target.data.cast("B"), 0
            while at < len(view):
                at += file.readinto(view[at:])


def _timed(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def main() -> None:
    """Command line of the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--gib", type=float, default=1.0, help="size of the state (default 1)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--kills", type=int, default=200, help="kill -9 at random moments (default 200)")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where to write (default: the temporary folder)")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    settings = Settings(given.gib, given.repeats, given.kills, given.seed, given.folder)
    emit(measure(settings), as_json=given.json)


if __name__ == "__main__":
    main()
