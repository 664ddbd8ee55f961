"""Where the API and the token come from, and what the credentials file may do."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from starverse.client.errors import Refused
from starverse.client.settings import DEFAULT_API, Credentials, SignIn, load_settings, normal_api


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("http://127.0.0.1:9/", "http://127.0.0.1:9"),
        ("https://gpu.example.org/api/v1", "https://gpu.example.org"),
        (" http://a:1 ", "http://a:1"),
        ("unix:/run/starverse/api.sock", "unix:/run/starverse/api.sock"),
    ],
)
def test_addresses_have_one_spelling(given: str, expected: str) -> None:
    assert normal_api(given) == expected


@pytest.mark.parametrize("given", ["gpu.example.org", "unix:relative", "ftp://x", "http://", ""])
def test_what_is_no_address_is_refused_with_what_would_be(given: str) -> None:
    with pytest.raises(Refused) as caught:
        normal_api(given)
    assert "unix:/path" in (caught.value.hint or "")


def environ_of(folder: Path, **more: str) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(folder), **more}


def test_without_anything_the_api_is_the_local_one_and_nobody_is_signed_in(tmp_path: Path) -> None:
    settings = load_settings(environ_of(tmp_path))
    assert (settings.api, settings.token, settings.team) == (DEFAULT_API, None, None)


def test_a_sign_in_is_kept_in_a_file_that_only_the_owner_reads(tmp_path: Path) -> None:
    environ = environ_of(tmp_path)
    credentials = Credentials.of_user(environ)
    credentials.remember("http://a:1", SignIn("t-a", "a@example.org"))
    assert stat.S_IMODE(credentials.path.stat().st_mode) == 0o600
    assert load_settings(environ).token == "t-a"
    assert load_settings(environ).api == "http://a:1"


def test_a_token_is_only_sent_to_the_api_that_gave_it(tmp_path: Path) -> None:
    Credentials.of_user(environ_of(tmp_path)).remember("http://a:1", SignIn("t-a", "a@example.org"))
    settings = load_settings(environ_of(tmp_path, STARVERSE_API="http://evil:1"))
    assert settings.token is None


def test_the_environment_goes_before_the_file(tmp_path: Path) -> None:
    Credentials.of_user(environ_of(tmp_path)).remember(DEFAULT_API, SignIn("t-file", "a@example.org"))
    token_file = tmp_path / "token"
    token_file.write_text("t-named\n")
    by_file = environ_of(tmp_path, STARVERSE_TOKEN_FILE=str(token_file))
    assert load_settings(by_file).token == "t-named"
    assert load_settings({**by_file, "STARVERSE_TOKEN": "t-env"}).token == "t-env"


def test_signing_out_forgets_one_api_only(tmp_path: Path) -> None:
    credentials = Credentials.of_user(environ_of(tmp_path))
    credentials.remember("http://a:1", SignIn("t-a", "a@example.org"))
    credentials.remember("http://b:1", SignIn("t-b", "b@example.org"))
    credentials.forget("http://b:1")
    assert credentials.sign_in("http://b:1") is None
    assert credentials.default_api() == "http://a:1"
    assert json.loads(credentials.path.read_text())["version"] == 1


def test_a_damaged_file_is_named_with_its_remedy(tmp_path: Path) -> None:
    credentials = Credentials.of_user(environ_of(tmp_path))
    credentials.path.parent.mkdir()
    credentials.path.write_text("{")
    with pytest.raises(Refused, match=r"credentials\.json"):
        load_settings(environ_of(tmp_path))


def test_a_token_file_that_is_not_there_is_an_error_not_a_missing_token(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="cannot be read"):
        load_settings(environ_of(tmp_path, STARVERSE_TOKEN_FILE=str(tmp_path / "none")))


def test_a_token_is_never_shown_by_accident(tmp_path: Path) -> None:
    settings = load_settings(environ_of(tmp_path, STARVERSE_TOKEN="t-secret"))
    assert "t-secret" not in repr(settings)
    assert "t-secret" not in repr(SignIn("t-secret", "a@example.org"))
