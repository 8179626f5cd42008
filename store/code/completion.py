r"""Parse completions: the analysis, the design, the code, and the exemplar called fastest.

    text ─▶ answer (no reasoning, no end tokens) ─▶ fenced blocks, headings ─▶ sections
                                                 └▶ candidates for the code ─▶ the best one

Models do not follow one form: an answer may have several blocks, none, one that is never closed, or
code inside JSON or a tool call. Nothing is executed: Python's parser decides whether a block
defines the entry point. Every step reads the text a fixed number of times, whatever its content.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

from store.code.entry_points import DEFAULT as ENTRY_POINT
from store.code.entry_points import choose_stored, list_bound
from store.code.languages import PYTHON_FENCES
from store.code.python_syntax import parse_python
from store.ids import clean_text as clean_text
from store.ids import normalize

ENTRY_PATH = "kernel.py"
"""Path of every kernel of one file, so that equal kernels with other file names are equal."""
LONGEST_CODE = 400_000
"""Maximum length of a kernel in characters; longer text is refused unread."""
_TRIES = 6
"""Maximum number of texts to parse as Python, and of places to try as the start of JSON."""

_FASTEST = re.compile(
    r"fastest(?:[ \t]+(?:kernel|variant|one))?[ \t*_`]{0,8}(?:is|was|:|=)[ \t*_`]{0,8}"
    r"(?:(?:kernel|variant)[ \t*_`]{0,4})?#?(\d{1,4})\b",
    re.IGNORECASE,
)
_DEFINES = re.compile(rf"^(?:class|def)[ \t]+{ENTRY_POINT}\b|^{ENTRY_POINT}[ \t]*=", re.MULTILINE)
_OPENING = re.compile(r"\s*<(think|thinking|thought|reasoning|reflection|scratchpad)>")
_CLOSING = re.compile(r"</(?:think|thinking|thought|reasoning|reflection|scratchpad)>")
_CHANNEL = "<|channel|>final<|message|>"
_ENDS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|return|>", "<|end|>", "</s>", "<eos>")
_TAGGED = re.compile(
    r"<(?:code|python|answer|solution|content|kernel|file|parameter(?:[ =][^<>\n]{0,80})?)>"
)
_CALLS = re.compile(r"<\|?tool_calls?\|?>|<function_call>|<\|python_tag\|>|\[TOOL_CALLS\]")
_LONGEST_HEADING = 200
"""Characters of a line that are searched for a heading or a file name."""
_FILE = re.compile(
    r"[ \t*#]*(?:file(?:name)?[ \t]*:?[ \t]*)`?([\w./-]{1,100})`?[ \t*]*:?[ \t*]*", re.I
)
_STARTS = re.compile(r"(?:import |from [\w.]+ import |class |def |@|\"\"\"|#!)")


_SECTIONS = {
    name: kind
    for kind, names in {
        "analysis": "performance analysis|analysis|analysis of performance|performance",
        "design": "algorithm design|algorithmic design|algorithm|design|optimization strategy"
        "|optimisation strategy|strategy|plan",
        "code": "code implementation|implementation|code|final code|final implementation"
        "|complete code|solution|answer",
    }.items()
    for name in names.split("|")
}
_NAME = "|".join(sorted(map(re.escape, _SECTIONS), key=len, reverse=True))
# Matches one line; only its first 200 characters are examined.
_HEADING = re.compile(
    rf"[ \t>]*(?P<marks>#{{1,6}}[ \t]*)?(?P<bold>[*_]{{1,3}})?[ \t]*"
    rf"(?P<number>(?:part|step|section|block)?[ \t]*[(\[]?[0-9a-c]{{1,2}}[.):\]][ \t]*)?"
    rf"(?P<inner>[*_]{{1,3}})?(?P<name>{_NAME})"
    rf"(?P<after>[ \t]*[*_]{{0,3}}[ \t]*(?P<colon>[:.\u2014-])?[ \t]*[*_]{{0,3}}[ \t]*#*)"
    rf"(?P<rest>.*)",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class _Block:
    start: int
    """Line of its fence."""
    end: int
    """The line after the block, including its closing fence."""
    language: str
    text: str
    closed: bool
    name: str | None = None
    """File name that the line before the fence gives."""


@dataclass(frozen=True, kw_only=True)
class ParsedCompletion:
    """The parts of one completion."""

    analysis: str | None = None
    design: str | None = None
    code: str | None = None
    """Text of the file with the entry point, or None."""
    path: str = ENTRY_PATH
    entry_point: str = ENTRY_POINT
    other_files: tuple[tuple[str, str], ...] = ()
    """Further files that the answer names: (path, text)."""
    fastest: int | None = None
    """Number, from 1, of the exemplar that the analysis calls the fastest."""
    techniques: tuple[str, ...] = ()
    """Techniques that the analysis and the design name, by their names in store.code.completion."""
    parse_error: str | None = None
    """Why there is no code: empty, truncated, only reasoning, no code, too long."""


def is_text(value: object) -> bool:
    r"""Return whether a value is text that can be stored as it is.

    >>> is_text("a\nb"), is_text("a\x00b"), is_text(b"a")
    (True, False, False)
    """
    return isinstance(value, str) and value == clean_text(value)


def parse_completion(text: str, finish_reason: str = "stop") -> ParsedCompletion:
    r"""Return the parts of a completion; never raises for any text.

    The code is the last complete block that defines ModelNew. If no block does, the parser tries
    JSON, tagged text and unfenced text, and then takes the longest Python block. Truncated code
    (finish_reason length) counts only if it is Python and defines ModelNew. Other code that is not
    Python is kept, and the judge reports what is wrong with it.

    >>> parse_completion("### Code\n```python\nclass ModelNew: pass\n```").code
    'class ModelNew: pass\n'
    >>> parse_completion("I cannot help with that.").parse_error
    'no code'
    """
    whole = clean_text(text).replace("\r\n", "\n").replace("\r", "\n")
    answer = _strip_reasoning(whole)
    if not answer:
        why = "only reasoning" if answer is None else "empty"
        return ParsedCompletion(parse_error="truncated" if finish_reason == "length" else why)
    lines = answer.split("\n")
    blocks = _find_blocks(lines)
    sections, code_line = _read_sections(lines, blocks)
    analysis, design = sections.get("analysis"), sections.get("design")
    prose = _read_outside(lines, blocks)
    named = _FASTEST.search(analysis or prose)
    words = f"{analysis or ''}\n{design or ''}"
    parts: dict[str, Any] = {
        "analysis": analysis,
        "design": design,
        "fastest": int(named[1]) if named else None,
        "techniques": tuple(name for name, one in TECHNIQUES.items() if one.search(words)),
    }
    found = _find_code(answer, lines, blocks, code_line, finish_reason)
    if isinstance(found, str):
        return ParsedCompletion(**parts, parse_error=found)
    code, chosen = found
    if len(code) > LONGEST_CODE:
        return ParsedCompletion(**parts, parse_error="too long")
    # Other blocks are files of the kernel only if its own block has a file name too.
    files = {
        block.name: _normalize_code(block.text)
        for block in blocks
        if chosen is not None and chosen.name is not None and block.name is not None
        if block.name != chosen.name and block.closed and block.text.strip()
    }
    code = _normalize_code(code)
    return ParsedCompletion(
        **parts,
        code=code,
        path=chosen.name or ENTRY_PATH if chosen is not None and files else ENTRY_PATH,
        entry_point=choose_stored(code),
        other_files=tuple(sorted(files.items())),
    )


def _strip_reasoning(text: str) -> str | None:
    """Return the text after the reasoning, without end tokens; None if the reasoning never ends."""
    final = text.rfind(_CHANNEL)
    if final >= 0:
        text = text[final + len(_CHANNEL) :]
    opening = _OPENING.match(text)
    closing = _CLOSING.search(text, opening.end() if opening else 0)
    if closing is not None:
        text = text[closing.end() :]
    elif opening is not None:
        return None
    end = len(text.rstrip())
    while ending := next((one for one in _ENDS if text.endswith(one, 0, end)), None):
        end -= len(ending)
    # Trim only the end, because fences depend on where lines begin.
    while end and text[end - 1].isspace():
        end -= 1
    return text[:end]


def _find_blocks(lines: Sequence[str]) -> list[_Block]:
    """Return the fenced blocks in order; the last one may lack a closing fence."""
    found: list[_Block] = []
    start, fence = 0, None
    for number, line in enumerate(lines):
        if fence is None:
            start, fence = number, _read_fence(line)
        elif _closes_fence(line, *fence[:2]):
            found.append(_read_block(lines, start, number, *fence[2:], closed=True))
            fence = None
    if fence is not None:
        found.append(_read_block(lines, start, len(lines), *fence[2:], closed=False))
    return found


def _read_fence(line: str) -> tuple[str, int, str, str] | None:
    """Return an opening fence's mark and length, the text before it, and its language."""
    body = line.lstrip(" \t>")
    prefix = line[: len(line) - len(body)]
    mark = body[:1]
    if mark not in ("`", "~") or not body.startswith(mark * 3):
        # "Here it is: ```python"
        at = line.find("```")
        if at < 0:
            return None
        body, prefix, mark = line[at:], "", "`"
        language = body.lstrip("`").strip().lower()
        if language not in PYTHON_FENCES:
            return None
    length = len(body) - len(body.lstrip(mark))
    info = body[length:].strip()
    if mark == "`" and "`" in info:
        return None  # a code span
    word = info.split(maxsplit=1)[0] if info else ""
    return mark, length, prefix, word.strip("{}.").partition(":")[0].lower()


