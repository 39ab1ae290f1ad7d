"""Which keys may be among the rows on disk: Bloom filters that grow in layers.

A probe need not wait for rows on disk if none of them can match. Each key column of a relation has a
filter over all its flushed rows. A Bloom filter cannot grow, so a full one is left as it is and a
larger one is begun; a key may be on disk if any layer says so. When the filters would take more than
they may, the filter is given up: then every key may be there.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eddies.core.kernels.bloom import add_words, may_contain
from eddies.core.state.columns import Words

__all__ = ["KeyFilter"]

_KEYS_PER_WORD = 8  # eight bits a key: four of a hundred misses get through
_FIRST_WORDS = 128
_MOST = 0.7
_TRY_AGAIN = 16


class KeyFilter:
    """The keys of one column that are on disk. `most_bytes` bounds its size."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._layers: list[Words] = []
        self._room = 0  # keys that the last layer still takes
        self._is_given_up = False
        self._passes_most = False
        self._n_asked = 0

    @property
    def n_bytes(self) -> int:
        return sum(layer.nbytes for layer in self._layers)

    def add(self, words: Words) -> None:
        """`words` were written to disk."""
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
        n_words = 1 << (n_words - 1).bit_length()
        if self.n_bytes + 8 * n_words > self._most_bytes:
            self._layers.clear()
            self._is_given_up = True
            return
        self._layers.append(np.zeros(n_words, dtype=np.uint64))
        self._room = n_words * _KEYS_PER_WORD

    def may_contain(self, words: Words) -> npt.NDArray[np.bool_] | None:
        """For each word whether a row on disk may have it; None if nothing is known or most do.

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
