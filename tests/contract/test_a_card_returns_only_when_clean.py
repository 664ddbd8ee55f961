"""Scenario 16 with real launchers and cards from a file: memory that stays held, a foreign process."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from starverse.domain.workloads.launch import Desired, GrantedCard, UncleanCard
from starverse.engines.base import EngineUnavailable, Presence
from starverse.engines.folders import FolderEngine, OpenChannel
from starverse.engines.local import LocalEngine
from starverse.node import processes
from starverse.node.cards.file import FileCards
from starverse.testing.instance_sites import Site, instance_site
from starverse.testing.launches import own

GIB = 1024**3
CLEAN_SECONDS_MAX = 1.0
HELD = {"memory_used_bytes": 8 * GIB}
FREE = {"memory_used_bytes": 0}


class Bench:
    """A site whose cards a test writes."""

    def __init__(self, site: Site, file: Path) -> None:
        self.site, self.engine, self.file = site, site.engine, file

    def write(self, *cards: dict[str, Any]) -> None:
        aside = self.file.with_suffix(".new")
        rows = [{"model": "rtx4090", **card} for card in cards]
        aside.write_text(json.dumps({"nodes": [{"node_id": "declared-1", "cards": rows}]}))
        aside.rename(self.file)

    def submit(self, name: str, script: str) -> None:
        """A job on both cards."""
        cards = tuple(
            GrantedCard(
                f"declared-1-card-{index}", index, f"GPU-declared-1-{index}", "rtx4090", declared=True
            )
            for index in (0, 1)
        )
        self.engine.submit(self.site.build(name, interactive=False, script=script, cards=cards, home=""))


@pytest.fixture
def clean_seconds_max() -> float:
    return CLEAN_SECONDS_MAX


@pytest.fixture
def bench(tmp_path: Path, clean_seconds_max: float) -> Iterator[Bench]:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed: apt-get install bubblewrap")
    file = tmp_path / "cards.json"

    def engine(data: Path, open_channel: OpenChannel | None) -> FolderEngine:
        cards = FileCards(file)
        return LocalEngine(data, cards, open_channel=open_channel, clean_seconds_max=clean_seconds_max)

    file.write_text(json.dumps({"nodes": [{"node_id": "declared-1", "cards": [{"model": "rtx4090"}] * 2}]}))
    with instance_site(engine) as site:
        yield Bench(site, file)


def test_memory_that_stays_held_is_told_and_nobody_pays_for_the_wait(bench: Bench) -> None:
    name = own("held")
    bench.submit(name, "sleep 60\n")
    bench.site.until(name, lambda state: state.ready_at is not None)
    bench.write(FREE, HELD)
    bench.engine.steer(name, Desired(stop=True))
    state = bench.site.until(name, lambda state: state.phase == "ended")
    assert state.unclean == (UncleanCard("declared-1", 1, "8.0 GiB of its memory are held by nobody"),)
    assert state.ended_at is not None
    assert state.alive_at - state.ended_at >= CLEAN_SECONDS_MAX * 0.9, "the wait comes after the end"


@pytest.mark.parametrize("clean_seconds_max", [20.0])  # in time on a busy machine, too
def test_memory_that_comes_back_in_time_is_no_fault(bench: Bench) -> None:
    name = own("late")
    bench.submit(name, "sleep 60\n")
    bench.site.until(name, lambda state: state.ready_at is not None)
    bench.write(FREE, HELD)
    bench.engine.steer(name, Desired(stop=True))
    bench.site.until(name, lambda state: state.ended_at is not None or state.phase == "stopping")
    bench.write(FREE, FREE)
    assert bench.site.until(name, lambda state: state.phase == "ended").unclean == ()


def test_nothing_starts_on_a_card_that_another_is_on(bench: Bench) -> None:
    name = own("refused")
    bench.write(FREE, {"foreign_processes": [4711]})
    bench.submit(name, "echo ran > ran\n")
    state = bench.site.until(name, lambda state: state.phase == "ended")
    assert state.ready_at is None
    assert state.failure == "card 1: process 4711 is still on it"
    assert [card.index for card in state.unclean] == [1]
    assert not list(bench.site.data.glob("jobs/*/workspace/ran"))


def test_the_cards_of_a_launcher_that_was_killed_are_looked_at_too(bench: Bench) -> None:
    """Until they are clean, or had their time, its allocation is not over."""
    name = own("killed")
    bench.submit(name, "sleep 60\n")
    bench.site.until(name, lambda state: state.ready_at is not None)
    bench.write(HELD, FREE)
    facts = (bench.site.data / "allocations" / name / "claim.lock").stat()
    holder = processes.find_lock_holder(facts.st_dev, facts.st_ino)
    assert holder is not None
    os.kill(holder, signal.SIGKILL)
    begin = time.monotonic()
    with pytest.raises(EngineUnavailable, match=r"card 0: 8\.0 GiB"):
        bench.engine.clean(name)
    while True:
        try:
            bench.engine.clean(name)
            break
        except EngineUnavailable:
            time.sleep(0.05)
    assert time.monotonic() - begin >= CLEAN_SECONDS_MAX
    seen = bench.engine.observe([name])[name]
    assert seen.presence is Presence.GONE
    assert seen.state is not None
    assert [(card.index, card.why) for card in seen.state.unclean] == [
        (0, "8.0 GiB of its memory are held by nobody")
    ]
