"""Heavy keys of an index: those with many more rows than others, and how many they have."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eddies.core.state.columns import Words

__all__ = ["HeavyKeys", "find_heavy_keys"]

_FEWEST_ROWS = 64  # of a heavy key
_TIMES_USUAL = 8.0  # ... and so many times as many as a key has on average
_SAMPLED_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class HeavyKeys:
    """`words`, in order, with about `counts` rows each; other keys have `usual` rows on average.

    `n_rows` is the number of rows that it was found from.
    """

    words: Words
    counts: npt.NDArray[np.float64]
    usual: float
    n_rows: int

    def matches(self, words: Words) -> npt.NDArray[np.float64]:
        """About how many rows each key has."""
        found = np.full(words.shape[0], self.usual)
        if self.words.shape[0]:
            places = np.searchsorted(self.words, words)
            places[places == self.words.shape[0]] = 0
            is_heavy = self.words[places] == words
            found[is_heavy] = self.counts[places[is_heavy]]
        return found


def find_heavy_keys(words: Words) -> HeavyKeys:
    """The heavy ones among the key words of all rows; of many rows, from a sample."""
    n_rows = words.shape[0]
    sample = words[:: -(-n_rows // _SAMPLED_ROWS)] if n_rows > _SAMPLED_ROWS else words
    keys, counts = np.unique(sample, return_counts=True)
    if not keys.shape[0]:
        return HeavyKeys(keys, counts.astype(np.float64), 0.0, n_rows)
    is_heavy = counts >= max(_FEWEST_ROWS, _TIMES_USUAL * sample.shape[0] / keys.shape[0])
    scale = n_rows / sample.shape[0]
    n_light = max(1, int(np.count_nonzero(~is_heavy)))
    usual = scale * float(counts[~is_heavy].sum()) / n_light if sample is words else 1.0
    return HeavyKeys(keys[is_heavy], scale * counts[is_heavy], usual, n_rows)
