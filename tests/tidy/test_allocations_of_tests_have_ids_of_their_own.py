"""Contract tests run beside each other, and what an allocation's id names is the whole host's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from starverse.testing.launches import own

CONTRACT = Path(__file__).resolve().parents[1] / "contract"
FIXED = re.compile(r"""\b(?:trial|site|platform|bench)\.(?:build|launch|submit|run)\(\s*f?["']""")
"""An allocation that is begun under the same id by whoever runs the test."""


@pytest.mark.parametrize("file", sorted(CONTRACT.glob("test_*.py")), ids=lambda file: file.stem)
def test_no_contract_test_begins_an_allocation_under_a_fixed_id(file: Path) -> None:
    text = file.read_text("utf-8")
    found = [text[: hit.start()].count("\n") + 1 for hit in FIXED.finditer(text)]
    assert not found, f"{file.name}, lines {found}: use own() of starverse.testing.launches"


def test_an_id_of_ones_own_is_the_same_each_time_in_this_process_only() -> None:
    assert own("a") == own("a") != own("b")
    assert own("a") not in ("a", "a-")


@pytest.mark.parametrize(
    ("line", "is_fixed"),
    [
        ('trial.build("twice", SHORT)', True),
        ('platform.build(\n        f"bad-{number}", secrets=())', True),
        ('bench.run(own("joined"), "echo one")', False),
        ('line.run("true")', False),
    ],
)
def test_a_fixed_id_is_told_from_one_of_ones_own(line: str, is_fixed: bool) -> None:
    assert bool(FIXED.search(line)) is is_fixed
