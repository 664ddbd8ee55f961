"""Whether the process lives, and whether it can serve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from fastapi import Request, Response
from pydantic import BaseModel

from starverse.app.readiness import readiness
from starverse.app.views import ReconcilerStatus
from starverse.http.routing import make_router
from starverse.http.security import PlatformDep

router = make_router("health", root="")


class Alive(BaseModel):
    status: Literal["ok"] = "ok"


class Health(BaseModel):
    """``degraded``: requests are answered, and ``reasons`` say what does not go well."""

    status: Literal["ok", "degraded", "unavailable"]
    reasons: list[str] = []


@router.get("/healthz")
async def healthz() -> Alive:
    """The process answers."""
    return Alive()


@router.get("/readyz", responses={503: {"model": Health}})
def readyz(platform: PlatformDep, request: Request, response: Response) -> Health:
    """The database answers too, 503 otherwise; an engine that is away is told and takes nobody's requests."""
    ask: Callable[[], Sequence[ReconcilerStatus]] = request.app.state.reconciler_status
    found = readiness(platform, ask())
    if not found.serves:
        response.status_code = 503
        return Health(status="unavailable", reasons=list(found.reasons))
    return Health(status="degraded" if found.reasons else "ok", reasons=list(found.reasons))
