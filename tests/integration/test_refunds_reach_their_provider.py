"""A refund left the wallet: its provider hears of it, once at least, whatever comes in between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from starverse.app import topups
from starverse.app.identity import Identity
from starverse.app.payment_providers import MockProvider
from starverse.app.topups import RefundRequest, TopUpRequest, finish_refunds
from starverse.domain.errors import Unavailable
from starverse.domain.money import Money
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World


class Killed(BaseException):
    """The server dies here."""


class Provider(MockProvider):
    """Remembers what it paid back, by refund id; ``trouble`` befalls the calls to come, in order."""

    def __init__(self, folder: Path, *trouble: BaseException) -> None:
        super().__init__(folder / "gateway-mock.secret")
        self.trouble, self.paid, self.calls = list(trouble), dict[str, Money](), 0

    def refund(self, order: str, refund_id: str, amount: Money) -> None:
        self.calls += 1
        if self.trouble:
            raise self.trouble.pop(0)
        self.paid[refund_id] = amount


@pytest.fixture
def world(kind: str, tmp_path: Path) -> Iterator[World]:
    with fresh_database(kind, tmp_path) as database:
        yield World(database, tmp_path / "data", mock_gateway=True)


def paid_topup(world: World) -> tuple[Identity, str]:
    lab = world.team("lab", "0")
    return lab, topups.create_topup(world.platform, lab, TopUpRequest(Money.parse("50"))).id


def test_it_is_told_once_and_then_left_alone(world: World) -> None:
    lab, order = paid_topup(world)
    provider = Provider(world.data)
    done = topups.refund_topup(world.platform, lab, RefundRequest(order), {"mock": provider})
    assert done.done_at is not None
    assert finish_refunds(world.platform, {"mock": provider}) == ""
    assert (provider.paid, provider.calls) == ({done.id: Money.parse("50")}, 1)


@pytest.mark.parametrize("trouble", [Killed(), Unavailable("the provider is away")], ids=["killed", "away"])
def test_what_it_did_not_hear_it_hears_from_the_loop(world: World, trouble: BaseException) -> None:
    lab, order = paid_topup(world)
    provider = Provider(world.data, trouble)
    try:
        made = topups.refund_topup(world.platform, lab, RefundRequest(order), {"mock": provider})
        assert made.done_at is None
    except Killed:
        world.restart()
    assert topups.get_topup(world.platform, lab, order).refunded == Money.parse("50")
    assert provider.paid == {}

    assert finish_refunds(world.platform, {}) == "", (
        "its provider is not configured any more: it stays pending"
    )
    assert "50" in finish_refunds(world.platform, {"mock": provider})
    assert list(provider.paid.values()) == [Money.parse("50")]
    assert finish_refunds(world.platform, {"mock": provider}) == ""
    assert all(one.done_at for one in topups.get_topup(world.platform, lab, order).refunds)
    world.assert_sound()


def test_one_that_fails_keeps_no_other_waiting_and_the_loop_tells_all(world: World) -> None:
    lab, order = paid_topup(world)
    provider = Provider(world.data, *(Unavailable("away") for _ in range(3)))
    for _ in range(2):
        topups.refund_topup(world.platform, lab, RefundRequest(order, Money.parse("20")), {"mock": provider})
    with pytest.raises(Unavailable):
        finish_refunds(world.platform, {"mock": provider})
    assert len(provider.paid) == 1
    assert world.run_reconciler("topup") == "paid CNY 20.00 back"
    assert world.run_reconciler("topup") == ""
