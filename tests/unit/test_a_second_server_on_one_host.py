"""A port that another server of this host has is refused with the setting that names another one."""

from __future__ import annotations

import pytest

from starverse.config import load
from starverse.domain.errors import Invalid
from starverse.main import listen_tcp


@pytest.mark.parametrize(
    ("setting", "way"), [("--port", "`--port 0`"), ("gateway.port", "`gateway.port = 0`")]
)
def test_the_refusal_says_how_to_have_another_port(setting: str, way: str) -> None:
    with listen_tcp("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(Invalid) as refused:
            listen_tcp("127.0.0.1", port, setting)
    assert refused.value.faults[0].field == setting
    assert refused.value.hint is not None and way in refused.value.hint


def test_the_variable_that_the_refusal_names_is_the_settings_own() -> None:
    with listen_tcp("127.0.0.1", 0) as first, pytest.raises(Invalid) as refused:
        listen_tcp("127.0.0.1", first.getsockname()[1], "gateway.port")
    name, _, value = str(refused.value.hint).partition("or ")[2].partition(")")[0].partition("=")
    assert load(environment={name: value}).config.gateway.port == 0
