"""A malformed price book is refused whole with every fault named; versions take over at their instant."""

from __future__ import annotations

from fractions import Fraction

import pytest

from starverse.domain.errors import Invalid
from starverse.domain.money import Money
from starverse.domain.pricing.price_book import PriceBooks
from starverse.domain.pricing.price_book_reader import read_price_book
from starverse.domain.pricing.price_book_yaml import load_price_book, shipped_price_book_text
from starverse.domain.tariff import Tariff
from starverse.testing.pricing import at, edited_book

FAULTS = [
    ("a bare number", ('"1.66"', "1.66"), "list_price.rtx4090", "1.66 (float)"),
    ("seven places", ('"1.66"', '"1.6600001"'), "list_price.rtx4090", "1.6600001"),
    ("an exponent", ('"1.66"', '"1e3"'), "list_price.rtx4090", "1e3"),
    ("a negative price", ('"1.66"', '"-1.66"'), "list_price.rtx4090", "-1.66"),
    ("a price of nothing", ('"1.66"', '"0"'), "list_price.rtx4090", "0"),
    ("an unknown fabric", ("rtx4090/ib:", "rtx4090/copper:"), "list_price.rtx4090/copper", "rtx4090/copper"),
    ("a factor above list", ('"0.30"}\n  reserved', '"1.01"}\n  reserved'), "tariffs.spot.factor", "1.01"),
    (
        "a factor of nothing",
        ('spot:      {factor: "0.30"}', 'spot: {factor: "0"}'),
        "tariffs.spot.factor",
        "0",
    ),
    ("an hour that is none", ('"23:00"', '"24:00"'), "windows.night.from", "24:00"),
    ("an unquoted clock", ('"23:00"', "23:00"), "windows.night.from", "1380 (int)"),
    ("an empty window", ('to: "08:00"', 'to: "23:00"'), "windows.night.to", "23:00"),
    ("a window nobody wrote", ("[night]", "[evening]"), "tariffs.on_demand.windows[0]", "evening"),
    ("the same window twice", ("[night]", "[night, night]"), "tariffs.on_demand.windows[1]", "night"),
    ("a tariff of nothing", ("of: spot", "of: gift"), "tariffs.idle.of", "gift"),
    ("an unknown tariff", ("  day: ", "  week: "), "tariffs.week", "{'hours': 24, 'factor': '0.75'} (dict)"),
    ("no tariff on demand", ("  on_demand: {", "  no_gpu2: {"), "tariffs.on_demand", "missing"),
    ("no tier for today", ("lead_hours: 0", "lead_hours: 1"), "tariffs.reserved.tiers", None),
    (
        "two tiers alike",
        ("lead_hours: 168", "lead_hours: 0"),
        "tariffs.reserved.tiers[1].lead_hours",
        "0 (int)",
    ),
    ("hours in quotes", ("hours: 720", 'hours: "720"'), "tariffs.month.hours", "720"),
    ("another currency", ("CNY\n", "USD\n"), "currency", "USD"),
    ("no such zone", ("Asia/Shanghai", "Asia/Atlantis"), "timezone", "Asia/Atlantis"),
    ("a zone that is a path", ("Asia/Shanghai", "../../etc/passwd"), "timezone", "../../etc/passwd"),
    ("no offset", ("00:00:00+08:00", "00:00:00"), "effective_from", "2026-03-01T00:00:00"),
    ("a share above all", ('floor_share: "0.20"', 'floor_share: "1.20"'), "floor_share", "1.20"),
    ("a missing part", ('signup_credit: "10.00"\n', ""), "signup_credit", "missing"),
    ("a part nobody knows", ("currency: CNY", "currency: CNY\ndiscount: 1"), "discount", "1 (int)"),
    ("negative GiB", ("free_gib: 50", "free_gib: -1"), "storage.free_gib", "-1 (int)"),
    ("a member that is a number", ('edu: {factor: "0.90"}', "edu: 1"), "members.edu", "1 (int)"),
]


@pytest.mark.parametrize(("edit", "field", "value"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS])
def test_each_fault_is_named_with_its_value(edit: tuple[str, str], field: str, value: str | None) -> None:
    with pytest.raises(Invalid) as refused:
        edited_book(edit)
    named = {fault.field: fault for fault in refused.value.faults}
    assert field in named
    assert named[field].expected
    if value is not None:
        assert named[field].value == value


