"""Real NVIDIA cards through NVML. Every call may be unsupported; what is not told is left at a default."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starverse.engines.base import CardReport, LinkReport, NodeReport
from starverse.node.cards.models import model_of
from starverse.node.cards.source import (
    FABRIC_DEFAULT,
    ZONE_DEFAULT,
    CardUsage,
    read_host_cpus,
    read_host_memory_bytes,
)

NVLINK_QUALITY = 100
_LEVEL_QUALITY = {0: 60, 10: 50, 20: 40, 30: 30, 40: 20, 50: 10}
"""``nvmlGpuTopologyLevel``: same board, one switch, several switches, host bridge, NUMA node, system."""


@dataclass(frozen=True, slots=True)
class NoDriver:
    """Why there are no real cards to be had on this host; ``remedy`` is for ``doctor``."""

    what: str
    remedy: str


class NvmlCards:
    """This host's cards as one node named after the host."""

    def __init__(
        self, nvml: Any, *, node_id: str = "", zone: str = ZONE_DEFAULT, fabric: str = FABRIC_DEFAULT
    ) -> None:
        self._nvml = nvml
        self._node_id = node_id or platform.node().split(".")[0] or "localhost"
        self._zone = zone
        self._fabric = fabric

    def probe(self) -> tuple[NodeReport, ...]:
        """One node; it is reported down, with the driver's words, when the driver stops answering."""
        cards: list[CardReport] = []
        links: list[LinkReport] = []
        message = ""
        try:
            handles = [
                self._nvml.nvmlDeviceGetHandleByIndex(index)
                for index in range(self._nvml.nvmlDeviceGetCount())
            ]
            cards = [self._card(index, handle) for index, handle in enumerate(handles)]
            links = self._links(handles)
        except self._nvml.NVMLError as error:
            message = f"the driver does not answer: {error}"
        return (
            NodeReport(
                node_id=self._node_id,
                zone=self._zone,
                fabric=self._fabric,
                cpus=read_host_cpus(),
                memory_bytes=read_host_memory_bytes(),
                cards=tuple(cards),
                links=tuple(links),
                up=not message,
                message=message,
                driver="" if message else self._driver(),
            ),
        )

    def usage(self) -> Mapping[str, CardUsage]:
        """Empty where the driver does not answer; what a card does not tell is ``None``."""
        nvml = self._nvml
        found = {}
        try:
            for index in range(nvml.nvmlDeviceGetCount()):
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                found[_text(nvml.nvmlDeviceGetUUID(handle))] = self._usage(handle)
        except nvml.NVMLError:
            return {}
        return found

    def _usage(self, handle: Any) -> CardUsage:
        """Memory without what the driver reserves, where it tells that apart (its version 2)."""
        nvml = self._nvml
        memory = self._ask(
            None,
            lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2),
        ) or self._ask(None, nvml.nvmlDeviceGetMemoryInfo, handle)
        rates = self._ask(None, nvml.nvmlDeviceGetUtilizationRates, handle)
        running = self._ask((), nvml.nvmlDeviceGetComputeRunningProcesses, handle)
        return CardUsage(
            memory_bytes=int(memory.total) if memory else 0,
            utilisation=None if rates is None else rates.gpu / 100,
            memory_used_bytes=int(memory.used) if memory else None,
            processes=tuple(sorted(int(process.pid) for process in running)),
        )

    def _card(self, index: int, handle: Any) -> CardReport:
        nvml = self._nvml
        uuid = _text(nvml.nvmlDeviceGetUUID(handle))  # without it a card cannot be granted at all
        name = _text(self._ask("", nvml.nvmlDeviceGetName, handle))
        memory = int(self._ask(0, lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total))
        fault = self._fault(handle)
        return CardReport(
            card_id=uuid,
            index=index,
            uuid=uuid,
            model=model_of(name, memory),
            memory_bytes=memory,
            declared=False,
            healthy=not fault,
            message=fault,
        )

    def _driver(self) -> str:
        """Its version, such as ``550.54.14``."""
        return _text(self._ask("", lambda: self._nvml.nvmlSystemGetDriverVersion()))

    def _fault(self, handle: Any) -> str:
        """Why the card must not be lent; ``""``: nothing known against it."""
        nvml = self._nvml
        if self._ask(0, nvml.nvmlDeviceGetRetiredPagesPendingStatus, handle):
            return "memory pages wait for retirement: the card needs a reset"
        remapped = self._ask((0, 0, 0, 0), nvml.nvmlDeviceGetRemappedRows, handle)
        if len(remapped) == 4 and remapped[3]:
            return "remapping memory rows failed: the card needs replacing"
        if self._ask(0, nvml.nvmlDeviceGetMigMode, handle) not in (0, (0, 0), [0, 0]):
            return "MIG is on: whole cards only are lent"
        return ""

    def _links(self, handles: list[Any]) -> list[LinkReport]:
        links = []
        for a in range(len(handles)):
            for b in range(a + 1, len(handles)):
                quality = self._quality(handles[a], handles[b])
                if quality:
                    links.append(LinkReport(a, b, quality))
        return links

    def _quality(self, a: Any, b: Any) -> int:
        nvml = self._nvml
        status = self._ask(
            None, nvml.nvmlDeviceGetP2PStatus, a, b, getattr(nvml, "NVML_P2P_CAPS_INDEX_NVLINK", 2)
        )
        if status == getattr(nvml, "NVML_P2P_STATUS_OK", 0):
            return NVLINK_QUALITY
        level = self._ask(None, nvml.nvmlDeviceGetTopologyCommonAncestor, a, b)
        return 0 if level is None else _LEVEL_QUALITY.get(int(level), 0)

    def _ask(self, default: Any, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except (self._nvml.NVMLError, AttributeError, TypeError):  # TypeError: an older binding
            return default


def open_nvml(*, zone: str = ZONE_DEFAULT, fabric: str = FABRIC_DEFAULT) -> NvmlCards | NoDriver:
    """The real cards of this host, or why there are none."""
    try:
        import pynvml
    except ImportError:
        return NoDriver("the NVML binding is not installed", "pip install nvidia-ml-py")
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        hint = "install the NVIDIA driver, or lend declared cards with --declare-cards"
        if os.path.exists("/proc/driver/nvidia"):  # noqa: PTH110
            hint = "the driver is loaded but does not answer: see dmesg for NVRM lines"
        return NoDriver(f"no NVIDIA driver answers ({error})", hint)
    if count == 0:
        return NoDriver("the driver sees no card", "check the power and lspci")
    return NvmlCards(pynvml, zone=zone, fabric=fabric)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
