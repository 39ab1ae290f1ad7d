"""What is known of the operators of a plan: observations of an interval, folded into statistics.

Operators count while they join (ER, Table 1). When an interval is over, an estimator for each quantity
makes a statistic of what was counted, and counting begins anew. Flush policies and the state manager
see statistics only; exact quantities, such as sizes, are taken from the operators as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from eddies.core.spill.estimators import Estimator, make_estimator
from eddies.core.spill.groups import GroupTable
from eddies.core.spill.join_operator import JoinOperator
from eddies.core.spill.plan_run import Settings

__all__ = ["PlanStatistics"]

Values = npt.NDArray[np.float64]


class PlanStatistics:
    """Statistics of all operators of a plan. `fold` at the end of every interval."""

    def __init__(self, operators: Sequence[JoinOperator], settings: Settings) -> None:
        self._operators = operators
        self._settings = settings
        self._estimators: list[list[Estimator]] = [
            [make_estimator(settings.estimator, alpha=settings.alpha) for _ in range(5)]
            for _ in operators
        ]
        self._statistics = [[np.zeros(settings.n_groups) for _ in range(4)] for _ in operators]
        self._in_memory = [np.zeros(2) for _ in operators]

    def fold(self) -> None:
        """An interval is over: observations become statistics."""
        for number, operator in enumerate(self._operators):
            estimators, statistics = self._estimators[number], self._statistics[number]
            observed = (*operator.input, operator.local, operator.globally)
            for i, values in enumerate(observed):
                statistics[i] = estimators[i].fold(values)
                values[:] = 0.0
            in_memory = np.array([operator.sent_in_memory, operator.given_in_memory])
            self._in_memory[number] = estimators[-1].fold(in_memory)
            operator.sent_in_memory = operator.given_in_memory = 0.0

    def _current(self, number: int) -> list[Values]:
        """Input by side A and B, local and global output of the groups of an operator. What the running
        interval saw so far is not in them, except before the first one is over.
        """
        operator = self._operators[number]
        if not any(statistic.any() for statistic in self._statistics[number]):
            return [*operator.input, operator.local, operator.globally]
        return self._statistics[number]

    def in_memory(self, number: int) -> tuple[float, float]:
        """Tuples a second that an operator sends on from memory, and query results they become."""
        sent, given = self._in_memory[number] / self._settings.interval_s
        return float(sent), float(given)

    def input_rate(self, number: int) -> float:
        """Tuples a second that come to an operator."""
        current = self._current(number)
        return float(current[0].sum() + current[1].sum()) / self._settings.interval_s

    def contribution(self, number: int) -> Values:
        """obsGlo / obsLoc of the groups of an operator (see `GroupTable.contribution`)."""
        if number == len(self._operators) - 1:
            return np.ones(self._settings.n_groups)
        _, _, local, globally = self._current(number)
        total = float(local.sum())
        overall = float(globally.sum()) / total if total > 0 else 1.0
        return np.where(local > 0, globally / np.maximum(local, 1e-300), overall)

    def table(self, numbers: Sequence[int]) -> GroupTable:
        """The groups of some operators, as a flush policy sees them."""
        n_groups = self._settings.n_groups
        statistics = [self._current(number) for number in numbers]
        operators = [self._operators[number] for number in numbers]
        every = [self._current(number) for number in range(len(self._operators))]
        total = sum(float(s[0].sum() + s[1].sum()) for s in every)
        if self._settings.exact_bytes:
            total = sum(
                float(s[0].sum() * o.sides[0].width + s[1].sum() * o.sides[1].width)
                for s, o in zip(every, self._operators, strict=True)
            )
        widths = [[float(side.width) for side in o.sides] for o in operators]
        if self._settings.exact_bytes:
            inputs = [
                [s[i] * w[i] for i in (0, 1)] for s, w in zip(statistics, widths, strict=True)
            ]
        else:
            inputs = [[s[0], s[1]] for s in statistics]
        return GroupTable(
            operator=np.repeat(np.array(numbers), n_groups),
            group=np.tile(np.arange(n_groups), len(numbers)),
            size_a=np.concatenate([o.sides[0].size for o in operators]),
            size_b=np.concatenate([o.sides[1].size for o in operators]),
            bytes_a=np.repeat([w[0] for w in widths], n_groups),
            bytes_b=np.repeat([w[1] for w in widths], n_groups),
            input_a=np.concatenate([i[0] for i in inputs]),
            input_b=np.concatenate([i[1] for i in inputs]),
            input_total=total,
            unique=np.concatenate([o.unique for o in operators]),
            local=np.concatenate([s[2] for s in statistics]),
            globally=np.concatenate([s[3] for s in statistics]),
            is_root=np.repeat([number == len(self._operators) - 1 for number in numbers], n_groups),
        )
