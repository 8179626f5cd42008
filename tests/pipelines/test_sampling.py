"""The draws in SQL against their formulas: softmax over buckets, uniform inside, no replacement."""

from __future__ import annotations

import hashlib
import math
import statistics
from collections import Counter
from itertools import combinations, pairwise

import pyarrow as pa
import pytest

from pipelines import contrastive_batch
from pipelines.contract import Request
from pipelines.selection.queries import query, sql
from pipelines.selection.scores import draw, place

DRAWS = 20_000
WIDTH = 0.5
# Bucket (score // WIDTH) to the scores of its kernels.
SCORES = {0: [0.4], 2: [1.1, 1.2, 1.3], 3: [1.6, 1.9], 5: [2.7]}


def kernels(task: str = "task") -> list[tuple[str, str, float]]:
    """Return (task, kernel, score) of one task's kernels."""
    return [
        (task, hashlib.sha256(f"{task}{score}".encode()).hexdigest(), score)
        for scores in SCORES.values()
        for score in scores
    ]


def table(rows: list[tuple[str, str, float]], error: float) -> pa.Table:
    """Return kernels as the SQL reads them, with bounds this share away from their scores."""
    scores = [row[2] for row in rows]
    return pa.table(
        {
            "task_id": [row[0] for row in rows],
            "kernel_id": [row[1] for row in rows],
            "score": scores,
            "low": [score * (1 - error) for score in scores],
            "reach": [score * (1 + error) for score in scores],
            "beside_reference": [abs(score - 1) > error for score in scores],
        }
    )


def list_drawn(
    lake, rows, *, seed: int = 0, error: float = 1e-6, **options
) -> list[list[tuple[str, float]]]:
    """Return the exemplars of each draw over one task: (kernel, score)."""
    config = contrastive_batch.Config(
        **({"bucket_width": WIDTH, "per_task": DRAWS, "temperature": 0.8} | options)
    )
    eligible = table(rows, error)
    tasks = pa.table({"task_id": sorted(set(eligible["task_id"].to_pylist()))})
    placed = place(lake, eligible, config)
    found = draw(lake, tasks, placed, config, Request(seed=seed)).to_pylist()
    groups: dict[int, list[tuple[str, float]]] = {}
    for row in found:
        groups.setdefault(row["row_index"], []).append((row["kernel_id"], row["score"]))
    return [sorted(groups[index], key=lambda one: one[1]) for index in sorted(groups)]


def softmax(temperature: float) -> dict[int, float]:
    """Return CUDA-L1's equation 1 for SCORES, by standard deviations: bucket to probability."""
    weights = {bucket: math.exp(z / temperature) for bucket, z in standardize().items()}
    return {bucket: weight / sum(weights.values()) for bucket, weight in weights.items()}


def standardize() -> dict[int, float]:
    """Return the bucket of SCORES to its mean, in standard deviations from the mean of all."""
    means = {bucket: sum(scores) / len(scores) for bucket, scores in SCORES.items()}
    mu, sigma = statistics.fmean(means.values()), statistics.pstdev(means.values())
    return {bucket: (mean - mu) / sigma for bucket, mean in means.items()}


def list_probabilities(
    lake, scores: list[float], *, error: float = 1e-6, **options
) -> dict[float, float]:
    """Return the mean score of each bucket to the probability that --explain prints."""
    config = contrastive_batch.Config(**({"bucket_width": WIDTH} | options))
    rows = [("task", f"{place:04}", score) for place, score in enumerate(scores)]
    buckets = query(
        lake,
        sql("contrastive_batch", "explain"),
        {
            "bucket_width": config.bucket_width,
            "temperature": config.temperature,
            "uniform": False,
        },
        placed=place(lake, table(rows, error), config),
    ).to_pylist()
    return {row["mean_score"]: row["probability"] for row in buckets}


