"""Images built by the real builder in its sandbox, from wheels made here: nothing comes from outside."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from starverse.domain.catalog.image_builds import BuildOrder, BuildPhase, BuildResult
from starverse.domain.catalog.image_recipes import Recipe, RecipeRequest, make_recipe
from starverse.domain.catalog.images import ImageKind
from starverse.domain.errors import Unavailable
from starverse.node.images import conda
from starverse.node.images.builder import ProcessBuilder
from starverse.node.images.places import Store
from starverse.node.images.venv import find_uv, has_pip
from starverse.testing.wheels import hash_of, installer_environment, make_channel, make_wheel

BUILDER_UID = 199_999
GIB = 1024**3

pytestmark = pytest.mark.skipif(
    shutil.which("bwrap") is None, reason="bubblewrap is not installed: apt-get install bubblewrap"
)


@dataclass
class Yard:
    """Where images are built: a store, wheels, and what they are built by."""

    root: Path
    wheels: Path
    environment: dict[str, str]
    builder: ProcessBuilder

    def order(self, recipe: Recipe, **changes: object) -> BuildOrder:
        uid = BUILDER_UID if os.geteuid() == 0 else None
        made = BuildOrder(str(uuid.uuid4()), recipe.to_text(), "auto", uid, 120, GIB, 0)
        return replace(made, **changes)  # type: ignore[arg-type]

    def build(self, *packages: str, **changes: object) -> BuildResult:
        order = self.order(make_recipe(RecipeRequest(packages=packages)), **changes)
        self.builder.begin(order)
        return self.result(order.image_id)

    def result(self, image_id: str) -> BuildResult:
        give_up = time.monotonic() + 60
        while (look := self.builder.look(image_id)).phase is BuildPhase.RUNNING:
            assert time.monotonic() < give_up, self.said(image_id)
            time.sleep(0.02)
        assert look.result is not None, self.said(image_id)
        self.builder.end(image_id)
        return look.result

    def said(self, image_id: str) -> str:
        folder = self.root / f".build-{image_id}"
        return "".join(path.read_text() for path in folder.glob("*log") if path.is_file())


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    wheels = tmp_path / "index" / "wheels"
    make_wheel(wheels, "tool")
    environment = installer_environment(wheels, tmp_path / "home")
    root = tmp_path / "data" / "images"
    made = Yard(root, wheels, environment, ProcessBuilder(root, environment))
    yield made
    give_up = time.monotonic() + 20
    for image_id in made.builder.builds():
        while not made.builder.end(image_id):
            assert time.monotonic() < give_up
            time.sleep(0.02)
    made.builder.close()


INSTALLERS = [
    pytest.param("uv", marks=pytest.mark.skipif(not find_uv(), reason="uv is not installed: pip install uv")),
    pytest.param("pip", marks=pytest.mark.skipif(not has_pip(), reason="pip is not installed here")),
]


@pytest.mark.parametrize("installer", INSTALLERS)
def test_the_same_recipe_twice_is_the_same_image(yard: Yard, installer: str) -> None:
    first = yard.build("tool==1.0", installer=installer)
    assert first.message == ""
    assert first.contents == ("tool==1.0",)
    place = yard.builder.place(first.digest)
    assert (place / "bin/tool").read_text().startswith("#!/opt/image/bin/python")
    before = place.stat().st_ino
    again = yard.build("tool==1.0", installer=installer)
    assert again.digest == first.digest
    assert place.stat().st_ino == before, "the one that was there stays"
    assert yard.builder.digests() == (first.digest,)
    assert yard.builder.verify(first.digest) == ()
    assert yard.builder.builds() == ()


def test_nobody_writes_a_finished_image_and_it_is_compiled(yard: Yard) -> None:
    made = yard.build("tool==1.0")
    place = yard.builder.place(made.digest)
    for path in (place, *place.rglob("*")):
        if not path.is_symlink():
            assert not path.stat().st_mode & 0o222, path
            assert path.stat().st_uid == os.geteuid()
    assert list(place.glob("lib/python3*/site-packages/__pycache__/tool.*.pyc"))


def test_two_builders_of_one_content_at_once_make_one_image(yard: Yard) -> None:
    recipe = make_recipe(RecipeRequest(packages=("tool==1.0",)))
    orders = [yard.order(recipe), yard.order(recipe)]
    for order in orders:
        yard.builder.begin(order)
    digests = {yard.result(order.image_id).digest for order in orders}
    assert len(digests) == 1
    assert yard.builder.digests() == tuple(digests)
    assert yard.builder.verify(digests.pop()) == ()


def test_nothing_that_a_package_brings_is_run_while_it_is_built(yard: Yard) -> None:
    """A .pth file is code that Python runs at each start: here at none before the image is used."""
    code = "import os; open(os.path.join(os.sep, 'opt', 'image', 'ran'), 'w')\n"
    make_wheel(yard.wheels, "eager", files={"eager.pth": code, "sitecustomize.py": code})
    made = yard.build("eager==1.0")
    place = yard.builder.place(made.digest)
    assert list(place.glob("lib/python3*/site-packages/eager.pth"))
    assert not (place / "ran").exists()


@pytest.mark.parametrize("installer", INSTALLERS)
def test_packages_that_cannot_be_had_fail_with_the_installers_words(yard: Yard, installer: str) -> None:
    assert "nothing" in yard.build("nothing==1.0", installer=installer).message
    wrong = yard.build(f"tool==1.0 --hash=sha256:{'0' * 64}", installer=installer).message
    assert "hash" in wrong.lower()
    right = hash_of(next(yard.wheels.glob("tool-*.whl")))
    assert yard.build(f"tool==1.0 --hash={right}", installer=installer).digest
    (yard.wheels / "source-1.0.tar.gz").write_bytes(b"")
    assert "source" in yard.build("source==1.0", installer=installer).message, "wheels only"
    assert len(yard.builder.digests()) == 1


def test_a_wheel_that_leads_out_of_its_folder_writes_nothing_there(yard: Yard, tmp_path: Path) -> None:
    path = "../../../../../../../../../../tmp/starverse-escaped"
    make_wheel(yard.wheels, "leaver", files={path: "out\n"})
    yard.build("leaver==1.0")
    assert not Path("/tmp/starverse-escaped").exists()
    assert not list(tmp_path.rglob("starverse-escaped"))


def test_limits_end_a_build_with_their_figures(yard: Yard) -> None:
    full = yard.build("tool==1.0", disk_reserve_bytes=1 << 62)
    assert "disk is nearly full" in full.message
    make_wheel(yard.wheels, "large", files={"large.txt": "x" * 3 * 1024**2})
    assert "larger than the 1 MiB kept of one" in yard.build("large==1.0", bytes_max=1024**2).message
    assert "longer than 0 s" in yard.build("tool==1.0", seconds_max=0).message
    recipe = make_recipe(RecipeRequest(packages=("tool==1.0",), python="3.99"))
    order = yard.order(recipe)
    yard.builder.begin(order)
    assert "there is no Python 3.99 here; there is 3." in yard.result(order.image_id).message
    assert yard.builder.digests() == ()


@pytest.fixture
def hanging_index(yard: Yard) -> Iterator[Yard]:
    """An index that takes connections and answers none."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/simple"
        del yard.environment["PIP_NO_INDEX"]
        Path(yard.environment["HOME"], ".config/uv/uv.toml").unlink()
        yard.environment |= {"UV_DEFAULT_INDEX": address, "PIP_INDEX_URL": address, "UV_HTTP_TIMEOUT": "60"}
        yield yard


