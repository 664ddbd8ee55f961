"""Benchmarks 10 and 11 run on small traces of the public ones' form and say each target."""

from __future__ import annotations

import gzip
import json
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from benchmarks import forecast, heat_map


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    random = np.random.default_rng(10)
    (tmp_path / "philly").mkdir()
    (tmp_path / "helios/earth_vc").mkdir(parents=True)
    start = datetime.fromisoformat("2017-10-03")
    hours = [start + timedelta(hours=hour) for hour in range(420)]
    with gzip.open(tmp_path / forecast.PHILLY_NODES, "wt") as file:
        file.write("time,active,total\n")
        file.writelines(f"{at},{int(random.integers(5, 15))},20\n" for at in hours)
    with gzip.open(tmp_path / "helios/earth_vc/vc.csv.gz", "wt") as file:
        file.write("time,idle_gpu_num\n")
        file.writelines(f"{at},{int(random.integers(0, 9))}\n" for at in hours)
    for folder, machines in (("1-node", 1), ("16-node", 16)):
        (tmp_path / "availability" / folder / "set").mkdir(parents=True)
        data = (random.integers(0, 2, 260).repeat(8) * machines).tolist()
        trace = {"metadata": {"gap_seconds": 600}, "data": data}
        (tmp_path / "availability" / folder / "set/zone.json").write_text(json.dumps(trace))
    return tmp_path


def test_the_forecast_is_told_beside_the_best_naive_method(
    traces: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert forecast.main(["--helios", str(traces / "helios"), "--quick", "--json"]) == 0
    figures = {row["name"]: row for row in json.loads(capsys.readouterr().out)["figures"]}
    assert figures["Philly, 24 h ahead, error"]["ratio"] < 1
    assert figures["Earth, 1 h ahead, error"]["target"] == "<= 1x"
    assert figures["Philly, 24 h ahead, error"]["target"] == "<= 0.85x"


def test_the_heat_map_has_skill_where_states_last(traces: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert heat_map.main(["--traces", str(traces / "availability"), "--quick", "--json"]) == 0
    figures = {row["name"]: row for row in json.loads(capsys.readouterr().out)["figures"]}
    assert figures["skill 1 h against climatology"]["measured"] > 0
    assert figures["calibration error, all horizons"]["target"] == "<= 0.03"
    assert figures["72 h x 64 pools"]["measured"] > 0