def p_value(counts: Counter, expected: dict) -> float:
    """Return the chi-square p-value of counts against probabilities."""
    # Every test process collects this file, and SciPy takes most of a second.
    from scipy.stats import chisquare

    assert set(counts) <= set(expected)
    observed = [counts[key] for key in expected]
    total = sum(observed)
    return float(chisquare(observed, [p * total for p in expected.values()]).pvalue)


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("temperature", [0.3, 0.8, 3.0])
def test_single_draws_follow_the_softmax(lake, temperature) -> None:
    found = list_drawn(lake, kernels(), exemplars=1, temperature=temperature)
    counts = Counter(int(one[0][1] // WIDTH) for one in found)
    assert sum(counts.values()) == DRAWS
    assert p_value(counts, softmax(temperature)) > 0.001
    # The same counts do not follow another temperature: the test can fail.
    assert p_value(counts, softmax(temperature * 1.3)) < 1e-6


@pytest.mark.parametrize("scores", [[0.4, 1.1, 1.2, 2.7], [1.0, 1.6], [0.1, 2.0, 40.0, 90.0, 91.0]])
def test_probabilities_depend_on_how_scores_lie_and_not_on_their_size(lake, scores) -> None:
    found = list_probabilities(lake, scores)
    assert math.isclose(sum(found.values()), 1)
    by_mean = [found[mean] for mean in sorted(found)]
    assert by_mean == sorted(by_mean)
    assert len(set(by_mean)) == len(by_mean)
    # The buckets stay those of before.
    for scale in (0.125, 64):
        scaled = [score * scale for score in scores]
        found = list_probabilities(lake, scaled, bucket_width=WIDTH * scale)
        assert list(found.values()) == pytest.approx(by_mean, rel=1e-4)
    found = list_probabilities(lake, [score + 300 * WIDTH for score in scores])
    assert list(found.values()) == pytest.approx(by_mean, rel=1e-4)


def test_temperature_leads_from_the_fastest_bucket_to_all_alike(lake) -> None:
    scores = [0.1, 2.0, 40.0, 90.0]
    highest = [
        list_probabilities(lake, scores, temperature=temperature)[90.0]
        for temperature in (1e-3, 0.5, 1.0, 2.0, 1e6)
    ]
    assert highest == sorted(highest, reverse=True)
    assert highest[0] == 1
    assert highest[-1] == pytest.approx(1 / 4, rel=1e-4)


def test_only_buckets_that_may_be_drawn_count(lake) -> None:
    # 1.0 and 2.6 differ by their errors, and neither differs from 1.6.
    found = list_probabilities(lake, [1.0, 1.6, 2.6], error=0.3)
    assert found[1.6] == 0
    assert found[2.6] == pytest.approx(1 / (1 + math.exp(-2)))
    # A bucket that is alone has no spread.
    assert list(list_probabilities(lake, [1.6, 1.7], error=0.2).values()) == [1]
    [[(kernel, _)]] = list_drawn(lake, [("task", "a", 1.6)], exemplars=1, per_task=1)
    assert kernel == "a"


@pytest.mark.slow
def test_pairs_are_successive_draws_without_replacement(lake) -> None:
    found = list_drawn(lake, kernels(), exemplars=2)
    counts = Counter(tuple(int(score // WIDTH) for _, score in one) for one in found)
    p = softmax(0.8)
    expected = {
        (i, j): p[i] * p[j] / (1 - p[i]) + p[j] * p[i] / (1 - p[j]) for i, j in combinations(p, 2)
    }
    assert math.isclose(sum(expected.values()), 1)
    assert p_value(counts, expected) > 0.001
    independent = {pair: p[pair[0]] * p[pair[1]] for pair in expected}
    total = sum(independent.values())
    assert p_value(counts, {pair: v / total for pair, v in independent.items()}) < 1e-6


def test_kernels_inside_a_bucket_are_equally_likely(lake) -> None:
    found = list_drawn(lake, kernels(), exemplars=1)
    counts = Counter(one[0][1] for one in found if 1.0 <= one[0][1] < 1.5)
    assert p_value(counts, {score: 1 / 3 for score in SCORES[2]}) > 0.001


def test_buckets_of_a_draw_are_distinct_and_as_many_as_there_are(lake) -> None:
    for one in list_drawn(lake, kernels(), exemplars=9, per_task=50):
        assert [int(score // WIDTH) for _, score in one] == list(SCORES)


def test_large_scores_do_not_overflow(lake) -> None:
    rows = [("task", "a", 1e-3), ("task", "b", 5e4), ("task", "c", 120.0)]
    found = list_drawn(lake, rows, exemplars=2, per_task=20, temperature=1e-4)
    assert all([score for _, score in one] == [120.0, 5e4] for one in found)


def test_a_draw_is_the_hash_that_it_says_it_is(lake) -> None:
    """Recompute draws in Python: Gumbel keys out of md5, whatever engine or machine made them."""
    seed, temperature = 7, 0.8
    standardized = standardize()

    def read_low(*parts: object) -> int:
        digest = hashlib.md5(":".join(map(str, parts)).encode()).digest()
        return int.from_bytes(digest[8:], "little")

    def key(number: int, bucket: int) -> float:
        u = ((read_low(seed, "bucket", "task", number, bucket) >> 12) + 0.5) / 2**52
        return standardized[bucket] / temperature - math.log(-math.log(u))

    found = list_drawn(lake, kernels(), exemplars=2, per_task=200, seed=seed)
    for number, exemplars in enumerate(found):
        best = sorted(SCORES, key=lambda bucket: -key(number, bucket))[:2]
        expected = []
        for bucket in best:
            inside = sorted(
                (kernel, score) for _, kernel, score in kernels() if score // WIDTH == bucket
            )
            expected.append(inside[read_low(seed, "kernel", "task", number, bucket) % len(inside)])
        assert exemplars == sorted(expected, key=lambda one: one[1])


@pytest.mark.slow
def test_random_takes_every_kernel_equally_often_and_then_one_of_another_bucket(lake) -> None:
    found = list_drawn(lake, kernels(), strategy="random", exemplars=1)
    counts = Counter(score for [(_, score)] in found)
    assert p_value(counts, dict.fromkeys(counts, 1 / 7)) > 0.001
    pairs = list_drawn(lake, kernels(), strategy="random", exemplars=2)
    sizes = {bucket: len(scores) / 7 for bucket, scores in SCORES.items()}
    expected = {
        (i, j): sizes[i] * sizes[j] * (1 / (1 - sizes[i]) + 1 / (1 - sizes[j]))
        for i, j in combinations(sizes, 2)
    }
    assert (
        p_value(Counter(tuple(int(s // WIDTH) for _, s in one) for one in pairs), expected) > 0.001
    )


def test_random_takes_a_kernel_of_each_bucket_where_there_are_few(lake) -> None:
    found = list_drawn(lake, kernels(), strategy="random", exemplars=20, per_task=3)
    assert [len(one) for one in found] == [4, 4, 4]


@pytest.mark.slow
def test_island_stays_on_one_island_and_visits_all_equally(lake) -> None:
    rows = [
        ("task", hashlib.sha256(str(i).encode()).hexdigest(), 0.3 + i * 0.05) for i in range(40)
    ]

    def island(kernel: str) -> int:
        digest = hashlib.md5(kernel.encode()).digest()
        return int.from_bytes(digest[8:], "little") % 3

    found = list_drawn(lake, rows, strategy="island", islands=3, exemplars=2, per_task=40_000)
    visits = Counter()
    for one in found:
        [place] = {island(kernel) for kernel, _ in one}
        visits[place] += 1
    assert p_value(visits, {place: 1 / 3 for place in range(3)}) > 0.001


@pytest.mark.parametrize("count", [2, 3, 6])
def test_islands_with_too_few_kernels_for_a_prompt_join_others(lake, count: int) -> None:
    rows = [("task", hashlib.sha256(str(i).encode()).hexdigest(), 1 + i / 8) for i in range(count)]
    found = list_drawn(lake, rows, strategy="island", islands=4, exemplars=2, per_task=50)
    assert {len(one) for one in found} == {2}
    # Every kernel is on some island.
    assert {kernel for one in found for kernel, _ in one} == {kernel for _, kernel, _ in rows}


def test_top_goes_down_the_ranking_draw_by_draw(lake) -> None:
    found = list_drawn(lake, kernels(), strategy="top", exemplars=3, per_task=5)
    assert [[score for _, score in one] for one in found] == [
        [1.6, 1.9, 2.7],
        [1.3, 1.6, 1.9],
        [1.2, 1.3, 1.6],
        [1.1, 1.2, 1.3],
        [0.4, 1.1, 1.2],
    ]


@pytest.mark.repeats(run=3)
@pytest.mark.parametrize("strategy", ["bucket", "random", "island", "top"])
@pytest.mark.parametrize("exemplars", [2, 3])
def test_kernels_of_a_draw_differ_by_more_than_their_errors(lake, strategy, exemplars) -> None:
    spread = [("task", hashlib.sha256(str(i).encode()).hexdigest(), 1.08**i) for i in range(24)]
    error = 0.1
    found = list_drawn(
        lake, spread, strategy=strategy, exemplars=exemplars, per_task=200, error=error
    )
    assert found
    for one in found:
        scores = sorted(score for _, score in one)
        assert len(scores) >= 2
        for slower, faster in pairwise(scores):
            assert faster * (1 - error) > slower * (1 + error)


def test_a_task_whose_kernels_do_not_differ_shows_one_that_differs_from_the_reference(lake) -> None:
    rows = [("task", "a", 1.5), ("task", "b", 1.52), ("task", "c", 1.02)]
    assert {len(one) for one in list_drawn(lake, rows[:2], error=0.05, per_task=9)} == {1}
    found = list_drawn(lake, rows, error=0.4, per_task=9)
    assert {kernel for [(kernel, _)] in found} == {"a", "b"}
    assert list_drawn(lake, rows, error=0.6, per_task=9) == []


def test_kernels_of_one_bucket_are_shown_if_no_two_of_several_buckets_differ(lake) -> None:
    rows = [("task", "a", 1.05), ("task", "b", 1.45), ("task", "c", 1.55)]
    found = list_drawn(lake, rows, error=0.1, per_task=20)
    # a and c differ, of two buckets; a and b differ too, and are of one.
    assert {tuple(kernel for kernel, _ in one) for one in found} == {("a", "c")}
    found = list_drawn(lake, rows[:2], error=0.1, per_task=20)
    assert {tuple(kernel for kernel, _ in one) for one in found} == {("a", "b")}


def test_none_draws_one_prompt_a_task(lake) -> None:
    assert list_drawn(lake, kernels(), strategy="none", per_task=5) == [[(None, None)]]


def test_the_draw_of_a_task_does_not_depend_on_other_tasks(lake) -> None:
    alone = list_drawn(lake, kernels(), per_task=1)
    both = list_drawn(lake, kernels() + kernels("another"), per_task=1)
    assert alone[0] in both