def _descendants(pid: int) -> set[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(") ")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found, waiting = {pid}, [pid]
    while waiting:
        for child in parents.get(waiting.pop(), ()):
            found.add(child)
            waiting.append(child)
    return found


def _until(condition: Callable[[], object]) -> None:
    give_up = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def _builder_pid(yard: Yard, image_id: str) -> int:
    folder = str(yard.root / f".build-{image_id}")
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if words[1:4] == ["-m", "starverse.node.images.build", folder]:
                return int(entry.name)
    return 0


def test_kill_9_of_a_builder_leaves_no_process_and_no_image(hanging_index: Yard) -> None:
    yard = hanging_index
    order = yard.order(make_recipe(RecipeRequest(packages=("absent==1.0",))))
    yard.builder.begin(order)
    _until(lambda: len(_descendants(_builder_pid(yard, order.image_id))) >= 4)
    builder = _builder_pid(yard, order.image_id)
    family = _descendants(builder)
    os.kill(builder, signal.SIGKILL)
    _until(lambda: yard.builder.look(order.image_id).phase is BuildPhase.GONE)
    _until(lambda: not [pid for pid in family if _runs(pid)])
    assert yard.builder.end(order.image_id)
    assert yard.builder.builds() == yard.builder.digests() == ()
    assert [path.name for path in yard.root.iterdir()] == []


def _runs(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_a_build_goes_on_without_the_server_that_began_it(hanging_index: Yard) -> None:
    yard = hanging_index
    order = yard.order(make_recipe(RecipeRequest(packages=("absent==1.0",))))
    yard.builder.begin(order)
    another = ProcessBuilder(yard.root, yard.environment)
    _until(lambda: _builder_pid(yard, order.image_id))
    _until(lambda: Store(yard.root).build_folder(order.image_id).has_builder())
    assert another.look(order.image_id).phase is BuildPhase.RUNNING
    assert another.builds() == (order.image_id,)
    assert not another.end(order.image_id), "it is told to stop, and asked again"
    _until(lambda: another.look(order.image_id).phase is BuildPhase.ENDED)
    assert another.end(order.image_id)
    assert another.builds() == ()


def test_what_is_changed_afterwards_is_found_and_what_is_half_there_is_not_used(yard: Yard) -> None:
    made = yard.build("tool==1.0")
    place = yard.builder.place(made.digest)
    module = next(place.glob("lib/python3*/site-packages/tool.py"))
    module.chmod(0o644)
    module.write_text("VERSION = 'other'\n")
    module.chmod(0o444)
    found = {(fault.path, fault.kind) for fault in yard.builder.verify(made.digest)}
    assert found == {(str(module.relative_to(place)), "changed")}
    place.with_name(f"{place.name}.json").unlink()
    assert not yard.builder.is_sound(made.digest)
    with pytest.raises(Unavailable, match="build it again"):
        yard.builder.verify(made.digest)
    again = yard.build("tool==1.0")
    assert again.digest == made.digest
    assert yard.builder.verify(made.digest) == ()
    yard.builder.remove(made.digest)
    assert list(yard.root.iterdir()) == []


def test_digests_alone_become_paths(yard: Yard) -> None:
    for text in (
        "",
        "..",
        "sha256:../../x",
        "sha256:" + "A" * 64,
        "sha256:" + "0" * 63,
        "sha512:" + "0" * 64,
    ):
        with pytest.raises(ValueError, match="no digest"):
            yard.builder.place(text)


def test_a_saved_home_is_copied_as_it_is_and_no_link_is_followed(yard: Yard, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    home = tmp_path / "instance-home"
    (home / ".local/bin").mkdir(parents=True)
    (home / ".cache/pip").mkdir(parents=True)
    (home / ".cache/pip/large").write_text("again")
    (home / ".local/bin/run").write_text("#!/bin/sh\n")
    (home / ".local/bin/run").chmod(0o755)
    (home / "笔记.txt").write_text("mine")
    (home / "link").symlink_to(secret)
    (home / "folder-link").symlink_to(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(home / "agent.sock"))
        order = yard.order(
            Recipe(ImageKind.SAVED, instance="i"), layers=(("home", str(home)),), bytes_max=GIB
        )
        yard.builder.begin(order)
        made = yard.result(order.image_id)
    assert made.message == ""
    new = tmp_path / "instances" / "new" / "home"
    owner = 200_001 if os.geteuid() == 0 else None
    yard.builder.lay(made.digest, "home", new, owner)
    names = {str(path.relative_to(new)) for path in new.rglob("*")}
    assert names == {".local", ".local/bin", ".local/bin/run", "笔记.txt", "link", "folder-link"}
    assert (new / "link").readlink() == secret
    assert (new / ".local/bin/run").stat().st_mode & 0o777 == 0o700
    assert (new / "笔记.txt").stat().st_mode & 0o777 == 0o600
    if owner is not None:
        assert {path.lstat().st_uid for path in (new, *new.rglob("*"))} == {owner}
    (new / "笔记.txt").write_text("other")
    yard.builder.lay(made.digest, "home", new, owner)
    assert (new / "笔记.txt").read_text() == "other", "a home that is there stays"


needs_rattler = pytest.mark.skipif(
    not conda.is_here(), reason="py-rattler is not installed: pip install 'starverse[conda]'"
)


@needs_rattler
def test_an_image_of_conda_packages_from_the_operators_channel(yard: Yard, tmp_path: Path) -> None:
    base = make_channel(tmp_path / "mirror/channels/ours", "tool").parent.as_uri()
    recipe = make_recipe(RecipeRequest(kind="conda", packages=("tool=1.0",), channels=("ours",)))
    digests = set()
    for _ in range(2):
        order = yard.order(recipe, conda_base=base)
        yard.builder.begin(order)
        made = yard.result(order.image_id)
        assert made.message == ""
        assert made.contents == ("tool==1.0",)
        digests.add(made.digest)
    (digest,) = digests
    assert (yard.builder.place(digest) / "bin/tool").read_text() == "#!/bin/sh\necho 1.0\n"
    assert yard.builder.verify(digest) == ()


@needs_rattler
def test_a_channel_or_package_that_cannot_be_had_is_named(yard: Yard, tmp_path: Path) -> None:
    base = make_channel(tmp_path / "mirror/channels/ours", "tool").parent.as_uri()
    for channel, package in (("ours", "absent=1.0"), ("theirs", "tool=1.0")):
        recipe = make_recipe(RecipeRequest(kind="conda", packages=(package,), channels=(channel,)))
        order = yard.order(recipe, conda_base=base)
        yard.builder.begin(order)
        said = yard.result(order.image_id).message
        assert said.startswith(f"the packages of {channel} could not be had")
    assert yard.builder.digests() == ()


def test_without_py_rattler_the_answer_says_what_to_install(yard: Yard) -> None:
    if conda.is_here():
        pytest.skip("py-rattler is installed here")
    order = yard.order(make_recipe(RecipeRequest(kind="conda", packages=("tool=1.0",))))
    yard.builder.begin(order)
    assert "pip install 'starverse[conda]'" in yard.result(order.image_id).message


def test_an_empty_home_can_be_saved(yard: Yard, tmp_path: Path) -> None:
    home = tmp_path / "empty"
    home.mkdir()
    order = yard.order(Recipe(ImageKind.SAVED, instance="i"), layers=(("home", str(home)),))
    yard.builder.begin(order)
    made = yard.result(order.image_id)
    yard.builder.lay(made.digest, "home", tmp_path / "new", None)
    assert list((tmp_path / "new").iterdir()) == []
