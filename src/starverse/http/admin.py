"""What operators do. Updates answer an ``ETag`` and honour ``If-Match``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

from fastapi import Depends, Header, Query, Request, Response

from starverse.app import admin, admin_accounts, offers, price_books
from starverse.app.admin_accounts import AccountChange, Grant
from starverse.app.etags import version_of
from starverse.app.views import Page, ReconcilerStatus
from starverse.domain.errors import FieldFault, Invalid
from starverse.http.routing import make_router
from starverse.http.schemas_admin import (
    AccountChangeIn,
    AdminAccountOut,
    AdminCardOut,
    AdminTeamOut,
    BookOut,
    BookSummaryOut,
    DrainIn,
    EventOut,
    GrantedOut,
    GrantIn,
    LedgerAccountOut,
    LedgerCheckOut,
    QuarantineIn,
    StatusOut,
)
from starverse.http.schemas_shelf import NodeOut
from starverse.http.security import OnceDep, OperatorCaller, PlatformDep
from starverse.http.shapes import LIMIT_DEFAULT, Items, LimitParam, items_of

router = make_router("admin", "/admin")


async def _text_body(request: Request) -> str:
    try:
        return (await request.body()).decode("utf-8")
    except UnicodeDecodeError as error:
        fault = FieldFault("body", f"byte {error.start} is not UTF-8", "a price book as UTF-8 text")
        raise Invalid(faults=[fault]) from error


CursorParam = Annotated[str | None, Query(max_length=300)]


def if_match(
    header: Annotated[
        str | None, Header(alias="If-Match", max_length=200, description="The ETag that was read")
    ] = None,
) -> str | None:
    """The version the caller read; ``None``: whatever it is now."""
    if header is None or header.strip() == "*":
        return None
    return header.strip().removeprefix("W/").strip('"')


VersionDep = Annotated[str | None, Depends(if_match)]


def _tag(response: Response, view: object) -> None:
    response.headers["ETag"] = f'"{version_of(view)}"'


@router.get("/price-books")
def list_price_books(platform: PlatformDep, identity: OperatorCaller) -> Items[BookSummaryOut]:
    """All versions, newest first."""
    return items_of(BookSummaryOut, Page(price_books.list_price_books(platform)))


@router.get("/price-books/{book_id}")
def get_price_book(book_id: str, platform: PlatformDep, identity: OperatorCaller) -> BookOut:
    """One version with its text."""
    return BookOut.of(price_books.get_price_book(platform, book_id))


@router.post(
    "/price-books",
    status_code=201,
    openapi_extra={
        "requestBody": {"required": True, "content": {"text/yaml": {"schema": {"type": "string"}}}}
    },
)
def add_price_book(
    platform: PlatformDep,
    identity: OperatorCaller,
    once: OnceDep,
    text: Annotated[str, Depends(_text_body)],
) -> BookOut:
    """Publish a version that takes effect in the future; a malformed one is refused with every fault."""
    return BookOut.of(price_books.add_price_book(platform, identity, text, once))


@router.get("/accounts")
def list_accounts(
    platform: PlatformDep,
    identity: OperatorCaller,
    limit: Annotated[LimitParam, Query()] = LIMIT_DEFAULT,
    cursor: CursorParam = None,
) -> Items[AdminAccountOut]:
    """All accounts by mail address."""
    return items_of(AdminAccountOut, admin_accounts.list_accounts(platform, limit, cursor))


@router.get("/accounts/{email}")
def get_account(
    email: str, platform: PlatformDep, identity: OperatorCaller, response: Response
) -> AdminAccountOut:
    """One account, with its ETag."""
    account = admin_accounts.get_account(platform, email)
    _tag(response, account)
    return AdminAccountOut.of(account)


@router.patch("/accounts/{email}")
def change_account(
    email: str,
    body: AccountChangeIn,
    platform: PlatformDep,
    identity: OperatorCaller,
    version: VersionDep,
    response: Response,
) -> AdminAccountOut:
    """Change member class, rights or password; a new password or ``disabled`` signs the account out;
    what a disabled one started stops: instances keep files and disks."""
    change = AccountChange(body.member, body.disabled, body.operator, body.password)
    account = admin_accounts.change_account(platform, identity, email, change, version)
    _tag(response, account)
    return AdminAccountOut.of(account)


@router.get("/teams")
def list_all_teams(
    platform: PlatformDep,
    identity: OperatorCaller,
    limit: Annotated[LimitParam, Query()] = LIMIT_DEFAULT,
    cursor: CursorParam = None,
) -> Items[AdminTeamOut]:
    """All teams by name, with their money."""
    return items_of(AdminTeamOut, admin_accounts.list_teams(platform, limit, cursor))


@router.post("/teams/{name}/grants", status_code=201)
def grant(
    name: str, body: GrantIn, platform: PlatformDep, identity: OperatorCaller, once: OnceDep
) -> GrantedOut:
    """Give a team credit or a coupon, out of the ledger's gifts."""
    wanted = Grant(body.kind, body.amount, body.reason, body.expires_at, once)
    return GrantedOut.of(admin_accounts.grant(platform, identity, name, wanted))


