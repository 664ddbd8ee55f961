"""Without ids for it, a container image has one user: the folders that people write are theirs to write."""

from __future__ import annotations

from pathlib import Path

from starverse.node.sandbox.oci_root import open_to_lone_user


def test_folders_of_the_image_are_writable_and_links_are_not_followed(tmp_path: Path) -> None:
    image, upper = tmp_path / "image", tmp_path / "upper"
    for folder in ("root", "var/tmp", "elsewhere/log"):
        (image / folder).mkdir(parents=True)
    (image / "home").symlink_to("/elsewhere")
    (image / "var/log").symlink_to("../elsewhere/log")
    for closed in (image / "root", image / "var", image / "var/tmp"):
        closed.chmod(0o555)
    upper.mkdir()
    open_to_lone_user(image, upper, None)
    made = {str(path.relative_to(upper)): path.stat().st_mode & 0o777 for path in upper.rglob("*")}
    assert made == {"root": 0o755, "var": 0o755, "var/tmp": 0o755}
