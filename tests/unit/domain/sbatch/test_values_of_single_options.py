"""One table for each kind of value: what is read, and what is refused with words that say what is right."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from starverse.domain.money import Money
from starverse.domain.sbatch import cards, hostlists, times, values
from starverse.domain.sbatch.cards import CardRequest, Place, Vocabulary
from starverse.domain.sbatch.origins import BadValue
from starverse.domain.tariff import Tariff
from starverse.domain.workloads.specs import (
    ArraySpec,
    Dependencies,
    Dependency,
    DependencyKind,
    OpenMode,
    SignalSpec,
)

HOUR, DAY = 3600, 86_400
HERE = Vocabulary(models=("rtx4090", "a100-40g"), zones=("bj1", "sh2"))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30 * 60),
        ("90:15", 90 * 60 + 15),
        ("2:30:05", 2 * HOUR + 30 * 60 + 5),
        ("1-2", DAY + 2 * HOUR),
        ("1-2:3", DAY + 2 * HOUR + 3 * 60),
        ("1-02:03:04", DAY + 2 * HOUR + 3 * 60 + 4),
        ("0:20", 20),
        ("0-0:0:1", 1),
    ],
)
def test_time_limits(text: str, seconds: int) -> None:
    assert times.parse_time_limit(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "0", "-1", "UNLIMITED", "infinite", "1h", "1:2:3:4", "1-", "-5", "1.5", "１０", "400-0", "0:0"],
)
def test_time_limits_refused(text: str) -> None:
    with pytest.raises(BadValue):
        times.parse_time_limit(text)


@pytest.mark.parametrize(
    ("seconds", "text"), [(59, "00:00:59"), (HOUR, "01:00:00"), (DAY, "1-00:00:00"), (90_061, "1-01:01:01")]
)
def test_time_limits_written(seconds: int, text: str) -> None:
    assert times.format_time_limit(seconds) == text


NOW = datetime(2026, 3, 10, 2, 0, tzinfo=UTC)  # Tuesday 10:00 in Shanghai
SHANGHAI = ZoneInfo("Asia/Shanghai")


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("now", "2026-03-10 10:00:00"),
        ("now+60", "2026-03-10 10:01:00"),
        ("now+1hour", "2026-03-10 11:00:00"),
        ("now + 2 days", "2026-03-12 10:00:00"),
        ("now-5minutes", "2026-03-10 09:55:00"),
        ("16:00", "2026-03-10 16:00:00"),
        ("09:59", "2026-03-11 09:59:00"),
        ("10:00", "2026-03-11 10:00:00"),
        ("4:30:15 PM", "2026-03-10 16:30:15"),
        ("12:00am", "2026-03-11 00:00:00"),
        ("12:00pm", "2026-03-10 12:00:00"),
        ("midnight", "2026-03-11 00:00:00"),
        ("noon", "2026-03-10 12:00:00"),
        ("teatime", "2026-03-10 16:00:00"),
        ("today", "2026-03-10 00:00:00"),
        ("tomorrow", "2026-03-11 00:00:00"),
        ("tomorrow-08:00", "2026-03-11 08:00:00"),
        ("2026-03-20", "2026-03-20 00:00:00"),
        ("2026-03-20T12:34:56", "2026-03-20 12:34:56"),
        ("03/11/26-12:00", "2026-03-11 12:00:00"),
        ("0311", "2026-03-11 00:00:00"),
        ("0309", "2027-03-09 00:00:00"),
        ("3/10", "2027-03-10 00:00:00"),
        ("3.10-12:00", "2026-03-10 12:00:00"),
        ("2026-03-20T12:00:00+00:00", "2026-03-20 20:00:00"),
        ("2026-03-20T12:00:00Z", "2026-03-20 20:00:00"),
    ],
)
def test_begin_in_the_zone_of_the_caller(text: str, local: str) -> None:
    expected = datetime.fromisoformat(local).replace(tzinfo=SHANGHAI)
    assert times.parse_begin(text, NOW, SHANGHAI) == expected


@pytest.mark.parametrize(
    "text",
    ["", "soon", "25:00", "10:61", "13:00pm", "now+", "now+3fortnights", "2026-02-30", "13/01", "0230",
     "2026-13-01", "T", "today tomorrow", "now+999999999weeks"],
)  # fmt: skip
def test_begin_refused(text: str) -> None:
    with pytest.raises(BadValue):
        times.parse_begin(text, NOW, SHANGHAI)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0-3", ArraySpec((0, 1, 2, 3))),
        ("1,3,5-7", ArraySpec((1, 3, 5, 6, 7))),
        ("0-15:4", ArraySpec((0, 4, 8, 12))),
        ("0-3%2", ArraySpec((0, 1, 2, 3), 2)),
        ("7,1,1-2", ArraySpec((1, 2, 7))),
        ("5", ArraySpec((5,))),
    ],
)
def test_arrays(text: str, expected: ArraySpec) -> None:
    assert values.array(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "3-1", "0-3%", "0-3%0", "a", "1-2-3", "0-9:0", "1,,2", "0-10000", "1000000", "0-99999999", "-1"],
)
def test_arrays_refused(text: str) -> None:
    with pytest.raises(BadValue):
        values.array(text)


K = DependencyKind


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("afterok:12", Dependencies((Dependency(K.AFTEROK, 12),))),
        ("afterok:12:13", Dependencies((Dependency(K.AFTEROK, 12), Dependency(K.AFTEROK, 13)))),
        ("after:12+5", Dependencies((Dependency(K.AFTER, 12, None, 5),))),
        ("afternotok:12_3", Dependencies((Dependency(K.AFTERNOTOK, 12, 3),))),
        ("afterany:12_*", Dependencies((Dependency(K.AFTERANY, 12),))),
        ("singleton", Dependencies((Dependency(K.SINGLETON),))),
        ("afterok:1,afterany:2", Dependencies((Dependency(K.AFTEROK, 1), Dependency(K.AFTERANY, 2)))),
        ("afterok:1?afterany:2", Dependencies((Dependency(K.AFTEROK, 1), Dependency(K.AFTERANY, 2)), True)),
    ],
)
def test_dependencies(text: str, expected: Dependencies) -> None:
    assert values.dependencies(text) == expected


@pytest.mark.parametrize(
    "text", ["", "12", "afterok", "afterok:", "afterok:x", "aftercorr:1", "afterok:1+5", "singleton:1",
             "afterok:1,afterok:2?afterok:3", "afterok:1:", "expand:4"],
)  # fmt: skip
def test_dependencies_refused(text: str) -> None:
    with pytest.raises(BadValue):
        values.dependencies(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("USR1", SignalSpec("USR1")),
        ("B:SIGUSR1@120", SignalSpec("USR1", 120, True)),
        ("10@30", SignalSpec("USR1", 30)),
        ("b:term", SignalSpec("TERM", 60, True)),
    ],
)
def test_signals(text: str, expected: SignalSpec) -> None:
    assert values.signal_spec(text) == expected


@pytest.mark.parametrize("text", ["", "USR9", "R:USR1", "B:USR1@", "USR1@99999", "B:", "999", "²"])
def test_signals_refused(text: str) -> None:
    with pytest.raises(BadValue):
        values.signal_spec(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("4096", 4 * 1024**3), ("4G", 4 * 1024**3), ("500m", 500 * 1024**2), ("64K", 65536), ("1T", 1024**4),
     ("2GB", 2 * 1024**3)],
)  # fmt: skip
def test_sizes(text: str, expected: int) -> None:
    assert values.memory_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "0", "4 G", "-1", "4P", "1.5G", "99999999T"])
def test_sizes_refused(text: str) -> None:
    with pytest.raises(BadValue):
        values.memory_bytes(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu", CardRequest(1)),
        ("gpu:2", CardRequest(2)),
        ("gpu:rtx4090", CardRequest(1, "rtx4090")),
        ("gpu:RTX4090:2", CardRequest(2, "rtx4090")),
        ("gres:gpu:2", CardRequest(2)),
        ("gres/gpu:a100-40g:8", CardRequest(8, "a100-40g")),
        ("gpu:rtx4090:1,gpu:rtx4090:2", CardRequest(3, "rtx4090")),
        ("none", CardRequest(0)),
        ("gpu:0", CardRequest(0)),
    ],
)
def test_gres(text: str, expected: CardRequest) -> None:
    assert cards.gres(text, HERE) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "it is empty"),
        ("  ", "it is empty"),
        ("gpu:rtx4090:1,gpu:a100-40g:1", "one card model"),
        ("gpu:rtx409:1", "rtx4090"),
        ("gpu:h100:1", "a100-40g, rtx4090"),
        ("nvme:1", "nothing but gpu"),
        ("gpu:rtx4090:two", "gpu:MODEL:COUNT"),
        ("gpu:rtx4090:1:2", "gpu:MODEL:COUNT"),
        ("gpu:", "a card model"),
        ("gpu=2", "gpu:COUNT"),
        ("2", "gpu:COUNT"),
    ],
)
def test_gres_refused(text: str, says: str) -> None:
    with pytest.raises(BadValue) as caught:
        cards.gres(text, HERE)
    assert says in caught.value.expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ib", Place(fabric="ib")),
        ("rtx4090&roce", Place(model="rtx4090", fabric="roce")),
        ("bj1,eth", Place(zone="bj1", fabric="eth")),
        ("zone:bj1&model:rtx4090", Place(zone="bj1", model="rtx4090")),
    ],
)
def test_constraints(text: str, expected: Place) -> None:
    assert cards.constraint(text, HERE) == expected


@pytest.mark.parametrize("text", ["", "ib|eth", "[ib|eth]", "ib*2", "ib&eth", "v100", "zone:mars", "ib&"])
def test_constraints_refused(text: str) -> None:
    with pytest.raises(BadValue):
        cards.constraint(text, HERE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("all", Place()),
        ("ib", Place(fabric="ib")),
        ("spot", Place(tariff="spot")),
        ("bj1/rtx4090/ib", Place("rtx4090", "ib", "bj1")),
        ("rtx4090", Place(model="rtx4090")),
    ],
)
def test_partitions(text: str, expected: Place) -> None:
    assert cards.partition(text, HERE) == expected


@pytest.mark.parametrize("text", ["", "debug", "ib,eth", "bj1/rtx4090/fc"])
def test_partitions_refused(text: str) -> None:
    with pytest.raises(BadValue):
        cards.partition(text, HERE)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu001", ("gpu001",)),
        ("gpu[001-003,007]", ("gpu001", "gpu002", "gpu003", "gpu007")),
        ("a,b[1-2]", ("a", "b1", "b2")),
        ("r[0-1]n[8-9]", ("r0n8", "r0n9", "r1n8", "r1n9")),
        ("gpu[9-11]", ("gpu9", "gpu10", "gpu11")),
        ("a,a", ("a",)),
    ],
)
def test_host_lists(text: str, names: tuple[str, ...]) -> None:
    assert hostlists.expand_hosts(text) == names


@pytest.mark.parametrize("text", ["", "a[", "a]", "a[1", "a[2-1]", "a[[1]]", "a[x]", "a,,b", "/etc/hosts",
                                  "a[1-99999]", "a[0-99]b[0-99]", "a b"])  # fmt: skip
def test_host_lists_refused(text: str) -> None:
    with pytest.raises(BadValue):
        hostlists.expand_hosts(text)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ((), ""),
        (("head",), "head"),
        (("gpu001",), "gpu001"),
        (("gpu001", "gpu002", "gpu004", "head"), "gpu[001-002,004],head"),
        (("n9", "n10"), "n9,n10"),
    ],
)
def test_host_lists_folded(names: tuple[str, ...], text: str) -> None:
    assert hostlists.fold_hosts(names) == text


def test_export_takes_only_what_is_named() -> None:
    environment = {"HOME": "/root", "LEVEL": "3"}
    found = values.export("ALL,LEVEL,MISSING,A='x,y',B=\"it's\",C=", environment)
    assert found.variables == (("LEVEL", "3"), ("A", "x,y"), ("B", "it's"), ("C", ""))
    assert [notice.split(":")[0] for notice in found.notices] == ["--export=ALL", "--export"]


def test_export_never_sets_what_the_platform_sets() -> None:
    found = values.export("CUDA_VISIBLE_DEVICES=0,SLURM_JOB_ID=1,STARVERSE_RETRY=1", {})
    assert found.variables == ()
    assert len(found.notices) == 3


@pytest.mark.parametrize("text", ["1X=2", "A B=3", "A='x", "=x"])
def test_export_refused(text: str) -> None:
    with pytest.raises(BadValue):
        values.export(text, {})


def test_own_options() -> None:
    assert values.tariff("on-demand") is Tariff.ON_DEMAND
    assert values.positive_money("1.66") == Money(1_660_000)
    assert values.checkpoint_folder("/workspace/out/ck") == "out/ck"
    assert values.open_mode("a") is OpenMode.APPEND
    assert values.node_count("2-4") == values.NodeCount(2, 4)
    assert values.dataset("digits@v1") == "digits@v1"


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (values.tariff, "month"), (values.tariff, "cheap"), (values.positive_money, "0"),
        (values.positive_money, "-1"), (values.positive_money, "1e3"), (values.checkpoint_folder, "."),
        (values.checkpoint_folder, "../x"), (values.checkpoint_folder, "/etc"), (values.open_mode, "x"),
        (values.open_mode, ""), (values.node_count, "4-2"), (values.node_count, "0"), (values.count, "٣"),
        (values.dataset, "../x"), (values.network, "all"), (values.only_dev_null, "data.txt"),
        (values.job_name, " "), (values.job_name, "a\nb"), (values.plain_text, "x" * 300),
    ],
)  # fmt: skip
def test_own_options_refused(parse: object, text: str) -> None:
    assert callable(parse)
    with pytest.raises(BadValue):
        parse(text)