def _closes_fence(line: str, mark: str, length: int) -> bool:
    body = line.strip(" \t>")
    return len(body) >= length and not body.strip(mark)


def _read_block(
    lines: Sequence[str], start: int, end: int, prefix: str, language: str, *, closed: bool
) -> _Block:
    body = lines[start + 1 : end]
    if prefix and all(line.startswith(prefix) for line in body if line.strip(" \t>")):
        body = [line[len(prefix) :] for line in body]
    before = next((line for line in reversed(lines[max(start - 2, 0) : start]) if line.strip()), "")
    named = _FILE.fullmatch(before[:_LONGEST_HEADING])
    parts = named[1].split("/") if named else [""]
    # A path must stay inside the kernel's own folder.
    is_safe = "." in parts[-1] and all(part.strip(".") for part in parts)
    return _Block(
        start=start,
        end=min(end + 1, len(lines)),
        language=language,
        text="\n".join(body),
        closed=closed,
        name="/".join(parts) if is_safe else None,
    )


def _read_outside(lines: Sequence[str], blocks: Sequence[_Block]) -> str:
    kept: list[str] = []
    place = 0
    for block in blocks:
        kept += lines[place : block.start]
        place = block.end
    return "\n".join([*kept, *lines[place:]])


def _is_python(block: _Block) -> bool:
    if block.language in PYTHON_FENCES:
        return True
    return not block.language and any(map(_STARTS.match, block.text.split("\n")))


