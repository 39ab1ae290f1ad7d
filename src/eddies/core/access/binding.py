"""Bind-field constraints: can every source be reached, and who must ask for its rows?

An index gives rows only for values of its bind columns. Those come from a constant in the query or,
through an equality, from rows of other sources. Before anything starts, `plan_access` works out

* *validity* (SteMs, section 2.2): a source is reachable if it has a scan, or an index all of whose bind
  columns are constants or equal to columns of reachable sources. A query with a source that cannot be
  reached is refused, with the columns that are missing;
* *who asks*. Take the rows that make up one result. Those of scans arrive by themselves; the others
  must be asked for by somebody. The last of those that did arrive, as a driver, meets all others as
  long as it is sent only to sources that have a scan or an index it can bind; where it binds an index,
  it asks. So whatever is missing is asked for sooner or later, unless the driver is *stuck*: nothing
  it is connected with can be reached from it. Three cases, from the cheapest:

  1. no set of sources is ever stuck: drivers ask as they go (*lazy*);
  2. the join graph is a tree, and one neighbour binds each index: a stuck driver may probe what is
     there and is dropped, because the sources beyond are asked for by their own neighbours;
  3. otherwise the sources without a scan are *eager*: every row of one chosen neighbour asks as soon
     as it is stored. Then they behave like scans of the rows that matter, and probing them needs no
     asking at all. A source that only several sources together can bind stays lazy, and so does what
     only its rows could ask for; a stuck driver makes a Cartesian product to get there.

The paper's rules leave a gap here (a prober that cannot bind is never let go); the cases close it, and
the property tests route at random through all three.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from eddies.core.access.method import Access
from eddies.core.constraints import Move, is_connected, legal_moves
from eddies.core.expr import Call, Column, Literal
from eddies.core.graph import Graph
from eddies.core.lineage import Signature, bits
from eddies.errors import UnreachableError

__all__ = ["AccessPlan", "Bind", "Option", "plan_access", "single_binders", "without_scans"]

_MOST_SOURCES = 12  # above, whether a set can get stuck is not worked out: there are too many sets


@dataclass(frozen=True, slots=True)
class Bind:
    """Where the value of one bind column comes from: a constant, or columns of other sources."""

    column: str
    type: pa.DataType
    column_by_source: Mapping[int, str] = field(default_factory=dict)
    constant: Literal | None = None

    def is_bound(self, sources: int) -> bool:
        """Whether a batch that spans `sources` knows the value."""
        return self.constant is not None or any(sources >> s & 1 for s in self.column_by_source)


@dataclass(frozen=True, slots=True)
class Option:
    """One way to ask for rows of a source: a set of bind columns of its relation."""

    target: int
    bind_set: int  # position in `Access.bind_sets`
    binds: tuple[Bind, ...]

    def is_bound(self, sources: int) -> bool:
        """Whether a batch that spans `sources` can ask."""
        return all(bind.is_bound(sources) for bind in self.binds)


@dataclass(frozen=True, slots=True)
class AccessPlan:
    """What `plan_access` found. `options[s]` are the ways to ask for rows of source s.

    `asks_for[r]` are the options that every row of source r asks for when it is stored; `at_start`
    are those that constants bind.
    """

    graph: Graph
    has_scan: tuple[bool, ...]
    options: tuple[tuple[Option, ...], ...]
    asks_for: Mapping[int, tuple[Option, ...]]
    at_start: tuple[Option, ...]
    eager: frozenset[int]
    is_tree: bool

    def is_open(self, target: int) -> bool:
        """Whether rows of `target` come without anybody who probes asking for them."""
        return self.has_scan[target] or target in self.eager

    def can_reach(self, sources: int, target: int) -> bool:
        """Whether a batch that spans `sources` may probe `target` without losing results."""
        return self.is_open(target) or any(o.is_bound(sources) for o in self.options[target])

    def moves(self, signature: Signature) -> tuple[Move, ...]:
        """Where a signature may go: `legal_moves`, less what it cannot reach. See the docstring."""
        legal = legal_moves(self.graph, signature)
        predicates = tuple(move for move in legal if move.optional >= 0)
        sources = signature.sources
        probes = [move for move in legal if move.optional < 0]
        reachable = [move for move in probes if self.can_reach(sources, move.target)]
        if not reachable and self.is_tree:
            reachable = probes
        if not reachable:
            missing = bits(self.graph.all_sources & ~sources)
            reachable = [
                Move(target=target, cross=not is_connected(self.graph, sources, target))
                for target in missing
                if self.can_reach(sources, target)
            ]
        return (*reachable, *predicates)

    def binds_all(self, source: int) -> bool:
        """Whether rows of `source` alone can ask for every source that has no scan."""
        others = [t for t, scan in enumerate(self.has_scan) if not scan and t != source]
        return all(any(o.is_bound(1 << source) for o in self.options[t]) for t in others)


def plan_access(graph: Graph, access: Sequence[Access]) -> AccessPlan:
    """Check that every source can be reached and decide who asks; `access` is by relation.

    Raises `UnreachableError` naming the source and the binding that is missing.
    """
    of = [access[role.relation] for role in graph.roles]
    has_scan = tuple(bool(a.scans) for a in of)
    options = tuple(_options(graph, s, of[s]) for s in range(len(of)))
    order = _reach(graph, of, has_scan, options)
    constant = {s: [o for o in options[s] if o.is_bound(0)] for s in range(len(of))}
    at_start = tuple(found[0] for s, found in constant.items() if found and not has_scan[s])
    eager = frozenset(o.target for o in at_start)
    plan = AccessPlan(graph, has_scan, options, {}, at_start, eager, False)
    if all(plan.is_open(s) for s in range(len(of))) or not _gets_stuck(plan):
        return plan
    binders = _founded_binders(plan, order)
    together = [s for s in range(len(of)) if not plan.is_open(s) and s not in binders]
    if _is_tree(graph) and not together:
        return AccessPlan(graph, has_scan, options, {}, at_start, eager, True)
    asks_for: dict[int, tuple[Option, ...]] = {}
    for s, (binder, option) in binders.items():
        asks_for[binder] = (*asks_for.get(binder, ()), option)
        eager |= {s}
    return AccessPlan(graph, has_scan, options, asks_for, at_start, eager, False)


def without_scans(plan: AccessPlan, lost: Sequence[int]) -> AccessPlan | None:
    """The plan when the sources `lost` have no scan any more: like all that were eager before, they
    are now asked for by every row of a source that comes by itself. None if that is impossible.
    """
    has_scan = tuple(scan and s not in lost for s, scan in enumerate(plan.has_scan))
    reached = {s for s, scan in enumerate(has_scan) if scan}
    needed = (plan.eager | set(lost)) - reached
    asks_for: dict[int, tuple[Option, ...]] = dict(plan.asks_for)
    at_start = list(plan.at_start)
    while needed - reached:
        before = len(reached)
        for target in sorted(needed - reached):
            constant = [o for o in plan.options[target] if o.is_bound(0)]
            found = [
                (b, o) for o in plan.options[target] for b in single_binders(o) if b in reached
            ]
            if constant:
                at_start.append(constant[0])
            elif found:
                binder, option = found[0]
                asks_for[binder] = (*asks_for.get(binder, ()), option)
            else:
                continue
            reached.add(target)
        if len(reached) == before:
            return None
    return AccessPlan(
        plan.graph,
        has_scan,
        plan.options,
        asks_for,
        tuple(at_start),
        frozenset(needed),
        plan.is_tree,
    )


def _options(graph: Graph, source: int, access: Access) -> tuple[Option, ...]:
    """The indexes of a source all of whose bind columns somebody can know."""
    relation = graph.relation_of(source)
    found = []
    for number, bind_set in enumerate(access.bind_sets):
        if any(column not in relation.read.names for column in bind_set):
            continue
        binds = [_bind(graph, source, c, relation.read.field(c).type) for c in bind_set]
        if all(bind.constant is not None or bind.column_by_source for bind in binds):
            found.append(Option(source, number, tuple(binds)))
    return tuple(found)


def _bind(graph: Graph, source: int, column: str, type_: pa.DataType) -> Bind:
    role = graph.roles[source]
    for selection in role.selections:
        if isinstance(selection, Call) and selection.function == "eq":
            left, right = selection.args
            for one, other in ((left, right), (right, left)):
                if one == Column(role.name, column) and isinstance(other, Literal):
                    return Bind(column, type_, {}, other)
    for key_class in graph.classes:
        if key_class.column_by_source.get(source) == column:
            others = {s: c for s, c in key_class.column_by_source.items() if s != source}
            return Bind(column, type_, others)
    return Bind(column, type_)


def single_binders(option: Option) -> list[int]:
    """Sources that can bind the option alone."""
    everywhere: set[int] | None = None
    for bind in option.binds:
        if bind.constant is None:
            those = set(bind.column_by_source)
            everywhere = those if everywhere is None else everywhere & those
    return sorted(everywhere or ())


def _founded_binders(plan: AccessPlan, order: Sequence[int]) -> dict[int, tuple[int, Option]]:
    """For each source that does not come by itself, one source that can ask for it alone, and how.

    Whoever asks must come by itself or be asked for in the same way; a source that only several
    others can bind together does not count, nor does what only such a source could ask for. Those
    are left out.
    """
    found: dict[int, tuple[int, Option]] = {}
    founded: set[int] = set()
    for s in order:
        if plan.is_open(s):
            founded.add(s)
            continue
        for option in plan.options[s]:
            for binder in single_binders(option):
                if binder in founded and s not in found:
                    found[s] = (binder, option)
                    founded.add(s)
    return found


def _reach(
    graph: Graph,
    access: Sequence[Access],
    has_scan: Sequence[bool],
    options: Sequence[Sequence[Option]],
) -> list[int]:
    """Sources in an order in which each can be reached from those before it."""
    order: list[int] = []
    mask = 0
    while len(order) < len(graph.roles):
        found = [
            s
            for s in range(len(graph.roles))
            if not mask >> s & 1 and (has_scan[s] or any(o.is_bound(mask) for o in options[s]))
        ]
        if not found:
            _refuse(graph, access, mask)
        order += found
        mask |= sum(1 << s for s in found)
    return order


def _refuse(graph: Graph, access: Sequence[Access], mask: int) -> None:
    source = next(s for s in range(len(graph.roles)) if not mask >> s & 1)
    role = graph.roles[source]
    relation = graph.relation_of(source)
    reasons = []
    for index in access[source].indexes:
        missing = []
        for column in index.bind:
            type_ = relation.read.field(column).type if column in relation.read.names else pa.null()
            bind = _bind(graph, source, column, type_)
            if not bind.is_bound(mask):
                waits = [graph.roles[s].name for s in bind.column_by_source]
                beyond = f" (only {', '.join(waits)} knows it, and cannot be reached itself)"
                missing.append(f"{role.name}.{column}{beyond if waits else ''}")
        reasons.append(f"index {index.name!r} needs a value for {', '.join(missing)}")
    raise UnreachableError(
        f"source {role.name!r} cannot be reached: it has no scan, and {'; '.join(reasons)}. Join it "
        "on these columns with a source that can be reached, compare them with a constant, or give "
        "the source a scan"
    )


def _gets_stuck(plan: AccessPlan) -> bool:
    """Whether some driver can come to a point where no connected source can be reached."""
    graph = plan.graph
    if len(graph.roles) > _MOST_SOURCES:
        return True
    seen: set[int] = set()
    frontier = [1 << s for s in range(len(graph.roles))]
    while frontier:
        sources = frontier.pop()
        if sources in seen or sources == graph.all_sources:
            continue
        seen.add(sources)
        missing = bits(graph.all_sources & ~sources)
        connected = [t for t in missing if is_connected(graph, sources, t)] or missing
        reachable = [t for t in connected if plan.can_reach(sources, t)]
        if not reachable:
            return True
        frontier += [sources | 1 << t for t in reachable]
    return False


def _is_tree(graph: Graph) -> bool:
    """Whether the predicates between sources form a tree: pairs only, connected, without cycles."""
    edges = {c.mask for c in graph.classes} | {f.mask for f in graph.filters}
    if any(mask.bit_count() != 2 for mask in edges) or len(edges) != len(graph.roles) - 1:
        return False
    reached = 1
    for _ in graph.roles:
        for mask in edges:
            reached |= mask if mask & reached else 0
    return reached == graph.all_sources
