"""Every setting and every error code is documented.

Endpoints: ``tests/integration/test_http_every_route.py``.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from starverse.config import Config
from starverse.domain.errors import StarverseError
from starverse.testing import reference_pages

ROOT = Path(__file__).resolve().parents[2]


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
