"""Bills that explain themselves, offers, quotes; the same usage costs the same."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from starverse.app.bill import month_span
from starverse.domain.errors import Invalid
from starverse.engines.fake import FakeRun
from starverse.testing.http_sites import PREFIX, Person, Site, open_site

SCRIPT = "#!/bin/bash\n#SBATCH --gres=gpu:rtx4090:{cards}\n#SBATCH --job-name={name}\necho hello\n"


def run_job(site: Site, person: Person, *argv: str, cards: int = 1, seconds: float = 60) -> str:
    """Submit, run to the end, settle; the job's number."""
    name = f"job{cards}"
    site.world.plan(name, FakeRun(run_seconds=seconds))
    body = {"script": SCRIPT.format(cards=cards, name=name), "argv": list(argv)}
    number = person.post("/jobs", body)["job"]["number"]
    site.world.run(seconds + 240, step=60)
    job = person.get(f"/jobs/{number}")
    assert job["state"] == "succeeded", job["message"]
    return str(number)


def test_a_bill_adds_up_and_explains_every_micro_yuan(site: Site) -> None:
    person = site.register()
    number = run_job(site, person, "--tariff=spot", "--account=thesis", cards=2, seconds=3600)
    bill = person.get(f"/bill?job={number}")
    assert bill["total_micro"] == sum(charge["total_micro"] for charge in bill["charges"])
    assert bill["total_micro"] == 996_000, "2 cards x 0.498 x 1 h"
    assert bill["on_demand_total_micro"] == 3_320_000
    assert bill["saved_micro"] == 2_324_000
    assert bill["credit_micro"] == 996_000, "the sign-up credit pays before cash"
    assert (bill["rounded"], bill["rounding"]) == ("1.00", "0.004")
    for charge in bill["charges"]:
        assert charge["total_micro"] == sum(segment["amount_micro"] for segment in charge["segments"])
        explained = person.get(f"/charges/{charge['id']}")
        assert explained["total_micro"] == charge["total_micro"]
        assert explained["price_book"]["effective_from"] == "2026-02-28T16:00:00Z"
        posted = [move["amount_micro"] for move in explained["transfers"] if move["kind"] == "post_pending"]
        assert sum(posted) == charge["total_micro"]
        assert any("spot 0.3" in step for step in explained["steps"])
    assert person.get("/bill?label=thesis")["total_micro"] == bill["total_micro"]
    assert person.get("/bill?label=other")["charges"] == []
    assert person.get("/bill?month=2026-03")["total_micro"] == bill["total_micro"]
    assert person.get("/bill?month=2026-04")["total_micro"] == 0
    assert person.get("/wallet")["free_micro"] == 10_000_000 - 996_000


def test_a_running_job_shows_as_an_open_estimate(site: Site) -> None:
    person = site.register()
    site.world.plan("job1", FakeRun(run_seconds=7200))
    person.post("/jobs", {"script": SCRIPT.format(cards=1, name="job1")})
    site.world.run(601, step=100)
    bill = person.get("/bill")
    assert bill["charges"] == []
    assert bill["open"][0]["amount_micro"] in range(270_000, 280_000), "ten minutes of 1.66 an hour"
    wallet = person.get("/wallet")
    assert wallet["burn_micro_per_hour"] == 1_660_000
    assert wallet["held_micro"] >= 1_660_000
    assert wallet["runway_seconds"] == 10_000_000 * 3600 // 1_660_000
    other = site.register("other@example.org")
    assert other.get("/bill")["open"] == []
    assert other.get("/wallet")["runway_seconds"] is None


@pytest.mark.parametrize("registered_on_day", [1, 15, 29])
def test_the_day_an_account_was_made_changes_no_bill(site: Site, registered_on_day: int) -> None:
    """Scenario 2: the same usage costs the same whenever the account was made."""
    later = site.clock.at
    site.clock.at = later.replace(day=registered_on_day)
    person = site.register()
    site.clock.at = later.replace(day=30)
    number = run_job(site, person, seconds=1800)
    assert person.get(f"/bill?job={number}")["total_micro"] == 830_000


def test_a_month_is_the_sum_of_its_local_days() -> None:
    """Scenario 6, by kind: months follow the wall clock of the zone, whatever its offset."""
    for zone, hours in (("Asia/Shanghai", -8.0), ("Asia/Kolkata", -5.5), ("America/St_Johns", 3.5)):
        start, end = month_span("2026-02", zone)
        assert start.utcoffset() == timedelta(hours=-hours)
        assert end - start == timedelta(days=28)
    for wrong in ("2026-13", "2026", "0000-01", "9999-12", "2026-1", "x"):
        with pytest.raises(Invalid):
            month_span(wrong, "Asia/Shanghai")


def test_what_a_disk_costs_is_told_before_there_is_one(site: Site) -> None:
    assert site.register().get("/disk-prices") == {
        "block_gib_month": "0.30",
        "block_gib_month_micro": 300_000,
        "shared_gib_month": "0.20",
        "shared_gib_month_micro": 200_000,
        "free_gib": 50,
    }


