"""``starverse heatmap --from-trace``: text, JSON and pictures say the same; wrong traces are named."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from starverse.cli.local.heat_map_pictures import CELL, by_day, encode_png, png, svg
from starverse.domain.errors import Invalid
from starverse.domain.forecasting.heat_map import heat_map
from starverse.domain.forecasting.series import HourlySeries
from starverse.domain.forecasting.traces import read_trace
from starverse.testing.command_lines import CommandLine
from starverse.testing.fake_api import FakeApi

START = datetime(2026, 3, 2, 22, tzinfo=UTC)
CELLS = [(START + timedelta(hours=hour), hour / 4) for hour in range(4)]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    data = [8 if hour // 24 % 2 else 0 for hour in range(400)]
    file = tmp_path / "trace.json"
    text = json.dumps({"metadata": {"gap_seconds": 3600}, "data": data, "prices": [0.9] * 400})
    file.write_text(text)
    return file


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as fake:
        yield fake


@pytest.fixture
def line(api: FakeApi, tmp_path: Path) -> CommandLine:
    return CommandLine(api.url, tmp_path)


def test_text_and_json_tell_every_hour(line: CommandLine, trace: Path) -> None:
    asked = ["heatmap", "--from-trace", str(trace), "--cards", "4", "--hours", "3"]
    text = line.run(*asked)
    (told,) = json.loads(line.run(*asked, "--json").out)["items"]
    assert text.code == 0
    assert "\x1b" not in text.out
    assert len(told["hours"]) == 72
    assert "24 h ahead, on" in text.out
    assert told["enough_history"]
    assert told["hours"][0]["price"] == pytest.approx(0.9)


def test_a_young_trace_says_that_there_is_not_enough_history(line: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "young.json"
    file.write_text('{"metadata": {"gap_seconds": 300}, "data": [0, 3, null, 4]}')
    assert "Not enough history" in line.run("heatmap", "--from-trace", str(file)).out


def test_pictures_are_written_where_asked(line: CommandLine, trace: Path, tmp_path: Path) -> None:
    drawn = [str(tmp_path / "a.svg"), str(tmp_path / "a.png")]
    assert line.run("heatmap", "--from-trace", str(trace), "--svg", drawn[0], "--png", drawn[1]).code == 0
    assert Path(drawn[0]).read_text().count("<rect") == 73
    assert Path(drawn[1]).read_bytes().startswith(b"\x89PNG")


def test_without_a_trace_the_server_is_asked(api: FakeApi, line: CommandLine) -> None:
    pool = {"pool": "bj1/rtx4090/eth", **heat_map(HourlySeries(START, np.full(9, 4.0)), 2).to_json()}
    api.on("GET", "/heatmap", {"items": [pool], "next_cursor": None})
    ran = line.run("heatmap", "--card", "rtx4090", "--cards", "2")
    assert "2 free together in bj1/rtx4090/eth" in ran.out
    assert "Not enough history: 9 h" in ran.out


def test_no_pool_like_this_is_not_found(api: FakeApi, line: CommandLine) -> None:
    api.on("GET", "/heatmap", {"items": [], "next_cursor": None})
    assert "no pool like this" in line.run("heatmap", "--card", "none").err


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"data": [1]}',
        '{"metadata": {"gap_seconds": 0}, "data": [1]}',
        '{"metadata": {"gap_seconds": 300}, "data": []}',
        '{"metadata": {"gap_seconds": 300}, "data": [-1]}',
        '{"metadata": {"gap_seconds": 9999}, "data": [1]}',
    ],
)
def test_what_is_no_trace_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        read_trace(text)


def test_a_day_is_a_row_and_a_png_holds_its_cells() -> None:
    assert [len(day) for day in by_day(CELLS)] == [2, 2]
    assert svg("a < b", CELLS).count("a &lt; b") == 1
    picture = png(CELLS)
    assert struct.unpack(">II", picture[16:24]) == (24 * CELL, 2 * CELL)


def test_a_png_can_be_read_back() -> None:
    picture = encode_png(2, [bytes(range(6)), bytes(6)])
    size = struct.unpack(">I", picture[33:37])[0]
    assert zlib.decompress(picture[41 : 41 + size]) == b"\0" + bytes(range(6)) + b"\0" + bytes(6)
