"""EOT tuples: which keys of an index have been looked up, kept beside the rows in the SteM.

When an index has delivered every row for a key, an *end of transmission* with that key is built into
the SteM. From then on the SteM *covers* every probe with the key: it holds all matches, whoever asks
(SteMs, section 2.1.3). An EOT is a row with the bind columns filled in, so the EOTs of one set of bind
columns are a table of keys, and testing a batch for coverage is one probe of it.

Keys enter when they are first asked for, so a key that is on its way is not asked for again: every key
goes through `WANTED`, `COVERED` once, however many rows want it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddies.core.access.key_table import NO_KEY, KeyTable
from eddies.core.batch import Ids
from eddies.core.state.keys import KeySide

__all__ = ["Eots"]

_WANTED, _COVERED = 0, 1


class Eots:
    """The keys of one set of bind columns: asked for, or answered."""

    def __init__(self, relation: str, fields: pa.Schema) -> None:
        self.table = KeyTable(f"{relation} by {', '.join(fields.names)}", fields)
        self.bind = self.table.columns
        self._states = np.empty(0, dtype=np.int8)

    @property
    def n_keys(self) -> int:
        """Different keys asked for so far."""
        return self.table.n_keys

    @property
    def n_bytes(self) -> int:
        return self.table.n_bytes + self._states.nbytes

    def find(self, side: KeySide) -> Ids:
        """The number of every row's key, `UNKNOWN` or `NO_KEY`."""
        return self.table.find(side)

    def covered(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """Which rows have all their matches in the SteM; those without a key have none to have."""
        done = np.zeros(ids.shape[0], dtype=np.bool_)
        known = ids >= 0
        done[known] = self._states[ids[known]] == _COVERED
        done[ids == NO_KEY] = True
        return done

    def want(self, side: KeySide, positions: Ids) -> Ids:
        """Enter the different keys at `positions`, none of which is known; returns their numbers."""
        ids = self.table.enter(side, positions)
        n_keys = self.table.n_keys
        if n_keys > self._states.shape[0]:
            states = np.zeros(max(n_keys, 2 * self._states.shape[0], 64), dtype=np.int8)
            states[: self._states.shape[0]] = self._states
            self._states = states
        self._states[ids] = _WANTED
        return ids

    def cover(self, ids: Ids) -> None:
        """Build the EOTs of these keys: all their rows are in the SteM."""
        self._states[ids] = _COVERED

    def keys(self, ids: Ids) -> pa.RecordBatch:
        """The keys themselves, to be looked up."""
        return self.table.keys(ids)

    def release(self) -> None:
        """Drop the keys."""
        self.table.release()
