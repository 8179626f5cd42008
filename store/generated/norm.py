"""Normalisation of rows, after and before elementwise steps, with a weight per column."""

from __future__ import annotations

from dataclasses import replace

from store.generated.writing import chain, row_programs, texts
from store.generated.writing.chain import Chain
from store.generated.writing.row_programs import Core
from store.generated.writing.texts import Draw, Module, Task

SPLIT = "train"
_KEEP = "dim=1, keepdim=True"
_SQUARES = ("float a = 0.0f;", "@ { const float v = PRE; to[c] = v; a += v * v; }", "$sum a")
_CENTRE = (
    "float a = 0.0f;",
    "@ { const float v = PRE; to[c] = v; a += v; }",
    "$sum a",
    "a /= cols;",
)
_DIVISION = ("a = 1.0f / (a + 0.1f);", "@ to[c] = POST(to[c] * a);")
_DIFFERENCES = ("float b = 0.0f;", "@ { const float v = to[c] - a; b += v * v; }", "$sum b")

_CORES = (
    Core(
        title="RMS norm",
        torch=(f"v = v / torch.sqrt((v * v).mean({_KEEP}) + 1e-05)",),
        fast=("v = F.rms_norm(v, v.shape[1:], eps=1e-05)",),
        c=(*_SQUARES, "a = 1.0f / sqrtf(a / cols + 1e-05f);", "@ to[c] = POST(to[c] * a);"),
        triton=("v = v / tl.sqrt(tl.sum(v * v, axis=0) / cols + 1e-05)",),
    ),
    Core(
        title="layer norm",
        torch=(
            f"v = v - v.mean({_KEEP})",
            f"v = v / torch.sqrt((v * v).mean({_KEEP}) + 1e-05)",
        ),
        fast=("v = F.layer_norm(v, v.shape[1:], eps=1e-05)",),
        c=(
            *_CENTRE,
            *_DIFFERENCES,
            "b = 1.0f / sqrtf(b / cols + 1e-05f);",
            "@ to[c] = POST((to[c] - a) * b);",
        ),
        triton=(
            "v = tl.where(mask, v - tl.sum(v, axis=0) / cols, 0.0)",
            "v = v / tl.sqrt(tl.sum(v * v, axis=0) / cols + 1e-05)",
        ),
    ),
    Core(
        title="centring",
        torch=(f"v = v - v.mean({_KEEP})",),
        fast=(f"v = torch.addcmul(v, v.sum({_KEEP}), v.new_tensor(-1.0 / v.shape[1]))",),
        c=(*_CENTRE, "@ to[c] = POST(to[c] - a);"),
        triton=("v = v - tl.sum(v, axis=0) / cols",),
    ),
    Core(
        title="division by the length",
        torch=(f"v = v / (torch.sqrt((v * v).sum({_KEEP})) + 0.1)",),
        fast=(f"v = v / torch.linalg.vector_norm(v, {_KEEP}).add_(0.1)",),
        c=(*_SQUARES, "a = 1.0f / (sqrtf(a) + 0.1f);", "@ to[c] = POST(to[c] * a);"),
        triton=("v = v / (tl.sqrt(tl.sum(v * v, axis=0)) + 0.1)",),
    ),
    Core(
        title="division by the absolute sum",
        torch=(f"v = v / (torch.abs(v).sum({_KEEP}) + 0.1)",),
        fast=(f"v = v / torch.linalg.vector_norm(v, 1, {_KEEP}).add_(0.1)",),
        c=(
            "float a = 0.0f;",
            "@ { const float v = PRE; to[c] = v; a += fabsf(v); }",
            "$sum a",
            *_DIVISION,
        ),
        triton=("v = v / (tl.sum(tl.abs(v), axis=0) + 0.1)",),
    ),
    Core(
        title="division by the largest",
        torch=(f"v = v / (torch.abs(v).amax({_KEEP}) + 0.1)",),
        fast=(f'v = v / torch.linalg.vector_norm(v, float("inf"), {_KEEP}).add_(0.1)',),
        c=(
            "float a = 0.0f;",
            "@ { const float v = PRE, u = fabsf(v); to[c] = v; a = u > a ? u : a; }",
            "$max a",
            *_DIVISION,
        ),
        triton=("v = v / (tl.max(tl.abs(v), axis=0) + 0.1)",),
    ),
)
# The answers of these are about as large as those of the normal distribution.
_UNIT = ("RMS norm", "layer norm")


def task(draw: Draw) -> Task:
    """Return a norm, one between elementwise steps, or one whose answer is averaged."""
    level = draw.choice((1, 2, 2, 3))
    core = draw.choice(_CORES)
    pre, post = Chain(), Chain()
    if level > 1 and draw.integer_below(4):
        pre = chain.draw_chain(draw, 1 + draw.integer_below(2))
    if level > 1 and core.title in _UNIT and (not pre or draw.integer_below(2)):
        post = chain.draw_chain(draw, 1)
    weighted = level > 1 and (draw.integer_below(2) == 0 or not (pre or post))
    module = Module(params=("weight",) if weighted else ())
    titles = [pre.title, core.title, "weight" * weighted, post.title]
    if weighted:
        *c, last = core.c
        inner = last.removeprefix("@ to[c] = POST(").removesuffix(");")
        core = replace(
            core,
            torch=(*core.torch, "v = v * self.weight"),
            fast=(*core.fast, "v = v.mul_(self.weight)"),
            c=(*c, f"@ to[c] = POST(({inner}) * weight[c]);"),
            triton=(*core.triton, "v = v * tl.load(weight + c, mask, other=0.0)"),
        )
    if level == 3:
        core, post, titles = _average_rows(core, post), Chain(), [*titles, "mean of squares"]
    return row_programs.write_task(
        draw,
        title=f"Rows: {', '.join(filter(None, titles))}",
        level=level,
        module=module,
        pre=pre,
        core=core,
        post=post,
    )


def _average_rows(core: Core, post: Chain) -> Core:
    """Answer with the mean of the squares of a row, after `post`."""
    *c, last = core.c
    inner = last.removeprefix("@ to[c] = POST(").removesuffix(");")
    loop = texts.block("@", f"float v = {inner};", *post.c, "s += v * v;")
    # The elements are read again where a row of answers would have kept them.
    reading = [
        line.replace(" to[c] = v;", "").replace("to[c]", "PRE")
        for line in [*c, "float s = 0.0f;", *loop]
    ]
    mean = "v = tl.sum(tl.where(mask, v * v, 0.0), axis=0) / cols"
    return replace(
        core,
        torch=(*core.torch, *post.torch("v"), "v = (v * v).mean(dim=1)"),
        fast=(*core.fast, *post.inplace("v"), "v = v.square_().mean(dim=1)"),
        c=(*reading, "$sum s", "$one out[r] = s / cols;"),
        triton=(*core.triton, *post.triton, mean),
        scalar=True,
    )
