"""ARCHITECTURE.md shows the state machines and the reconcilers as they are in the code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from starverse.config import Config
from starverse.domain.workloads import states
from starverse.main import make_reconcilers
from starverse.testing.platforms import fresh_database, make_platform
from starverse.testing.still_engine import StillEngine

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text("utf-8")

MACHINES: dict[str, Mapping[Any, frozenset[Any]]] = {
    "allocation": states.ALLOCATION_TRANSITIONS,
    "job": states.JOB_TRANSITIONS,
    "instance": states.INSTANCE_TRANSITIONS,
    "reservation": states.RESERVATION_TRANSITIONS,
    "attachment": states.ATTACHMENT_TRANSITIONS,
    "checkpoint": states.CHECKPOINT_TRANSITIONS,
}


def row_of(first_cell: str) -> list[str]:
    line = next(line for line in TEXT.splitlines() if line.startswith(f"| {first_cell} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_the_transitions_shown_are_those_of_the_table(name: str) -> None:
    shown = {}
    for part in row_of(name)[1].split(";"):
        old, _, new = part.partition("->")
        shown[old.strip(" `")] = frozenset(re.findall(r"`([a-z_]+)`", new))
    expected = {str(old): frozenset(map(str, new)) for old, new in MACHINES[name].items() if new}
    assert shown == expected


def test_every_state_machine_of_the_code_is_shown() -> None:
    kinds = [kind for kind in vars(states).values() if isinstance(kind, type) and issubclass(kind, StrEnum)]
    names = {kind.__name__.removesuffix("State").lower() for kind in kinds if kind is not StrEnum}
    assert names == set(MACHINES)


def test_every_reconciler_is_shown_with_its_period(tmp_path: Path) -> None:
    section = TEXT[TEXT.index("\n## Reconcilers") : TEXT.index("\n## The launcher and its channel")]
    shown = {
        name: float(period)
        for name, period in re.findall(r"^\| `([a-z_]+)` \| ([\d.]+) s \|", section, re.MULTILINE)
    }
    with fresh_database("sqlite", tmp_path) as database:
        loops = make_reconcilers(make_platform(database, tmp_path, StillEngine()))
    assert shown == {loop.name: loop.period_seconds for loop in loops}


def test_the_settings_named_exist() -> None:
    known = {f"{s}.{n}" for s, f in Config.model_fields.items() for n in f.annotation.model_fields}  # type: ignore[union-attr]
    named = set(re.findall(r"`((?:server|engine|policy)\.[a-z_]+)`", TEXT))
    assert not named - known
