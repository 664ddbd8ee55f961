"""Top-ups, refunds, automatic top-ups, and the notifications of payment providers."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Depends, Header, Query, Request, Response

from starverse.app import topups
from starverse.app.payment_providers import SIGNATURE_HEADER, SignedNotification
from starverse.app.topups import RefundRequest, TopUpRequest
from starverse.http.routing import make_router
from starverse.http.schemas_money import (
    AutoTopUpIn,
    AutoTopUpOut,
    NotificationOut,
    RefundIn,
    RefundOut,
    TopUpIn,
    TopUpOut,
)
from starverse.http.security import OnceDep, PlatformDep, TeamCaller
from starverse.http.shapes import LIMIT_DEFAULT, Items, LimitParam, items_of

router = make_router("money")


@router.post("/topups", status_code=201)
def create_topup(body: TopUpIn, platform: PlatformDep, identity: TeamCaller, once: OnceDep) -> TopUpOut:
    """Order a top-up; the mock provider pays it at once."""
    request = TopUpRequest(body.amount, body.provider, once)
    return TopUpOut.of(topups.create_topup(platform, identity, request))


@router.get("/topups")
def list_topups(
    platform: PlatformDep,
    identity: TeamCaller,
    limit: Annotated[LimitParam, Query()] = LIMIT_DEFAULT,
    cursor: Annotated[str | None, Query(max_length=100)] = None,
) -> Items[TopUpOut]:
    """The team's top-ups, newest first."""
    return items_of(TopUpOut, topups.list_topups(platform, identity, limit, cursor))


@router.get("/topups/{topup_id}")
def get_topup(topup_id: str, platform: PlatformDep, identity: TeamCaller) -> TopUpOut:
    """One top-up with what went back of it."""
    return TopUpOut.of(topups.get_topup(platform, identity, topup_id))


@router.post("/topups/{topup_id}/refunds", status_code=201)
def refund_topup(
    topup_id: str,
    platform: PlatformDep,
    identity: TeamCaller,
    once: OnceDep,
    body: Annotated[RefundIn | None, Body()] = None,
) -> RefundOut:
    """Pay cash back to where the top-up came from; owners only."""
    request = RefundRequest(topup_id, body.amount if body else None, once)
    return RefundOut.of(topups.refund_topup(platform, identity, request))


@router.get("/wallet/auto-topup")
def get_auto_topup(platform: PlatformDep, identity: TeamCaller) -> AutoTopUpOut:
    """The team's rule."""
    return AutoTopUpOut.of(topups.get_auto_topup(platform, identity))


@router.put("/wallet/auto-topup")
def set_auto_topup(body: AutoTopUpIn, platform: PlatformDep, identity: TeamCaller) -> AutoTopUpOut:
    """Top up once each time free money falls below a mark; owners only."""
    return AutoTopUpOut.of(topups.set_auto_topup(platform, identity, body.below, body.amount))


@router.delete("/wallet/auto-topup", status_code=204)
def remove_auto_topup(platform: PlatformDep, identity: TeamCaller) -> Response:
    """No automatic top-ups any more; owners only."""
    topups.remove_auto_topup(platform, identity)
    return Response(status_code=204)


async def _raw_body(request: Request) -> bytes:
    return await request.body()


@router.post("/gateways/{provider}/notifications")
def take_notification(
    provider: str,
    platform: PlatformDep,
    body: Annotated[bytes, Depends(_raw_body)],
    signature: Annotated[str, Header(alias=SIGNATURE_HEADER, max_length=200)] = "",
) -> NotificationOut:
    """A provider's signed notification that an order was paid; a repeat changes nothing."""
    order = topups.notify(platform, provider, SignedNotification(body, signature))
    return NotificationOut(order=order)
