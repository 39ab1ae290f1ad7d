"""Heavy keys of an index: those with many more rows than others, and how many they have."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eddies.core.state.columns import Words

__all__ = ["SAMPLED_ROWS", "HeavyKeys", "find_heavy_keys"]

_FEWEST_ROWS = 64  # of a heavy key
_TIMES_USUAL = 8.0  # ... and so many times as many as a key has on average
SAMPLED_ROWS = 1 << 20  # of which heavy keys are found, if there are more


@dataclass(frozen=True, slots=True)
class HeavyKeys:
    """`words`, in order, with about `counts` rows each; other keys have `usual` rows on average.

    `n_rows` is the number of rows that there were.
    """

    words: Words
    counts: npt.NDArray[np.float64]
    usual: float
    n_rows: int

    def matches(self, words: Words) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """About how many rows each key has, and which keys are heavy."""
        found = np.full(words.shape[0], self.usual)
        if not self.words.shape[0]:
            return found, np.zeros(words.shape[0], dtype=np.bool_)
        places = np.searchsorted(self.words, words)
        places[places == self.words.shape[0]] = 0
        is_heavy = self.words[places] == words
        found[is_heavy] = self.counts[places[is_heavy]]
        return found, is_heavy


def find_heavy_keys(sample: Words, scale: int, n_rows: int) -> HeavyKeys:
    """The heavy ones among key words of which every `scale`-th was taken, of `n_rows` rows in all."""
    keys, counts = np.unique(sample, return_counts=True)
    if not keys.shape[0]:
        return HeavyKeys(keys, counts.astype(np.float64), 0.0, n_rows)
    is_heavy = counts >= max(_FEWEST_ROWS, _TIMES_USUAL * sample.shape[0] / keys.shape[0])
    light = counts[~is_heavy]
    usual = scale * float(light.mean()) if light.shape[0] else 0.0
    return HeavyKeys(keys[is_heavy], counts[is_heavy] * float(scale), usual, n_rows)
