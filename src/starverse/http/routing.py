"""How every module of endpoints makes its router: complete, so that apps take its routes as they are.

``include_router`` builds each route of a router anew, with all that reads its parameters, for every app that
includes it: a quarter of a second of each start.
"""

from __future__ import annotations

from fastapi import APIRouter, Depends
from fastapi.routing import APIRoute

from starverse.http.problems import PROBLEM_RESPONSES
from starverse.http.security import known_query

API_PREFIX = "/api/v1"


def make_router(tag: str, prefix: str = "", *, root: str = API_PREFIX) -> APIRouter:
    """A router for the endpoints of one subject below ``root`` and ``prefix``."""
    return APIRouter(
        tags=[tag],
        prefix=root + prefix,
        dependencies=[Depends(known_query)],
        responses=PROBLEM_RESPONSES,
        generate_unique_id_function=_operation_id,
    )


def _operation_id(route: APIRoute) -> str:
    """The function's name: unique over the API, stable for generated clients."""
    return route.name
