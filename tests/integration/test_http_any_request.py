"""Any request that the description allows, and many that it does not, gets a described answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from starverse.app.rate_limits import AttemptLimits
from starverse.http.app import make_app
from starverse.http.openapi import description_text
from starverse.testing.http_sites import Person, Site, open_site

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
EXAMPLES = 8
ENDLESS = AttemptLimits(1, 10_000, 10_000, 10_000)


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Person]]:
    """An operator, who reaches every route."""
    folder: Path = tmp_path_factory.mktemp("any-request")
    with open_site("sqlite", folder) as opened:
        site = Site(opened.world, make_app(opened.platform, attempt_limits=ENDLESS))
        yield site, site.operator()


@schemathesis.serializer("application/gzip")
def _archive_bytes(_context: object, value: object) -> bytes:
    """Bodies of uploads are bytes already; anything else is sent as its text."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


schema = schemathesis.openapi.from_dict(json.loads(description_text()))
OPERATIONS = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
LEFT_OUT = {
    "DELETE /api/v1/sessions/current",  # would sign the caller out
    "GET /api/v1/jobs/{ref}/logs:follow",  # has no end while a job runs
}


@pytest.mark.parametrize(
    "operation", [found for found in OPERATIONS if found.label not in LEFT_OUT], ids=lambda found: found.label
)
def test_any_request_gets_a_described_answer(operation: Any, caller: tuple[Site, Person]) -> None:
    site, person = caller
    headers = {"Authorization": f"Bearer {person.token}"}

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=st.one_of([operation.as_strategy(generation_mode=mode) for mode in GenerationMode]))
    def any_request(case: schemathesis.Case[Any]) -> None:
        response = case.call(headers=headers, base_url="http://testserver", app=site.app)
        case.validate_response(response, checks=CHECKS)

    any_request()


def test_the_whole_description_is_tried() -> None:
    assert len(OPERATIONS) >= 60
    assert {found.label for found in OPERATIONS} >= LEFT_OUT
