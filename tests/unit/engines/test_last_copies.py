"""The last copy of a template whose launcher died: asked for until it is done, and never without end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from starverse.engines.base import EngineUnavailable
from starverse.engines.folders.leftovers import COPY_SECONDS_MAX, LastCopies
from starverse.node.folder import AllocationFolder


class Copies:
    """Starts processes that go on until they are told to end; ``time`` is set by the test."""

    def __init__(self) -> None:
        self.time = 0.0
        self.started: list[subprocess.Popen[str]] = []
        self.last = LastCopies(self.start, lambda: self.time)

    def start(self, _folder: Path) -> subprocess.Popen[str]:
        act = subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.started.append(act)
        return act


@pytest.fixture
def copies() -> Iterator[Copies]:
    made = Copies()
    yield made
    for act in made.started:
        act.kill()
        act.communicate()


def test_a_copy_is_begun_once_and_asked_for_until_it_is_done(copies: Copies, tmp_path: Path) -> None:
    folder = AllocationFolder(tmp_path)
    for _ in range(2):
        with pytest.raises(EngineUnavailable):
            copies.last.finish(folder)
    (act,) = copies.started
    assert act.stdin is not None
    act.stdin.write("\n")
    act.stdin.flush()
    act.wait(20)
    copies.last.finish(folder)
    assert len(copies.started) == 1


def test_a_copy_that_never_ends_is_ended(copies: Copies, tmp_path: Path) -> None:
    folder = AllocationFolder(tmp_path)
    with pytest.raises(EngineUnavailable):
        copies.last.finish(folder)
    copies.time += COPY_SECONDS_MAX
    copies.last.finish(folder)
    assert copies.started[0].poll() is not None
