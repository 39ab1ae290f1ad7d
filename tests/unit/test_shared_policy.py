"""One policy for several threads: forks are one, news reaches everybody."""

from __future__ import annotations

import threading
import time

import numpy as np
import pyarrow as pa

from eddies.core.eddy import Eddy
from eddies.core.lineage import Signature
from eddies.core.options import Options
from eddies.core.policies.base import Candidate, Decision, Fork, until_reoptimized
from eddies.core.policies.shared import SharedPolicy
from eddies.sql import plan


class Recorder:
    """Notes what it is told; says of a re-optimization what it is told to say."""

    every_batch = False
    diverts = True
    is_surprised = False
    news_ns = None

    def __init__(self) -> None:
        self.forks: list[Fork] = []
        self.n_at_once = 0
        self.most_at_once = 0
        self.says_unchanged = True

    def choose(self, fork: Fork) -> Decision:
        self.forks.append(fork)
        return until_reoptimized(1)

    def observe(
        self, fork: Fork, choice: int, n_in: int, n_out: int, elapsed_ns: int, n_runs: int = 1
    ) -> None:
        self.n_at_once += 1
        self.most_at_once = max(self.most_at_once, self.n_at_once)
        self.forks.append(fork)
        time.sleep(0)  # others may come now, if they can
        self.n_at_once -= 1

    def reoptimize(self) -> bool:
        return self.says_unchanged


def fork_of(number: int, sources: int, *modules: int) -> Fork:
    candidates = tuple(Candidate(m, f"m{m}", "probe") for m in modules)
    return Fork(number, Signature(sources), candidates, tuple(Signature(3) for _ in modules))


def test_forks_of_one_signature_are_one_to_the_policy() -> None:
    recorder = Recorder()
    shared = SharedPolicy(recorder)
    first, second = shared.view(), shared.view()
    assert first.choose(fork_of(0, 1, 1, 2)) == until_reoptimized(1)
    second.choose(fork_of(0, 2, 0, 2))  # the first fork that this thread met is another one
    second.choose(fork_of(1, 1, 1, 2))
    second.observe(fork_of(1, 1, 1, 2), 0, 10, 5, 100)
    one, other, again, observed = recorder.forks
    assert one is again is observed
    assert (one.fork_id, other.fork_id) == (0, 1)


def test_a_fork_with_other_candidates_is_another_one() -> None:
    recorder = Recorder()
    view = SharedPolicy(recorder).view()
    view.choose(fork_of(0, 1, 1, 2))
    view.choose(fork_of(0, 1, 1, 2, 3))
    assert len({fork.fork_id for fork in recorder.forks}) == 2


def test_what_one_thread_changed_the_other_hears_of() -> None:
    recorder = Recorder()
    shared = SharedPolicy(recorder)
    first, second = shared.view(), shared.view()
    assert first.reoptimize()
    assert second.reoptimize()
    recorder.says_unchanged = False
    assert not first.reoptimize()
    recorder.says_unchanged = True
    assert first.reoptimize()
    assert second.is_surprised
    assert not first.is_surprised
    assert not second.reoptimize(), "its decisions are from before the change"
    assert second.reoptimize()
    assert not second.is_surprised


def test_the_policy_is_told_by_one_thread_at_a_time() -> None:
    recorder = Recorder()
    shared = SharedPolicy(recorder)

    def tell() -> None:
        view, fork = shared.view(), fork_of(0, 1, 1, 2)
        for _ in range(500):
            view.observe(fork, 0, 1, 1, 1)

    threads = [threading.Thread(target=tell) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(recorder.forks) == 2000
    assert recorder.most_at_once == 1


def test_threads_find_the_best_order_together() -> None:
    """The text begins with what keeps everything; each thread by itself has few rows to learn from."""
    rng = np.random.default_rng(1)
    n_rows, n_keys = 800_000, 100_000
    spread = 1_000_003  # keys lie apart, and are hashed
    tables = {"f": pa.table({f"k{i}": rng.integers(0, n_keys, n_rows) * spread for i in range(3)})}
    for i, kept in enumerate((1.0, 0.9, 0.05)):
        tables[f"d{i}"] = pa.table({"k": np.arange(int(n_keys * kept)) * spread})
    text = (
        "SELECT count(*) AS n FROM f, d0, d1, d2 WHERE f.k0 = d0.k AND f.k1 = d1.k AND f.k2 = d2.k"
    )
    query = plan(text, {n: t.schema for n, t in tables.items()}, aggregate=True).blocks[0].query
    expected = int(np.prod([_kept(tables, i) for i in range(3)], axis=0).sum())
    eddy = Eddy(query, Options(threads=2, state="stems"))
    for name in ("d0", "d1", "d2", "f"):
        for batch in tables[name].to_batches():
            eddy.push(name, batch)
        eddy.end(name)
    assert eddy.poll()["n"].to_pylist() == [expected]  # type: ignore[index]
    first = {"stem:d0": 0, "stem:d1": 0, "stem:d2": 0}
    for router in eddy._routers:
        route = router.table.entry(query_source(query, "f"))
        assert route.fork is not None
        for candidate, way in zip(route.fork.candidates, route.ways, strict=True):
            first[candidate.name] += way.n_in
    assert first["stem:d2"] > 0.6 * n_rows


def _kept(tables: dict[str, pa.Table], number: int) -> np.ndarray:
    return np.isin(tables["f"][f"k{number}"].to_numpy(), tables[f"d{number}"]["k"].to_numpy())


def query_source(query, alias: str) -> int:  # type: ignore[no-untyped-def]
    return [source.name for source in query.sources].index(alias)
