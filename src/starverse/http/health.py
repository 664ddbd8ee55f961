"""Whether the process lives, and whether it can serve."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel

from starverse.http.security import PlatformDep

router = APIRouter(tags=["health"])


class Health(BaseModel):
    status: Literal["ok", "unavailable"]


@router.get("/healthz")
async def healthz() -> Health:
    """The process answers."""
    return Health(status="ok")


@router.get("/readyz", responses={503: {"model": Health}})
def readyz(platform: PlatformDep, response: Response) -> Health:
    """The database answers too; 503 otherwise."""
    if platform.database.now_answers():
        return Health(status="ok")
    response.status_code = 503
    return Health(status="unavailable")