def test_all_faults_of_a_book_are_named_at_once() -> None:
    with pytest.raises(Invalid) as refused:
        edited_book(
            ('"1.66"', "1.66"), ("Asia/Shanghai", "Nowhere"), ('"23:00"', '"25:00"'), ("CNY\n", "X\n")
        )
    fields = {fault.field for fault in refused.value.faults}
    assert fields == {"list_price.rtx4090", "timezone", "windows.night.from", "currency"}


BROKEN = [
    ("nothing", ""),
    ("a list", "- 1"),
    ("half a list", "[1, 2"),
    ("a repeated key", "a: 1\na: 2"),
    ("an alias, which could blow up", "a: &x [1]\nb: *x"),
    ("a tag that would run code", "!!python/object/apply:os.system ['true']"),
    ("very deep nesting", "[" * 5_000),
    ("far too long", "#" * 300_000),
    ("a number as key", shipped_price_book_text().replace("  rtx3090:", "  3090:")),
    ("two documents", "a: 1\n---\nb: 2"),
    ("an impossible date", shipped_price_book_text().replace("2026-03-01", "2026-02-31")),
]


@pytest.mark.parametrize("text", [b[1] for b in BROKEN], ids=[b[0] for b in BROKEN])
def test_what_is_no_price_book_is_refused_with_a_fault(text: str) -> None:
    with pytest.raises(Invalid) as refused:
        load_price_book(text)
    assert refused.value.faults
    assert all(fault.expected for fault in refused.value.faults)


@pytest.mark.parametrize("document", [None, 3, "text", [], {}, {1: 2}], ids=repr)
def test_documents_of_other_shapes_are_refused(document: object) -> None:
    with pytest.raises(Invalid):
        read_price_book(document)


def test_the_shipped_book_is_read_as_it_is_written() -> None:
    book = edited_book()
    assert book.effective_from == at("2026-03-01 00:00")
    assert book.list_price_of("rtx4090", "ib") == Money.parse("1.90")
    assert book.list_price_of("rtx4090", "roce") == Money.parse("1.66")
    assert book.factor_of(Tariff.IDLE) == Fraction(27, 100)
    assert set(book.tariffs) == set(Tariff)
    assert book.models == ("rtx3090", "rtx4090", "rtx4090d", "a100-40g", "a100-80g")
    assert book.warnings == ()


@pytest.mark.parametrize("date", ["2026-13-01", "2026-02-30T00:00:00+08:00", "2026-03-01 25:00:00"])
def test_a_date_that_there_is_not_hides_no_other_fault(date: str) -> None:
    with pytest.raises(Invalid) as wrong:
        edited_book(("2026-03-01T00:00:00+08:00", date), ('"0.625"', '"x"'))
    assert {fault.field for fault in wrong.value.faults} == {"effective_from", "tariffs.month.factor"}


def test_an_unknown_model_is_refused_with_the_models_there_are() -> None:
    with pytest.raises(Invalid, match=r"rtx5090/eth.*rtx3090, rtx4090, rtx4090/ib"):
        edited_book().list_price_of("rtx5090")


def test_a_version_takes_over_at_its_instant() -> None:
    april = edited_book(("2026-03-01", "2026-04-01"))
    books = PriceBooks([april, edited_book()])
    assert books.at(at("2026-03-31 23:59:59")) is books.versions[0]
    assert books.at(at("2026-04-01 00:00")) is april
    with pytest.raises(Invalid, match="not before the first price book"):
        books.at(at("2026-02-28 23:59:59"))
    with pytest.raises(Invalid, match="no version has yet"):
        PriceBooks([april, april])
    with pytest.raises(Invalid, match="no price book"):
        PriceBooks([])


WARNED = [
    ("a month dearer than its days", ('"0.625"', '"0.90"'), ["tariffs.month"]),
    ("a day just dearer than on demand", ('"0.75"', '"0.82"'), ["tariffs.day"]),
    ("a day exactly as dear", ('"0.75"', '"0.8125"'), []),
    (
        "a night so cheap that no package is",
        ('to: "08:00", factor: "0.50"', 'to: "22:00", factor: "0.30"'),
        None,
    ),
]


@pytest.mark.parametrize(("edit", "fields"), [w[1:] for w in WARNED], ids=[w[0] for w in WARNED])
def test_a_package_dearer_than_on_demand_is_warned_of(
    edit: tuple[str, str], fields: list[str] | None
) -> None:
    warned = [warning.partition(":")[0] for warning in edited_book(edit).warnings]
    assert warned == (["tariffs.day", "tariffs.month", "tariffs.year"] if fields is None else fields)
