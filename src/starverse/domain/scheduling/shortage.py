"""What lacks, in figures: the typed reason and the text for a job that fits nowhere now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

import numpy as np

from starverse.domain.money import MICRO_PER_YUAN, decimal_string
from starverse.domain.scheduling.capacity import Layout, PoolRows, Room, Shape
from starverse.domain.scheduling.fit import GIB, memory_wanted
from starverse.domain.timespan import format_instant
from starverse.domain.workloads.reasons import WaitReason
from starverse.domain.workloads.specs import Resources


@dataclass(frozen=True, slots=True)
class Shortage:
    """``cards_free`` counts the pool where most is free, ``cards_free_on_one_node`` its fullest node."""

    reason: WaitReason
    message: str
    cards_free: int = 0
    cards_free_on_one_node: int = 0


def shortage(layout: Layout, shape: Shape, pools: tuple[PoolRows, ...], room: Room) -> Shortage:
    """Why no pool takes the gang now. ``room`` is what is free and promised to nobody."""
    r = shape.resources
    usable = [(pool, layout.usable[pool.rows]) for pool in pools]
    if not any(flags.any() for _, flags in usable):
        text = "every node that could take it is down or drained" if pools else "no node is known yet"
        return Shortage(WaitReason.NO_CARDS, text)
    found = [_in_pool(r, pool, room) for pool, flags in usable if flags.any()]
    return max(found, key=lambda s: (s.cards_free >= r.cards, s.cards_free_on_one_node, s.cards_free))


def wanted(resources: Resources) -> str:
    """``8 rtx4090``, ``2 nodes with 8 rtx4090 each``, ``4 CPUs and 8.0 GiB of memory``."""
    r = resources
    each = " each" if r.nodes > 1 else ""
    front = f"{r.nodes} nodes with " if r.nodes > 1 else ""
    if r.cards_per_node:
        return f"{front}{r.cards_per_node} {r.card_model or 'cards'}{each}"
    return f"{front}{r.cpus_per_node} CPUs and {r.memory_bytes / GIB:.1f} GiB of memory{each}"


def clock(instant: datetime) -> str:
    """An instant for people, to the second, in UTC."""
    return format_instant(instant.replace(microsecond=0))


def yuan(rate_micro: Fraction) -> str:
    """A rate in micro-yuan as text in yuan."""
    return f"CNY {decimal_string(rate_micro / MICRO_PER_YUAN)}"


def _in_pool(r: Resources, pool: PoolRows, room: Room) -> Shortage:
    counts = np.bitwise_count(room.bits[pool.rows] & pool.model_bits).astype(np.int64)
    most, free = int(counts.max()), int(counts.sum())
    enough = counts >= r.cards_per_node
    rows = pool.rows[enough]
    cpus_ok = room.cpus[rows] >= r.cpus_per_node
    memory_ok = room.memory_bytes[rows] >= r.memory_bytes
    reason = WaitReason.FRAGMENTED if r.cards_per_node and free >= r.cards else WaitReason.NO_CARDS
    if int(enough.sum()) < r.nodes:
        text = f"needs {wanted(r)}; {free} free in {pool.pool}, at most {most} on one node"
        if r.nodes > 1:
            text += f", and {int(enough.sum())} nodes with {r.cards_per_node} free"
    elif int(cpus_ok.sum()) < r.nodes:
        at_most = max(0, int(room.cpus[rows].max()))
        text = f"needs {r.cpus_per_node} CPUs on each node; at most {at_most} free in {pool.pool}"
    elif int((cpus_ok & memory_ok).sum()) < r.nodes:
        at_most = max(0, int(room.memory_bytes[rows].max()))
        text = f"needs {memory_wanted(r)} on each node; at most {at_most / GIB:.1f} GiB free"
    elif pool.listed.any() and not bool(enough[pool.listed].all()):
        text = "a node of its node list is in use"
    else:
        text = f"needs {wanted(r)} linked to each other; {most} are free on one node, but not linked"
    return Shortage(reason, text, free, most)
