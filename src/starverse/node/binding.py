"""Which cards an engine bound on this node, where it picks them itself (Slurm does).

Read from the environment that the engine gave the launcher: Slurm names the indices of its generic resource
as ``SLURM_STEP_GPUS`` in a step and ``SLURM_JOB_GPUS`` in the batch script (srun and sbatch manual pages).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from starverse.domain.workloads.launch import GrantedCard, LauncherState, LaunchSpec
from starverse.node.sandbox.driver import StartRefused

DRIVER_FOLDER = Path("/proc/driver/nvidia/gpus")


def bind_cards(
    spec: LaunchSpec,
    state: LauncherState,
    environ: Mapping[str, str],
    *,
    first_node: bool,
    driver_folder: Path = DRIVER_FOLDER,
) -> tuple[LaunchSpec, LauncherState]:
    """The node's part of a launch with the cards that were bound, and the state that says so.

    Raises :class:`StartRefused` where the engine bound another number of cards than were granted.
    """
    if spec.binds_cards:
        return spec, state
    indices = bound_indices(environ, first_node=first_node) if spec.cards else ()
    if len(indices) != len(spec.cards):
        raise StartRefused(
            f"the engine bound {len(indices)} cards on {spec.node}, {len(spec.cards)} were granted"
        )
    uuids = {} if all(card.declared for card in spec.cards) else read_uuids(driver_folder)
    cards = tuple(
        _bind(card, index, spec.node, uuids) for card, index in zip(spec.cards, indices, strict=True)
    )
    return replace(spec, cards=cards), replace(state, bound=((spec.node, indices),))


def bound_indices(environ: Mapping[str, str], *, first_node: bool) -> tuple[int, ...]:
    """The indices, ascending. ``SLURM_JOB_GPUS`` speaks of the first node only; the others inherit it.

    Raises :class:`StartRefused` where what is set is not a list of indices.
    """
    names = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS") if first_node else ("SLURM_STEP_GPUS",)
    for name in (*names, "CUDA_VISIBLE_DEVICES"):
        text = environ.get(name, "")
        if text:
            parts = text.split(",")
            if not all(part.isdecimal() for part in parts) or len(set(parts)) != len(parts):
                raise StartRefused(f"{name}={text!r} is not a list of card indices")
            return tuple(sorted(int(part) for part in parts))
    return ()


def read_uuids(driver_folder: Path) -> dict[int, str]:
    """UUID by device minor, of all cards of this node, those hidden from this process too."""
    found = {}
    for file in driver_folder.glob("*/information"):
        facts = dict(line.split(":", 1) for line in file.read_text().splitlines() if ":" in line)
        minor = facts.get("Device Minor", "").strip()
        if minor.isdecimal():
            found[int(minor)] = facts.get("GPU UUID", "").strip()
    return found


def _bind(card: GrantedCard, index: int, node: str, uuids: Mapping[int, str]) -> GrantedCard:
    if card.declared:
        return replace(card, index=index, node=node)
    if index not in uuids:
        raise StartRefused(f"card {index}, which the engine bound, is not known to the driver of {node}")
    return replace(card, index=index, node=node, uuid=uuids[index])
