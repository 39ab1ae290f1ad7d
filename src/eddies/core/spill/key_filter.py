"""Which keys a relation has: Bloom filters that grow in layers.

A tuple need not wait for rows on disk if none of them can match, nor if some other source that it
lacks has no row for it. From the first flush on, each key column of a relation has a filter over all
rows that ever arrived, in memory or on disk. A Bloom filter cannot grow, so a full one is left as it
is and a larger one is begun; a key may be there if any layer says so. All filters share a bounded
amount of memory; a filter that would exceed it is given up: then every key may be there.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eddies.core.kernels.bloom import add_words, may_contain
from eddies.core.state.columns import Words

__all__ = ["FilterRoom", "KeyFilter"]

_KEYS_PER_WORD = 10  # about six bits a key: one miss in sixteen gets through a layer
_FIRST_WORDS = 128
_MOST = 0.7
_TRY_AGAIN = 16


class FilterRoom:
    """The memory that all filters of an eddy share."""

    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes
        self.most_layer_words = max(_FIRST_WORDS, most_bytes // 80)

    def take(self, n_bytes: int) -> bool:
        """Whether so much is left; it is taken then. A negative number gives back."""
        if n_bytes > self._left:
            return False
        self._left -= n_bytes
        return True


class KeyFilter:
    """The keys of one column of a relation."""

    def __init__(self, room: FilterRoom) -> None:
        self._shared = room
        self._layers: list[Words] = []
        self._room = 0  # keys that the last layer still takes
        self._is_given_up = False
        self._passes_most = False
        self._n_asked = 0

    @property
    def n_bytes(self) -> int:
        return sum(layer.nbytes for layer in self._layers)

    def add(self, words: Words) -> None:
        """Rows with these keys arrived."""
        start = 0
        while start < words.shape[0] and not self._is_given_up:
            if self._room == 0:
                self._add_layer(words.shape[0] - start)
                continue
            n = min(self._room, words.shape[0] - start)
            add_words(np.ascontiguousarray(words[start : start + n]), self._layers[-1])
            self._room -= n
            start += n

    def _add_layer(self, n_keys: int) -> None:
        n_words = max(_FIRST_WORDS, n_keys // _KEYS_PER_WORD)
        if self._layers:
            n_words = max(n_words, 2 * self._layers[-1].shape[0])
        n_words = 1 << (min(n_words, self._shared.most_layer_words) - 1).bit_length()
        if not self._shared.take(8 * n_words):
            self._shared.take(-self.n_bytes)
            self._layers.clear()
            self._is_given_up = True
            return
        self._layers.append(np.zeros(n_words, dtype=np.uint64))
        self._room = n_words * _KEYS_PER_WORD

    def may_contain(self, words: Words) -> npt.NDArray[np.bool_] | None:
        """For each word whether a row may have it; None if nothing is known or most are found.

        Where most words pass, asking costs more than it saves; it is then tried once in a while.
        """
        n = words.shape[0]
        self._n_asked += 1
        if self._is_given_up or (self._passes_most and self._n_asked % _TRY_AGAIN):
            return None
        found = np.zeros(n, dtype=np.bool_)
        positions = np.empty(n + 1, dtype=np.int32)
        passed = np.empty(n + 1, dtype=np.uint64)
        for layer in self._layers:
            n_passed = may_contain(words, layer, positions, passed)
            found[positions[:n_passed]] = True
        self._passes_most = int(np.count_nonzero(found)) > _MOST * n
        return found
