"""Measured figures of the network between nodes: asking for them, and reading them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from starverse.app import fabric
from starverse.app.fabric import BatchView, PoolView, Wanted
from starverse.domain.fabric.measured import Measured
from starverse.http.routing import make_router
from starverse.http.schemas_shelf import FabricFigureOut
from starverse.http.security import OnceDep, OperatorCaller, PlatformDep
from starverse.http.shapes import In, InstantText, Items, Out

router = make_router("admin", "/admin/fabric")


class FabricCheckIn(In):
    """``pool`` null: every pool with two nodes; ``pairs`` of each. ``lint``: say which and at what price."""

    pool: Annotated[str | None, Field(max_length=300)] = None
    pairs: int = 1
    lint: bool = False


class FabricCheckOut(Out):
    """One pair; ``state`` is asked, running, measured or failed."""

    pool: str
    nodes: list[str]
    state: str
    message: str
    job: str | None
    measured_at: InstantText | None


class FabricBatchOut(Out):
    """The pairs of one request; ``id`` null: nothing was asked yet. ``price`` is that of one pair's job."""

    id: str | None
    settled: bool
    price: str
    checks: list[FabricCheckOut]

    @classmethod
    def made(cls, view: BatchView) -> FabricBatchOut:
        return cls.of(view, settled=view.settled)


class PairFigureOut(Out):
    """A figure between two nodes; ``same_machine``: they are one host, so it is no network's."""

    nodes: list[str]
    what: str
    method: str
    p50_nanoseconds: int | None
    p99_nanoseconds: int | None
    bytes_per_second: int | None
    message_bytes: int | None
    measured_at: InstantText
    same_machine: bool

    @classmethod
    def made(cls, one: Measured) -> PairFigureOut:
        figure = one.figure
        return cls.of(
            one,
            nodes=[one.first_node, one.second_node],
            what=figure.what,
            method=figure.method,
            p50_nanoseconds=figure.p50_nanoseconds,
            p99_nanoseconds=figure.p99_nanoseconds,
            bytes_per_second=figure.bytes_per_second,
            message_bytes=figure.message_bytes,
        )


class PoolFabricOut(Out):
    """A pool; ``shown`` is what offers tell, empty: not measured."""

    pool: str
    nodes: int
    shown: list[FabricFigureOut]
    pairs: list[PairFigureOut]

    @classmethod
    def made(cls, view: PoolView) -> PoolFabricOut:
        return cls.of(view, pairs=[PairFigureOut.made(one) for one in view.measured])


@router.get("")
def list_fabric(platform: PlatformDep, identity: OperatorCaller) -> Items[PoolFabricOut]:
    """Every pool with the newest figures of each pair of its nodes."""
    return Items[PoolFabricOut](items=[PoolFabricOut.made(view) for view in fabric.list_pools(platform)])


@router.post("/checks", status_code=201)
def ask_fabric_check(
    body: FabricCheckIn, platform: PlatformDep, identity: OperatorCaller, once: OnceDep
) -> FabricBatchOut:
    """Measure pairs of nodes by a job each, for the caller's team on spot."""
    wanted = Wanted(body.pool, body.pairs, body.lint, once)
    return FabricBatchOut.made(fabric.ask(platform, identity, wanted))


@router.get("/checks/{check_id}")
def get_fabric_check(check_id: str, platform: PlatformDep, identity: OperatorCaller) -> FabricBatchOut:
    """How the pairs of a request fare."""
    return FabricBatchOut.made(fabric.get_batch(platform, check_id))
