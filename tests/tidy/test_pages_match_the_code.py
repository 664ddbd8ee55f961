"""Settings, error codes and endpoints: documented, described, authorised."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from fastapi.routing import APIRoute, iter_route_contexts

from starverse.config import Config
from starverse.domain.errors import StarverseError
from starverse.http.security import PUBLIC_ROUTES, authorisations_of
from starverse.testing import reference_pages
from starverse.testing.http_sites import Site, open_site
from starverse.testing.still_engine import StillEngine

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with open_site("sqlite", tmp_path, StillEngine()) as opened:
        yield opened


@dataclass(frozen=True)
class Endpoint:
    """One method of one path, prefix included."""

    method: str
    path: str
    route: APIRoute

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def endpoints_of(site: Site) -> list[Endpoint]:
    return [
        Endpoint(method, str(context.path_format), context.original_route)
        for context in iter_route_contexts(site.app.routes)
        if isinstance(context.original_route, APIRoute)
        for method in sorted(context.original_route.methods or ())
        if method != "HEAD"
    ]


@pytest.mark.parametrize("name", sorted(reference_pages.PAGES))
def test_a_page_made_from_code_is_up_to_date(name: str) -> None:
    file, make = reference_pages.PAGES[name]
    page = ROOT / "docs" / file
    assert page.read_text("utf-8") == make(), (
        f"docs/{file} is old: run `make docs` and look at the difference"
    )


def test_every_setting_has_a_description() -> None:
    silent = [
        f"{section}.{name}"
        for section, field in Config.model_fields.items()
        for name, setting in field.annotation.model_fields.items()  # type: ignore[union-attr]
        if not setting.description
    ]
    assert not silent


def test_every_error_has_a_code_of_its_own_and_says_what_happened() -> None:
    classes = reference_pages.error_classes()
    assert len({cls.code for cls in classes}) == len(classes)
    for cls in classes:
        assert "code" in vars(cls), f"{cls.__name__} takes its parent's code"
        assert re.fullmatch(r"[a-z_]+", cls.code)
        assert cls.__doc__, cls.__name__
        assert len(cls().detail.split()) > 4, f"{cls.__name__}: say what happened and what to do"
    assert StarverseError in classes


def test_every_endpoint_is_authorised_once_or_public_by_name(site: Site) -> None:
    endpoints = endpoints_of(site)
    assert len(endpoints) > 20
    public = set()
    for endpoint in endpoints:
        found = authorisations_of(endpoint.route)
        if (endpoint.method, endpoint.path) in PUBLIC_ROUTES:
            public.add((endpoint.method, endpoint.path))
            assert not found, f"{endpoint} is public and yet asks who calls"
        else:
            assert len(found) == 1, f"{endpoint} declares {found or 'no authorisation'}"
    assert public == PUBLIC_ROUTES, "PUBLIC_ROUTES names what is not there"


def test_every_endpoint_is_documented(site: Site) -> None:
    paths = json.loads((ROOT / "docs/openapi.json").read_text("utf-8"))["paths"]
    for endpoint in endpoints_of(site):
        if endpoint.route.include_in_schema:
            operation = paths[endpoint.path][endpoint.method.lower()]
            assert len(str(operation.get("description", "")).split()) > 2, f"{endpoint}: no docstring"
