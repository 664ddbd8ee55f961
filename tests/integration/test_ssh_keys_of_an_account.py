"""Keys of an account: which are taken and why not, whose they are, and where the gateway is."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest

from starverse.app.gateway_keys import keep_gateway_keys
from starverse.app.ssh_keys import KEYS_MAX, read_public_key
from starverse.db import ssh_keys
from starverse.db.ssh_keys import SshKey
from starverse.domain.errors import Invalid
from starverse.domain.ids import AccountId
from starverse.testing.gateway_sites import make_key
from starverse.testing.http_sites import Site

ED25519 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJfyo1n/Gzp+vb93Fwz8DiNGwb3jVZ5hxcBBwgTcuCsQ"
SECURITY_KEY = (
    "sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIJfyo1n/Gzp+vb93Fwz8DiNGwb3jVZ5h"
    "xcBBwgTcuCsQAAAABHNzaDo="
)
DSA = "ssh-dss AAAAB3NzaC1kc3MAAACBAP1/U4EddRIpUt9KnC7s5Of2EbdSPO9EAMMeP4C2USZpRV1AIlH7WT2NWPq/xfW6MPbL wang"


def test_a_key_is_added_shown_and_removed(site: Site) -> None:
    wang = site.register()
    made = wang.post("/ssh-keys", {"name": "laptop", "public_key": f"{ED25519} wang@laptop\n"})
    assert made["public_key"] == ED25519, "without the comment"
    assert made["fingerprint"] == "SHA256:MwjIBB9495l868mKey1q22cuUD4r6MR674r8VOYOL98"
    assert made["last_used_at"] is None
    assert wang.get("/ssh-keys")["items"] == [made]
    assert wang.client.delete(f"/api/v1/ssh-keys/{made['id']}").status_code == 204
    assert wang.get("/ssh-keys")["items"] == []
    assert wang.client.delete(f"/api/v1/ssh-keys/{made['id']}").status_code == 404


def test_a_key_without_a_name_takes_its_comment_and_goes_by_its_name(site: Site) -> None:
    wang = site.register()
    assert wang.post("/ssh-keys", {"public_key": f"{ED25519} 王 的 laptop"})["name"] == "王 的 laptop"
    assert wang.post("/ssh-keys", {"public_key": SECURITY_KEY})["name"] == "sk-ssh-ed25519@openssh.com"
    assert wang.client.delete("/api/v1/ssh-keys/王 的 laptop").status_code == 204


def test_the_same_key_or_name_twice_is_refused_and_two_accounts_may_hold_one_key(site: Site) -> None:
    wang, li = site.register(), site.register("li@example.org")
    wang.post("/ssh-keys", {"name": "laptop", "public_key": ED25519})
    li.post("/ssh-keys", {"name": "laptop", "public_key": ED25519})
    for body in (
        {"name": "other", "public_key": ED25519},
        {"name": "laptop", "public_key": SECURITY_KEY},
    ):
        answer = wang.client.post("/api/v1/ssh-keys", json=body)
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")


def test_a_repeat_of_the_same_request_makes_one_key(site: Site) -> None:
    wang = site.register()
    headers = {"Idempotency-Key": "once"}
    first, second = (
        wang.post("/ssh-keys", {"public_key": f"{ED25519} a"}, headers=headers) for _ in range(2)
    )
    assert first == second


def test_keys_belong_to_the_account_and_nobody_else_sees_or_removes_them(site: Site) -> None:
    wang, li = site.register(), site.register("li@example.org")
    made = wang.post("/ssh-keys", {"name": "laptop", "public_key": ED25519})
    assert li.get("/ssh-keys")["items"] == []
    for ref in (made["id"], "laptop"):
        assert li.client.delete(f"/api/v1/ssh-keys/{ref}").status_code == 404
    script = site.client(wang.post("/tokens", {"name": "n", "team": wang.team})["token"])
    assert script.get("/api/v1/ssh-keys").status_code == 403, "a token of one team is not the account"
    assert wang.get("/ssh-keys")["items"] == [made]


def test_an_account_holds_so_many_keys_and_no_more(site: Site) -> None:
    wang = site.register()
    account = AccountId(wang.get("/me")["account"]["id"])
    with site.platform.database.write() as connection:
        for number in range(KEYS_MAX):
            key = SshKey(str(number), account, f"k{number}", ED25519, f"SHA256:{number}", site.clock.now())
            ssh_keys.add(connection, key)
    answer = wang.client.post("/api/v1/ssh-keys", json={"public_key": ED25519})
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert len(wang.get("/ssh-keys")["items"]) == KEYS_MAX


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (DSA, "a DSA key"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n", "a private key"),
        ("PuTTY-User-Key-File-3: ssh-ed25519\n", "a private key"),
        (f"{ED25519[:-9]} cut@short", "whole"),
        (ED25519.replace("AAAAC3", "AAAAC4"), "whole"),
        ("ssh-ed25519 !!!! wang", "whole"),
        ("ssh-ed25519", "one line"),
        (f"{ED25519}\n{SECURITY_KEY}", "one line"),
        (f'command="rm -rf /" {ED25519}', "a key of kind"),
        (ED25519.replace("ssh-ed25519 ", "ssh-ed448 "), "a key of kind"),
        ("ssh-ed25519-cert-v01@openssh.com AAAA", "a certificate"),
        ("", "one line"),
    ],
)
def test_what_is_no_good_public_key_is_refused_with_its_reason(given: str, why: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_public_key(given)
    assert why in str(caught.value)
    assert "b3BlbnNzaC1rZXk" not in str(caught.value), "a private key is not repeated"


@pytest.mark.parametrize(("bits", "taken"), [(1024, False), (2048, True)])
def test_rsa_needs_2048_bits(tmp_path: Path, bits: int, taken: bool) -> None:
    make_key(tmp_path / "key", "-t", "rsa", "-b", str(bits))
    public = (tmp_path / "key.pub").read_text("utf-8")
    if taken:
        shown = subprocess.run(
            ["ssh-keygen", "-lf", str(tmp_path / "key.pub")], check=True, capture_output=True, text=True
        ).stdout
        assert read_public_key(public).fingerprint in shown
    else:
        with pytest.raises(Invalid, match="an RSA key of 1024 bits"):
            read_public_key(public)


def test_a_pasted_private_key_is_answered_with_what_to_do(site: Site) -> None:
    wang = site.register()
    private = "-----BEGIN OPENSSH PRIVATE KEY-----\nsecretsecret\n-----END OPENSSH PRIVATE KEY-----\n"
    answer = wang.client.post("/api/v1/ssh-keys", json={"public_key": private})
    assert answer.status_code == 422
    assert "make a new pair" in answer.json()["hint"]
    assert "secretsecret" not in answer.text


def test_the_gateway_tells_where_it_is_and_how_to_trust_it(site: Site) -> None:
    wang = site.register()
    shown = wang.get("/ssh")
    keys = keep_gateway_keys(site.platform.paths.gateway)
    assert (shown["host"], shown["port"]) == ("127.0.0.1", 2222)
    assert shown["known_hosts"] == f"@cert-authority [127.0.0.1]:2222 {keys.ca_public}"
    assert shown["ca_public_key"] == keys.ca_public


def test_the_keys_of_the_gateway_are_made_once_and_are_nobody_else_s_to_read(tmp_path: Path) -> None:
    first, second = (keep_gateway_keys(tmp_path / "gateway") for _ in range(2))
    assert first == second
    for name in ("ca_key", "host_key", "client_key"):
        assert stat.S_IMODE((tmp_path / "gateway" / name).stat().st_mode) == 0o600
    certificate = (tmp_path / "gateway" / "host_key-cert.pub").read_text()
    (tmp_path / "gateway" / "host_key-cert.pub").unlink()
    assert keep_gateway_keys(tmp_path / "gateway") == first, "what can be made again is"
    assert (tmp_path / "gateway" / "host_key-cert.pub").read_text() != certificate
