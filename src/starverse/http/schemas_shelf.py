"""Shapes of offers, quotes, nodes and datasets."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from starverse.app.datasets import DatasetDetail, Verified
from starverse.domain.pricing.quote import QuoteRequest
from starverse.http.shapes import In, Instant, InstantText, Out


class PriceLineOut(Out):
    """The rate of one card on a tariff now; ``rate`` is in yuan per card-hour."""

    tariff: str
    rate_micro_per_card_hour: str
    rate: str


class FabricFigureOut(Out):
    """A measured figure of a pool's network: the slowest pair's, with the date of the oldest that counts.

    ``what`` is round_trip, bandwidth or all_reduce; ``method`` tcp, gloo, nccl, ib_write_bw or nccl-tests.
    ``same_machine``: a pair of it is one host, so it is no network's.
    """

    what: str
    method: str
    p50_nanoseconds: int | None
    p99_nanoseconds: int | None
    bytes_per_second: int | None
    message_bytes: int | None
    pairs: int
    measured_at: InstantText
    same_machine: bool


class CardShareOut(Out):
    """Bytes a second on a node's disk and network that come with one card; null: as much as there is."""

    disk_bytes_per_second: int | None
    network_bytes_per_second: int | None


class OfferOut(Out):
    """What a pool sells now. ``fabric_measured`` empty: nobody measured its network."""

    pool: str
    zone: str
    card: str
    fabric: str
    cards_total: int
    cards_free: int
    largest_node_free: int
    declared: bool
    fabric_measured: list[FabricFigureOut]
    prices: list[PriceLineOut]
    next_price_change_at: InstantText | None
    card_share: CardShareOut


class DiskPricesOut(Out):
    """Yuan for a GiB over a calendar month, by kind; ``free_gib`` of a team cost nothing."""

    block_gib_month_micro: int
    block_gib_month: str
    shared_gib_month_micro: int
    shared_gib_month: str
    free_gib: int


class QuoteIn(In):
    """What is to be priced; ``end`` may be left out for a package. ``edu`` prices an education member."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "card": "rtx4090",
                    "cards": 8,
                    "tariff": "spot",
                    "start": "2026-03-10T10:00:00+08:00",
                    "end": "2026-03-10T16:00:00+08:00",
                }
            ]
        }
    )

    card: Annotated[str, Field(max_length=100)]
    cards: int
    tariff: Annotated[str, Field(max_length=40)]
    start: Instant
    end: Instant | None = None
    fabric: Annotated[str, Field(max_length=20)] = "eth"
    booked_at: Instant | None = None
    edu: bool = False
    renew: bool = False

    def request(self) -> QuoteRequest:
        return QuoteRequest(
            card=self.card,
            cards=self.cards,
            tariff=self.tariff,
            start=self.start,
            end=self.end,
            fabric=self.fabric,
            booked_at=self.booked_at,
            member="edu" if self.edu else None,
            renew=self.renew,
        )


class QuoteSegmentOut(Out):
    """Part of a quote at one rate."""

    start: InstantText
    end: InstantText
    cards: int
    rate_micro_per_card_hour: str
    factors: dict[str, str]
    amount_micro: int


class AlternativeOut(Out):
    """Another way to the same card-hours, and what it costs."""

    tariff: str
    start: InstantText
    end: InstantText
    cards: int
    total_micro: int


class QuoteOut(Out):
    """A priced request, and how the team's wallet would pay it."""

    currency: str
    total_micro: int
    coupon_micro: int
    credit_micro: int
    cash_micro: int
    segments: list[QuoteSegmentOut]
    cheaper: list[AlternativeOut]


class NodeCardOut(Out):
    """``state`` is free, busy, quarantined or unhealthy; ``job`` is named to its own team only."""

    id: str
    index: int
    model: str
    state: str
    declared: bool
    memory_bytes: int
    message: str
    job: str | None


class NodeOut(Out):
    """``state`` is up, drained (by the cluster) or down; ``drained``: an operator wants nothing new there."""

    id: str
    zone: str
    fabric: str
    state: str
    drained: bool
    message: str
    cpus: int
    memory_bytes: int
    cards: list[NodeCardOut]
    card_share: CardShareOut


class DatasetIn(In):
    """What to put on the shelf; ``path`` is a folder on the platform's host, taken in by copy."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "digits",
                    "title": "Handwritten digits",
                    "source": "UCI, shipped with scikit-learn",
                    "licence": "CC BY 4.0",
                    "path": "/srv/digits",
                }
            ]
        }
    )

    name: Annotated[str, Field(max_length=200)]
    title: Annotated[str, Field(max_length=2000)]
    source: Annotated[str, Field(max_length=2000)]
    licence: Annotated[str, Field(max_length=2000)]
    path: Annotated[str, Field(max_length=4096)]


class DatasetOut(Out):
    """A version of a dataset. ``state``: verified, or damaged (its bytes do not match its manifest)."""

    id: str
    name: str
    version: int
    state: str
    title: str
    source: str
    licence: str
    manifest_digest: str
    files: int
    bytes: int
    added_at: InstantText
    verified_at: InstantText | None
    message: str


class ManifestFileOut(Out):
    path: str
    bytes: int
    hash: str


class ManifestOut(Out):
    """Which files with which bytes the version is."""

    algorithm: str
    files: list[ManifestFileOut]


class DatasetDetailOut(DatasetOut):
    """The newest version with its manifest, and all versions."""

    versions: list[DatasetOut]
    manifest: ManifestOut

    @classmethod
    def made(cls, detail: DatasetDetail) -> DatasetDetailOut:
        return cls.of(detail.dataset, versions=detail.versions, manifest=detail.manifest)


class DifferenceOut(Out):
    """A file that is not as the manifest says: missing, extra, size or hash."""

    path: str
    kind: str
    detail: str


class VerifiedOut(Out):
    """What reading every byte found; at most a hundred faults are named."""

    name: str
    version: int
    state: str
    files: int
    bytes: int
    message: str
    faults: list[DifferenceOut]

    @classmethod
    def made(cls, verified: Verified) -> VerifiedOut:
        return cls.of(verified.dataset, faults=verified.faults)
