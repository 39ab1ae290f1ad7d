"""STAIR: one side of one join, open to the eddy (Deshpande and Hellerstein 2004, section 3).

A STAIR of source S at a join holds tuples that contain an S row, keyed by S's columns of that join. The
STAIR on the other side of the join is its *dual*. A tuple routed to a join is inserted into the STAIR
of its side and probes the dual, in one step (*Dual Routing Property*), so of two matching tuples the
second finds the first. A symmetric hash join is two dual STAIRs; a SteM is a STAIR that holds its
relation's rows and nothing else, which here is a *view* of the SteM itself.

*Invariant A.* For every connected part C of the join tree and every joined tuple c of rows that have
arrived: some part of c is stored in a STAIR on the border of C. So whoever comes finds what it needs.

*Invariant B.* No STAIR holds two tuples that agree on all sources both contain. So nobody finds it
twice. The paper enforces B after promotions and demotions; that is not enough (a tuple inserted later
can be covered by one that was demoted before), so here it is enforced on every insertion. The rule:
two tuples that violate B are replaced by their common part, which is connected because the join graph
is a tree; {s, r·s} becomes {s}. Keeping the larger one would lose results.

Without promotions and demotions B holds by itself: a new tuple contains the new row of its driver, and
older tuples that lack the driver's source were all absorbed elsewhere. So the check begins with the
first state operation on any STAIR (`History.is_rewritten`). Among tuples that contain the driver's
source no two can agree, since the driver's row is new: a new batch is compared only with pools that
lack its driver. While a batch is under way, a STAIR is only inserted into or only probed (the driver is
on one side of the join), so replacing stored tuples disturbs no probe.

Known limitation: B is kept by looking tuples up by row ids, so a STAIR with many signatures costs as
many look-ups per inserted tuple.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from eddies.core.batch import Ids
from eddies.core.graph import Graph
from eddies.core.join_tree import JoinEdge
from eddies.core.kernels.distinct import first_of_each, mark_new
from eddies.core.lineage import Signature
from eddies.core.modules.stem import SteM
from eddies.core.stairs.apart import keep_apart
from eddies.core.stairs.lookup import Pairs, Verify, Words, first_found
from eddies.core.stairs.pace import Pace
from eddies.core.stairs.pool import Pool
from eddies.core.stairs.tuples import History, Match, Tuples
from eddies.core.state.hash_index import HashIndex, PendingChains
from eddies.core.state.keys import KeySide, is_exact, key_words, verify_keys
from eddies.core.state.rows import RowStore
from eddies.core.state.scratch import Scratch

_NEARLY_ALL = 0.9  # of the rows of a view: when so many are expanded, the others follow
_NO_ROWS: Ids = np.zeros(0, dtype=np.int32)
_INDEX_BYTES = 120  # a line of 64 bytes holds five keys and is at least a quarter full; a chain

__all__ = ["History", "Match", "Stair", "Tuples"]


class Expander(Protocol):
    """Makes the tuples of a form for rows of one of its sources: see `expansion`."""

    def expand(self, rows: Ids, scratch: Scratch) -> list[Tuples]: ...

    def count(self, n_tuples: int) -> None: ...


class Stair:
    """The STAIR of `source` at the join `edge`."""

    def __init__(
        self, graph: Graph, edge: JoinEdge, source: int, store: RowStore, history: History
    ) -> None:
        side = 0 if source == edge.left else 1
        self.edge = edge
        self.source = source
        self.columns = [key[side] for key in edge.keys]
        role = graph.roles[source]
        self.name = f"{role.name}.{'+'.join(self.columns)}"
        self.n_inserted = (
            0  # tuples stored so far, wherever they are now, and rows indexed for a view
        )
        self.is_open = True
        self.form = 0  # mask of sources if it is known to hold exactly all tuples over them, else 0
        self.building = 0  # the same while tuples are gathered that are not shown yet
        self.pools: dict[Signature, Pool] = {}
        self._store = store
        self._history = history
        self._flag = role.flag
        self.base = Signature(1 << source)
        self._view: HashIndex | None = None
        self._owns_view = False
        self._verify: Verify | None = None  # for a view whose keys are hashed
        self._n_indexed = 0  # rows in the index of the view that was left last
        self._stem: SteM | None = None
        self._expander: Expander | None = None  # if the form is held on demand: see `expansion`
        self._is_expanded = np.zeros(0, dtype=np.bool_)  # by row of the source
        self._n_expanded = 0
        self._pace = Pace()
        history.stairs.append(self)

    # The verbs

    def takes(self, sources: int, driver: int) -> bool:
        """Whether `insert` does anything with tuples over these sources and of this driver."""
        if not self.is_open:
            return False
        if self._view is not None and self._expander is None:
            return self.building == sources
        return sources == self.form or not self.form or self.form >> driver & 1 == 1

    def insert(self, tuples: Tuples, driver: int, scratch: Scratch) -> None:
        """Store tuples that contain a row of this STAIR's source; all have a new row of `driver`."""
        if not self.is_open:
            return
        if self._expander is not None:
            self._insert_expanded(tuples, driver)
            return
        if self._view is not None:
            if tuples.signature.sources == self.building and self._has_room(tuples):
                self._append(tuples)
            return  # covered: every row of the source is here
        if self.form and tuples.signature.sources != self.form and not self.form >> driver & 1:
            return  # covered by a tuple of the form, which is complete and not of this driver
        if not self._has_room(tuples):
            return
        pool = self._append(tuples)
        if self._history.is_rewritten and self._history.enforces and len(self.pools) > 1:
            lacking = [p for p in self.pools.values() if not p.signature.sources >> driver & 1]
            self._keep_apart(pool, tuples, lacking, scratch)

    def put(self, tuples: Tuples, scratch: Scratch) -> None:
        """Store tuples that come from other STAIRs: any of them may be covered already."""
        self._history.is_rewritten = True
        if self._view is not None or not self.is_open or tuples.n_rows == 0:
            return
        if self.form or not self._has_room(tuples):
            return
        pool = self._append(tuples)
        self._keep_apart(pool, tuples, list(self.pools.values()), scratch)

    def probe(self, side: KeySide, scratch: Scratch) -> tuple[Match | None, Iterator[Match] | None]:
        """Stored tuples with the keys of `side`: the first piece, and the others if there may be any.
        `catch_up` must come before.
        """
        words, valid = key_words(side)
        chosen = None
        if valid is not None and not valid.all():
            chosen = np.flatnonzero(valid).astype(np.int32)
            words = words[chosen]
        if self._expander is not None:
            self._expand_for(words, side, chosen, scratch)
        if self._view is not None and self._expander is None:
            return self._probe_view(self._view, words, side, chosen, scratch)
        pools = list(self.pools.values())
        if len(pools) == 1:
            return self._probe_pool(pools[0], words, side, chosen, scratch)
        return None, self._probe_pools(pools, words, side, chosen, scratch) if pools else None

    def find_rows(self, side: KeySide, scratch: Scratch) -> tuple[int, PendingChains | None] | None:
        """`probe` of a view in the plain case: how many pairs are in the scratch, and the chains that
        did not fit (`find_more`). None if it is another case: keys are hashed, of several columns or
        may be NULL, or there are tuples. Most probes are plain, and should cost no more than a SteM's.
        """
        view = self._view
        if view is None or self._expander is not None or self._verify is not None:
            return None
        column, ids = side[0]
        if len(side) > 1 or column.valid(ids) is not None:
            return None
        return view.probe(column.words(ids), self._history.routed[self.source], scratch)

    def find_more(
        self, pending: PendingChains, scratch: Scratch
    ) -> tuple[int, PendingChains | None]:
        """The next pairs after those of `find_rows`."""
        assert self._view is not None
        return self._view.resume(pending, scratch)

    def _probe_view(
        self, view: HashIndex, words: Words, side: KeySide, chosen: Ids | None, scratch: Scratch
    ) -> tuple[Match | None, Iterator[Match] | None]:
        limit, source = self._history.routed[self.source], self.source
        found, rest = first_found(view, words, limit, side, chosen, self._verify, scratch)
        base = self.base
        first = None if found is None else Match(found[0], Tuples(base, {source: found[1]}))
        if rest is None:
            return first, None
        return first, (Match(positions, Tuples(base, {source: rows})) for positions, rows in rest)

    def _probe_pool(
        self, pool: Pool, words: Words, side: KeySide, chosen: Ids | None, scratch: Scratch
    ) -> tuple[Match | None, Iterator[Match] | None]:
        verify = None if pool.is_exact else pool.verify
        found, rest = first_found(pool.index, words, pool.n_rows, side, chosen, verify, scratch)
        first = None if found is None else self._alive(pool, *found)
        if rest is None:
            return first, None
        matches = (self._alive(pool, positions, rows) for positions, rows in rest)
        return first, (match for match in matches if match is not None)

    def _probe_pools(
        self,
        pools: Sequence[Pool],
        words: Words,
        side: KeySide,
        chosen: Ids | None,
        scratch: Scratch,
    ) -> Iterator[Match]:
        for pool in pools:
            first, rest = self._probe_pool(pool, words, side, chosen, scratch)
            if first is not None:
                yield first
            if rest is not None:
                yield from rest

    def _alive(self, pool: Pool, positions: Ids, rows: Ids) -> Match | None:
        """What was found without the tuples that were killed."""
        dead = pool.is_dead(rows)
        if dead is not None and dead.any():
            positions, rows = positions[~dead], rows[~dead]
            if rows.shape[0] == 0:
                return None
        return Match(positions, Tuples(pool.signature, pool.fetched(rows)))

    def catch_up(self, scratch: Scratch) -> int:
        """Bring indexes up to date; returns the tuples entered."""
        n_rows, view = 0, self._view
        if view is not None:
            if view.is_behind:
                n_before = view.n_rows
                n_rows = view.catch_up(scratch)
                self.n_inserted += view.n_rows - n_before
            if self._expander is None:
                return n_rows
        return n_rows + sum(pool.index.catch_up(scratch) for pool in self.pools.values())

    def __iter__(self) -> Iterator[Tuples]:
        """Everything stored: the iterator interface, so that a STAIR can be read by ordinary plans."""
        if self._view is not None:
            yield self._base_tuples()
            if self._expander is None:
                return
        for pool in self.pools.values():
            if pool.n_live:
                yield self._tuples(pool, pool.live_rows())

    def close(self) -> None:
        """Nobody will come to probe this STAIR any more: every source beyond its join has ended and all
        its rows have been routed. It forgets its tuples and takes no more in; one that was a view
        before is a view again, for whoever builds a form and begins beyond this join.

        Promotions lose nothing by it. They would probe here only for tuples stored on the other side,
        and of those none is looked for from a side that is still open, except at this very join.
        """
        if self.is_open:
            self.is_open = False
            if self._stem is not None:
                if self._view is None or self.pools:
                    self._history.n_demoted += 1
                    self.show(self._stem)
                self.building = 0
                return
            for pool in self.pools.values():
                pool.release()
            self.pools.clear()

    def take_out(self, signature: Signature, rows: Ids | None = None) -> Tuples:
        """Remove the tuples `rows` of a pool (all of them when None) and return them."""
        pool = self.pools[signature]
        rows = pool.live_rows() if rows is None else rows
        taken = self._tuples(pool, rows)
        if self._expander is not None:
            self._unexpand(taken.ids[self.source])
        else:
            pool.kill(rows)
        self._drop_empty()
        return taken

    def keys(self, tuples: Tuples) -> KeySide:
        """The key columns of tuples that contain a row of this STAIR's source."""
        ids = tuples.ids[self.source]
        return [(self._store.column(name), ids) for name in self.columns]

    # Views

    @property
    def is_view(self) -> bool:
        """Whether this STAIR is its relation's SteM: all rows, no intermediate results."""
        return self._view is not None and self._expander is None

    @property
    def is_on_demand(self) -> bool:
        """Whether tuples of the form are made when they are first asked for."""
        return self._expander is not None

    @property
    def n_behind(self) -> int:
        """Rows that the index of a view lacks: whoever probes this STAIR as a view pays for them."""
        n_indexed = self._n_indexed if self._view is None else self._view.n_rows
        return self._store.n_rows - n_indexed

    def may_become_view_of(self, stem: SteM) -> None:
        """Tuples that find no room may be forgotten: `stem` has the rows of this STAIR's source."""
        self._stem = stem

    def show(self, stem: SteM) -> None:
        """Forget all tuples and hold every row of the relation instead, as a SteM does."""
        self.release()
        self._stem = stem
        index = stem.hash_index(tuple(self.columns), self._flag)
        self._owns_view = index.columns != tuple(self.columns)
        if self._owns_view:
            index = HashIndex(self._store, self.columns, self._flag)
        self._view = index
        columns = [self._store.column(name) for name in index.columns]
        self._verify = None if is_exact(columns) else self._verified
        self._history.is_rewritten = True

    def _verified(self, positions: Ids, rows: Ids, n: int, side: KeySide) -> int:
        assert self._view is not None
        stored = [self._store.column(name) for name in self._view.columns]
        return verify_keys(positions, rows, n, side, stored)

    def build(self, mask: int) -> None:
        """Begin to gather all tuples over `mask`. The view stays in use; new tuples that span `mask`
        are kept aside. Somebody else finds those of rows that are here already, and calls `adopt`.
        """
        assert self._view is not None, "what is built takes the place of a view"
        self.building = mask

    def adopt(self, old: Sequence[Tuples]) -> None:
        """Show what was gathered since `build`, and `old`, instead of the view.

        Invariant B: every gathered tuple contains a row that came after `build`, no `old` one does.
        """
        if self._view is None or not self.building:
            return  # there was no room, or nobody will look
        mask = self.building
        for tuples in old:
            if not self._has_room(tuples):
                return
            self._append(tuples)
        self._leave_view()
        self.form, self.building = mask, 0

    # On demand

    def hold_on_demand(self, mask: int, expander: Expander) -> None:
        """Hold all tuples over `mask`, those of a row from the moment it is first asked for."""
        assert self.is_view, "what is expanded on demand are the rows of a view"
        self.form, self._expander, self._pace = mask, expander, Pace()
        self._is_expanded = np.zeros(self._store.n_rows, dtype=np.bool_)
        self._n_expanded = 0

    def _expand_for(
        self, words: Words, side: KeySide, chosen: Ids | None, scratch: Scratch
    ) -> None:
        """Expand the bare rows that a probe with `words` would meet."""
        view, expander = self._view, self._expander
        assert view is not None
        assert expander is not None
        limit = self._history.routed[self.source]
        if self._verify is None:  # else equal words may be of different keys
            at = np.empty(words.shape[0], dtype=np.int32)
            at = at[: first_of_each(words, at)]
            words, chosen = words[at], at if chosen is None else chosen[at]
        first, rest = first_found(view, words, limit, side, chosen, self._verify, scratch)
        bare = self._bare([pairs for pairs in (first, *(rest or ())) if pairs is not None])
        expander.count(words.shape[0] + bare.shape[0])
        if bare.shape[0] == 0:
            return
        if self._n_expanded >= _NEARLY_ALL * limit:
            self._expand(np.concatenate((bare, self._base_tuples().ids[self.source])), scratch)
            if self._expander is not None:
                self._expander = None
                self._leave_view()
        else:
            self._expand(bare, scratch)
        if self.is_view:  # for lack of room: perhaps by an index of its own, which is empty yet
            assert self._view is not None
            self._view.catch_up(scratch)
        for pool in self.pools.values():
            pool.index.catch_up(scratch)

    def _bare(self, met: Sequence[Pairs]) -> Ids:
        """The rows met that are bare. From now on they count as expanded."""
        marks, found = self._marks(), []
        for _, rows in met:
            fresh = np.empty(rows.shape[0], dtype=np.int32)
            found.append(fresh[: mark_new(rows, marks, fresh)])
        bare = found[0] if len(found) == 1 else np.concatenate([_NO_ROWS, *found])
        self._n_expanded += bare.shape[0]
        return bare

    def _expand(self, rows: Ids, scratch: Scratch) -> None:
        """Piece by piece, so that there is never much more in memory than there is room for."""
        expander = self._expander
        assert expander is not None
        pace, start = self._pace, 0
        while start < rows.shape[0]:
            piece = rows[start : start + pace.n_rows]
            start += piece.shape[0]
            made = expander.expand(piece, scratch)
            for tuples in made:
                if not self._has_room(tuples):
                    return  # a view again
                self._append(tuples)
            pace.see(piece.shape[0], sum(tuples.n_rows for tuples in made))

    def _marks(self) -> npt.NDArray[np.bool_]:
        """For each stored row whether it is expanded."""
        n_rows = self._store.n_rows
        if self._is_expanded.shape[0] < n_rows:
            grown = np.zeros(max(2 * self._is_expanded.shape[0], n_rows), dtype=np.bool_)
            grown[: self._is_expanded.shape[0]] = self._is_expanded
            self._is_expanded = grown
        return self._is_expanded

    def _insert_expanded(self, tuples: Tuples, driver: int) -> None:
        """Store tuples of the form. A new row of this source comes expanded; other drivers bring
        tuples of rows that are expanded, which are kept, and of bare ones, which cover them.
        """
        if not self.form >> driver & 1:
            return  # covered: complete, and not of this driver
        if tuples.signature.sources != self.form:
            if self._stem is not None:  # not joined within the form first: only bare rows are safe
                self.show(self._stem)
                self._history.n_demoted += 1
            return
        marks, rows = self._marks(), tuples.ids[self.source]
        if driver == self.source:
            self._n_expanded += mark_new(rows, marks, np.empty_like(rows))
        elif not (is_here := marks[rows]).all():
            tuples = tuples.picked(np.flatnonzero(is_here).astype(np.int32))
        if tuples.n_rows and self._has_room(tuples):
            self._append(tuples)

    def _unexpand(self, rows: Ids) -> None:
        """Let `rows` be bare rows again."""
        marks = self._marks()
        marks[rows] = False
        self._n_expanded = int(np.count_nonzero(marks))
        for pool in self.pools.values():
            live = pool.live_rows()
            pool.kill(live[~marks[pool.ids(self.source, live)]])

    def _leave_view(self) -> None:
        if self._view is not None:
            self._n_indexed = 0 if self._owns_view else self._view.n_rows
            if self._owns_view:
                self._view.release()
        self._view = None

    def hold(self, tuples: Sequence[Tuples]) -> None:
        """Hold `tuples` instead of a view. Whoever calls this keeps both invariants: it is what
        promotions out of a STAIR of bare rows would leave, without their detour.
        """
        assert self.is_view, "what is held takes the place of a view"
        self.release()
        for part in tuples:
            if part.n_rows:
                self._append(part)
        self._history.is_rewritten = True

    def materialise(self) -> None:
        """Turn a view into a pool of base tuples."""
        if self._view is None:
            return
        self._expander = None
        tuples = self._base_tuples()
        self.release()
        if tuples.n_rows:
            self._append(tuples)

    def _base_tuples(self) -> Tuples:
        n_rows = self._history.routed[self.source]
        rows = np.arange(n_rows, dtype=np.int32)
        if self._flag is not None:
            flags = self._store.column(self._flag).words(None, 0, n_rows)
            rows = np.flatnonzero(flags).astype(np.int32)
        if self._expander is not None:
            rows = rows[~self._marks()[rows]]
        return Tuples(Signature(1 << self.source), {self.source: rows})

    # Inside

    def _has_room(self, tuples: Tuples) -> bool:
        return self.has_room_for([tuples])

    def has_room_for(self, tuples: Sequence[Tuples]) -> bool:
        """Whether tuples may be stored. If not, this STAIR becomes a view: at worst all do, and the
        eddy's memory is that of SteMs. That disturbs nobody, see the module docstring.
        """
        n_bytes = sum(
            part.n_rows * self._tuple_bytes(part.signature.sources.bit_count()) for part in tuples
        )
        if self._history.has_room(n_bytes):
            return True
        if self._stem is not None:
            self.show(self._stem)
            self._history.n_demoted += 1
        return False

    def _tuple_bytes(self, n_sources: int) -> int:
        """Most bytes a stored tuple takes: ids, with room for as many again, and its place in an index
        that just doubled.
        """
        return 8 * n_sources + _INDEX_BYTES

    @property
    def n_bytes_at_most(self) -> int:
        """What pools may take when they are indexed."""
        return sum(
            pool.n_rows * self._tuple_bytes(len(pool.sources)) for pool in self.pools.values()
        )

    def _tuples(self, pool: Pool, rows: Ids) -> Tuples:
        return Tuples(pool.signature, {source: pool.ids(source, rows) for source in pool.sources})

    def _append(self, tuples: Tuples) -> Pool:
        """Store tuples; returns the pool where."""
        pool = self.pools.get(tuples.signature)
        if pool is None:
            pool = Pool(tuples.signature, self.source, self._store, self.columns)
            self.pools[tuples.signature] = pool
        n_rows = tuples.n_rows
        self.n_inserted += n_rows
        pool.append(tuples.ids, n_rows)
        return pool

    def _keep_apart(
        self, pool: Pool, tuples: Tuples, others: Sequence[Pool], scratch: Scratch
    ) -> None:
        """Invariant B for `tuples`, which were just put into `pool`."""
        keep_apart(self.pools, self._append, pool, tuples, others, scratch)
        self._drop_empty()

    def _drop_empty(self) -> None:
        for signature in [s for s, pool in self.pools.items() if pool.n_live == 0]:
            self.pools.pop(signature).release()

    @property
    def n_live(self) -> int:
        """Tuples stored now."""
        n_bare = 0
        if self._view is not None:
            n_bare = self._history.routed[self.source]
            if self._expander is None:
                return n_bare
            n_bare -= self._n_expanded
        return n_bare + sum(pool.n_live for pool in self.pools.values())

    @property
    def n_bytes(self) -> int:
        """Memory of tuples and indexes; a view of a SteM counts there."""
        owned = self._view.n_bytes if self._view is not None and self._owns_view else 0
        return owned + sum(pool.n_bytes for pool in self.pools.values())

    def release(self) -> None:
        """Drop everything stored."""
        for pool in self.pools.values():
            pool.release()
        self.pools.clear()
        self._leave_view()
        self._expander = None
        self.form = self.building = 0
