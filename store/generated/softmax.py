"""Softmax of rows and what is computed from it; held out for the test side."""

from __future__ import annotations

from dataclasses import replace

from store.generated.writing import chain, row_programs
from store.generated.writing.row_programs import Core
from store.generated.writing.texts import Draw, Module, Task

SPLIT = "test"
_MOST = 8.0
_TOP = (
    "float a = -3e38f, b = 0.0f;",
    "@ { const float v = PRE; to[c] = v; a = v > a ? v : a; }",
    "$max a",
)
_READ = (
    "float a = -3e38f, b = 0.0f, d = 0.0f;",
    "@ { const float v = PRE; a = v > a ? v : a; }",
    "$max a",
)
_SHARES = (
    "@ { const float e = expf(to[c] - a); to[c] = e; b += e; }",
    "$sum b",
    "@ to[c] = POST(to[c] / b);",
)
_WEIGHTS = ("a = tl.max(v, axis=0)", "e = tl.exp(v - a)", "b = tl.sum(e, axis=0)")
_INFINITE = 'float("-inf")'

_WIDE = (
    Core(
        title="softmax",
        torch=("v = torch.softmax(v, dim=1)",),
        fast=(
            "v = torch.exp(v - v.amax(dim=1, keepdim=True))",
            "v /= v.sum(dim=1, keepdim=True)",
        ),
        c=(*_TOP, *_SHARES),
        triton=(*_WEIGHTS, "v = e / b"),
        fill=_INFINITE,
    ),
    Core(
        title="log-softmax",
        torch=("v = torch.log_softmax(v, dim=1)",),
        fast=("v = v - torch.logsumexp(v, dim=1, keepdim=True)",),
        c=(
            *_TOP,
            "@ b += expf(to[c] - a);",
            "$sum b",
            "a += logf(b);",
            "@ to[c] = POST(to[c] - a);",
        ),
        triton=(*_WEIGHTS, "v = v - a - tl.log(b)"),
        fill=_INFINITE,
    ),
    Core(
        title="softmin",
        torch=("v = torch.softmax(-v, dim=1)",),
        fast=(
            "v = torch.exp(v.amin(dim=1, keepdim=True) - v)",
            "v /= v.sum(dim=1, keepdim=True)",
        ),
        c=(*(line.replace("PRE", "-PRE") for line in _TOP), *_SHARES),
        triton=("v = tl.where(mask, -v, float('-inf'))", *_WEIGHTS, "v = e / b"),
    ),
)
_SUM_EXP = "logarithm of the sum of exponentials"
_ONE = tuple(
    replace(core, fill=_INFINITE, scalar=True)
    for core in (
        Core(
            title=_SUM_EXP,
            torch=("v = torch.logsumexp(v, dim=1)",),
            fast=(
                "a = v.amax(dim=1, keepdim=True)",
                "v = torch.exp(v - a).sum(dim=1).log() + a[:, 0]",
            ),
            c=(*_READ, "@ b += expf(PRE - a);", "$sum b", "$one out[r] = a + logf(b);"),
            triton=(*_WEIGHTS, "v = a + tl.log(b)"),
        ),
        Core(
            title="mean under softmax",
            torch=("v = (torch.softmax(v, dim=1) * v).sum(dim=1)",),
            fast=("v = torch.linalg.vecdot(torch.softmax(v, dim=1), v, dim=1)",),
            c=(
                *_READ,
                "@ { const float v = PRE, e = expf(v - a); b += e; d += e * v; }",
                "$sum b",
                "$sum d",
                "$one out[r] = d / b;",
            ),
            triton=(*_WEIGHTS, "v = tl.sum(e * tl.where(mask, v, 0.0), axis=0) / b"),
        ),
        Core(
            title="entropy of softmax",
            torch=(
                "p = torch.softmax(v, dim=1)",
                "v = -(p * torch.log_softmax(v, dim=1)).sum(dim=1)",
            ),
            fast=(
                "p = torch.log_softmax(v, dim=1)",
                "v = -torch.linalg.vecdot(p.exp(), p, dim=1)",
            ),
            c=(
                *_READ,
                "@ { const float v = PRE - a, e = expf(v); b += e; d += e * v; }",
                "$sum b",
                "$sum d",
                "$one out[r] = logf(b) - d / b;",
            ),
            triton=(
                *_WEIGHTS,
                "v = tl.log(b) - tl.sum(e * tl.where(mask, v - a, 0.0), axis=0) / b",
            ),
        ),
        Core(
            title="concentration of softmax",
            torch=("v = torch.softmax(v, dim=1).square().sum(dim=1)",),
            fast=("v = torch.linalg.vector_norm(torch.softmax(v, dim=1), dim=1).square_()",),
            c=(
                *_READ,
                "@ { const float e = expf(PRE - a); b += e; d += e * e; }",
                "$sum b",
                "$sum d",
                "$one out[r] = d / (b * b);",
            ),
            triton=(*_WEIGHTS, "v = tl.sum(e * e, axis=0) / (b * b)"),
        ),
    )
)


def task(draw: Draw) -> Task:
    """Return a softmax, one after elementwise steps, or one that is reduced."""
    level = draw.choice((1, 2, 2, 3))
    core = draw.choice(_ONE if level == 3 else (*_WIDE, _ONE[0]))
    count = (0, 1 + draw.integer_below(2), draw.integer_below(3))[level - 1]
    pre = chain.draw_chain(draw, count, most=_MOST)
    title = f"Rows: {', '.join(filter(None, (pre.title, core.title)))}"
    return row_programs.write_task(
        draw, title=title, level=level, module=Module(), pre=pre, core=core
    )
