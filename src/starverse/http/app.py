"""The app factory: one FastAPI app over a platform."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from fastapi import FastAPI
from starlette.routing import Mount

from starverse import __version__
from starverse.app.inside import InsideInstances
from starverse.app.logs import read_pulses
from starverse.app.platform import Platform
from starverse.app.rate_limits import AttemptLimits, Attempts
from starverse.app.views import ReconcilerStatus
from starverse.http import (
    accounts,
    admin,
    apps,
    bill,
    datasets,
    disks,
    fabric,
    files,
    health,
    heat_map,
    images,
    instances,
    jobs,
    metrics,
    offers,
    problems,
    secrets,
    ssh_keys,
    streams,
    syncs,
    teams,
    terminal,
    topups,
    wallet,
)
from starverse.http.metrics import RequestMetrics, make_registry
from starverse.http.middleware import BodyLimit, Envelope
from starverse.http.pulses import PulseHub
from starverse.http.streams import READERS
from starverse.http.visits import Visits

_ROUTERS = (
    accounts.router,
    teams.router,
    offers.router,
    heat_map.router,
    files.router,
    streams.router,
    jobs.router,
    datasets.router,
    wallet.router,
    topups.router,
    bill.router,
    admin.router,
    fabric.router,
    instances.router,
    images.router,
    ssh_keys.router,
    apps.router,
    secrets.router,
    disks.router,
    syncs.router,
    health.router,
    metrics.router,
)


def make_app(
    platform: Platform,
    *,
    reconciler_status: Callable[[], Sequence[ReconcilerStatus]] = lambda: (),
    attempt_limits: AttemptLimits | None = None,
    inside: InsideInstances | None = None,
) -> FastAPI:
    """The API over a platform; ``reconciler_status`` is asked by ``GET /admin/status``, ``inside`` leads into
    instances for terminals and apps (``None``: there are none)."""
    app = bare_app()
    app.state.platform = platform
    app.state.inside = inside
    app.state.visits = Visits(platform)
    app.router.routes += [terminal.ROUTE, Mount("/apps", apps.AppProxy())]
    app.state.attempts = Attempts(attempt_limits)
    app.state.reconciler_status = reconciler_status
    app.state.pulses = PulseHub(lambda job_ids: read_pulses(platform, job_ids))
    app.state.log_readers = ThreadPoolExecutor(READERS, thread_name_prefix="log-reader")
    app.state.registry = make_registry(platform)
    problems.install(app)
    app.add_middleware(BodyLimit)
    app.add_middleware(Envelope, metrics=RequestMetrics(app.state.registry))
    return app


def bare_app() -> FastAPI:
    """The endpoints without a platform behind them: enough to describe the API."""
    app = FastAPI(
        title="starverse",
        version=__version__,
        description="A GPU cloud from the GPUs you have: jobs, spot without losing work, bills that explain.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    for router in _ROUTERS:
        app.router.routes += router.routes
    describe = app.openapi
    app.openapi = lambda: problems.with_schemas(describe())  # type: ignore[method-assign]
    return app
