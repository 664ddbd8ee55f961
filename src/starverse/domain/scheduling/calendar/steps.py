"""A step function over whole seconds that answers peaks and gaps while it is added to.

Change points lie sorted in blocks of NumPy arrays; each block has an offset (what was added to all of it),
its peak and its low. An addition touches the two blocks at its ends and, as vectors of one number a block,
those between: O(block + blocks). At two million change points all of it is well under a millisecond.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Seconds = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

BLOCK = 64
"""Change points a block is split into; it holds up to twice as many."""
_FIRST = -(2**62)


class StepFunction:
    """An integer for each second, zero to begin with; spans are half-open ``[start, end)``."""

    def __init__(self, block: int = BLOCK) -> None:
        self._block = block
        self._times: list[Seconds] = [np.array([_FIRST], np.int64)]
        self._levels: list[Seconds] = [np.zeros(1, np.int64)]
        self._firsts: Seconds = np.array([_FIRST], np.int64)
        self._offsets: Seconds = np.zeros(1, np.int64)
        self._peaks: Seconds = np.zeros(1, np.int64)
        self._lows: Seconds = np.zeros(1, np.int64)

    def copy(self) -> StepFunction:
        """The same function, to be added to on its own."""
        other = StepFunction(self._block)
        other._times = [times.copy() for times in self._times]
        other._levels = [levels.copy() for levels in self._levels]
        other._firsts, other._offsets = self._firsts.copy(), self._offsets.copy()
        other._peaks, other._lows = self._peaks.copy(), self._lows.copy()
        return other

    def add(self, start: int, end: int, amount: int) -> None:
        """Add ``amount`` to each second of ``[start, end)``, which must not be empty."""
        self._cut(start)
        self._cut(end)
        first, begin = self._locate(start)
        last, stop = self._locate(end)
        if first == last:
            self._levels[first][begin:stop] += amount
            self._measure(first)
        else:
            self._levels[first][begin:] += amount
            self._measure(first)
            between = slice(first + 1, last)
            for of_blocks in (self._offsets, self._peaks, self._lows):
                of_blocks[between] += amount
            if stop:
                self._levels[last][:stop] += amount
                self._measure(last)
        self._mend(end)
        self._mend(start)

    def peak(self, start: int, end: int) -> int:
        """The largest level within ``[start, end)``, which must not be empty."""
        first, begin = self._locate(start)
        last, stop = self._locate(end - 1)
        if first == last:
            return int(self._levels[first][begin : stop + 1].max() + self._offsets[first])
        found = max(
            self._levels[first][begin:].max() + self._offsets[first],
            self._levels[last][: stop + 1].max() + self._offsets[last],
        )
        if last > first + 1:
            found = max(found, self._peaks[first + 1 : last].max())
        return int(found)

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
            yield self._runs(limit, [first], start, end)
            return
        begins = np.maximum(self._firsts[blocks[:-1]], start)
        following = blocks[1:] + 1
        stops = np.where(following > last, end, self._firsts[np.minimum(following, last)])
        pairs = np.flatnonzero(stops - begins >= seconds)
        in_order = pairs if earliest else pairs[::-1]
        at, width = 0, 4
        while at < len(in_order):
            batch = _unbroken(in_order[at : at + width])
            at, width = at + len(batch), 2 * width
            low, high = sorted((int(batch[0]), int(batch[-1])))
            whole = blocks[low : high + 2]
            between = whole[:-1][np.diff(whole) > 1] + 1
            yield self._runs(limit, np.union1d(whole, between).tolist(), start, end)

    def _runs(self, limit: int, blocks: list[int], start: int, end: int) -> tuple[Seconds, Seconds]:
        """Starts and ends of the runs at or below ``limit`` in these blocks, of ``[start, end)``.

        Blocks left out between two of them lie at or below the limit, as the one after which they come.
        """
        flags = [self._levels[block] <= limit - self._offsets[block] for block in blocks]
        at, low = np.concatenate([self._times[block] for block in blocks]), np.concatenate(flags)
        turns = at[np.flatnonzero(low[1:] != low[:-1]) + 1]
        if low[0]:
            turns = np.concatenate((at[:1], turns))
        if low[-1]:
            after = blocks[-1] + 1
            close = self._firsts[after] if after < len(self._firsts) else end
            turns = np.concatenate((turns, np.array([close], np.int64)))
        starts, ends = np.maximum(turns[0::2], start), np.minimum(turns[1::2], end)
        inside = starts < ends
        return starts[inside], ends[inside]

    def _locate(self, at: int) -> tuple[int, int]:
        """Block and index of the last change point at or before ``at``."""
        block = int(self._firsts.searchsorted(at, "right")) - 1
        return block, int(self._times[block].searchsorted(at, "right")) - 1

    def _cut(self, at: int) -> None:
        """Make ``at`` a change point."""
        block, index = self._locate(at)
        times, levels = self._times[block], self._levels[block]
        if times[index] == at:
            return
        after = index + 1
        self._times[block] = np.concatenate((times[:after], np.array([at], np.int64), times[after:]))
        self._levels[block] = np.concatenate((levels[:after], levels[index:]))
        if len(self._times[block]) >= 2 * self._block:
            self._split(block)

    def _split(self, block: int) -> None:
        times, levels, half = self._times[block], self._levels[block], self._block
        self._times[block : block + 1] = [times[:half].copy(), times[half:].copy()]
        self._levels[block : block + 1] = [levels[:half].copy(), levels[half:].copy()]
        self._firsts = np.insert(self._firsts, block + 1, times[half])
        self._offsets = np.insert(self._offsets, block + 1, self._offsets[block])
        self._peaks = np.insert(self._peaks, block + 1, 0)
        self._lows = np.insert(self._lows, block + 1, 0)
        self._measure(block)
        self._measure(block + 1)

    def _measure(self, block: int) -> None:
        levels, offset = self._levels[block], self._offsets[block]
        self._peaks[block] = levels.max() + offset
        self._lows[block] = levels.min() + offset

    def _mend(self, at: int) -> None:
        """Forget the change point ``at`` where nothing changes any more."""
        block, index = self._locate(at)
        if index:
            before = self._levels[block][index - 1] + self._offsets[block]
        else:
            before = self._levels[block - 1][-1] + self._offsets[block - 1]
        if self._levels[block][index] + self._offsets[block] != before:
            return
        times, levels = self._times[block], self._levels[block]
        if len(times) == 1:
            del self._times[block], self._levels[block]
            self._firsts = np.delete(self._firsts, block)
            self._offsets = np.delete(self._offsets, block)
            self._peaks = np.delete(self._peaks, block)
            self._lows = np.delete(self._lows, block)
            return
        self._times[block] = np.concatenate((times[:index], times[index + 1 :]))
        self._levels[block] = np.concatenate((levels[:index], levels[index + 1 :]))
        if not index:
            self._firsts[block] = self._times[block][0]
        self._measure(block)


def _unbroken(numbers: Seconds) -> Seconds:
    """The first of these up to where one does not neighbour the one before."""
    breaks = np.flatnonzero(np.abs(np.diff(numbers)) != 1)
    return numbers[: int(breaks[0]) + 1] if len(breaks) else numbers
