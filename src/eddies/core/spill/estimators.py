"""How observations of one interval become a statistic that predicts the next (ER-13).

`Recent` believes the last observation, `Average` the mean of the last few, `Ewma` a mean in which the
past counts `alpha` and the present the rest. (In most texts alpha weighs the present. Here, as in the
paper on early results, a small alpha forgets quickly.) All work on whole vectors: one entry a group.
"""

from __future__ import annotations

from collections import deque
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from eddies.errors import OptionError

__all__ = ["Average", "Estimator", "EstimatorName", "Ewma", "Recent", "make_estimator"]

Values = npt.NDArray[np.float64]
EstimatorName = Literal["recent", "average", "ewma"]


class Estimator(Protocol):
    """Keeps one statistic for every group."""

    def fold(self, observed: Values) -> Values:
        """An interval is over: take in what was observed and give the statistic."""
        ...


class Recent:
    """The last observation."""

    def fold(self, observed: Values) -> Values:
        return observed.astype(np.float64)


class Average:
    """The mean of the last `n` observations."""

    def __init__(self, n: int) -> None:
        if n < 1:
            raise OptionError(f"an average needs at least one observation, not {n}")
        self._last: deque[Values] = deque(maxlen=n)

    def fold(self, observed: Values) -> Values:
        self._last.append(observed.astype(np.float64))
        mean: Values = np.mean(np.stack(self._last), axis=0)
        return mean


class Ewma:
    """`alpha` times the past plus the rest of the present, beginning with the first observation."""

    def __init__(self, alpha: float) -> None:
        if not 0 < alpha < 1:
            raise OptionError(f"alpha must lie between 0 and 1, not {alpha}")
        self._alpha = alpha
        self._value: Values | None = None

    def fold(self, observed: Values) -> Values:
        past = self._value
        now = observed.astype(np.float64)
        self._value = now if past is None else self._alpha * past + (1 - self._alpha) * now
        return self._value


def make_estimator(name: EstimatorName, *, n: int = 3, alpha: float = 0.5) -> Estimator:
    """An estimator by its name."""
    if name == "recent":
        return Recent()
    return Average(n) if name == "average" else Ewma(alpha)
