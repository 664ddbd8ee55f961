"""Recipes: what is pinned and names no place is taken, everything else is named with what would be right."""

from __future__ import annotations

import pytest

from starverse.app.images.shipped import shipped_names, shipped_recipe
from starverse.domain.catalog.image_recipes import RecipeRequest, make_recipe, read_recipe
from starverse.domain.catalog.images import ImageKind
from starverse.domain.errors import Invalid, NotFound

HASH = "sha256:" + "a" * 64


def faults_of(**asked: object) -> list[str]:
    with pytest.raises(Invalid) as refused:
        make_recipe(RecipeRequest(**asked))  # type: ignore[arg-type]
    return [str(fault) for fault in refused.value.faults]


def test_order_spelling_and_form_make_no_difference() -> None:
    typed = make_recipe(RecipeRequest(packages=("Scikit_Learn==1.7.2", "numpy[b,A] == 2.3.5")))
    lines = "# ours\nnumpy[a,b]==2.3.5   # fast\nscikit-learn==1.7.2\n"
    assert typed == make_recipe(RecipeRequest(requirements=lines))
    assert typed.digest == make_recipe(RecipeRequest(requirements=lines)).digest
    assert typed.requirements() == "numpy[a,b]==2.3.5\nscikit-learn==1.7.2\n"


def test_a_file_of_uv_with_hashes_over_several_lines_is_read() -> None:
    text = f"six==1.17.0 \\\n    --hash={HASH} \\\n    --hash=sha256:{'b' * 64}\n    # via -r r.in\n"
    recipe = make_recipe(RecipeRequest(requirements=text))
    assert recipe.hashed
    assert recipe.requirements() == f"six==1.17.0 --hash={HASH} --hash=sha256:{'b' * 64}\n"


def test_a_recipe_reads_back_from_its_text() -> None:
    recipe = make_recipe(
        RecipeRequest(packages=("x==1 ; python_version < '3.12'",), python="3.11", cuda="12.6")
    )
    assert read_recipe(recipe.to_text()) == recipe
    assert recipe.driver_min == "525.60.13"


@pytest.mark.parametrize(
    "line",
    [
        "numpy",
        "numpy>=2",
        "numpy==2.*",
        "numpy @ https://example.org/numpy.whl",
        "https://example.org/numpy.whl",
        "./numpy.whl",
        "../../etc/passwd",
        "-r other.txt",
        "-e .",
        "--index-" + "url https://example.org",
        "--find-links /root",
        "numpy==2.3.5 --index-" + "url https://example.org",
        "numpy==2.3.5 --hash=md5:abc",
        "数据==1.0",
        "a" * 255 + "==1",
        "x==1 ; os_name == 'a' or `id`",
        "$(id)==1",
    ],
)
def test_what_is_not_pinned_or_names_a_place_is_refused_by_its_line(line: str) -> None:
    (fault,) = faults_of(requirements=f"six==1.17.0\n{line}\n")
    assert fault.startswith("requirements, line 2")
    assert "pinned package" in fault


def test_every_fault_is_named_at_once() -> None:
    said = faults_of(
        packages=("numpy", "six==1.16.0", "six==1.17.0"),
        python="two",
        cuda="new",
        driver_min="x",
        channels=("Conda Forge",),
        reference="x",
    )
    assert len(said) == 8
    assert any("six==1.16.0 is asked for too" in fault for fault in said)


def test_hashes_are_for_all_packages_or_for_none() -> None:
    (fault,) = faults_of(packages=(f"six==1.17.0 --hash={HASH}", "numpy==2.3.5"))
    assert "hashes for every package" in fault
    assert "numpy" in fault


@pytest.mark.parametrize(
    "reference",
    [
        *("dir:/etc/containers", "dir:x", "oci:x:1", "oci-archive:/srv/x.tar", "docker-archive:/srv/x.tar"),
        *(
            "sif:x",
            "containers-storage:x",
            "docker-daemon:x:1",
            "docker://debian:12",
            "host:/x",
            "host:port/x",
        ),
    ],
)
def test_a_container_image_is_fetched_from_registries_alone(reference: str) -> None:
    """Podman would read some of these on the platform's own machine, with the platform's rights."""
    assert "reference" in faults_of(kind="oci", reference=reference)[0]


@pytest.mark.parametrize(
    "reference", ["", "UPPER/case", "a/../b", "-rm", "a b", "x" * 600, "image@sha256:12"]
)
def test_a_container_image_is_a_reference_and_nothing_else(reference: str) -> None:
    assert "reference" in faults_of(kind="oci", reference=reference)[0]


def test_kinds_that_people_order() -> None:
    conda = make_recipe(RecipeRequest(kind="conda", packages=("numpy=2.3.4=py311_0", "Python=3.11.14")))
    assert [package.version for package in conda.packages] == ["2.3.4=py311_0", "3.11.14"]
    assert conda.channels == ("conda-forge",)
    for reference in ("debian", "debian:12", "library/debian", "localhost/tiny:1", "10.0.0.5:5000/a/b_c:v1"):
        assert make_recipe(RecipeRequest(kind="oci", reference=reference)).reference == reference
    oci = make_recipe(
        RecipeRequest(kind="oci", reference="registry.example.org:5000/a/b:1@sha256:" + "0" * 64)
    )
    assert oci.kind is ImageKind.OCI
    assert "venv, conda, oci" in faults_of(kind="saved")[0]
    assert "none" in faults_of(kind="oci", reference="debian:12", packages=("six==1.17.0",))[0]


def test_too_much_is_refused() -> None:
    said = faults_of(requirements="six==1.17.0\n" * 2001)
    assert "at most 2000 packages" in said[0]


@pytest.mark.parametrize("name", shipped_names())
def test_every_shipped_recipe_is_pinned(name: str) -> None:
    recipe = make_recipe(shipped_recipe(name))
    assert recipe.kind is ImageKind.CONDA or not recipe.packages or recipe.hashed


def test_shipped_recipes_are_the_named_ones() -> None:
    assert set(shipped_names()) == {"base", "numpy", "pytorch", "tensorflow", "jupyter", "conda"}
    with pytest.raises(NotFound, match="base, conda, jupyter"):
        shipped_recipe("../../etc/passwd")
