"""The query graph: a `Query` worked out once, before the first row, into what routing needs.

Nothing in here is an order. From the query's facts it derives

* per relation: the columns to keep, *derived columns* (join-key expressions, computed as rows enter),
  and per role the cheap selections applied on entry;
* *key classes*: columns that every result row holds equal. Equality is transitive, so `a.x = b.y` and
  `b.y = c.z` let a and c meet without b; and no spanning tree is ever fixed, so cycles need nothing
  special: all classes between a batch and a new source are checked when it probes that source;
* *optional predicates*: expensive ones and those that ask a source whether it has a matching row, each
  a module of its own;
* *filters*: predicates over several sources, checked by the probe that first spans them all, and
  which of them are comparisons that a sorted index can answer.

Known limitation: equality of floating-point keys in a class follows SQL (NaN equals NaN), so a class
is transitive there too; keys of different types are never put into one class.
"""

from __future__ import annotations

from eddies.core.graph.facts import (
    Band,
    ExistsPlan,
    FilterPlan,
    Graph,
    KeyClass,
    Optional,
    PartPlan,
    Relation,
    Role,
)
from eddies.core.graph.make import make_graph

__all__ = [
    "Band",
    "ExistsPlan",
    "FilterPlan",
    "Graph",
    "KeyClass",
    "Optional",
    "PartPlan",
    "Relation",
    "Role",
    "make_graph",
]
