"""Top-ups, refunds and automatic top-ups: exact, to the source, once; never below zero."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest

from starverse.app import topups
from starverse.app.payment_providers import MockProvider
from starverse.db import ledger
from starverse.domain.ids import TeamId, TransferId
from starverse.domain.ledger.accounts import REVENUE, cash_id
from starverse.domain.ledger.transfers import Purpose, move
from starverse.domain.money import Money
from starverse.testing.http_sites import PREFIX, Person, Site

NOTIFICATIONS = f"{PREFIX}/gateways/mock/notifications"


def spend(site: Site, person: Person, micro: int, transfer_id: str | None = None) -> bool:
    """Take money out of a team's cash as a charge would; whether it was there."""
    spent = move(
        TransferId(transfer_id or site.platform.ids.uuid7()),
        cash_id(TeamId(person.team_id)),
        REVENUE,
        Money(micro),
        Purpose.CHARGE,
    )
    with site.platform.database.write() as connection:
        return ledger.post(connection, [spent], site.clock.now()).ok


def books_are_sound(site: Site) -> bool:
    with site.platform.database.read() as connection:
        return ledger.check(connection) == ()


def test_a_top_up_is_paid_through_the_signed_notification(site: Site) -> None:
    person = site.register()
    made = person.post("/topups", {"amount": "50.00"})
    assert made["state"] == "paid"
    assert made["amount_micro"] == 50_000_000
    assert person.get("/wallet")["cash"] == "50.00"
    moved = person.get("/wallet/transfers")["items"]
    assert [(item["purpose"], item["amount"]) for item in moved] == [("top_up", "50.00"), ("gift", "10.00")]
    assert books_are_sound(site)


@pytest.mark.parametrize(
    "amount", ["0", "0.00", "-5.00", "0.001", "1e3", " 5", "5.0000001", "1000000.01", "", 50, 50.0, None]
)
def test_an_amount_that_is_none_is_refused(site: Site, amount: object) -> None:
    person = site.register()
    answer = person.client.post(f"{PREFIX}/topups", json={"amount": amount})
    assert answer.status_code == 422
    assert [fault["field"] for fault in answer.json()["faults"]] == ["amount"]
    assert person.get("/wallet")["cash_micro"] == 0


def test_a_notification_is_taken_once_and_only_from_the_provider(site: Site) -> None:
    person = site.register()
    order = person.post("/topups", {"amount": "50.00"})["id"]
    gateway = MockProvider(site.platform.settings.data / "gateway-mock.secret")
    notice = gateway.start(order, Money(50_000_000), site.clock.now()).notice
    assert notice is not None
    client = site.client()
    header = "X-Starverse-Signature"

    repeated = client.post(NOTIFICATIONS, content=notice.body, headers={header: notice.signature})
    assert repeated.status_code == 200
    assert person.get("/wallet")["cash"] == "50.00"

    forged = json.dumps({"order": order, "amount_micro": 99_000_000}).encode()
    for body, signature in (
        (forged, notice.signature),
        (notice.body, "t=1,v1=" + "0" * 64),
        (notice.body, ""),
        (notice.body, "nonsense"),
    ):
        assert client.post(NOTIFICATIONS, content=body, headers={header: signature}).status_code == 401
    signed = gateway.sign(forged, site.clock.now())
    assert client.post(NOTIFICATIONS, content=forged, headers={header: signed}).status_code == 422
    site.clock.advance(minutes=6)
    late = client.post(NOTIFICATIONS, content=notice.body, headers={header: notice.signature})
    assert late.status_code == 401
    assert person.get("/wallet")["cash"] == "50.00"
    elsewhere = client.post(f"{PREFIX}/gateways/other/notifications", content=b"{}")
    assert elsewhere.status_code == 404


def test_a_repeated_key_tops_up_once(site: Site) -> None:
    person = site.register()
    key = {"Idempotency-Key": "pay-me-once"}
    first = person.post("/topups", {"amount": "50.00"}, headers=key)
    with ThreadPoolExecutor(8) as pool:
        repeats = list(
            pool.map(lambda _: person.post("/topups", {"amount": "50.00"}, headers=key)["id"], range(8))
        )
    assert set(repeats) == {first["id"]}
    assert person.get("/wallet")["cash"] == "50.00"


def test_a_refund_goes_to_the_source_and_never_exceeds_what_was_paid(site: Site) -> None:
    person = site.register()
    topup = person.post("/topups", {"amount": "50.00"})["id"]
    path = f"/topups/{topup}/refunds"
    over = person.client.post(PREFIX + path, json={"amount": "50.01"})
    assert over.status_code == 422
    assert person.post(path, {"amount": "20.00"})["amount"] == "20.00"
    assert person.client.post(PREFIX + path, json={"amount": "30.01"}).status_code == 422
    assert spend(site, person, 12_000_000)
    dear = person.client.post(PREFIX + path, json={"amount": "30.00"})
    assert dear.status_code == 402
    assert "18.00" in dear.json()["hint"]
    assert person.post(path)["amount"] == "18.00"
    shown = person.get(f"/topups/{topup}")
    assert shown["refunded"] == "38.00"
    wallet = person.get("/wallet")
    assert wallet["cash_micro"] == 0
    assert wallet["free"] == "10.00", "the sign-up credit is a gift and is not paid out"
    assert person.client.post(PREFIX + path).status_code == 402
    assert books_are_sound(site)


