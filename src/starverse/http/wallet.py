"""The wallet of the caller's team."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from starverse.app import wallet
from starverse.http.routing import make_router
from starverse.http.schemas_money import TransferOut, WalletOut
from starverse.http.security import PlatformDep, TeamCaller
from starverse.http.shapes import LIMIT_DEFAULT, Items, LimitParam, items_of

router = make_router("money", "/wallet")


@router.get("")
def show_wallet(platform: PlatformDep, identity: TeamCaller) -> WalletOut:
    """What is there, what is held, how fast it burns and how long it lasts."""
    return WalletOut.of(wallet.show_wallet(platform, identity))


@router.get("/transfers")
def list_transfers(
    platform: PlatformDep,
    identity: TeamCaller,
    limit: Annotated[LimitParam, Query()] = LIMIT_DEFAULT,
    cursor: Annotated[str | None, Query(max_length=100)] = None,
) -> Items[TransferOut]:
    """Everything that moved in the wallet, newest first."""
    return items_of(TransferOut, wallet.list_transfers(platform, identity, limit, cursor))
