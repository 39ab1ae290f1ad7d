"""A Bloom filter in front of an index, there only while it pays.

An index that mostly misses spends its time fetching lines to learn that nothing is there. When fewer
than a quarter of the recent keys hit and the index is larger than a cache, a small filter is made and
asked first; when more than two fifths hit, it is dropped again. It never loses a match.

While rows are still entered about as fast as keys are looked up (two streams that meet), no filter is
made: entering every row into it as well costs more than the misses it spares. One that is there stays,
for rows may come in bursts, and to make it again takes all keys. Where more rows are announced, a look
spans twice as many keys as there are rows, lest it fall between two bursts.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from eddies.core.kernels.bloom import add_words, may_contain
from eddies.core.state.columns import Words
from eddies.core.state.scratch import Scratch

__all__ = ["MissFilter"]

_JUDGE_ROWS = 65_536  # keys between two looks at the hit rate
_MAKE_BELOW = 0.25
_DROP_ABOVE = 0.4  # break-even was measured at 0.30 to 0.45
_GROWS_ABOVE = (
    0.25  # rows entered for each key looked up: above, the filter costs more than it spares
)
_SMALLEST_TABLE_BYTES = 2 << 20  # a smaller index is in the cache itself
_KEYS_PER_WORD = 8  # eight bits a key


class MissFilter:
    """Follows the hit rate of one index. `passing` before a probe, `saw` after it; `judge` when that
    says so.
    """

    __slots__ = ("_bloom", "_is_asked", "_n_entered", "_n_hits", "_n_seen")

    def __init__(self) -> None:
        self._bloom: Words | None = None
        self._n_seen = 0
        self._n_hits = 0
        self._n_entered = 0  # rows, since the last look at the hit rate
        self._is_asked = False  # rows entered before anybody asks are no sign of growth

    @property
    def n_bytes(self) -> int:
        return 0 if self._bloom is None else self._bloom.nbytes

    def passing(self, words: Words, scratch: Scratch) -> tuple[Words, npt.NDArray[np.int32]] | None:
        """The words worth a look and their positions; None when there is no filter."""
        bloom = self._bloom
        if bloom is None:
            return None
        n = may_contain(words, bloom, scratch.passed_positions, scratch.passed_words)
        return scratch.passed_words[:n], scratch.passed_positions[:n]

    def saw(self, n_words: int, n_hits: int) -> bool:
        """`n_hits` of `n_words` keys were found. Whether there were enough of them to `judge`."""
        self._is_asked = True
        self._n_seen += n_words
        self._n_hits += n_hits
        return self._n_seen >= _JUDGE_ROWS

    def judge(self, table_bytes: int, n_growing: int) -> bool:
        """Drop a filter that does not pay. Whether one should now be made.

        `n_growing` is the number of rows in the table if it is known that more will come, else 0.
        """
        n_seen = self._n_seen  # read once: another thread may begin anew at any time
        if n_seen < max(_JUDGE_ROWS, 2 * n_growing):
            return False
        rate = self._n_hits / n_seen
        grows = self._n_entered > _GROWS_ABOVE * n_seen
        self._n_seen = self._n_hits = self._n_entered = 0
        if rate > _DROP_ABOVE:
            self._bloom = None
        is_large = table_bytes >= _SMALLEST_TABLE_BYTES
        is_wanted = rate < _MAKE_BELOW and is_large and not grows
        return self._bloom is None and is_wanted

    def make(self, n_keys: int, parts: Iterable[Words]) -> None:
        """Make the filter of `n_keys` different words, which come in parts."""
        bloom = _empty(n_keys)
        for words in parts:
            add_words(words, bloom)
        self._bloom = bloom

    def entered(self, words: Words) -> None:
        """`words` were entered into the table."""
        if self._is_asked:
            self._n_entered += words.shape[0]
        if self._bloom is not None:
            add_words(words, self._bloom)

    def is_crowded(self, n_keys: int) -> bool:
        """Whether the table has so many keys that the filter lets too much through."""
        return self._bloom is not None and n_keys > 2 * _KEYS_PER_WORD * len(self._bloom)


def _empty(n_keys: int) -> Words:
    n_words = 1 << max(1, (n_keys // _KEYS_PER_WORD).bit_length())
    return np.zeros(n_words, dtype=np.uint64)
