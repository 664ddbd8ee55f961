"""The dataset shelf."""

from __future__ import annotations

from starverse.app import datasets
from starverse.app.datasets import NewDataset
from starverse.app.views import Page
from starverse.http.routing import make_router
from starverse.http.schemas_shelf import DatasetDetailOut, DatasetIn, DatasetOut, VerifiedOut
from starverse.http.security import AnyCaller, OnceDep, OperatorCaller, PlatformDep
from starverse.http.shapes import Items, items_of

router = make_router("datasets", "/datasets")


@router.get("")
def list_datasets(platform: PlatformDep, identity: AnyCaller) -> Items[DatasetOut]:
    """The newest version of each dataset, by name."""
    return items_of(DatasetOut, Page(datasets.list_datasets(platform)))


@router.get("/{name}")
def get_dataset(name: str, platform: PlatformDep, identity: AnyCaller) -> DatasetDetailOut:
    """The newest version with its manifest, and all versions."""
    return DatasetDetailOut.made(datasets.get_dataset(platform, name))


@router.post("", status_code=201)
def add_dataset(
    body: DatasetIn, platform: PlatformDep, identity: OperatorCaller, once: OnceDep
) -> DatasetOut:
    """Copy a host folder onto the shelf, every byte read back and compared; operators only."""
    new = NewDataset(body.name, body.title, body.source, body.licence, body.path, once)
    return DatasetOut.of(datasets.add_dataset(platform, identity, new))


@router.post("/{name}:verify")
def verify_dataset(name: str, platform: PlatformDep, identity: OperatorCaller) -> VerifiedOut:
    """Read every byte of the newest version and compare it with its manifest; operators only."""
    return VerifiedOut.made(datasets.verify_dataset(platform, identity, name))
