"""What commands are tested with looks as the API answers, and what they send is what it takes."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from starverse.http import schemas_disks, schemas_images, schemas_instances, schemas_shelf, schemas_ssh
from starverse.http.secrets import SecretIn
from starverse.http.syncs import SyncIn, SyncOut
from starverse.testing import api_examples as examples
from starverse.testing.command_lines import CommandLine
from starverse.testing.fake_api import FakeApi, Reply

ANSWERS: dict[str, tuple[dict[str, Any], type[BaseModel]]] = {
    "instance": (examples.instance(), schemas_instances.InstanceOut),
    "stopped instance": (examples.stopped(), schemas_instances.InstanceOut),
    "evidence": (examples.activity()[0], schemas_instances.EvidenceOut),
    "key": (examples.ssh_key(), schemas_ssh.SshKeyOut),
    "gateway": (examples.gateway(), schemas_ssh.GateOut),
    "disk": (examples.disk(), schemas_disks.DiskOut),
    "disk usage": (examples.disk_usage(), schemas_disks.DiskUsageOut),
    "disk prices": (examples.disk_prices(), schemas_shelf.DiskPricesOut),
    "snapshot": (examples.snapshot(), schemas_disks.SnapshotOut),
    "sync": (examples.sync(), SyncOut),
    "image": (examples.image(), schemas_images.ImageOut),
}


@pytest.mark.parametrize(("example", "model"), ANSWERS.values(), ids=ANSWERS.keys())
def test_an_example_has_the_fields_of_the_answer(example: dict[str, Any], model: type[BaseModel]) -> None:
    model.model_validate(example)
    assert set(example) == set(model.model_fields)


LAB, HOME = "/instances/0191-lab", "/disks/home"
REQUESTS: dict[str, tuple[str, str, str, type[BaseModel]]] = {
    "launch": (
        "launch --card rtx4090 --disk home:/data/x:ro --secret s --dataset d --idle-stop 0 --ttl 2h --cpus 2"
        " --memory-gib 4 --restart stay --fabric eth --zone bj1 --image i --name lab --price-max 1.5 --yes"
        " --no-wait",
        "POST",
        "/instances",
        schemas_instances.LaunchIn,
    ),
    "start": ("start lab --tariff spot --no-wait --yes", "POST", f"{LAB}:start", schemas_instances.StartIn),
    "resize": (
        "resize lab --cards 4 --card rtx4090 --no-wait --yes",
        "POST",
        f"{LAB}:resize",
        schemas_instances.ResizeIn,
    ),
    "clone": ("clone lab --name lab-2 --no-wait", "POST", "/instances/lab:clone", schemas_instances.CloneIn),
    "extend": ("extend lab --days 3", "POST", "/instances/lab:extend", schemas_instances.ExtendIn),
    "set": (
        "set lab --idle-stop default --ttl 0 --restart elsewhere --name l",
        "PATCH",
        "/instances/lab",
        schemas_instances.InstanceChangeIn,
    ),
    "save": (
        "image save lab env --no-wait",
        "POST",
        "/instances/lab:save-image",
        schemas_instances.SaveImageIn,
    ),
    "build": (
        "image build mine a==1 --python 3.11 --cuda 12.6 --driver-min 560 --shared --no-wait",
        "POST",
        "/images",
        schemas_images.ImageIn,
    ),
    "shipped": ("image build numpy --no-wait", "POST", "/images", schemas_images.ImageIn),
    "oci": ("image build c --kind oci --ref debian:12 --no-wait", "POST", "/images", schemas_images.ImageIn),
    "disk": (
        "disk create home --size 1GiB --from-snapshot s-1 --no-wait --yes",
        "POST",
        "/disks",
        schemas_disks.DiskIn,
    ),
    "attach": (
        "disk attach home lab --path /data/x --read-only",
        "POST",
        f"{HOME}:attach",
        schemas_disks.AttachIn,
    ),
    "detach": ("disk detach home lab", "POST", f"{HOME}:detach", schemas_disks.DetachIn),
    "grow": ("disk resize home --size 200GiB --yes", "PATCH", "/disks/d-home", schemas_disks.DiskChangeIn),
    "schedule": ("disk snapshot schedule home off", "PATCH", HOME, schemas_disks.DiskChangeIn),
    "snapshot": (
        "disk snapshot create home --no-wait",
        "POST",
        f"{HOME}/snapshots",
        schemas_disks.SnapshotIn,
    ),
    "restore": ("disk restore home --name h", "POST", f"{HOME}:restore", schemas_disks.RestoreIn),
    "sync": (
        "disk sync schedule home push nas:x '30 2 * * *' --folder f --secret s --bandwidth 1MB --verify",
        "POST",
        f"{HOME}/syncs",
        SyncIn,
    ),
    "secret": ("secret set hf", "PUT", "/secrets/hf", SecretIn),
    "key": ("ssh-key add -", "POST", "/ssh-keys", schemas_ssh.SshKeyIn),
}


@pytest.mark.parametrize(("words", "method", "path", "model"), REQUESTS.values(), ids=REQUESTS.keys())
def test_what_a_command_sends_is_taken(
    tmp_path: Path, words: str, method: str, path: str, model: type[BaseModel]
) -> None:
    key = examples.ssh_key()["public_key"]
    with FakeApi() as api:
        api.on("GET", "/offers", {"items": examples.offers(), "next_cursor": None})
        api.on("GET", "/instances/lab", examples.instance())
        api.on("GET", "/disk-prices", examples.disk_prices())
        api.on("GET", "/disks", {"items": [], "next_cursor": None})
        api.on("GET", HOME, examples.disk())
        api.on(method, path, Reply(200, {**examples.disk(), **examples.instance(), "kind": "venv"}))
        line = CommandLine(api.url, tmp_path)
        line.run(*shlex.split(words), stdin=key)
        (seen,) = api.requests(method, path)
    model.model_validate(seen.json)
