"""Figures measured between two nodes, and what ``fabric-probe`` printed, read with care.

A figure has a date and a method, or it does not exist: nothing here is ever declared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

RESULT_VERSION = 1
RESULT_BYTES_MAX = 100_000
NANOSECONDS_MAX = 10**12
BYTES_PER_SECOND_MAX = 10**14


class What(StrEnum):
    """What was measured: small messages to and fro, one direction full, a sum over both ranks."""

    ROUND_TRIP = "round_trip"
    BANDWIDTH = "bandwidth"
    ALL_REDUCE = "all_reduce"


class Method(StrEnum):
    """By what: our own TCP probe, PyTorch with gloo or NCCL, perftest, nccl-tests."""

    TCP = "tcp"
    GLOO = "gloo"
    NCCL = "nccl"
    IB_WRITE_BW = "ib_write_bw"
    NCCL_TESTS = "nccl-tests"


class CheckState(StrEnum):
    """A check of one pair: ``asked`` (no job yet) -> ``running`` (it has one) -> ``measured``, ``failed``."""

    ASKED = "asked"
    RUNNING = "running"
    MEASURED = "measured"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure. Times are of one operation on ``message_bytes``; ``None``: this method tells none.

    ``bytes_per_second`` of an all-reduce is the bus bandwidth as nccl-tests define it.
    """

    what: What
    method: Method
    p50_nanoseconds: int | None = None
    p99_nanoseconds: int | None = None
    bytes_per_second: int | None = None
    message_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool by its parts, written ``zone/model/fabric``."""

    zone: str
    card: str
    fabric: str

    def __str__(self) -> str:
        return f"{self.zone}/{self.card}/{self.fabric}"


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure between two nodes of a pool. ``same_machine``: both ran on one host, so it is no network's."""

    pool: Pool
    first_node: str
    second_node: str
    figure: Figure
    measured_at: datetime
    same_machine: bool

    @property
    def pair(self) -> frozenset[str]:
        return frozenset((self.first_node, self.second_node))


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What a probe printed. ``left_out`` says per method why there is no figure of it."""

    nodes: tuple[str, str]
    same_machine: bool
    figures: tuple[Figure, ...]
    left_out: Mapping[str, str]


class NotAResult(ValueError):
    """The text is not what a probe prints; the argument says where."""


def read_result(text: str) -> ProbeResult:
    """Parse and check the JSON that ``fabric-probe`` prints; raises :class:`NotAResult`.

    Methods and figures of a later version are passed over; figures that cannot be are refused.
    """
    if len(text) > RESULT_BYTES_MAX:
        raise NotAResult("it is too long")
    try:
        document = json.loads(text)
    except ValueError as error:
        raise NotAResult("it is no JSON") from error
    if not isinstance(document, dict) or document.get("version") != RESULT_VERSION:
        raise NotAResult(f"it is not of version {RESULT_VERSION}")
    nodes = document.get("nodes")
    if not (isinstance(nodes, list) and len(nodes) == 2 and all(isinstance(node, str) for node in nodes)):
        raise NotAResult("it does not name two nodes")
    listed = document.get("figures")
    if not isinstance(listed, list) or len(listed) > 100:
        raise NotAResult("it has no list of figures")
    figures = [_figure(raw) for raw in listed if isinstance(raw, dict)]
    left_out = document.get("left_out")
    return ProbeResult(
        nodes=(nodes[0], nodes[1]),
        same_machine=document.get("same_machine") is not False,
        figures=tuple(figure for figure in figures if figure is not None),
        left_out={
            str(name)[:40]: str(why)[:300]
            for name, why in (left_out.items() if isinstance(left_out, dict) else ())
        },
    )


def _figure(raw: Mapping[str, Any]) -> Figure | None:
    try:
        what, method = What(str(raw.get("what"))), Method(str(raw.get("method")))
    except ValueError:
        return None
    return Figure(
        what,
        method,
        _number(raw, "p50_nanoseconds", NANOSECONDS_MAX),
        _number(raw, "p99_nanoseconds", NANOSECONDS_MAX),
        _number(raw, "bytes_per_second", BYTES_PER_SECOND_MAX),
        _number(raw, "message_bytes", BYTES_PER_SECOND_MAX),
    )


def _number(raw: Mapping[str, Any], name: str, most: int) -> int | None:
    value = raw.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= most:
        raise NotAResult(f"{name} is {str(value)[:40]}")
    return value