def _read_sections(lines: Sequence[str], blocks: Sequence[_Block]) -> tuple[dict[str, str], int]:
    """Return the first text of each section, and the line of the code's heading (-1: none)."""
    headings: list[tuple[int, str, str]] = []
    inside = {number for block in blocks for number in range(block.start, block.end)}
    for number, line in enumerate(lines):
        if number not in inside and (found := _read_heading(line)):
            headings.append((number, *found))
    sections: dict[str, str] = {}
    code_line = -1
    for place, (number, kind, rest) in enumerate(headings):
        if kind == "code":
            code_line = number
            continue
        until = headings[place + 1][0] if place + 1 < len(headings) else len(lines)
        if place + 1 == len(headings):
            # Without a heading of its own the code ends the section.
            until = next((b.start for b in blocks if b.start > number and _is_python(b)), until)
        text = "\n".join([rest, *lines[number + 1 : until]]).strip()
        if text:
            sections.setdefault(kind, text)
    return sections, code_line


def _read_heading(line: str) -> tuple[str, str] | None:
    found = _HEADING.match(line[:_LONGEST_HEADING])
    if found is None:
        return None
    rest = line[found.end("after") :].strip()
    marked = bool(found["marks"] or found["bold"] or found["inner"] or found["number"])
    words = " ".join(found["name"].lower().split())
    long = " " in words
    if rest:
        # Prose may begin with the same words: a heading with text after it needs marks or a colon.
        shown = (found["colon"] and (marked or long)) or (found["marks"] and long)
        if not shown or not found["after"]:
            return None
    elif not (marked or found["colon"] or long):
        return None
    return _SECTIONS[words], rest


