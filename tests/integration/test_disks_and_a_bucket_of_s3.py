"""Disks and a bucket: moto's S3 on the loopback, reached by the product's own rclone in its sandbox."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from moto.backends import get_backend
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import BaseWSGIServer, make_server

from starverse.node import processes
from starverse.testing.given_disks import folder_of, given_disk
from starverse.testing.http_sites import PREFIX, Person
from starverse.testing.syncing_sites import SyncingSite, open_syncing_site, put_secret

pytestmark = pytest.mark.skipif(shutil.which("rclone") is None, reason="apt-get install rclone")

KEY, SECRET = "AKIASTARVERSETEST", "open-sesame-of-s3/+"
NAMES = ("plain.txt", "with spaces/and more", "数据/第 1 天.csv", "a/b/c/d/e", "长" * 85)
REFUSED = b"<Error><Code>InvalidAccessKeyId</Code><Message>There is no such key.</Message></Error>"


class Bucket:
    """An S3 server with one bucket, ``data``, which takes one key alone."""

    def __init__(self) -> None:
        self._served = DomainDispatcherApplication(create_backend_app)
        self._server: BaseWSGIServer = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def config(self, key: str = KEY) -> str:
        """An ``rclone.conf`` with this server as ``lab``."""
        return (
            f"[lab]\ntype = s3\nprovider = Other\naccess_key_id = {key}\nsecret_access_key = {SECRET}\n"
            f"endpoint = http://127.0.0.1:{self._server.port}\nregion = us-east-1\n"
        )

    def keys(self) -> dict[str, bytes]:
        """What is in the bucket."""
        return {name: found.value for name, found in self._backend().buckets["data"].keys.items()}

    def put(self, name: str, content: bytes) -> None:
        self._backend().put_object("data", name, content)

    def __enter__(self) -> Bucket:
        self._backend().reset()
        self._backend().create_bucket("data", "us-east-1")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _backend(self) -> Any:
        return get_backend("s3")["123456789012"]["global"]

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if f"Credential={KEY}/" in environ.get("HTTP_AUTHORIZATION", ""):
            answered: Iterable[bytes] = self._served(environ, start)
            return answered
        start("403 Forbidden", [("Content-Type", "application/xml")])
        return [REFUSED]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[SyncingSite]:
    with open_syncing_site("sqlite", tmp_path) as opened:
        yield opened


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with Bucket() as served:
        yield served


@pytest.fixture
def person(site: SyncingSite, bucket: Bucket) -> Person:
    person = site.register()
    put_secret(person, "conf", bucket.config())
    return person


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_what_is_in_a_bucket_comes_and_goes_back_verified(
    site: SyncingSite, person: Person, bucket: Bucket
) -> None:
    disk = given_disk(site, person)
    made = {name: os.urandom(1000) for name in NAMES}
    for name, content in made.items():
        bucket.put(f"in/{name}", content)
    done = site.until(
        person, "home", site.ask(person, "home", remote="lab:data/in", folder="got", verify=True)["id"]
    )
    assert (done["state"], done["message"], done["files_done"]) == ("succeeded", "", len(made))
    assert done["verified_at"]
    assert files(folder_of(site, disk) / "got") == made

    asked = site.ask(person, "home", direction="push", remote="lab:data/out", folder="got", verify=True)
    done = site.until(person, "home", asked["id"])
    assert (done["state"], done["message"]) == ("succeeded", "")
    assert {name: value for name, value in bucket.keys().items() if not name.startswith("in/")} == {
        f"out/{name}": content for name, content in made.items()
    }
    bucket.put("in/plain.txt", b"newer")
    done = site.until(person, "home", site.ask(person, "home", remote="lab:data/in", folder="got")["id"])
    assert (done["state"], done["files_done"]) == ("succeeded", 1), "what is the same is not copied again"
    assert (folder_of(site, disk) / "got" / "plain.txt").read_bytes() == b"newer"


def test_its_credentials_are_in_no_argument_environment_file_log_or_answer(
    site: SyncingSite, person: Person, bucket: Bucket, capfd: pytest.CaptureFixture[str]
) -> None:
    disk = given_disk(site, person)
    bucket.put("big", os.urandom(1024**2))
    asked = site.ask(person, "home", remote="lab:data", bytes_per_second_max=200_000)
    site.until(person, "home", asked["id"], lambda shown: shown["bytes_done"] > 0)
    own = [os.getpid(), *processes.find_descendants(os.getpid())]
    words = [word for pid in own[1:] for word in words_of(pid)]
    assert any(b"rclone" in word for word in words)
    hidden = (KEY.encode(), SECRET.encode())
    assert not [word for word in words if any(secret in word for secret in hidden)]
    answer = person.client.delete(f"{PREFIX}/disks/home/syncs/{asked['id']}")
    site.until(person, "home", asked["id"])
    data = site.platform.settings.data
    kept = [path.read_bytes() for path in data.rglob("*") if path.is_file()]
    kept += ["".join(capfd.readouterr()).encode(), answer.content]
    kept.append(person.client.get(f"{PREFIX}/disks/{disk.id}/syncs").content)
    assert not [text for text in kept if any(secret in text for secret in hidden)]


def words_of(pid: int) -> list[bytes]:
    """Of a process: its command line and its environment."""
    found = []
    for name in ("cmdline", "environ"):
        try:
            found.append(Path(f"/proc/{pid}/{name}").read_bytes())
        except OSError:
            continue
    return found


def test_a_wrong_key_and_a_bucket_that_there_is_not_end_it_at_once(
    site: SyncingSite, person: Person, bucket: Bucket
) -> None:
    given_disk(site, person)
    done = site.until(person, "home", site.ask(person, "home", remote="lab:nothing/in")["id"])
    assert (done["state"], done["attempts"]) == ("failed", 1)
    assert done["message"].startswith("there is no such folder at the remote: ")
    put_secret(person, "conf", bucket.config(key="AKIAWRONG"))
    done = site.until(person, "home", site.ask(person, "home", remote="lab:data/in")["id"])
    assert (done["state"], done["attempts"]) == ("failed", 1)
    assert "AKIAWRONG" not in done["message"]
    assert SECRET not in done["message"]


def test_a_bucket_keeps_no_folders_and_a_push_of_some_is_no_fault(
    site: SyncingSite, person: Person, bucket: Bucket
) -> None:
    disk = given_disk(site, person)
    folder = folder_of(site, disk)
    (folder / "runs" / "empty").mkdir(parents=True)
    for path in (folder / "runs", folder / "runs" / "empty"):
        os.chown(path, folder.stat().st_uid, -1)
    asked = site.ask(person, "home", direction="push", remote="lab:data/out", folder="runs", verify=True)
    done = site.until(person, "home", asked["id"])
    assert (done["state"], done["message"], bucket.keys()) == ("succeeded", "", {})
