"""A step function over whole seconds that answers peaks and gaps while it is added to.

Change points lie sorted in small blocks; each block has an offset (what was added to all of it), its peak and
its low. An addition touches the two blocks at its ends and, as vectors of one number a block, those between:
O(block + blocks). At two million change points that is some ten microseconds. Blocks are ``array``, which
``bisect`` and an insertion are quickest on, and NumPy sees without a copy.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Seconds = npt.NDArray[np.int64]

BLOCK = 32
"""Change points a block is split into; it holds up to twice as many."""
_FIRST = -(2**62)


class StepFunction:
    """An integer for each second, zero to begin with; spans are half-open ``[start, end)``."""

    def __init__(self, block: int = BLOCK) -> None:
        self._block = block
        self._times = [array("q", (_FIRST,))]
        self._levels = [array("q", (0,))]
        self._firsts = array("q", (_FIRST,))
        self._offsets: Seconds = np.zeros(1, np.int64)
        self._peaks: Seconds = np.zeros(1, np.int64)
        self._lows: Seconds = np.zeros(1, np.int64)

    def copy(self) -> StepFunction:
        """The same function, to be added to on its own."""
        other = StepFunction(self._block)
        other._times = [times[:] for times in self._times]
        other._levels = [levels[:] for levels in self._levels]
        other._firsts, other._offsets = self._firsts[:], self._offsets.copy()
        other._peaks, other._lows = self._peaks.copy(), self._lows.copy()
        return other

    def add(self, start: int, end: int, amount: int) -> None:
        """Add ``amount`` to each second of ``[start, end)``, which must not be empty."""
        old_start, old_end = self._cut(start), self._cut(end)
        first, begin = self._locate(start)
        last, stop = self._locate(end)
        if first == last:
            self._raise(first, begin, stop, amount)
        else:
            self._raise(first, begin, len(self._times[first]), amount)
            if last > first + 1:
                between = slice(first + 1, last)
                self._offsets[between] += amount
                self._peaks[between] += amount
                self._lows[between] += amount
            if stop:
                self._raise(last, 0, stop, amount)
        if old_end:
            self._mend(end)
        if old_start:
            self._mend(start)

    def peak(self, start: int, end: int) -> int:
        """The largest level within ``[start, end)``, which must not be empty."""
        first, begin = self._locate(start)
        last, stop = self._locate(end - 1)
        if first == last:
            return max(self._levels[first][begin : stop + 1]) + int(self._offsets[first])
        found = max(
            max(self._levels[first][begin:]) + int(self._offsets[first]),
            max(self._levels[last][: stop + 1]) + int(self._offsets[last]),
        )
        if last > first + 1:
            found = max(found, int(self._peaks[first + 1 : last].max()))
        return found

    def first_below(self, limit: int, seconds: int, not_before: int, not_after: int) -> int | None:
        """The earliest start of ``seconds`` at or below ``limit`` within ``[not_before, not_after)``.

        ``None`` where there is none.
        """
        for starts, ends in self._gaps(limit, seconds, not_before, not_after, earliest=True):
            long_enough = np.flatnonzero(ends - starts >= seconds)
            if len(long_enough):
                return int(starts[long_enough[0]])
        return None

    def last_below(self, limit: int, seconds: int, not_before: int, not_after: int) -> int | None:
        """The latest such start."""
        for starts, ends in self._gaps(limit, seconds, not_before, not_after, earliest=False):
            long_enough = np.flatnonzero(ends - starts >= seconds)
            if len(long_enough):
                return int(ends[long_enough[-1]]) - seconds
        return None

    @property
    def points(self) -> int:
        """How many change points are kept."""
        return sum(len(times) for times in self._times)

    def _gaps(
        self, limit: int, seconds: int, start: int, end: int, *, earliest: bool
    ) -> Iterator[tuple[Seconds, Seconds]]:
        """Starts and ends of runs at or below ``limit`` in ``[start, end)``, in order of search.

        All that may be ``seconds`` long are among them. A run lies between points above the limit of two
        neighbours among the blocks that have one (the outermost count as such), or inside one. Only where
        two neighbours span ``seconds`` together are their points looked at; in batches that grow.
        """
        if start + seconds > end:
            return
        first, last = self._locate(start)[0], self._locate(end - 1)[0]
        marked = self._peaks[first : last + 1] > limit
        marked[0] = marked[-1] = True
        blocks = np.flatnonzero(marked) + first
        if len(blocks) == 1:
            yield self._runs(limit, [[first]], start, end)
            return
        firsts = np.frombuffer(self._firsts, np.int64)
        following = blocks + 1
        until = np.where(following > last, end, firsts[np.minimum(following, last)])
        above = self._lows[blocks] > limit  # wholly: a run begins after it, or ends before it
        begins = np.maximum(np.where(above, until, firsts[blocks])[:-1], start)
        stops = np.where(above, firsts[blocks], until)[1:]
        del firsts  # an array that is looked at cannot grow
        pairs = np.flatnonzero(stops - begins >= seconds)
        in_order = pairs if earliest else pairs[::-1]
        at, width = 0, 8
        while at < len(in_order):
            batch = np.sort(in_order[at : at + width])
            at, width = at + len(batch), 4 * width
            yield self._runs(limit, _groups(batch, blocks), start, end)

    def _runs(self, limit: int, groups: list[list[int]], start: int, end: int) -> tuple[Seconds, Seconds]:
        """Starts and ends of the runs at or below ``limit`` in groups of blocks, of ``[start, end)``.

        Blocks left out inside a group lie at or below the limit, as the one after which they come. A group
        ends with a point above, where the block after it begins.
        """
        above = np.array([limit + 1], np.int64)
        times, levels, offsets = [], [], []
        for group in groups:
            for block in group:
                times.append(np.frombuffer(self._times[block], np.int64))
                levels.append(np.frombuffer(self._levels[block], np.int64))
                offsets.append(int(self._offsets[block]))
            after = group[-1] + 1
            times.append(np.array([self._firsts[after] if after < len(self._firsts) else end], np.int64))
            levels.append(above)
            offsets.append(0)
        at = np.concatenate(times)
        low = np.concatenate(levels) + np.repeat(offsets, [len(found) for found in levels]) <= limit
        turns = at[np.flatnonzero(low[1:] != low[:-1]) + 1]
        if low[0]:
            turns = np.concatenate((at[:1], turns))
        starts, ends = np.maximum(turns[0::2], start), np.minimum(turns[1::2], end)
        inside = starts < ends
        return starts[inside], ends[inside]

    def _locate(self, at: int) -> tuple[int, int]:
        """Block and index of the last change point at or before ``at``."""
        block = bisect_right(self._firsts, at) - 1
        return block, bisect_right(self._times[block], at) - 1

    def _cut(self, at: int) -> bool:
        """Make ``at`` a change point, and say whether it was one."""
        block, index = self._locate(at)
        times, levels = self._times[block], self._levels[block]
        if times[index] == at:
            return True
        times.insert(index + 1, at)
        levels.insert(index + 1, levels[index])
        if len(times) > 2 * self._block:
            self._split(block)
        return False

    def _split(self, block: int) -> None:
        times, levels, half = self._times[block], self._levels[block], self._block
        self._times[block : block + 1] = [times[:half], times[half:]]
        self._levels[block : block + 1] = [levels[:half], levels[half:]]
        self._firsts.insert(block + 1, times[half])
        self._offsets = np.insert(self._offsets, block + 1, self._offsets[block])
        self._peaks = np.insert(self._peaks, block + 1, 0)
        self._lows = np.insert(self._lows, block + 1, 0)
        self._measure(block)
        self._measure(block + 1)

    def _raise(self, block: int, begin: int, stop: int, amount: int) -> None:
        """Add to the points ``begin`` to ``stop`` of a block."""
        levels = np.frombuffer(self._levels[block], np.int64)
        levels[begin:stop] += amount
        del levels  # an array that is looked at cannot grow
        self._measure(block)

    def _measure(self, block: int) -> None:
        levels, offset = self._levels[block], self._offsets[block]
        self._peaks[block] = max(levels) + offset
        self._lows[block] = min(levels) + offset

    def _mend(self, at: int) -> None:
        """Forget the change point ``at`` where nothing changes any more."""
        block, index = self._locate(at)
        of, point = (block, index - 1) if index else (block - 1, -1)
        before = self._levels[of][point] + self._offsets[of]
        if self._levels[block][index] + self._offsets[block] != before:
            return
        times, levels = self._times[block], self._levels[block]
        if len(times) == 1:
            del self._times[block], self._levels[block], self._firsts[block]
            self._offsets = np.delete(self._offsets, block)
            self._peaks = np.delete(self._peaks, block)
            self._lows = np.delete(self._lows, block)
            return
        del times[index], levels[index]
        if not index:
            self._firsts[block] = times[0]
        self._measure(block)


def _groups(pairs: Seconds, blocks: Seconds) -> list[list[int]]:
    """The blocks of these neighbours, and one of those between; neighbours that share a block together."""
    groups: list[list[int]] = []
    before = -1
    for pair, left, right in zip(
        pairs.tolist(), blocks[pairs].tolist(), blocks[pairs + 1].tolist(), strict=True
    ):
        if not groups or pair != before + 1:
            groups.append([left])
        if right > left + 1:
            groups[-1].append(left + 1)
        groups[-1].append(right)
        before = pair
    return groups