def _find_code(
    answer: str, lines: Sequence[str], blocks: Sequence[_Block], code_line: int, finish_reason: str
) -> tuple[str, _Block | None] | str:
    """Return the code with its block, or why there is none."""
    cut_off = finish_reason == "length"
    defining = [block for block in blocks if _DEFINES.search(block.text)]
    if defining:
        best = max(
            defining[-_TRIES:],
            key=lambda block: (
                _defines_entry_point(block.text),
                re.search(r"^(?:import|from) ", block.text, re.MULTILINE) is not None,
                block.start > code_line >= 0,
                block.start,
            ),
        )
        text = best.text
        if not _defines_entry_point(text):
            if best.closed:
                # Three backticks in a docstring look like the end of the block.
                later = (n for n in range(best.end, len(lines)) if _closes_fence(lines[n], "`", 3))
                extended = ("\n".join(lines[best.start + 1 : n]) for n in islice(later, _TRIES))
                text = next(filter(_defines_entry_point, extended), text)
            else:
                text = _trim_to_python(text.rstrip().rstrip("`")) or text
                if cut_off and not _defines_entry_point(best.text):
                    return "truncated"
        return text, best
    wrapped = max(_find_wrapped(answer, blocks), key=len, default=None)
    if wrapped is not None:
        return wrapped, None
    bare = _find_bare(answer, lines, blocks)
    if bare is not None and (not cut_off or _defines_entry_point(bare)):
        return bare, None
    if cut_off:
        return "truncated"
    python = [block for block in blocks if _is_python(block) and block.text.strip()]
    if python:
        longest = max(python, key=lambda block: len(block.text))
        return longest.text, longest
    return "no code"


def _defines_entry_point(text: str) -> bool:
    return len(text) <= LONGEST_CODE and ENTRY_POINT in list_bound(parse_python(text))


def _find_wrapped(answer: str, blocks: Sequence[_Block]) -> Iterator[str]:
    """Yield code that defines the entry point out of JSON, tool calls and tags."""
    texts = [block.text for block in blocks if block.language in ("json", "jsonc", "")]
    if answer.lstrip()[:1] in ("{", "["):
        texts.append(answer)
    texts += [answer[at.end() :] for at in islice(_CALLS.finditer(answer), _TRIES)]
    for text in texts[-_TRIES:]:
        yield from _find_in_json(text)
    for at in islice(_TAGGED.finditer(answer), _TRIES):
        end = answer.find("</", at.end())
        inner = answer[at.end() : end if end >= 0 else len(answer)]
        if _DEFINES.search(inner):
            yield _strip_fences(inner.strip("\n"))


def _find_in_json(text: str) -> Iterator[str]:
    """Yield the strings inside the first JSON value of a text that define the entry point."""
    begin = min((at for at in (text.find("{"), text.find("[")) if at >= 0), default=-1)
    if begin < 0 or len(text) > LONGEST_CODE * 2:
        return
    decoder = json.JSONDecoder(strict=False)
    try:
        waiting: list[Any] = [decoder.raw_decode(text, begin)[0]]
    except (ValueError, RecursionError):
        return
    opened = 0
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += cast("dict[str, Any]", value).values()
        elif isinstance(value, list):
            waiting += cast("list[Any]", value)
        elif isinstance(value, str) and _DEFINES.search(value):
            yield _strip_fences(clean_text(value).replace("\r\n", "\n"))
        elif isinstance(value, str) and value.lstrip()[:1] == "{" and opened < _TRIES:
            # The arguments of a tool call are JSON in a string.
            opened += 1
            try:
                waiting.append(decoder.decode(value))
            except (ValueError, RecursionError):
                continue


def _strip_fences(text: str) -> str:
    fenced = [one.text for one in _find_blocks(text.split("\n")) if _DEFINES.search(one.text)]
    return fenced[-1] if fenced else text