def test_all_views_of_a_refund_give_the_same_figures(site: Site) -> None:
    """Scenario 9: one function computes, so API views cannot disagree."""
    person = site.register()
    topup = person.post("/topups", {"amount": "50.00"})["id"]
    made = person.post(f"/topups/{topup}/refunds", {"amount": "19.99"})
    listed = person.get("/topups")["items"][0]
    moved = person.get("/wallet/transfers")["items"][0]
    cash = person.get("/wallet")["cash_micro"]
    assert listed["refunded_micro"] == made["amount_micro"] == -moved["amount_micro"] == 19_990_000
    assert listed["refunds"][0]["id"] == made["id"] == moved["id"]
    assert cash == 50_000_000 - 19_990_000


def test_a_hundred_parallel_debits_never_go_below_zero(site: Site) -> None:
    """Scenario 8: CNY 1.00, a hundred debits of 0.03 at once; thirty-three fit."""
    person = site.register()
    person.post("/topups", {"amount": "1.00"})
    with ThreadPoolExecutor(20) as pool:
        done = list(pool.map(lambda _: spend(site, person, 30_000), range(100)))
    assert sum(done) == 33
    assert person.get("/wallet")["cash_micro"] == 10_000
    assert books_are_sound(site)


def test_parallel_refunds_pay_back_what_was_paid_and_no_more(site: Site) -> None:
    person = site.register()
    topup = person.post("/topups", {"amount": "10.00"})["id"]
    with ThreadPoolExecutor(10) as pool:
        answers = list(
            pool.map(
                lambda _: (
                    person.client.post(
                        f"{PREFIX}/topups/{topup}/refunds", json={"amount": "3.00"}
                    ).status_code
                ),
                range(10),
            )
        )
    assert answers.count(201) == 3
    assert set(answers) <= {201, 402, 422}
    assert person.get("/wallet")["cash"] == "1.00"


def test_one_automatic_top_up_per_crossing(site: Site) -> None:
    """Scenario 8: many see one crossing, one tops up; the next crossing tops up again."""
    person = site.register()
    person.post("/topups", {"amount": "20.00"})
    rule = {"below": "15.00", "amount": "30.00"}
    assert person.client.put(f"{PREFIX}/wallet/auto-topup", json=rule).json()["armed"] is True

    def automatic() -> int:
        return sum(item["automatic"] for item in person.get("/topups")["items"])

    def sweep(times: int) -> int:
        with ThreadPoolExecutor(8) as pool:
            return sum(pool.map(lambda _: topups.run_auto_topups(site.platform), range(times)))

    assert sweep(8) == 0, "10.00 of credit and 20.00 of cash are above the mark"
    assert spend(site, person, 16_000_000)
    assert sweep(16) == 1
    assert automatic() == 1
    assert person.get("/wallet")["free"] == "44.00"
    assert spend(site, person, 30_000_000)
    assert sweep(16) == 1
    assert automatic() == 2
    assert person.client.delete(f"{PREFIX}/wallet/auto-topup").status_code == 204
    assert person.client.get(f"{PREFIX}/wallet/auto-topup").status_code == 404


def test_a_top_up_too_small_to_reach_the_mark_does_not_fire_again(site: Site) -> None:
    person = site.register()
    person.client.put(f"{PREFIX}/wallet/auto-topup", json={"below": "100.00", "amount": "1.00"})
    assert [topups.run_auto_topups(site.platform) for _ in range(3)] == [1, 0, 0]
    assert person.get("/wallet")["free"] == "11.00"
    assert person.get("/wallet/auto-topup")["armed"] is False
    person.post("/topups", {"amount": "100.00"})
    assert person.get("/wallet/auto-topup")["armed"] is True


def test_another_team_sees_no_top_up(site: Site) -> None:
    one, two = site.register("one@example.org"), site.register("two@example.org")
    topup = one.post("/topups", {"amount": "5.00"})["id"]
    for method, path in product(("GET", "POST"), (f"/topups/{topup}",)):
        target = path + ("/refunds" if method == "POST" else "")
        assert two.client.request(method, PREFIX + target).status_code == 404
    assert two.get("/topups")["items"] == []


def test_a_member_who_is_no_owner_tops_up_but_asks_for_no_refund(site: Site) -> None:
    owner, member = site.register("owner@example.org"), site.register("member@example.org")
    owner.post("/teams", {"name": "vision"})
    owner.post("/teams/vision/members", {"email": "member@example.org"})
    header = {"X-Starverse-Team": "vision"}
    topup = member.post("/topups", {"amount": "5.00"}, headers=header)["id"]
    asked = member.client.post(f"{PREFIX}/topups/{topup}/refunds", headers=header)
    assert asked.status_code == 403
    assert owner.post(f"/topups/{topup}/refunds", headers=header)["amount"] == "5.00"
