"""``wallet``, ``topup``, ``refund``: a team's money."""

from __future__ import annotations

import re
from typing import Any

import click

from starverse.cli.remote.commands import command, yes_option
from starverse.cli.remote.session import Session
from starverse.cli.remote.tables import render_fields
from starverse.cli.remote.wording import length, when, yuan
from starverse.client.shapes import Wallet

_AMOUNT = re.compile(r"\d{1,9}(\.\d{1,6})?")


class Amount(click.ParamType[str]):
    """A positive amount of yuan, kept as its decimal text."""

    name = "yuan"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if not _AMOUNT.fullmatch(text) or not text.replace(".", "").strip("0"):
            self.fail(f"{text!r} is not a positive amount of yuan such as 50 or 50.00", param, ctx)
        return text


@command("Show the team's money: cash, credit, coupons, what is held, and how long it lasts.")
def wallet(session: Session) -> None:
    found = session.client().money.wallet()
    session.emit(dict(found), lambda: _wallet_text(found))
    for warning in found.get("warnings") or ():
        session.note(f"warning: {warning}")


def _wallet_text(found: Wallet) -> str:
    burn = found.get("burn_micro_per_hour") or 0
    return render_fields(
        [
            ("team", found["team"]),
            ("free to spend", _cny(found.get("free_micro"))),
            ("held", _cny(found.get("held_micro"))),
            ("cash", _cny(found.get("cash_micro"))),
            *(("credit", _gift(item)) for item in found.get("credits") or ()),
            *(("coupon", _gift(item)) for item in found.get("coupons") or ()),
            ("spending now", f"{_cny(burn)} per hour" if burn else None),
            ("lasts", length(found.get("runway_seconds"))),
        ]
    )


def _gift(item: dict[str, Any]) -> str:
    expires = when(item.get("expires_at"))
    return f"{_cny(item.get('left_micro'))}" + (f", expires {expires}" if expires else "")


def _cny(micro: int | None) -> str:
    return f"CNY {yuan(micro or 0)}"


@command("Top up the wallet (mock gateway), once now or by itself below a mark.")
@click.argument("amount", type=Amount(), required=False)
@click.option("--auto-below", type=Amount(), metavar="YUAN", help="Top up by itself when less is free.")
@click.option("--amount", "auto_amount", type=Amount(), metavar="YUAN", help="How much each time.")
@click.option("--auto-off", is_flag=True, help="Stop topping up by itself.")
@yes_option()
def topup(
    session: Session,
    amount: str | None,
    auto_below: str | None,
    auto_amount: str | None,
    auto_off: bool,
    yes: bool,
) -> None:
    money = session.client().money
    if auto_off and not (amount or auto_below):
        money.stop_auto_top_up()
        session.emit({"auto_topup": None}, lambda: "")
        session.note("the wallet no longer tops up by itself")
        return
    if auto_below is not None:
        if auto_amount is None and amount is None:
            raise click.UsageError("--auto-below needs --amount YUAN: how much to pay in each time")
        each = auto_amount or amount or ""
        session.confirm(f"Pay in CNY {each} whenever less than CNY {auto_below} is free?", yes=yes)
        answer = money.set_auto_top_up(below=auto_below, amount=each)
        session.emit(answer, lambda: render_fields([("below", auto_below), ("amount", each)]))
        return
    if amount is None:
        raise click.UsageError("say how much: starverse topup 50")
    session.confirm(f"Pay in CNY {amount}?", yes=yes)
    paid = money.top_up(amount)
    session.emit(
        paid,
        lambda: render_fields(
            [
                ("top-up", paid.get("id")),
                ("state", paid.get("state")),
                ("amount", f"CNY {paid.get('amount', amount)}"),
                ("pay at", paid.get("pay_url")),
            ]
        ),
    )


@command("Pay a top-up back to where it came from; without AMOUNT all that is left of it.")
@click.argument("top_up", metavar="TOPUP")
@click.argument("amount", type=Amount(), required=False)
@yes_option()
def refund(session: Session, top_up: str, amount: str | None, yes: bool) -> None:
    session.confirm(f"Pay {f'CNY {amount}' if amount else 'all that is left'} of {top_up} back?", yes=yes)
    answer = session.client().money.refund(top_up, amount=amount)
    session.emit(
        answer,
        lambda: render_fields(
            [
                ("refund", answer.get("id")),
                ("state", answer.get("state")),
                ("amount", f"CNY {answer.get('amount', amount)}"),
            ]
        ),
    )
