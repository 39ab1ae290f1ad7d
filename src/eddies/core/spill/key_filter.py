"""Which keys a relation has: Bloom filters that grow in layers.

A tuple need not wait for rows on disk if none of them can match, nor if some other source that it
lacks has no row for it. From the first flush on, each key column of a relation has a filter over all
rows that ever arrived, in memory or on disk. It is made for as many rows as are expected. A Bloom
filter cannot grow, so if more come, the full one is left as it is and a larger one is begun; a key may
be there if any layer says so. All filters share a bounded amount of memory. Where that ends, layers are
smaller, and then the largest takes more keys than it should, so that more of those pass that it does
not have; a filter that would let most of them pass is given up: then every key may be there.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from eddies.core.kernels.bloom import add_words, may_contain
from eddies.core.state.columns import Words

__all__ = ["FilterRoom", "KeyFilter"]

_KEYS_PER_WORD = 10  # about six bits a key: one miss in sixteen gets through a layer
_FIRST_WORDS = 128
_MOST_KEYS_PER_WORD = 4 * _KEYS_PER_WORD
_MOST = 0.9  # to wait on disk costs a tuple ten times what the question costs
_TRY_AGAIN = 16


class FilterRoom:
    """The memory that all filters of an eddy share."""

    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes
        self.most_layer_words = max(_FIRST_WORDS, most_bytes // 80)

    @property
    def most_foreseen_words(self) -> int:
        """What a filter may take for keys that are only expected, so that others get theirs."""
        return self._left // 16

    @property
    def plenty_words(self) -> int:
        """What a filter may take without a thought to others."""
        return self._left // 64

    def take(self, n_bytes: int) -> bool:
        """Whether so much is left; it is taken then. A negative number gives back."""
        if n_bytes > self._left:
            return False
        self._left -= n_bytes
        return True


class KeyFilter:
    """The keys of one column of a relation."""

    def __init__(self, room: FilterRoom, expected_keys: int = 0) -> None:
        self._shared = room
        self._expected_keys = expected_keys
        self._layers: list[Words] = []
        self._room = 0  # keys that the last layer still takes
        self._is_overfull = False
        self._is_given_up = False
        self._passes_most = False
        self._n_asked = 0
        self._n_words_asked = 0
        self._n_words_found = 0

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
        n_words = min(n_words, self._shared.most_layer_words)
        if not self._layers:
            foreseen = self._expected_keys // _KEYS_PER_WORD
            if foreseen > self._shared.plenty_words:
                # The nearest power of two rather than the next: if this were twice as large, filters
                # of relations that come later would have half of what they need.
                foreseen = round(foreseen / math.sqrt(2))
            n_words = max(n_words, min(foreseen, self._shared.most_foreseen_words))
        n_words = 1 << (n_words - 1).bit_length()
        least = max([_FIRST_WORDS, *(layer.shape[0] // 2 for layer in self._layers)])
        while not self._shared.take(8 * n_words):
            n_words //= 2
            if n_words < least:  # many small layers would take long to ask
                self._overfill()
                return
        self._layers.append(np.zeros(n_words, dtype=np.uint64))
        self._room = n_words * _KEYS_PER_WORD
        if len(self._layers) == 1 and self._expected_keys < math.sqrt(2) * self._room + 1:
            self._room = max(self._room, self._expected_keys)

    def _overfill(self) -> None:
        """There is no memory for another layer: let the largest take more, or give up."""
        if not self._is_overfull and self._layers:
            self._is_overfull = True
            self._layers.sort(key=len)
            n_words = self._layers[-1].shape[0]
            self._room = n_words * (_MOST_KEYS_PER_WORD - _KEYS_PER_WORD)
            return
        self.give_up()

    def give_up(self) -> None:
        """Forget all keys: from now on every key may be there."""
        self._shared.take(-self.n_bytes)
        self._layers.clear()
        self._is_given_up = True

    def passing(self, words: Words) -> npt.NDArray[np.int32] | None:
        """The positions of those words that a row may have; None if nothing is known or most are found.

        Where most words pass, asking costs more than it saves; it is then tried once in a while.
        """
        n = words.shape[0]
        self._n_asked += 1
        if self._is_given_up or (self._passes_most and self._n_asked % _TRY_AGAIN):
            return None
        positions = np.empty(n + 1, dtype=np.int32)
        passed = np.empty(n + 1, dtype=np.uint64)
        if len(self._layers) == 1:
            n_found = may_contain(words, self._layers[0], positions, passed)
            found = positions[:n_found]
        else:
            is_found = np.zeros(n, dtype=np.bool_)
            for layer in self._layers:
                n_found = may_contain(words, layer, positions, passed)
                is_found[positions[:n_found]] = True
            found = np.flatnonzero(is_found).astype(np.int32)
        self._passes_most = found.shape[0] > _MOST * n
        self._n_words_asked += n
        self._n_words_found += found.shape[0]
        return found

    @property
    def share_found(self) -> float:
        """How many of the words asked for may be there."""
        return (1 + self._n_words_found) / (1 + self._n_words_asked)
