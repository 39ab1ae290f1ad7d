"""Left-deep plans under memory pressure: every result once, whoever flushes and merges."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from eddies.core.spill.pipeline import Pipeline
from eddies.core.spill.plan_run import Arrivals, Costs, Outcome, Settings
from eddies.experiments.early_results_data import ALGORITHMS
from eddies.experiments.early_results_states import silent_upper_inputs


def expected_count(sources: list[Arrivals], n_keys: int) -> int:
    counts = [np.bincount(source.keys, minlength=n_keys) for source in sources]
    return int(np.prod(np.stack(counts), axis=0).sum())


def random_run(seed: int, algorithm: str) -> tuple[Outcome, list[Arrivals], int]:
    """Sources with repeated keys, stalls of all lengths, and little memory."""
    rng = random.Random(f"pipeline {seed}")
    numbers = np.random.default_rng(seed)
    n_keys = rng.choice((5, 20, 60))
    sources = []
    for _ in range(rng.randint(2, 5)):
        n = rng.randint(0, 60)
        gaps = numbers.pareto(1.2, n) * rng.choice((0.0, 0.1, 2.0))
        keys = numbers.integers(0, n_keys, n).astype(np.int32)
        sources.append(Arrivals(np.cumsum(gaps), keys))
    total = sum(len(source.keys) for source in sources)
    settings = Settings(
        memory_tuples=max(1.0, total * rng.choice((0.02, 0.1, 0.3, 1.0))),
        flush_share=rng.choice((0.01, 0.2, 1.0)),
        n_groups=rng.choice((1, 3, 5)),
        interval_s=rng.choice((0.5, 5.0)),
        estimator=rng.choice(("recent", "average", "ewma")),
        buffer_share=rng.choice((0.1, 10.0)),
        costs=Costs(1e-3, 1e-3, 1e-2, 1e-2, 1e-2),
    )
    settings = replace(settings, **ALGORITHMS[algorithm])  # type: ignore[arg-type]
    return Pipeline(sources, n_keys, settings).run(), sources, n_keys


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_result_once(algorithm: str) -> None:
    n_flushed = n_merged = 0
    for seed in range(15):
        outcome, sources, n_keys = random_run(seed, algorithm)
        wanted = expected_count(sources, n_keys)
        found = np.concatenate(outcome.results) if outcome.results else np.empty((0, 1), dtype=int)
        assert len(found) == wanted, (seed, algorithm)
        if not wanted:
            continue
        assert len(np.unique(found, axis=0)) == wanted, (seed, algorithm)
        keys = [source.keys[found[:, i]] for i, source in enumerate(sources)]
        assert all((other == keys[0]).all() for other in keys)
        n_flushed += outcome.n_flushes > 0
        n_merged += outcome.n_merges > 0
    assert n_flushed > 3
    assert n_merged > 3


def test_results_flow_while_upper_inputs_are_silent() -> None:
    """ER-X11."""
    outcome = silent_upper_inputs()
    assert any(direction.operator >= 1 for direction in outcome.directions)
    assert outcome.results_at(300.0) > outcome.results_at(60.0)
