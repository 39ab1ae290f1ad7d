"""State modes by the names of `Options.state`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from eddies.core.access import Access, LookupExecutor
from eddies.core.access.choice import AnyIndex, EarliestAnswer
from eddies.core.access.requests import NoLookups
from eddies.core.clock import Clock
from eddies.core.events import EventSink
from eddies.core.exactly_once import StampRule
from eddies.core.graph import Graph
from eddies.core.modules.stem import SteM
from eddies.core.options import Options, StemName
from eddies.core.sharing import check_sharing
from eddies.core.state.hash_index import HashIndex
from eddies.core.state.list_index import ListIndex
from eddies.core.state.sorted_runs import SortedRuns
from eddies.core.state_modes.access import AccessMode
from eddies.core.state_modes.auto import AutoMode, tree_of_stairs
from eddies.core.state_modes.base import StateMode
from eddies.core.state_modes.bounced import BouncedMode
from eddies.core.state_modes.joins import JoinsMode
from eddies.core.state_modes.pressed import PressedJoins
from eddies.core.state_modes.regional import RegionalMode
from eddies.core.state_modes.spilling import SpillingStems
from eddies.core.state_modes.stairs import StairsMode
from eddies.core.state_modes.static import StaticMode
from eddies.core.state_modes.stems import StemsMode
from eddies.errors import OptionError

__all__ = ["StateMode", "make_access_mode", "make_state_mode", "with_stems"]


def with_stems(name: StemName, mode: StateMode, graph: Graph, stems: Sequence[SteM]) -> StateMode:
    """`mode` with the SteMs that `Options.stem` asks for."""
    kinds: dict[str, type[HashIndex]] = {"list": ListIndex, "sort": SortedRuns}
    for stem in stems:
        stem.index_type = kinds.get(name, HashIndex)
    if name == "hash" or name == "list":
        return mode
    return BouncedMode(mode, graph, name)


def make_access_mode(
    options: Options,
    graph: Graph,
    stems: Sequence[SteM],
    stamps: StampRule,
    access: Mapping[str, Access],
    executor: LookupExecutor | None,
    clock: Clock,
    events: EventSink | None,
    expected_rows: Mapping[str, int],
    completes_probes: bool,
) -> AccessMode:
    """SteMs over access methods by relation name; relations not named have one scan."""
    if options.state not in ("auto", "stems"):
        raise OptionError(
            f"state={options.state!r} with access methods: only SteMs take rows from several "
            "access methods; use state='stems' or 'auto'"
        )
    if len(graph.parts) > 1:
        raise OptionError("several queries in one eddy do not go together with access methods")
    if graph.asked:
        raise OptionError("EXISTS and IN inside the eddy do not go together with access methods")
    known = [relation.name for relation in graph.relations]
    for name in access:
        if name not in known:
            raise OptionError(f"access names {name!r}; the query reads {', '.join(known)}")
    methods = [access.get(name, Access()) for name in known]
    if executor is None and any(method.indexes for method in methods):
        raise OptionError("indexes need somebody who carries look-ups: give lookups=...")
    rng = Random(f"{options.seed}/access")
    policy = AnyIndex(rng) if options.policy == "random" else EarliestAnswer(rng)
    return AccessMode(
        graph,
        stems,
        stamps,
        methods,
        executor or NoLookups(),
        policy,
        clock,
        events,
        [expected_rows.get(name, 0) for name in known],
        completes_probes=completes_probes,
    )


def _asking(options: Options, mode: StateMode) -> StateMode:
    """Sources that are only asked for matches are kept in SteMs, in memory."""
    is_plain = options.stem in ("hash", "list") and options.memory is None
    if options.state not in ("auto", "stems") or not is_plain:
        raise OptionError(
            "EXISTS and IN inside the eddy need state='stems' or 'auto', SteMs that hash, and no bound "
            "on memory"
        )
    return mode


def _joins_mode(
    options: Options,
    graph: Graph,
    stems: Sequence[SteM],
    stamps: StampRule,
    clock: Clock,
    events: EventSink | None,
) -> JoinsMode | None:
    """A mode that keeps tuples in joins, if `options` ask for one."""
    by_region = options.policy in ("content", "cumulative-window")
    if by_region and options.state in ("stairs", "joins"):
        return RegionalMode(graph, stems, stamps, options, clock, events)
    if options.state == "stairs":
        return StairsMode(graph, stems, stamps, options, clock, events)
    if options.state == "joins":
        return JoinsMode(graph, stems, stamps)
    if options.state == "static":
        return StaticMode(graph, stems, stamps, options.order)
    return None


def make_state_mode(
    options: Options,
    graph: Graph,
    stems: Sequence[SteM],
    stamps: StampRule,
    clock: Clock,
    events: EventSink | None,
    expected_rows: Mapping[str, int],
) -> StateMode:
    """The mode that `options` ask for."""
    if len(graph.parts) > 1:
        check_sharing(options)
        return StemsMode(graph, stems, stamps)
    if graph.asked:
        return _asking(options, StemsMode(graph, stems, stamps))
    joins = _joins_mode(options, graph, stems, stamps, clock, events)
    budget = options.memory_bytes
    if budget is not None:
        spilling = SpillingStems(graph, stems, stamps, options, expected_rows)
        return spilling if joins is None else PressedJoins(joins, spilling, budget)
    if joins is not None:
        return joins
    if options.state == "auto" and (tree := tree_of_stairs(graph, options)) is not None:
        return AutoMode(
            graph,
            tree,
            stems,
            stamps,
            lambda: StairsMode(graph, stems, stamps, options, clock, events),
            lambda: RegionalMode(graph, stems, stamps, options, clock, events),
            options.seed,
        )
    return StemsMode(graph, stems, stamps)
