"""Explain: the modules of a query and its legal routes, as text. Nothing is run.

There is no plan to print, so this prints what takes its place: what each source keeps, which columns
are held equal, and from where to where a batch may go. Routes are listed breadth first from the base
batches, up to a limit: a query of twelve sources has thousands.
"""

from __future__ import annotations

from eddies.core.constraints import is_result, legal_moves
from eddies.core.evaluate import render
from eddies.core.graph import Graph, make_graph
from eddies.core.lineage import Signature, bits
from eddies.core.query import Query

__all__ = ["explain_query"]

MOST_ROUTES = 40


def explain_query(query: Query) -> str:
    """Modules and legal routes of `query`."""
    graph = make_graph(query)
    lines = ["modules:"]
    for role in graph.roles:
        relation = graph.relation_of(role.source_id)
        stored = ", ".join(f"{field.name} {field.type}" for field in relation.stored)
        shared = " (shared)" if len(relation.roles) > 1 else ""
        lines.append(f"  stem:{role.name}{shared} stores {stored or 'row ids only'}")
        lines += [f"    on entry: {render(selection)}" for selection in role.selections]
        lines += [f"    derived: {name} = {render(expr)}" for name, expr in relation.derived]
    lines += [f"  {optional.name}" for optional in graph.optionals]
    for key_class in graph.classes:
        members = key_class.column_by_source.items()
        equal = " = ".join(f"{graph.roles[source].name}.{column}" for source, column in members)
        lines.append(f"equal in every result: {equal}")
    lines += [f"checked on the way: {render(predicate.expr)}" for predicate in graph.filters]
    lines.append("legal routes:")
    lines += _routes(graph)
    return "\n".join(lines)


def _routes(graph: Graph) -> list[str]:
    driving = [role.source_id for role in graph.roles if not graph.asked >> role.source_id & 1]
    waiting = [Signature(1 << source_id) for source_id in driving]
    seen = set(waiting)
    lines: list[str] = []
    for signature in waiting:
        if len(lines) == MOST_ROUTES:
            lines.append("  ... and more: routes are worked out when a batch first takes them")
            break
        if is_result(graph, signature):
            lines.append(f"  {_name(graph, signature)} -> result")
            continue
        names = []
        for move in legal_moves(graph, signature):
            after = move.after(signature)
            if move.optional >= 0:
                names.append(graph.optionals[move.optional].name)
            else:
                cross = " (cross product)" if move.cross else ""
                names.append(f"stem:{graph.roles[move.target].name}{cross}")
            if after not in seen:
                seen.add(after)
                waiting.append(after)
        lines.append(f"  {_name(graph, signature)} -> {' | '.join(names)}")
    return lines


def _name(graph: Graph, signature: Signature) -> str:
    spanned = "+".join(graph.roles[source].name for source in bits(signature.sources))
    done = [graph.optionals[number].name for number in bits(signature.done)]
    return f"{spanned} [{', '.join(done)}]" if done else spanned
