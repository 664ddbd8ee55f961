"""Recipes: what an image is built from, as text that is the same whoever wrote it in whatever order.

A package is pinned to one version, and nothing in a recipe names a place to fetch from: that is the
operator's to say, in the installer's own configuration. Lines are those of ``requirements.txt`` (PEP 508),
as ``uv pip compile --generate-hashes`` writes them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from starverse.domain.catalog.images import ImageKind, driver_of_cuda
from starverse.domain.errors import FieldFault, Invalid

PACKAGES_MAX = 2000
TEXT_BYTES_MAX = 1024**2
FAULTS_SHOWN = 20

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?"
_VERSION = r"[A-Za-z0-9][A-Za-z0-9._!+-]{0,63}"
_PINNED = re.compile(
    rf"(?P<name>{_NAME})(?P<extras>\[[A-Za-z0-9._, -]{{1,200}}\])?\s*==\s*(?P<version>{_VERSION})"
    r"(?:\s*;\s*(?P<marker>[A-Za-z0-9._'\"<>=!~ ()-]{1,300}))?"
)
_CONDA = re.compile(
    rf"(?P<name>{_NAME})={{1,2}}(?P<version>{_VERSION})(?:=(?P<build>[A-Za-z0-9._]{{1,64}}))?"
)
_HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128})")
_PYTHON = re.compile(r"3\.\d{1,2}")
_CUDA = re.compile(r"\d{1,2}\.\d{1,2}")
_DRIVER = re.compile(r"\d{1,4}(?:\.\d{1,4}){1,3}")
_CHANNEL = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_REFERENCE = re.compile(
    r"(?:[a-z0-9][a-z0-9.-]{0,120}(?::[0-9]{1,5})?/)?"
    r"[a-z0-9][a-z0-9._-]{0,120}(?:/[a-z0-9][a-z0-9._-]{0,120}){0,5}"
    r"(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
_NOT_A_REGISTRY = frozenset(
    {"containers-storage", "dir", "docker-archive", "docker-daemon", "oci", "oci-archive", "ostree", "sif"}
)
"""What podman takes before a colon for files of its own machine (containers-transports manual page)."""


@dataclass(frozen=True, slots=True)
class RecipeRequest:
    """A recipe as people write it. ``packages`` and ``requirements`` (a file's text) come together."""

    kind: str = ImageKind.VENV.value
    packages: tuple[str, ...] = ()
    requirements: str = ""
    reference: str = ""
    channels: tuple[str, ...] = ()
    python: str = ""
    cuda: str = ""
    driver_min: str = ""


@dataclass(frozen=True, slots=True)
class Package:
    """One pinned package; ``version`` has ``=BUILD`` behind it where conda's was given."""

    name: str
    version: str
    extras: str = ""
    marker: str = ""
    hashes: tuple[str, ...] = ()

    def line(self) -> str:
        """As the installer reads it."""
        marker = f" ; {self.marker}" if self.marker else ""
        hashes = "".join(f" --hash={each}" for each in self.hashes)
        return f"{self.name}{self.extras}=={self.version}{marker}{hashes}"


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is built. ``python`` ``""``: the platform's choice. ``reference`` is of a container image,
    ``channels`` of conda. A ``saved`` image is ``instance``'s state (an id) upon the image ``base`` (an id,
    ``""``: none)."""

    kind: ImageKind
    packages: tuple[Package, ...] = ()
    python: str = ""
    cuda: str = ""
    driver_min: str = ""
    reference: str = ""
    channels: tuple[str, ...] = ()
    instance: str = ""
    base: str = ""

    @property
    def hashed(self) -> bool:
        """Whether every package comes with its hashes; then nothing else is installed."""
        return bool(self.packages) and all(package.hashes for package in self.packages)

    def to_text(self) -> str:
        """Canonical JSON: equal recipes are equal texts."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @property
    def digest(self) -> str:
        """``sha256:HEX`` of :meth:`to_text`."""
        return "sha256:" + hashlib.sha256(self.to_text().encode()).hexdigest()

    def requirements(self) -> str:
        """The lines that the installer is given."""
        return "".join(f"{package.line()}\n" for package in self.packages)


def read_recipe(text: str) -> Recipe:
    """A recipe from its canonical text."""
    raw = json.loads(text)
    raw["kind"] = ImageKind(raw["kind"])
    raw["packages"] = tuple(
        Package(**{**package, "hashes": tuple(package["hashes"])}) for package in raw["packages"]
    )
    raw["channels"] = tuple(raw["channels"])
    return Recipe(**raw)