@router.get("/ledger/check")
def check_ledger(platform: PlatformDep, identity: OperatorCaller) -> LedgerCheckOut:
    """Read the whole books and check every invariant."""
    return LedgerCheckOut.of(admin.check_ledger(platform))


@router.get("/ledger/accounts")
def list_ledger_accounts(
    platform: PlatformDep,
    identity: OperatorCaller,
    limit: Annotated[LimitParam, Query()] = LIMIT_DEFAULT,
    cursor: CursorParam = None,
) -> Items[LedgerAccountOut]:
    """Every ledger account by id."""
    return items_of(LedgerAccountOut, admin.list_ledger_accounts(platform, limit, cursor))


@router.get("/status")
def show_status(platform: PlatformDep, identity: OperatorCaller, request: Request) -> StatusOut:
    """Reconcilers, engine, disk, clock and figures."""
    ask: Callable[[], Sequence[ReconcilerStatus]] = request.app.state.reconciler_status
    return StatusOut.made(admin.status(platform, ask()))


@router.get("/nodes")
def list_all_nodes(platform: PlatformDep, identity: OperatorCaller) -> Items[NodeOut]:
    """Every node with its cards and who uses them."""
    return items_of(NodeOut, Page(offers.list_nodes(platform, identity)))


@router.get("/nodes/{node_id}")
def get_node(node_id: str, platform: PlatformDep, identity: OperatorCaller, response: Response) -> NodeOut:
    """One node, with its ETag."""
    node = admin.get_node(platform, identity, node_id)
    _tag(response, node)
    return NodeOut.of(node)


@router.patch("/nodes/{node_id}")
def drain_node(
    node_id: str,
    body: DrainIn,
    platform: PlatformDep,
    identity: OperatorCaller,
    version: VersionDep,
    response: Response,
) -> NodeOut:
    """Start nothing new on a node; what runs there goes on."""
    node = admin.set_drained(platform, identity, node_id, body.drained, version)
    _tag(response, node)
    return NodeOut.of(node)


@router.get("/cards/{card_id:path}")
def get_card(
    card_id: str, platform: PlatformDep, identity: OperatorCaller, response: Response
) -> AdminCardOut:
    """One card, with its ETag."""
    card = admin.get_card(platform, card_id)
    _tag(response, card)
    return AdminCardOut.made(card, card.state)


@router.patch("/cards/{card_id:path}")
def quarantine_card(
    card_id: str,
    body: QuarantineIn,
    platform: PlatformDep,
    identity: OperatorCaller,
    version: VersionDep,
    response: Response,
) -> AdminCardOut:
    """Keep a card from being placed on, or take it into use again."""
    card = admin.set_quarantined(platform, identity, card_id, body.quarantined, version)
    _tag(response, card)
    return AdminCardOut.made(card, card.state)


@router.get("/events")
def list_events(
    platform: PlatformDep,
    identity: OperatorCaller,
    subject: Annotated[str | None, Query(max_length=200, description="Of this id only")] = None,
    limit: Annotated[LimitParam, Query()] = LIMIT_DEFAULT,
    cursor: CursorParam = None,
) -> Items[EventOut]:
    """What happened, newest first."""
    page = admin.list_events(platform, limit, cursor, subject)
    return Items[EventOut](items=[EventOut.made(item) for item in page.items], next_cursor=page.next_cursor)
