"""A gateway with a real sshd behind it, the API, and someone with an instance that runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from starverse.testing.gateway_sites import GatewaySite, Visitor, open_gateway_site, serve_api


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewaySite]:
    """One for the tests of a file."""
    with open_gateway_site("sqlite", tmp_path_factory.mktemp("gateway")) as opened:
        yield opened


@pytest.fixture(scope="module")
def api(site: GatewaySite) -> Iterator[str]:
    """The address of the site's API."""
    with serve_api(site) as address:
        yield address


@pytest.fixture(scope="module")
def wang(site: GatewaySite) -> Visitor:
    """Someone with a running instance ``digits``."""
    return site.visitor_with_instance("wang", "digits")