def _find_bare(answer: str, lines: Sequence[str], blocks: Sequence[_Block]) -> str | None:
    text = _read_outside(lines, blocks) if blocks else answer
    if not _DEFINES.search(text):
        return None
    rows = text.split("\n")
    starts = [number for number, row in enumerate(rows) if _STARTS.match(row)]
    for start in starts[:_TRIES]:
        found = _trim_to_python("\n".join(rows[start:]))
        if found is not None:
            return found
    return "\n".join(rows[starts[0] :]) if starts else text


def _trim_to_python(text: str) -> str | None:
    """Return the part of a text before it stops being Python, if that defines the entry point."""
    for _ in range(_TRIES):
        if _defines_entry_point(text):
            return text
        if len(text) > LONGEST_CODE:
            return None
        try:
            ast.parse(text)
        except SyntaxError as error:
            line = error.lineno or 0
        except (ValueError, RecursionError, MemoryError):
            return None
        else:
            return None
        rows = text.split("\n")
        if line < 1 or line > len(rows):
            return None
        text = "\n".join(rows[: line - 1])
    return None


def _normalize_code(code: str) -> str:
    """Return code in its stored form: no blank lines around it, one newline at the end."""
    rows = code.rstrip().split("\n")
    first = next((number for number, row in enumerate(rows) if row.strip()), 0)
    return normalize("\n".join(rows[first:]))


_WORDS = {
    # arithmetic on weights ahead of their layer, flipped weights, products by broadcast
    "algebraic_rewrite": r"algebra|mathematically equivalent|\bfold(?:s|ed|ing)?\b",
    # other streams, cp.async or memcpy_async, pipelines, non_blocking=True
    "async_execution": r"async(?:hronous)? cop|cp\.async|memcpy_async|double.buffer",
    # blocks of two dimensions, loops over the grid, sizes by min or max, __launch_bounds__,
    # occupancy queries, triton.autotune, num_warps
    "block_configuration": r"launch.bounds|occupancy|block size|autotun|num_warps",
    # attributes called cache that calls write, lru_cache, lookups by data_ptr()
    "caching": r"\bcach(?:e|es|ed|ing)\b",
    # vector types such as float4, __ldg and its kin
    "coalesced_access": r"coalesc|vectori[sz]ed (?:load|memory|access)|float4|__ldg",
    # CUDA graph capture, from Python or C++
    "cuda_graphs": r"cuda.?graph",
    # torch.backends.cudnn or matmul precision flags are set
    "cudnn_flags": r"cudnn\.benchmark|allow_tf32|float32_matmul_precision",
    # functions named fused, kernels named after two operations, a layer folded into weights,
    # library calls such as scaled_dot_product_attention
    "fusion": r"\bfus(?:e|es|ed|ing|ion)\b",
    # methods such as relu_(), inplace=True, out=
    "in_place": r"\bin.?place\b",
    # channels_last, as_strided, copies of transposed weights
    "memory_layout": r"channels.last|memory layout|memory format",
    # half, bfloat16, TF32, autocast
    "reduced_precision": r"(?:half|mixed).precision|\b(?:fp|bf|float|bfloat)16\b|\btf32\b",
    # arrays that are local to functions of the device
    "register_use": r"\bregisters?\b",
    # __shared__ arrays
    "shared_memory": r"shared.memory|__shared__",
    # returns a constant tensor without reading the input
    "short_circuit": r"short.circuit",
    # wmma, mma.sync, triton.language.dot
    "tensor_cores": r"tensor.core|\bwmma\b|mma\.sync",
    # torch.compile
    "torch_compile": r"torch\.compile",
    # torch.jit script, trace or freeze
    "torch_jit": r"torch\.jit",
    # #pragma unroll, triton static_range
    "unrolling": r"unroll",
    # __shfl_*_sync, __reduce_*_sync, cub warp primitives
    "warp_reduction": r"warp.{0,12}(?:reduc|shuffle|primitive)|__shfl",
}
TECHNIQUES = {name: re.compile(words, re.IGNORECASE) for name, words in _WORDS.items()}
"""The vocabulary, with the words for each in prose: CUDA-L1's table of techniques, algebraic
rewrites, and PyTorch's own means. The comments state the syntax that shows each one in code.

A kernel has a technique when a parser finds its syntax, so a technique that leaves none is missed.
tests/store/test_technique_labels.py says how many: it compares kernels that a reader labelled.
"""
