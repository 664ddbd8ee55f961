"""The bill and every figure behind it."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from starverse.app import bill
from starverse.app.bill import BillFilter
from starverse.app.disks.bill import DiskExplanation
from starverse.http.routing import make_router
from starverse.http.schemas_money import BillOut, DiskExplanationOut, ExplanationOut
from starverse.http.security import PlatformDep, TeamCaller

router = make_router("money")


@router.get("/bill")
def show_bill(
    platform: PlatformDep,
    identity: TeamCaller,
    job: Annotated[str | None, Query(max_length=100, description="Number, task or id")] = None,
    month: Annotated[str | None, Query(max_length=20, description="YYYY-MM, local")] = None,
    label: Annotated[str | None, Query(max_length=1024, description="Cost label (`--account`)")] = None,
) -> BillOut:
    """Charges segment by segment beside the price on demand, and what runs now."""
    return BillOut.of(bill.show_bill(platform, identity, BillFilter(job, month, label)))


@router.get("/charges/{charge_id}")
def explain_charge(
    charge_id: str, platform: PlatformDep, identity: TeamCaller
) -> ExplanationOut | DiskExplanationOut:
    """A charge with its arithmetic in words, its price books and its transfers; ``subject`` is ``allocation``
    or ``disk``."""
    found = bill.explain_charge(platform, identity, charge_id)
    if isinstance(found, DiskExplanation):
        return DiskExplanationOut.made(found)
    return ExplanationOut.made(found)
