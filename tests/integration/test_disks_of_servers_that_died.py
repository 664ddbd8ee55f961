"""What a server that was killed left beside a disk goes when the next one starts; the disk stays."""

from __future__ import annotations

from starverse.testing.given_disks import folder_of, given_disk
from starverse.testing.http_sites import Site


def test_halves_of_copies_removals_and_uploads_go(site: Site) -> None:
    owner = site.register()
    folder = folder_of(site, given_disk(site, owner))
    (folder / ".new-file-of-its-owner").write_text("kept")
    data = site.platform.settings.data
    halves = [
        data / "disks" / ".new-0197f3a0-0000-7000-8000-000000000000-aaaa",
        folder.with_name(".old-0123456789abcdef"),
        data / "snapshots" / folder.parent.name / ".new-s1-bbbb",
    ]
    for half in halves:
        (half / "deep").mkdir(parents=True)
    incoming = folder.with_name(".incoming-0123456789abcdef")
    incoming.write_text("half of a file")

    site.clock.advance(days=20_000)  # on a shared database, what was touched lately may be another server's
    site.world.restart()
    for _ in range(3):
        site.world.run_reconciler("retention")
    assert not any(half.exists() for half in halves)
    assert not incoming.exists()
    assert (folder / ".new-file-of-its-owner").read_text() == "kept"
