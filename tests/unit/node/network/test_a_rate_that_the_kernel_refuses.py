"""A network whose rate cannot be limited is there all the same, and nobody is told that it is limited."""

from __future__ import annotations

import json
import os
import select
import time
from dataclasses import replace
from pathlib import Path

import pytest

from starverse.node.network.keeper import NetworkKeeper
from starverse.testing.launches import build_launch

REFUSAL = "ifb is not in this kernel"


@pytest.mark.parametrize(
    ("rate", "refusal", "remark"),
    [
        (None, REFUSAL, ""),
        (1000, "", ""),
        (1000, REFUSAL, f"the network's rate is not limited: {REFUSAL}"),
    ],
)
def test_what_the_log_says_of_the_rate(tmp_path: Path, rate: int | None, refusal: str, remark: str) -> None:
    spec = build_launch(tmp_path, "net", network="internet")
    spec = replace(spec, limits=replace(spec.limits, network_bytes_per_second=rate))
    keeper = NetworkKeeper(spec, tmp_path, lambda *_: None, lambda *_: refusal)
    own = os.pidfd_open(os.getpid())
    try:
        keeper.begin(os.getpid(), own, "")
        give_up = time.monotonic() + 20
        while not keeper.is_there:
            assert time.monotonic() < give_up
            select.select(keeper.handles(), [], [], 1)
            assert keeper.tend(time.monotonic()) == ""
    finally:
        os.close(own)
        keeper.end()
    assert keeper.remark == remark
    told = tmp_path / "network" / "rate.json"
    assert told.exists() is (rate is not None)
    if rate is not None:
        assert json.loads(told.read_text()) == {"bytes_per_second": rate, "refused": refusal}
