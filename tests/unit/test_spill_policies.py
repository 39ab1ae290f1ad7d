"""Flush policies, estimators and the state manager: the paper's own numbers, and the edges."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eddies.core.spill.estimators import Average, Ewma, Recent, make_estimator
from eddies.core.spill.flush_policies import FLUSH_POLICIES, expected_results, make_flush_policy
from eddies.core.spill.groups import GroupTable, Victim
from eddies.core.spill.state_manager import DiskSpeed, State, StateManager, disk_results
from eddies.errors import OptionError
from eddies.experiments.early_results_states import figure_3, figure_4, four_joins


def table(**columns: list[float]) -> GroupTable:
    """Groups of one operator (the root unless said otherwise); what is not given is 1."""
    n = len(next(iter(columns.values())))
    values = {name: np.ones(n) for name in GroupTable.__dataclass_fields__}
    values |= {name: np.array(column, dtype=float) for name, column in columns.items()}
    whole = ("operator", "group", "size_a", "size_b")
    exact = {name: values.pop(name).astype(np.int64) for name in whole if name in columns}
    settled = {
        "operator": np.zeros(n, dtype=np.int64),
        "group": np.arange(n),
        "size_a": np.full(n, 10),
        "size_b": np.full(n, 10),
        "input_total": 100.0,
        "is_root": np.ones(n, dtype=np.bool_),
    }
    return GroupTable(**values | settled | exact)  # type: ignore[arg-type]


def test_the_worked_example_of_figure_3() -> None:
    group = figure_3()
    n_bytes = 2000.0
    share = n_bytes / group.input_total
    input_a = share * group.input_a / group.bytes_a
    input_b = share * group.input_b / group.bytes_b
    assert (input_a[0], input_b[0]) == (12, 10)
    assert group.size_a[0] * input_b[0] / group.unique[0] == 200
    assert group.size_b[0] * input_a[0] / group.unique[0] == 36
    assert input_a[0] * input_b[0] / group.unique[0] == 24
    at_the_root = replace(group, is_root=np.ones(1, dtype=np.bool_))
    assert expected_results(at_the_root, n_bytes)[0] == pytest.approx(260)
    assert expected_results(group, n_bytes)[0] == pytest.approx(130)
    assert group.size[0] == 115
    assert round(expected_results(group, n_bytes)[0] / 115, 3) == 1.130


def test_the_observations_of_figure_4() -> None:
    assert figure_4(Recent()) == 60
    assert figure_4(Average(3)) == pytest.approx(230 / 3)
    assert round(figure_4(Average(3))) == 77
    assert figure_4(Ewma(0.2)) == pytest.approx(62.8)
    assert round(figure_4(Ewma(0.2))) == 63


def test_the_disk_group_of_figure_5() -> None:
    found = disk_results(300, 60, 140, 10, 5)
    assert found == 2280
    assert round(found / (300 + 60), 2) == 6.33
    assert disk_results(0, 0, 140, 10, 5) == 0, "the first flush of a group adds nothing"


@pytest.mark.parametrize("name", ["recent", "average", "ewma"])
def test_estimators_by_name(name: str) -> None:
    estimator = make_estimator(name)  # type: ignore[arg-type]
    assert estimator.fold(np.array([4.0, 0.0])).tolist() == [4.0, 0.0]


@pytest.mark.parametrize("make", [lambda: Ewma(0), lambda: Ewma(1), lambda: Average(0)])
def test_estimators_refuse_nonsense(make: object) -> None:
    with pytest.raises(OptionError):
        make()  # type: ignore[operator]


def test_of_equal_expectations_the_smaller_group_stays() -> None:
    """ER-19: 25 expected results each, sizes 20 and 10."""
    groups = table(size_a=[20, 10], size_b=[0, 0], input_b=[25, 50], input_a=[0, 0])
    expected = expected_results(groups, 100.0)
    assert expected[0] == expected[1]
    assert make_flush_policy("adaptive-global").choose(groups, 1.0) == [Victim(0, 0)]


def test_contribution_where_nothing_is_known() -> None:
    """ER-20: the operator's overall ratio, else 1; the root's is always 1."""
    groups = table(
        operator=[0, 0, 1, 2], local=[10, 0, 0, 10], globally=[5, 0, 0, 1], group=[0, 1, 0, 0]
    )
    groups.is_root = np.array([False, False, False, True])
    assert groups.contribution().tolist() == [0.5, 0.5, 1.0, 1.0]


def test_without_any_input_the_larger_group_goes() -> None:
    groups = table(size_a=[5, 50, 7], size_b=[0, 0, 0])
    groups.input_total = 0.0
    assert make_flush_policy("adaptive-global").choose(groups, 1.0) == [Victim(0, 1)]


@pytest.mark.parametrize("name", FLUSH_POLICIES)
def test_policies_free_what_is_asked_and_stop(name: str) -> None:
    groups = table(size_a=[10, 0, 30, 5], size_b=[10, 0, 0, 5], input_a=[1, 2, 3, 4])
    policy = make_flush_policy(name)
    victims = policy.choose(groups, 15.0)
    assert sum(_size(groups, victim) for victim in victims) >= 15
    assert sum(_size(groups, victim) for victim in victims[:-1]) < 15
    everything = policy.choose(groups, 1e9)
    assert sum(_size(groups, victim) for victim in everything) == groups.n_bytes.sum()
    assert len(set(everything)) == len(everything)
    assert all(_size(groups, victim) for victim in everything), "empty groups are no candidates"


def _size(groups: GroupTable, victim: Victim) -> float:
    row = int(np.flatnonzero(groups.group == victim.group)[0])
    a = groups.size_a[row] * groups.bytes_a[row] if "A" in victim.sides else 0
    b = groups.size_b[row] * groups.bytes_b[row] if "B" in victim.sides else 0
    return float(a + b)


def test_what_each_policy_heeds() -> None:
    groups = table(
        size_a=[10, 10, 40],
        size_b=[10, 10, 1],
        globally=[1, 9, 50],
        local=[9, 9, 50],
        input_a=[1, 9, 9],
        input_b=[9, 1, 9],
    )
    assert make_flush_policy("state-spill").choose(groups, 1.0) == [Victim(0, 0)]
    assert make_flush_policy("largest").choose(groups, 1.0) == [Victim(0, 2)]
    assert make_flush_policy("hmj").choose(groups, 1.0) == [Victim(0, 2)], "it restores balance"
    assert make_flush_policy("rpj").choose(groups, 1.0) in (
        [Victim(0, 1, "A")],
        [Victim(0, 0, "B")],
    ), "nothing comes that would match it"


def test_unknown_policies_are_named() -> None:
    with pytest.raises(OptionError, match="adaptive-global"):
        make_flush_policy("nonsense")


def test_states_of_figure_5() -> None:
    """ER-X10: the third of four joins merges, those below wait, the one above goes on."""
    manager = StateManager(DiskSpeed(100.0), buffer_tuples=1000.0)
    chosen = manager.direct(four_joins(2), (3, 2, 1, 0))
    states = (State.BLOCKED, State.BLOCKED, State.ON_DISK, State.IN_MEMORY)
    assert (chosen.states, chosen.operator, chosen.group) == (states, 2, 1)
    nothing = manager.direct(four_joins(-1), (3, 2, 1, 0))
    assert nothing.states == (State.IN_MEMORY,) * 4
    assert nothing.operator == -1


def test_no_merge_that_would_overrun_the_buffers() -> None:
    """ER-29: 100 tuples take a second, in which 10 arrive."""
    for room, operator in ((9.0, -1), (11.0, 2)):
        manager = StateManager(DiskSpeed(100.0), buffer_tuples=room)
        assert manager.direct(four_joins(2), (3, 2, 1, 0)).operator == operator


def test_disk_speed_is_measured() -> None:
    speed = DiskSpeed(1000.0)
    assert speed.tuples_per_second == 1000.0
    speed.saw(500, 5.0)
    assert speed.tuples_per_second == 100.0
    for _ in range(20):
        speed.saw(400, 1.0)
    assert speed.tuples_per_second == pytest.approx(400, rel=0.05)
