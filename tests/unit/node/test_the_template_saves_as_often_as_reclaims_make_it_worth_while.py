"""When copies of the checkpoint template are due: by the time that they take, and the reclaims expected."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from starverse.domain.recovery.checkpoint_interval import (
    UNMEASURED_SAVE_SECONDS,
    SavePace,
    best_interval,
)
from starverse.domain.workloads.launch import LaunchSpec, Template
from starverse.node.folder import AllocationFolder
from starverse.node.steady_clock import SteadyClock
from starverse.node.template_keeping import PUBLISHED, TemplateKeeper, pace_line
from starverse.testing.launches import build_launch

TWO_AN_HOUR = 2 / 3600


class StoppedClock(SteadyClock):
    """Shows what it is set to."""

    at = 0.0

    def now(self) -> float:
        return self.at


class Keeper(TemplateKeeper):
    """Acts are over as soon as they begin, and print ``told``."""

    told = f"checkpoint 1{PUBLISHED}state"

    def _start(self, act: str) -> subprocess.Popen[str]:
        begun.append(self._clock.now())
        done = subprocess.Popen(["/bin/echo", self.told], stdout=subprocess.PIPE, text=True)
        done.wait()
        return done


begun: list[float] = []


def run(tmp_path: Path, template: Template, *, save_seconds: float, told: str, until: float) -> list[str]:
    """Let time pass a second at a time; each act is looked at ``save_seconds`` after it began."""
    begun.clear()
    clock = StoppedClock()
    said: list[str] = []
    spec = build_launch(tmp_path, template=template)
    keeper = Keeper(spec, AllocationFolder(tmp_path / "allocation"), clock, said.append, lambda: None)
    keeper.told = told
    keeper.begin()
    while clock.at < until:
        acts = len(begun)
        keeper.tend(clock.at)
        clock.at += save_seconds if len(begun) > acts else 1.0
    periodic = list(begun)
    keeper.perform("final")
    begun[:] = periodic
    return said


def test_the_interval_follows_the_measured_time_of_a_save(tmp_path: Path) -> None:
    template = Template("state", 1800, TWO_AN_HOUR)
    said = run(tmp_path, template, save_seconds=40.0, told=Keeper.told, until=3000)
    unmeasured = best_interval(UNMEASURED_SAVE_SECONDS, TWO_AN_HOUR).seconds
    measured = best_interval(40, TWO_AN_HOUR).seconds
    assert begun[0] == pytest.approx(unmeasured, abs=1)
    assert begun[2] - begun[1] == pytest.approx(measured, rel=0.1)
    assert [line for line in said if "reclaims an hour" in line] == [
        pace_line(SavePace(1800, TWO_AN_HOUR, 40.0, 1))
    ]


def test_what_is_not_reclaimed_is_saved_at_the_operators_interval(tmp_path: Path) -> None:
    said = run(tmp_path, Template("state", 600), save_seconds=40.0, told=Keeper.told, until=2000)
    assert begun == [600, 1200, 1800]
    assert not [line for line in said if "reclaims" in line]


def test_the_operators_maximum_holds_whatever_a_save_costs(tmp_path: Path) -> None:
    run(tmp_path, Template("state", 300, 1e-6), save_seconds=100.0, told=Keeper.told, until=1000)
    assert begun == [300, 600, 900]


def test_a_copy_that_was_void_or_changed_nothing_is_no_measure(tmp_path: Path) -> None:
    template = Template("state", 1800, TWO_AN_HOUR)
    said = run(tmp_path, template, save_seconds=1.0, told="no checkpoint: it changed", until=900)
    unmeasured = best_interval(UNMEASURED_SAVE_SECONDS, TWO_AN_HOUR).seconds
    assert begun[1] - begun[0] == pytest.approx(unmeasured, abs=2)
    assert not [line for line in said if "reclaims" in line]


def test_a_spec_written_before_has_no_reclaims(tmp_path: Path) -> None:
    spec = build_launch(tmp_path, template=Template("state", 1800))
    written = json.loads(spec.to_json())
    del written["template"]["reclaims_per_second"]
    assert LaunchSpec.from_json(json.dumps(written)).template == Template("state", 1800)