def make_recipe(asked: RecipeRequest) -> Recipe:
    """The recipe that was asked for; raises :class:`Invalid` with every fault that is in it."""
    faults: list[FieldFault] = []
    kinds = (ImageKind.VENV.value, ImageKind.CONDA.value, ImageKind.OCI.value)
    if asked.kind not in kinds:
        raise Invalid(faults=[FieldFault("recipe.kind", asked.kind[:40], f"one of {', '.join(kinds)}")])
    kind = ImageKind(asked.kind)
    conda = kind is ImageKind.CONDA
    lines = [("packages", line) for line in asked.packages]
    lines += [(f"requirements, line {number}", line) for number, line in _logical_lines(asked.requirements)]
    packages: dict[tuple[str, str], Package] = {}
    for where, line in lines:
        package = _conda_package(line) if conda else _package(line)
        if package is None:
            faults.append(FieldFault(where, line[:200], _expected(conda)))
            continue
        known = packages.setdefault((package.name, package.marker), package)
        if known != package:
            faults.append(FieldFault(where, line[:200], f"one version; {known.line()[:80]} is asked for too"))
    faults += _shape_faults(kind, asked, len(lines))
    if packages and any(p.hashes for p in packages.values()) and not all(p.hashes for p in packages.values()):
        bare = next(p for p in packages.values() if not p.hashes)
        faults.append(FieldFault("packages", bare.line(), "hashes for every package, or for none"))
    if faults:
        raise Invalid(faults=faults[:FAULTS_SHOWN])
    return Recipe(
        kind=kind,
        packages=tuple(packages[key] for key in sorted(packages)),
        python=asked.python,
        cuda=asked.cuda,
        driver_min=asked.driver_min or driver_of_cuda(asked.cuda),
        reference=asked.reference,
        channels=asked.channels or (("conda-forge",) if conda else ()),
    )


def _shape_faults(kind: ImageKind, asked: RecipeRequest, lines: int) -> list[FieldFault]:
    faults = []
    if len(asked.requirements.encode("utf-8", "surrogatepass")) > TEXT_BYTES_MAX or lines > PACKAGES_MAX:
        expected = f"at most {PACKAGES_MAX} packages and {TEXT_BYTES_MAX // 1024} KiB of requirements"
        faults.append(FieldFault("recipe", f"{lines} packages", expected))
    if kind is ImageKind.OCI:
        if lines:
            faults.append(FieldFault("packages", str(lines), "none: a container image brings its own"))
        local = asked.reference.partition(":")[0] in _NOT_A_REGISTRY
        if local or _REFERENCE.fullmatch(asked.reference) is None:
            expected = "a container image such as NAME:TAG or HOST/NAME@sha256:DIGEST"
            faults.append(FieldFault("reference", asked.reference[:200], expected))
    elif asked.reference:
        faults.append(FieldFault("reference", asked.reference[:200], "none but for kind oci"))
    if kind is not ImageKind.CONDA and asked.channels:
        faults.append(FieldFault("channels", asked.channels[0][:80], "none but for kind conda"))
    faults += [
        FieldFault("channels", channel[:80], "the name of a channel such as conda-forge")
        for channel in asked.channels
        if _CHANNEL.fullmatch(channel) is None
    ]
    for field, pattern, expected in (
        ("python", _PYTHON, "a version such as 3.11"),
        ("cuda", _CUDA, "a CUDA version such as 12.6"),
        ("driver_min", _DRIVER, "a driver version such as 525.60.13"),
    ):
        value = getattr(asked, field)
        if value and pattern.fullmatch(value) is None:
            faults.append(FieldFault(f"recipe.{field}", value[:40], expected))
    return faults


def _logical_lines(text: str) -> Iterable[tuple[int, str]]:
    """Lines joined at ``\\``, without comments, each with the number of its first."""
    joined, first = "", 0
    for number, raw in enumerate(text.splitlines(), start=1):
        line = re.sub(r"(^|\s)#.*$", "", raw).strip()
        first = first or number
        if line.endswith("\\"):
            joined += f"{line[:-1].strip()} "
            continue
        joined += line
        if joined.strip():
            yield first, joined.strip()
        joined, first = "", 0
    if joined.strip():
        yield first, joined.strip()


def _package(line: str) -> Package | None:
    hashes = tuple(sorted(set(_HASH.findall(line))))
    found = _PINNED.fullmatch(_HASH.sub("", line).strip())
    if found is None or "*" in found["version"]:
        return None
    extras = (found["extras"] or "").strip("[]")
    parts = sorted({normal_name(extra.strip()) for extra in extras.split(",") if extra.strip()})
    marker = " ".join((found["marker"] or "").split())
    return Package(
        normal_name(found["name"]), found["version"], f"[{','.join(parts)}]" if parts else "", marker, hashes
    )


def _conda_package(line: str) -> Package | None:
    found = _CONDA.fullmatch(line.strip())
    if found is None:
        return None
    build = f"={found['build']}" if found["build"] else ""
    return Package(found["name"].lower(), found["version"] + build)


def normal_name(name: str) -> str:
    """A package's name as all its spellings are compared (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _expected(conda: bool) -> str:
    if conda:
        return "a pinned package such as numpy=2.3.4"
    return "a pinned package such as numpy==2.3.4, no option, no address, no path"
