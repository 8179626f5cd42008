"""Answers of pages and of the report: the rows of a question in a sentence and a chart."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from operator import itemgetter

from store.explore.page import charts
from store.explore.page.model import Row, Told, group_rows
from store.explore.page.tables import TONES, format_value, make_cell
from store.explore.page.texts import TIMES, make_label

_FEWEST_OF_TECHNIQUE, _MOST_TECHNIQUES = 3, 14
_MOST_ROWS = 10
_MOST_LINES = 6
_STEP = charts.Axis(label="step")
_ROLLOUT_FIGURES: Sequence[tuple[str, str, charts.Kind]] = (
    ("tokens_mean", "tokens of an answer, mean", "plain"),
    ("surprisal", "surprisal, nats per token", "plain"),
    ("flat_share", "groups without spread", "share"),
    ("gap_rms", "sampler and trainer, nats per token", "plain"),
)


def show_times(row: Row, name: str = "speedup") -> str:
    """Return a ratio of a row with its sign, and its interval if it has one."""
    cell = make_cell(row, name)
    return " ".join(filter(None, [f"{cell.text}{TIMES}", cell.interval]))


def _show_ends(rows: Sequence[Row], name: str) -> str:
    """Return the first value of a column, and the last if there are several, with their steps."""
    ends = [rows[0], *rows[1:][-1:]]
    return " and ".join(f"{format_value(name, row[name])} at step {row['step']}" for row in ends)


def make_interval(label: str, row: Row, name: str = "speedup") -> charts.Interval:
    """Return a ratio of a row as a row of a chart, with its figures."""
    return charts.Interval(
        label=label, low=row.get(f"{name}_low"), middle=row[name], high=row.get(f"{name}_high"),
        text=show_times(row, name), tone="c1",
    )  # fmt: skip


def draw_medians(name: str, rows: Mapping[str, Row], over: str = "") -> str:
    """Draw median speedups with their intervals, one for each label."""
    axis = charts.Axis(label=f"median speedup{over}, 95 % interval", scale="ratio")
    intervals = [
        make_interval(f"{label} (n {row['n']})", row, "p50") for label, row in rows.items()
    ]
    return charts.draw_intervals(name, intervals, axis)


def tell_medians(rows: list[Row]) -> Told:
    """Tell the median speedup over eager, and over the fastest baseline."""
    first, lowest = rows[0], min(rows, key=itemgetter("p50"))
    sentence = (
        f"The median speedup over {first['baseline']} is {show_times(first, 'p50')}: best kernels "
        f"of {first['n']} tasks of {first['suite']} on {first['device']}."
    )
    if lowest is not first:
        over = f"{lowest['baseline']}, the fastest baseline"
        sentence += f" Over {over}, it is {show_times(lowest, 'p50')}."
    return sentence, draw_medians("medians", {row["baseline"]: row for row in rows})


def tell_statuses(name: str, counted: str, rows: list[Row]) -> Told:
    """Tell the share of correct kernels on the device with most verdicts."""
    devices = group_rows(rows, ["device"])
    totals = {name: sum(row[counted] for row in mine) for (name,), mine in devices.items()}
    most = max(totals, key=totals.__getitem__)
    correct = sum(row[counted] for row in devices[most,] if row["status"] == "correct")
    share = format_value("share", correct / totals[most])
    bars: list[tuple[str, dict[str, float]]] = []
    for (device,), mine in devices.items():
        parts: dict[str, float] = {}
        for row in mine:
            parts[row["status"]] = parts.get(row["status"], 0) + row[counted]
        # A chart with one status has no legend.
        only = f", all {rows[0]['status']}" if len({row["status"] for row in rows}) == 1 else ""
        bars.append((f"{device}{only}", parts))
    return (
        f"{share} of {totals[most]:,} judged kernels are correct on {most}.",
        charts.draw_bars(name, bars, charts.Axis(label=counted)),
    )


def tell_fast_p(rows: list[Row]) -> Told:
    """Tell the share of tasks with a correct kernel that is faster than the baseline."""
    groups = list(group_rows(rows, ["suite", "device", "baseline"]).items())[:_MOST_LINES]
    faster = next(row for row in rows if row["p"] == 1)
    names = {key: [at for at in range(3) if len({other[at] for other, _ in groups}) > 1] or [2]
             for key, _ in groups}  # fmt: skip
    places = sorted({row["p"] for _, mine in groups for row in mine})
    series = [
        charts.Series(
            label=f"{', '.join(key[at] for at in names[key])} (n {mine[0]['n']})",
            x=[places.index(row["p"]) for row in mine],
            y=[row["share"] for row in mine],
        )
        for key, mine in groups
    ]
    x = charts.Axis(label="p (not to scale)", ticks=[f"{p:g}" for p in places])
    y = charts.Axis(label="share of tasks with speedup > p", scale="share")
    return (
        f"{format_value('share', faster['share'])} of {faster['n']} decided tasks have a correct "
        f"kernel that is faster than {faster['baseline']} on {faster['device']}.",
        charts.draw_lines("fast_p", [(y, series)], x),
    )


def tell_distribution(rows: list[Row]) -> Told:
    """Tell the share of kernels that are no faster than the baseline."""
    groups = group_rows(rows, ["suite", "device", "baseline"])
    largest = sorted(groups.items(), key=lambda one: -one[1][0]["n"])[:_MOST_LINES]
    first = largest[0][1]
    slower = max((row["share"] for row in first if row["speedup"] <= 1), default=0.0)
    series = [
        charts.Series.of(mine, f"{', '.join(key)} (n {mine[0]['n']})", "speedup", "share")
        for key, mine in largest
    ]
    x = charts.Axis(label="speedup over the baseline", scale="ratio")
    y = charts.Axis(label="share of kernels", scale="share")
    return (
        f"{format_value('share', slower)} of {first[0]['n']} ranked kernels of {first[0]['suite']} "
        f"are no faster than {first[0]['baseline']} on {first[0]['device']}.",
        charts.draw_lines("distribution", [(y, series)], x, kind="step", mark_x=1),
    )


def tell_best(rows: list[Row]) -> Told:
    """Tell the fastest kernel."""
    best, over = rows[0], rows[0].get("baseline", "eager")
    intervals = [make_interval(f"{row['task']} on {row['device']}", row) for row in rows]
    axis = charts.Axis(label=f"speedup over {over}, 95 % interval", scale="ratio")
    return (
        f"The fastest kernel, {best['kernel_id'][:12]} by {best['policy'] or 'unknown'}, is "
        f"{show_times(best)} as fast as {over} on {best['device']}, for task {best['task']}.",
        charts.draw_intervals("best", intervals[:_MOST_ROWS], axis),
    )


def draw_claims(rows: Sequence[Row], claimed_for: str, measured_on: str) -> str:
    """Draw the claimed and the measured speedup of each row in a square."""
    series = [
        charts.Series.of(
            mine,
            f"{outcome} (n {len(mine)})",
            *("claimed", "measured", "measured_low", "measured_high"),
            tone=TONES.get(outcome, "plain"),
        )
        for (outcome,), mine in group_rows(rows, ["outcome"]).items()
    ]
    x = charts.Axis(label=f"speedup claimed{claimed_for}", scale="ratio")
    y = charts.Axis(label=f"speedup measured{measured_on}", scale="ratio")
    return charts.draw_points("claims", series, x, y, square=True)


def tell_claims(rows: list[Row]) -> Told:
    """Tell how many claims of a source hold on one device."""
    first = rows[0]
    counts = {row["outcome"]: row["n"] for row in rows}
    others = ", ".join(f"{n} {outcome}" for outcome, n in counts.items() if outcome != "holds")
    return (
        f"{counts.get('holds', 0)} of {sum(counts.values())} claims of {first['source']} for "
        f"{first['gpu']} hold on {first['device']}{f' ({others})' if others else ''}.",
        draw_claims(rows, f" for {first['gpu']}", f" on {first['device']}"),
    )


def tell_techniques(rows: list[Row]) -> Told:
    """Tell the technique whose kernels are fastest, of those that enough kernels use."""
    enough = [row for row in rows if row["n"] >= _FEWEST_OF_TECHNIQUE]
    most = sorted(enough or rows, key=itemgetter("n"), reverse=True)[:_MOST_TECHNIQUES]
    shown = sorted(most, key=itemgetter("p50"), reverse=True)
    first = shown[0]
    return (
        f"Kernels that use {first['technique']} are the fastest: the median of {first['n']} is "
        f"{show_times(first, 'p50')} over {first['baseline']} on {first['device']}.",
        draw_medians("techniques", {row["technique"]: row for row in shown}),
    )


def tell_transfer(rows: list[Row]) -> Told:
    """Tell how speedups change from one device to another."""
    first = rows[0]
    ratio = statistics.median(row["speedup_b"] / row["speedup_a"] for row in rows)
    label = f"over {first['baseline']} (n {first['n']})"
    names = ("speedup_a", "speedup_b", "speedup_b_low", "speedup_b_high")
    x, y = (
        charts.Axis(label=f"speedup on {first[f'device_{side}']}", scale="ratio") for side in "ab"
    )
    return (
        f"The median of {len(rows)} kernels has {show_times({'ratio': ratio}, 'ratio')} the "
        f"speedup over {first['baseline']} on {first['device_b']} that it has on "
        f"{first['device_a']}.",
        charts.draw_points("transfer", [charts.Series.of(rows, label, *names)], x, y, square=True),
    )


def tell_findings(rows: list[Row]) -> Told:
    """Tell the class of findings that was confirmed most."""
    first = rows[0]
    found = f"{first['class']} is confirmed most often"
    if not first["confirmed"]:
        found = f"No finding is confirmed; kernels with {first['class']}"
    bars = [
        (row["class"], {name: row[name] for name in ("confirmed", "open", "dismissed")})
        for row in rows[:_MOST_ROWS]
        if row["confirmed"] + row["open"] + row["dismissed"]
    ]
    return (
        f"{found}: {first['confirmed']} confirmed, {first['open']} open and "
        f"{first['dismissed']} dismissed.",
        charts.draw_bars("findings", bars, charts.Axis(label="kernels")) if bars else "",
    )


def tell_learning(rows: list[Row]) -> Told:
    """Tell whether a run learns, and whether it cheats: reward, correct and suspect answers."""
    shown = max(group_rows(rows, ["device", "rule"]).values(), key=len)
    attempts, suspects = (sum(row[name] for row in shown) for name in ("attempts", "suspects"))
    told: list[str] = []
    facets: list[tuple[charts.Axis, list[charts.Series]]] = []
    for name, said, label, scale, ends in (
        ("reward", "The mean reward", "mean reward, ± 1 standard deviation", "plain", True),
        ("share", "the share of correct answers", "correct answers, 95 % interval", "share", True),
        ("suspect_share", "", "suspect answers", "share", False),
        ("geomean", "", "speedup over eager, geomean", "ratio", False),
        ("entropy", "", "entropy, nats per token", "plain", False),
    ):
        known = [row for row in shown if row[name] is not None]
        if not known:
            continue
        if said:
            told.append(f"{said} is {_show_ends(known, name)}")
        band = (f"{name}_low", f"{name}_high") if ends else (None, None)
        kind: charts.Kind = scale  # type: ignore[assignment]
        series = charts.Series.of(known, name, "step", name, *band)
        facets.append((charts.Axis(label=label, scale=kind), [series]))
    device = f" on {shown[0]['device']}" if shown[0]["device"] else ""
    sentence = ", ".join(told) or "No answer has a verdict or a reward yet"
    sentence = (
        f"{sentence[0].upper()}{sentence[1:]}{device}; {suspects:,} of {attempts:,} answers are "
        f"suspect."
    )
    return sentence, charts.draw_lines("what a run learns, by step", facets, _STEP)


def tell_search(rows: list[Row]) -> Told:
    """Tell the variant of a search that ends fastest."""
    arms = group_rows(rows, ["arm"])
    reached = {arm: mine[-1] for (arm,), mine in arms.items()}
    best = max(reached, key=lambda arm: reached[arm]["geomean"])
    series = [
        charts.Series.of(
            mine,
            f"{arm} ({mine[-1]['seeds']} seeds, {mine[-1]['tasks']} tasks)",
            *("attempt", "geomean", "low", "high"),
        )
        for (arm,), mine in arms.items()
    ]
    x = charts.Axis(label="attempts at each task")
    y = charts.Axis(label="geomean of best so far", scale="ratio")
    return (
        f"In search {rows[0]['search']}, variant {best} reaches "
        f"{show_times(reached[best], 'geomean')} after {reached[best]['attempt']} attempts at "
        f"each task on {rows[0]['device']}.",
        charts.draw_lines("search", [(y, series)], x),
    )


def tell_best_so_far(rows: list[Row]) -> Told:
    """Tell the best speedups that a run has reached, on the device with most of them."""
    shown = max(group_rows(rows, ["device"]).values(), key=len)
    last = ([row for row in shown if row["baseline"] == "eager"] or shown)[-1]
    end = max(row["step"] for row in shown)
    series = [
        charts.Series.of(
            [*mine, mine[-1] | {"step": end}],
            f"{baseline} ({mine[-1]['tasks with a speedup']} of {mine[-1]['tasks']} tasks)",
            "step",
            "geomean_at_least_1",
        )
        for (baseline,), mine in group_rows(shown, ["baseline"]).items()
    ]
    axis = charts.Axis(label="geomean of best so far", scale="ratio")
    return (
        f"At step {last['step']}, the best kernels of {last['tasks']} tasks reach "
        f"{show_times(last, 'geomean_at_least_1')} over {last['baseline']} on {last['device']}.",
        charts.draw_lines("best", [(axis, series)], _STEP, kind="step"),
    )


def tell_metrics(rows: list[Row]) -> Told:
    """Tell the first and the last value of a metric; draw all of them."""
    metrics = group_rows(rows, ["metric"])
    units = {"entropy": ", nats per token", "kl": ", nats per token"}
    facets = [
        (
            charts.Axis(label=f"{metric[:40]}{units.get(metric.rpartition('/')[2], '')}"),
            [charts.Series.of(mine, metric, "step", "value")],
        )
        for (metric,), mine in list(metrics.items())[:_MOST_LINES]
    ]
    return (
        f"{rows[0]['metric']} is {_show_ends(next(iter(metrics.values())), 'value')}.",
        charts.draw_lines("what the trainer logged, by step", facets, _STEP),
    )


def tell_rollouts(rows: list[Row]) -> Told:
    """Tell length, surprisal, groups without spread and mismatch of the newest step with tokens."""
    last = rows[-1]
    step = "" if last["step"] is None else f"At step {last['step']}, "
    count = "1 answer has" if last["attempts"] == 1 else f"{last['attempts']:,} answers have"
    told = [f"{step}{count} {last['tokens_mean'] or 0:,.0f} tokens on average"]
    if last["surprisal"] is not None:
        told.append(f"a surprisal of {format_value('surprisal', last['surprisal'])} nats per token")
    sentence = " and ".join(told)
    if last["groups"]:
        flat, groups = last["flat_groups"], last["groups"]
        teaches = "teaches nothing, because its" if flat == 1 else "teach nothing, because their"
        equal = f"{flat} of {groups} groups {teaches} rewards are equal"
        sentence += f"; {equal if flat else f'rewards differ within all {groups} groups'}"
    if last["repeated"]:
        sentence += f"; {last['repeated']} repeat another answer"
    if last["gap_rms"] is not None:
        gap = format_value("gap_rms", last["gap_rms"])
        sentence += f". Sampler and trainer differ by {gap} nats per token"
    shares = [
        row | {"flat_share": row["flat_groups"] / row["groups"] if row["groups"] else None}
        for row in rows
        if row["step"] is not None
    ]
    facets = [
        (charts.Axis(label=label, scale=scale), [charts.Series.of(known, name, "step", name)])
        for name, label, scale in _ROLLOUT_FIGURES
        if (known := [row for row in shares if row[name] is not None])
    ]
    svg = charts.draw_lines("rollouts, by step", facets, _STEP) if facets else ""
    return f"{sentence[0].upper()}{sentence[1:]}.", svg


def tell_tokens(rows: list[Row]) -> Told:
    """Tell the least likely token of the answers that are shown."""
    known = [
        (logprob, row, at)
        for row in rows
        for at, logprob in enumerate(row["sampler_logprobs"] or row["trainer_logprobs"] or ())
        if row["loss_mask"] is None or row["loss_mask"][at]
    ]
    step = "" if rows[0]["step"] is None else f" of step {rows[0]['step']}"
    shown = f"{len(rows)} of {rows[0]['total']:,} answers{step}"
    if not known:
        return f"The log-probabilities of the tokens of {shown} are not stored.", ""
    logprob, row, at = min(known, key=itemgetter(0))
    ends, token = row["ends"], f"the token {row['ids'][at]}"
    if ends and (text := row["body"][ends[at - 1] if at else 0 : ends[at]].strip()):
        token = f"\u201c{make_label(text)}\u201d"
    return f"In {shown}, the least likely token is {token}, with log p \u2212{-logprob:.2f}.", ""


def tell_bests(rows: list[Row]) -> Told:
    """Tell the run's newest best kernel, and what it was made from."""
    first = rows[0]
    return (
        f"The newest of {first['total']} best kernels, {first['kernel_id'][:12]}, is "
        f"{show_times(first)} as fast as eager on {first['device']}, for task {first['task']}. It "
        f"was made from {first['made from']}.",
        "",
    )


def tell_costs(rows: list[Row]) -> Told:
    """Tell what the attempts of a run took, and how many improvements they gave."""
    first = rows[0]
    units = {"prompt_tokens": "prompt tokens", "completion_tokens": "answer tokens",
             "device_s": "s of judging", "cost_usd": "USD"}  # fmt: skip
    took = [f"{format_value(name, first[name])} {unit}" for name, unit in units.items()
            if first[name] is not None]  # fmt: skip
    return (
        f"{first['attempts']:,} attempts took {', '.join(took) or 'nothing that was counted'}, for "
        f"{first['improvements']:,} improvements over {first['baseline']} on {first['device']}.",
        "",
    )


def tell_correct(what: str, rows: list[Row]) -> Told:
    """Tell how many of some answers are correct, and which has the largest speedup."""
    judged = [row for row in rows if row["status"] not in (None, "not judged", "no kernel")]
    correct = sum(row["status"] == "correct" for row in judged)
    timed = [row for row in rows if row.get("speedup") is not None]
    best = max(timed, key=lambda row: row["speedup"], default=None)
    fastest = f"; the largest speedup is {show_times(best)}" if best else ""
    return f"{correct} of {len(judged)} judged {what} are correct{fastest}.", ""
