"""Prometheus metrics: requests by route and status, and what the platform holds, read at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fastapi import Request, Response
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from starverse.app.admin import Figures, figures
from starverse.app.platform import Platform
from starverse.http.routing import make_router

router = make_router("metrics", root="")


class RequestMetrics:
    """Counts requests into one registry of the app."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "starverse_http_requests_total",
            "HTTP requests answered",
            ["method", "route", "status"],
            registry=registry,
        )
        self._seconds = Histogram(
            "starverse_http_request_seconds",
            "Time to answer, streams until their end",
            ["route"],
            registry=registry,
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
        )

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        known = method if method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE") else "OTHER"
        self._requests.labels(known, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)


class PlatformCollector(Collector):
    """Jobs by state, cards by state, open allocations: counts only, nothing of any team."""

    def __init__(self, read: Callable[[], Figures]) -> None:
        self._read = read

    def describe(self) -> Iterator[Metric]:
        yield from ()

    def collect(self) -> Iterator[Metric]:
        now = self._read()
        jobs = GaugeMetricFamily("starverse_jobs", "Jobs by state", labels=["state"])
        for state, count in sorted(now.jobs.items()):
            jobs.add_metric([state], count)
        yield jobs
        cards = GaugeMetricFamily("starverse_cards", "Cards by state", labels=["state"])
        for state, count in sorted(now.cards.items()):
            cards.add_metric([state], count)
        yield cards
        yield GaugeMetricFamily("starverse_nodes_up", "Nodes that are up", value=now.nodes_up)


def make_registry(platform: Platform) -> CollectorRegistry:
    """What ``/metrics`` shows: the platform's figures, and what is counted into it besides."""
    registry = CollectorRegistry()
    registry.register(PlatformCollector(lambda: figures(platform)))
    return registry


@router.get("/metrics", include_in_schema=False)
def metrics(request: Request) -> Response:
    return Response(generate_latest(request.app.state.registry), media_type=CONTENT_TYPE_LATEST)
