"""A claim is taken once, also where a lock of one host says nothing to another."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from starverse.node.folder import AllocationFolder
from starverse.node.steady_clock import read_boot_id


@pytest.fixture
def folder(tmp_path: Path) -> AllocationFolder:
    return AllocationFolder(tmp_path)


def test_what_another_host_claimed_is_not_claimed_again(folder: AllocationFolder) -> None:
    (folder / "claimed-by").write_text("another-boot")
    assert folder.claim() is None


def test_after_one_that_died_before_it_spoke_the_next_on_this_host_claims(folder: AllocationFolder) -> None:
    first = folder.claim()
    assert first is not None
    os.close(first)
    second = folder.claim()
    assert second is not None
    os.close(second)
    assert (folder / "claimed-by").read_text() == read_boot_id()


def test_a_claim_leaves_no_other_files(folder: AllocationFolder) -> None:
    lock = folder.claim()
    assert lock is not None
    os.close(lock)
    assert sorted(path.name for path in folder.path.iterdir()) == ["claim.lock", "claimed-by"]
