"""Which checkpoints to keep: the newest few that can still be resumed from, and always one verified."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from starverse.checkpoint.loads import given_up
from starverse.checkpoint.manifest import Published, published, verify
from starverse.checkpoint.publish import folder_lock, set_aside


def to_prune(
    found: Sequence[Published], keep_last: int, given_up_names: Collection[str]
) -> tuple[list[Published], list[Published]]:
    """Split checkpoints (oldest first) into those to keep and those to prune, each newest first.

    Kept are the newest ``keep_last`` that are not given up; one given up is kept only while it is newer
    than all of these, as evidence.
    """
    keep: list[Published] = []
    drop: list[Published] = []
    good = 0
    for item in reversed(found):
        if item.path.name in given_up_names:
            (drop if good else keep).append(item)
        elif good < keep_last:
            good += 1
            keep.append(item)
        else:
            drop.append(item)
    return keep, drop


def prune(
    root: Path,
    keep_last: int,
    trusted: Collection[str] = (),
    *,
    wait: bool = True,
    bytes_max: int | None = None,
) -> list[Path]:
    """Remove old checkpoints from ``root``; returns what was removed.

    ``trusted`` names folders known to be verified (just published by this process). Before anything is
    removed, one of the kept has to be trusted or verify and not be given up; where none does, the newest
    older one that verifies is kept as well. ``wait`` and ``bytes_max`` are those of :func:`folder_lock` and
    :func:`verify`. Raises ``ValueError`` when ``keep_last`` is below 1.
    """
    if keep_last < 1:
        raise ValueError(f"keep_last is {keep_last}; at least one checkpoint has to stay")
    with folder_lock(root, wait=wait):
        dead = given_up(root)
        keep, drop = to_prune(published(root), keep_last, dead)
        if not drop:
            return []
        usable = [item for item in keep if item.path.name not in dead]
        if not any(
            item.path.name in trusted or verify(item.path, bytes_max=bytes_max).verified for item in usable
        ):
            older = (item for item in drop if item.path.name not in dead)
            spared = next((item for item in older if verify(item.path, bytes_max=bytes_max).verified), None)
            drop = drop if spared is None else [item for item in drop if item.path != spared.path]
            if spared is None:
                return []
        for item in drop:
            set_aside(item.path)
        return [item.path for item in drop]
