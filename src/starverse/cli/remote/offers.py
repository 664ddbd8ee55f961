"""``offers``: free cards, the price now per tariff, and when it changes next."""

from __future__ import annotations

import click

from starverse.cli.remote.commands import command
from starverse.cli.remote.fabric import NOT_MEASURED, words_of
from starverse.cli.remote.session import Session
from starverse.cli.remote.tables import columns, render_table
from starverse.cli.remote.wording import rate, when
from starverse.client.shapes import Offer

_JOB_TARIFFS = ("on_demand", "spot")
"""What a batch job may be submitted on."""


@command("Show free cards, the price now per tariff, and when the price changes next.")
@click.option("--card", metavar="MODEL", help="Such as rtx4090.")
@click.option("--cards", type=click.IntRange(1), metavar="N", help="Pools with a node that has N free.")
@click.option("--fabric", type=click.Choice(("ib", "roce", "eth")))
@click.option("--zone", metavar="ZONE")
def offers(
    session: Session, card: str | None, cards: int | None, fabric: str | None, zone: str | None
) -> None:
    found = session.client().cards.offers(card=card, cards=cards, fabric=fabric, zone=zone)
    session.emit({"items": found}, lambda: _table(found))
    if not found:
        asked = any(value is not None for value in (card, cards, fabric, zone))
        session.note(
            "no pool is like this; all there are: starverse offers"
            if asked
            else "there are no cards here; the operator finds out why with `starverse doctor`"
        )
    unsold = sorted({offer["card"] for offer in found if not offer["prices"]})
    if unsold and not session.json:
        session.note(f"without a price in the price book, so nobody can use them: {', '.join(unsold)}")
    if any(offer["declared"] for offer in found) and not session.json:
        session.note("declared: cards that are lent without being there")


def _table(found: list[Offer]) -> str:
    tariffs = list(dict.fromkeys(price["tariff"] for offer in found for price in offer["prices"]))
    titles = columns("POOL", "CARD", ">FREE", ">OF", ">ON ONE NODE", *(f">{t.upper()}" for t in tariffs))
    rows = []
    for offer in found:
        prices = {p["tariff"]: p.get("rate") or rate(p["rate_micro_per_card_hour"]) for p in offer["prices"]}
        card = offer["card"] + (" (declared)" if offer["declared"] else "")
        counts = (offer["cards_free"], offer["cards_total"], offer["largest_node_free"])
        change = when(offer.get("next_price_change_at"))
        rows.append((offer["pool"], card, *counts, *(prices.get(t) for t in tariffs), change))
    titles += columns("NEXT CHANGE")
    others = [tariff for tariff in tariffs if tariff not in _JOB_TARIFFS]
    taken = f"; jobs take {' and '.join(_JOB_TARIFFS)}, not {' or '.join(others)}" if others else ""
    lines = [f"CNY per card-hour{taken}", *_shares(found), *_networks(found)]
    return "\n".join([render_table(titles, rows), *lines])


def _shares(found: list[Offer]) -> list[str]:
    """What comes with a card, a line for each pool where the operator set a rate."""
    lines = []
    for offer in found:
        share = offer.get("card_share") or {}
        said = {word: share.get(f"{word}_bytes_per_second") for word in ("disk", "network")}
        rates = [f"{word} {bytes_ / 1e6:.0f} MB/s" for word, bytes_ in said.items() if bytes_ is not None]
        lines += [f"with a card of {offer['pool']}: {', '.join(rates)}"] if rates else []
    return lines


def _networks(found: list[Offer]) -> list[str]:
    """What was measured between nodes, a line for each such pool, and one for all others."""
    measured = [(offer["pool"], offer.get("fabric_measured") or []) for offer in found]
    lines = [f"network of {pool}: {words_of(figures)}" for pool, figures in measured if figures]
    others = [pool for pool, figures in measured if not figures]
    return [*lines, f"network {NOT_MEASURED}: {', '.join(others)}"] if others else lines