def test_offers_show_free_cards_and_prices_to_the_next_change(site: Site) -> None:
    person = site.register()
    offers = person.get("/offers")["items"]
    assert [offer["pool"] for offer in offers] == ["bj1/rtx4090/eth"]
    offer = offers[0]
    assert (offer["cards_total"], offer["cards_free"], offer["largest_node_free"]) == (8, 8, 8)
    assert offer["declared"] is True
    rates = {line["tariff"]: line["rate"] for line in offer["prices"]}
    assert rates == {"on_demand": "1.66", "spot": "0.498", "idle": "0.4482", "no_gpu": "0.498"}
    assert offer["next_price_change_at"] == "2026-03-10T15:00:00Z"
    site.clock.advance(hours=13)
    night = person.get("/offers")["items"][0]
    assert {line["tariff"]: line["rate"] for line in night["prices"]}["on_demand"] == "0.83"
    assert night["next_price_change_at"] == "2026-03-11T00:00:00Z"
    assert person.get("/offers?cards=9")["items"] == []
    assert person.get("/offers?card=a100-80g")["items"] == []
    site.clock.advance(hours=-13)


def test_busy_drained_and_quarantined_cards_are_not_offered(site: Site) -> None:
    person, operator = site.register(), site.operator()
    site.world.plan("job3", FakeRun(run_seconds=3600))
    number = person.post("/jobs", {"script": SCRIPT.format(cards=3, name="job3")})["job"]["number"]
    site.world.run(5)
    assert person.get("/offers")["items"][0]["cards_free"] == 5
    own = person.get("/nodes")["items"][0]["cards"]
    assert [card["job"] for card in own if card["state"] == "busy"] == [number] * 3
    stranger = site.register("stranger@example.org").get("/nodes")["items"][0]["cards"]
    assert {card["job"] for card in stranger} == {None}
    assert sum(card["state"] == "busy" for card in stranger) == 3
    free = next(card["id"] for card in own if card["state"] == "free")
    operator.client.patch(f"{PREFIX}/admin/cards/{free}", json={"quarantined": True})
    assert person.get("/offers")["items"][0]["cards_free"] == 4
    operator.client.patch(f"{PREFIX}/admin/nodes/n1", json={"drained": True})
    assert person.get("/offers")["items"][0]["cards_free"] == 0


def quote(**fields: Any) -> dict[str, Any]:
    return {
        "card": "rtx4090",
        "cards": 1,
        "tariff": "on_demand",
        "start": "2026-03-10T10:00:00+08:00",
        "end": "2026-03-10T16:00:00+08:00",
        **fields,
    }


def test_a_quote_is_paid_as_the_wallet_would_pay_it(site: Site) -> None:
    person = site.register()
    priced = person.post("/quotes", quote(), status=200)
    assert (priced["total_micro"], priced["credit_micro"], priced["cash_micro"]) == (9_960_000, 9_960_000, 0)
    assert priced["segments"][0]["rate_micro_per_card_hour"] == "1660000"
    assert {way["tariff"] for way in priced["cheaper"]} >= {"spot"}
    edu = person.post("/quotes", quote(edu=True), status=200)
    assert edu["total_micro"] == 8_964_000


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"cards": 0}, "cards"),
        ({"cards": "1"}, "cards"),
        ({"cards": 1.0}, "cards"),
        ({"card": "h100"}, "card"),
        ({"tariff": "free"}, "tariff"),
        ({"fabric": "wifi"}, "fabric"),
        ({"end": "2026-03-10T10:00:00+08:00"}, "end"),
        ({"start": "2026-03-10T10:00:00"}, "start"),
        ({"start": 1}, "start"),
        ({"start": "0001-01-01T00:00:00+14:00"}, "start"),
        ({"end": "9999-12-31T23:59:59-14:00"}, "end"),
        ({"extra": 1}, "extra"),
    ],
)
def test_a_faulty_quote_names_the_field(site: Site, fields: dict[str, Any], field: str) -> None:
    person = site.register()
    answer = person.client.post(f"{PREFIX}/quotes", json=quote(**fields))
    assert answer.status_code == 422, answer.text
    assert field in [fault["field"] for fault in answer.json()["faults"]]


def test_an_education_member_sees_their_own_prices(site: Site) -> None:
    person, operator = site.register(), site.operator()
    changed = operator.client.patch(f"{PREFIX}/admin/accounts/{person.email}", json={"member": "edu"})
    assert changed.json()["member"] == "edu"
    site.clock.advance(seconds=1)
    rates = {line["tariff"]: line["rate"] for line in person.get("/offers")["items"][0]["prices"]}
    assert rates["on_demand"] == "1.494"
    assert person.post("/quotes", quote(), status=200)["total_micro"] == 8_964_000
    number = run_job(site, person, seconds=3600)
    assert person.get(f"/bill?job={number}")["total_micro"] == 1_494_000


def test_offers_and_nodes_say_what_a_card_brings_of_disk_and_network(kind: str, tmp_path: Path) -> None:
    """Eight cards and one part for those without: a ninth each."""
    with open_site(kind, tmp_path, disk_node_bytes_per_second=900_000_000) as site:
        person = site.register()
        share = {"disk_bytes_per_second": 100_000_000, "network_bytes_per_second": None}
        assert person.get("/offers")["items"][0]["card_share"] == share
        assert person.get("/nodes")["items"][0]["card_share"] == share
