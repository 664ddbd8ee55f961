"""Whether workloads have shares, as ``doctor`` says: by rates, and by what the kernel did when tried."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from starverse.node.doctor_surroundings import (
    Rates,
    probe_disk_shares,
    probe_network_shares,
    probe_shared_disks,
    write_rate,
)
from starverse.node.findings import Health
from starverse.node.limits import find_cgroups
from starverse.node.network.rates import kernel_refusal
from starverse.node.project_quotas import refusal


@pytest.mark.parametrize(
    ("rates", "refused", "health", "words"),
    [
        (Rates(), "", Health.WARN, "no rate is set"),
        (Rates(node=120_000_000), "", Health.OK, "120 MB/s divided by cards, each way"),
        (Rates(limit=5_000_000), "", Health.OK, "5 MB/s for each workload at most"),
        (Rates(node=120_000_000), "ifb is not in this kernel", Health.WARN, "ifb is not in this kernel"),
        (Rates(), "not allowed", Health.WARN, "not allowed"),
    ],
)
def test_a_share_of_the_network_is_promised_only_where_it_holds(
    rates: Rates, refused: str, health: Health, words: str
) -> None:
    found = probe_network_shares(rates, lambda _act: refused)
    assert found.health is health
    assert words in found.what
    assert bool(found.remedy) is (health is not Health.OK)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user without any right")
def test_who_does_not_own_its_network_is_told_so() -> None:
    assert as_nobody(kernel_refusal) == "not allowed"


def as_nobody(act: Callable[[], str]) -> str:
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(65_534, 65_534, 65_534)
            os.setresuid(65_534, 65_534, 65_534)
            os.write(tell, act().encode())
        finally:
            os._exit(0)
    os.close(tell)
    with os.fdopen(told, "rb") as file:
        said = file.read().decode()
    os.waitpid(child, 0)
    return said


def test_a_share_of_the_disk_needs_a_rate_and_a_control_group(tmp_path: Path) -> None:
    found = probe_disk_shares(tmp_path / "not there yet", Rates(node=1_000_000_000))
    support = find_cgroups()
    assert found.health is (Health.OK if support.blkio else Health.WARN)
    if support.blkio:
        assert found.what.startswith("1,000 MB/s divided by cards")
        assert ("page cache" in found.what) is (support.version == 1), "what version 1 does not hold is said"


def test_what_one_writer_gets_is_measured_and_leaves_nothing(tmp_path: Path) -> None:
    assert write_rate(tmp_path) >= 0
    assert write_rate(tmp_path / "missing") == 0
    assert list(tmp_path.iterdir()) == []


def test_shared_disks_are_said_to_be_counted_where_they_cannot_be_held(tmp_path: Path) -> None:
    found = probe_shared_disks(tmp_path / "not there yet")
    held = refusal(tmp_path) == ""
    assert found.health is (Health.OK if held else Health.WARN)
    assert ("counted" in found.what) is not held
    assert bool(found.remedy) is not held
