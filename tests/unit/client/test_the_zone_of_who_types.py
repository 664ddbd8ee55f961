"""The zone that a submission names: that of the caller's clock, where it has a name."""

from __future__ import annotations

from pathlib import Path

import pytest

from starverse.client.submitting import caller_zone


@pytest.mark.parametrize(
    ("typed", "sent"),
    [
        ("Asia/Shanghai", {"TZ": "Asia/Shanghai"}),
        (":UTC", {"TZ": "UTC"}),
        ("Etc/GMT+8", {"TZ": "Etc/GMT+8"}),
        ("CST-8CDT,M3.2.0", {}),
        ("/etc/localtime", {}),
    ],
)
def test_a_zone_in_the_environment_counts_where_it_is_a_name(typed: str, sent: dict[str, str]) -> None:
    assert caller_zone({"TZ": typed}) == sent


def test_else_it_is_the_one_of_the_machine(tmp_path: Path) -> None:
    there = tmp_path / "usr/share/zoneinfo/Europe/Berlin"
    there.parent.mkdir(parents=True)
    there.touch()
    (tmp_path / "localtime").symlink_to(there)
    assert caller_zone({}, tmp_path / "localtime") == {"TZ": "Europe/Berlin"}
    assert caller_zone({}, tmp_path / "missing") == {"TZ": "UTC"}
    assert caller_zone({}, there.rename(tmp_path / "copy")) == {}
