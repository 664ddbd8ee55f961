"""The API of images: what comes back, what is refused, and whom the platform's own are for."""

from __future__ import annotations

from typing import Any

import pytest

from starverse.testing.http_sites import PREFIX, Person, Site

PACKAGES = {"packages": ["six==1.17.0"]}


def build(site: Site) -> None:
    for _ in range(3):
        site.world.run_reconciler("images")


def test_a_shipped_recipe_needs_its_name_alone(site: Site) -> None:
    wang = site.register()
    made = wang.post("/images", {"name": "numpy"})
    assert (made["state"], made["team"], made["digest"]) == ("queued", wang.team, None)
    build(site)
    shown = wang.get("/images/numpy")
    assert shown["state"] == "ready"
    assert shown["digest"].startswith("sha256:")
    assert any(line.startswith("numpy==") for line in shown["contents"])
    assert wang.get(f"/images/{made['id']}") == shown
    assert [image["name"] for image in wang.get("/images")["items"]] == ["numpy"]
    verified = wang.post("/images/numpy:verify", status=200)
    assert (verified["state"], verified["faults"]) == ("verified", [])


def test_a_repeat_of_an_order_is_answered_by_what_it_made(site: Site) -> None:
    wang = site.register()
    key = {"Idempotency-Key": "once"}
    made = wang.post("/images", {"name": "mine", "recipe": PACKAGES}, headers=key)
    build(site)
    again = wang.post("/images", {"name": "mine", "recipe": PACKAGES}, headers=key)
    assert again["id"] == made["id"]
    assert wang.post("/images", {"name": "mine", "recipe": PACKAGES}, 409)["code"] == "conflict"


def test_images_for_everybody_are_the_operators(site: Site) -> None:
    wang, operator = site.register(), site.operator()
    assert wang.post("/images", {"name": "base", "shared": True}, 403)["code"] == "forbidden"
    operator.post("/images", {"name": "base", "shared": True})
    build(site)
    assert wang.get("/images/base")["team"] is None
    assert wang.client.delete(f"{PREFIX}/images/base").status_code == 403
    wang.post("/images", {"name": "base", "recipe": PACKAGES})
    assert wang.get("/images/base")["team"] == wang.team, "one's own goes first"
    assert len(wang.get("/images")["items"]) == 2
    assert operator.client.delete(f"{PREFIX}/images/base").status_code == 204


@pytest.mark.parametrize(
    "body",
    [
        {"name": "../../etc", "recipe": PACKAGES},
        {"name": "图像", "recipe": PACKAGES},
        {"name": "x" * 255, "recipe": PACKAGES},
        {"name": "a b", "recipe": PACKAGES},
        {"name": "", "recipe": PACKAGES},
        {"name": "a\u0000b", "recipe": PACKAGES},
        {"name": "mine", "recipe": {"packages": ["six"]}},
        {"name": "mine", "recipe": {"packages": ["six==1.17.0"], "requirements": "-r /etc/passwd"}},
        {"name": "mine", "recipe": {"kind": "saved"}},
        {"name": "mine", "recipe": {"kind": "oci", "ref": "--privileged"}},
        {"name": "mine", "recipe": {"path": "/etc"}},
        {"name": "mine", "recipe": {"packages": "six==1.17.0"}},
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_made(site: Site, body: dict[str, Any]) -> None:
    wang = site.register()
    answer = wang.post("/images", body, 422)
    assert answer["faults"]
    assert wang.get("/images")["items"] == []


def test_a_name_without_a_recipe_of_ours_is_told_what_there_is(site: Site) -> None:
    said = site.register().post("/images", {"name": "caffe"}, 404)
    assert "pytorch" in said["detail"]


def test_another_teams_image_is_neither_seen_used_verified_nor_removed(site: Site) -> None:
    owner, stranger = site.register(), site.register("stranger@example.org")
    made = owner.post("/images", {"name": "mine", "recipe": PACKAGES})
    build(site)
    for reference in ("mine", made["id"]):
        for method, path in (("GET", ""), ("POST", ":verify"), ("DELETE", "")):
            answer = stranger.client.request(method, f"{PREFIX}/images/{reference}{path}")
            assert answer.status_code == 404, f"{method} {reference}{path}"
        job = "#!/bin/bash\n#SBATCH --gres=gpu:rtx4090:1\n#SBATCH --image=" + reference + "\ntrue\n"
        refused = stranger.post("/jobs", {"script": job}, 422)
        assert "starverse image ls" in str(refused["faults"])
    assert stranger.get("/images")["items"] == []
    assert _state(owner) == "ready"


def _state(owner: Person) -> str:
    return str(owner.get("/images/mine")["state"])
