"""Completions as models really write them: what is read out of each, and that nothing breaks it."""

from __future__ import annotations

import inspect
import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from example_counts import count_examples
from hypothesis import given, settings
from hypothesis import strategies as st

from store.code import completion, cuda_facts, python_facts
from store.code.completion import parse_completion

KERNEL = """import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.square()
"""
OTHER = KERNEL.replace("square", "exp")
FENCED = f"```python\n{KERNEL}```"
NATIVE = "```cuda\n__global__ void square(float* x) { x[threadIdx.x] *= 2; }\n```"


def answer(code: str = FENCED, analysis: str = "Fastest: Kernel 2\nIt is fused.") -> str:
    return (
        f"### Performance Analysis\n{analysis}\n\n"
        f"### Algorithm Design\nKeep rows in shared memory.\n\n"
        f"### Code Implementation\n{code}\n"
    )


def test_the_asked_form_is_read_into_its_parts() -> None:
    found = parse_completion(answer())
    assert found.code == KERNEL
    assert (found.path, found.entry_point, found.other_files) == ("kernel.py", "ModelNew", ())
    assert found.analysis == "Fastest: Kernel 2\nIt is fused."
    assert found.design == "Keep rows in shared memory."
    assert found.fastest == 2
    assert found.techniques == ("fusion", "shared_memory")
    assert found.parse_error is None


@pytest.mark.parametrize(
    "heading",
    [
        "### Performance Analysis",
        "# PERFORMANCE ANALYSIS #",
        "## 1. Performance Analysis:",
        "**Performance Analysis**",
        "**1. Performance Analysis:**",
        "1. **Performance Analysis**:",
        "1) Performance Analysis",
        "(a) Performance Analysis",
        "### Step 1: Performance Analysis",
        "Performance Analysis",
        "Performance analysis:",
        "### *Performance Analysis*",
        "> ### Performance Analysis",
        "### Analysis",
        "**Analysis:**",
        "### Performance Analysis of the kernels",
    ],
)
def test_headings_are_known_in_many_spellings(heading: str) -> None:
    found = parse_completion(
        f"{heading}\nMemory bound.\n\n## Design\nTile it.\n\n## Code\n{FENCED}"
    )
    assert found.analysis is not None
    assert found.analysis.endswith("Memory bound.")
    assert (found.design, found.code) == ("Tile it.", KERNEL)


def test_a_heading_may_have_its_text_behind_it() -> None:
    found = parse_completion(
        f"**Performance Analysis:** Fastest: Kernel 3.\n\n**Design:** Tile.\n\n{FENCED}"
    )
    assert (found.analysis, found.design) == ("Fastest: Kernel 3.", "Tile.")
    assert found.fastest == 3


@pytest.mark.parametrize(
    "line",
    ["Design choices matter here.", "The code is below.", "Code that runs: none", "analysis"],
)
def test_prose_that_begins_like_a_heading_is_none(line: str) -> None:
    found = parse_completion(f"### Performance Analysis\nOne.\n{line}\n\n{FENCED}")
    assert found.analysis == f"One.\n{line}"


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ("Fastest: Kernel 2", 2),
        ("**Fastest:** Kernel 2.", 2),
        ("Fastest: **Kernel 2** (2.80x)", 2),
        ("Fastest: `Kernel 12`", 12),
        ("The fastest kernel is Kernel 1 because", 1),
        ("fastest = #3", 3),
        ("Fastest: Kernel K", None),
        ("None is named.", None),
    ],
)
def test_the_exemplar_called_fastest(words: str, place: int | None) -> None:
    assert parse_completion(answer(analysis=words)).fastest == place


MESSY: dict[str, str] = {
    "prose around it": f"Sure! Here is the file:\n\n{FENCED}\n\nThis is about 2x faster.",
    "a fence at the end of a sentence": f"Here it is: ```python\n{KERNEL}```\nEnjoy.",
    "tildes": FENCED.replace("```", "~~~"),
    "four backticks": FENCED.replace("```", "````"),
    "py": FENCED.replace("python", "py"),
    "attributes": FENCED.replace("python", 'python title="kernel.py"'),
    "no language": FENCED.replace("python", ""),
    "indented in a list": "- here:\n\n" + "\n".join("  " + row for row in FENCED.split("\n")),
    "quoted": "\n".join("> " + row for row in FENCED.split("\n")),
    "a fence further in than its code": f"- here:\n\n  ```python\n{KERNEL}  ```",
    "CRLF": FENCED.replace("\n", "\r\n"),
    "CR": FENCED.replace("\n", "\r"),
    "never closed": FENCED.removesuffix("```"),
    "never closed, prose behind it": FENCED.removesuffix("```") + "\nThis kernel is fast.",
    "closed on the last line of code": f"```python\n{KERNEL.rstrip()}```",
    "no fence": KERNEL,
    "no fence, prose around it": f"Here is the kernel.\n\n{KERNEL}\nIt squares x, so it is fast.",
    "only a closing fence": f"{KERNEL}```\nThat is all.",
    "the CUDA source in its own block": f"{NATIVE}\n\nand in Python:\n\n{FENCED}",
    "a usage example behind it": f"{FENCED}\n\nUse it:\n```python\nmodel = ModelNew()\n"
    + 60 * "#\n"
    + "```",
    "a shell block before it": f"```bash\npip install torch\n```\n{FENCED}",
    "a draft before it": f"```python\n{OTHER}```\nBetter:\n{FENCED}",
    "a fragment behind it": f"{FENCED}\nThe point is\n```python\nclass ModelNew:\n    ...\n```",
    "reasoning": f"<think>First\n```python\n{OTHER}```\nno.</think>\n{FENCED}",
    "reasoning without its opening": f"So:\n```python\n{OTHER}```\n</think>{FENCED}",
    "another tag of reasoning": f"<thinking>\n{OTHER}</thinking>\n{FENCED}",
    "harmony channels": "<|channel|>analysis<|message|>```python\n"
    f"{OTHER}```<|end|><|start|>assistant<|channel|>final<|message|>{FENCED}<|return|>",
    "an end token": f"{FENCED}<|im_end|>",
    "end tokens": f"{FENCED}\n</s><|endoftext|>\n",
    "JSON": json.dumps({"analysis": "x", "code": KERNEL}),
    "JSON in a block": "```json\n" + json.dumps({"files": [{"content": KERNEL}]}) + "\n```",
    "JSON around a fence": json.dumps({"answer": f"Here:\n{FENCED}"}),
    "JSON with raw newlines": '{"code": "' + KERNEL + '"}',
    "a tool call": "I will write the file.\n<tool_call>\n"
    + json.dumps({"name": "write", "arguments": {"path": "k.py", "content": KERNEL}})
    + "\n</tool_call>",
    "a tool call with arguments as text": "<tool_call>"
    + json.dumps({"function": {"name": "w", "arguments": json.dumps({"text": KERNEL})}})
    + "</tool_call>",
    "Mistral's tool calls": "[TOOL_CALLS]"
    + json.dumps([{"name": "w", "arguments": {"c": KERNEL}}]),
    "a tag": f"<answer>\n{KERNEL}</answer>",
    "a parameter": f'<invoke name="w"><parameter name="content">{KERNEL}</parameter></invoke>',
    "a tag around a fence": f"<answer>\n{FENCED}\n</answer>",
    "blank lines": f"```python\n\n\n{KERNEL}\n\n\n```",
}


@pytest.mark.parametrize("text", MESSY.values(), ids=MESSY.keys())
def test_code_is_found_in_messy_answers(text: str) -> None:
    found = parse_completion(text)
    assert found.code == KERNEL
    assert found.parse_error is None


def test_backticks_in_a_docstring_do_not_end_the_code() -> None:
    code = KERNEL.replace("    def", '    """Use:\n```\nModelNew()\n```\n    """\n\n    def')
    assert parse_completion(f"```python\n{code}```\nDone.").code == code


def test_several_named_files_make_one_kernel() -> None:
    found = parse_completion(
        f"File `model.py`:\n\n{FENCED}\n\nFile `src/square.cu`:\n\n{NATIVE}\n\n"
        "File `../escape.cu`:\n\n```cuda\nint x;\n```\n"
    )
    assert (found.path, found.code) == ("model.py", KERNEL)
    assert found.other_files == (("src/square.cu", NATIVE.split("\n")[1] + "\n"),)


def test_a_single_named_file_is_the_same_kernel_as_an_unnamed_one() -> None:
    assert parse_completion(f"File `anything.py`:\n\n{FENCED}").path == "kernel.py"


def test_code_that_is_no_python_is_code_for_the_judge() -> None:
    broken = KERNEL.replace("(self, x):", "(self, x:")
    found = parse_completion(f"```python\n{broken}```")
    assert (found.code, found.parse_error) == (broken, None)


def test_without_the_entry_point_the_longest_python_block_is_taken() -> None:
    found = parse_completion(
        "```python\nx = 1\n```\n```python\nimport torch\n\n\nclass Model: ...\n```"
    )
    assert found.code == "import torch\n\n\nclass Model: ...\n"


@pytest.mark.parametrize(
    ("text", "finish_reason", "why"),
    [
        ("", "stop", "empty"),
        (" \n\n", "stop", "empty"),
        ("<|im_end|>", "stop", "empty"),
        ("", "length", "truncated"),
        ("I cannot help with that.", "stop", "no code"),
        ("```\nA table of numbers\n```", "stop", "no code"),
        ("<think>still at it", "stop", "only reasoning"),
        ("<think>still at it", "length", "truncated"),
        ("### Performance Analysis\nThe kernel", "length", "truncated"),
        (FENCED[: FENCED.index("return")], "length", "truncated"),
        ("```python\nimport torch\n", "length", "truncated"),
        (KERNEL[: KERNEL.index("(self")], "length", "truncated"),
        (f"```python\n{KERNEL}{'#' * completion.LONGEST_CODE}\n```", "stop", "too long"),
    ],
)  # fmt: skip
def test_why_there_is_no_code(text: str, finish_reason: str, why: str) -> None:
    found = parse_completion(text, finish_reason)
    assert (found.code, found.parse_error) == (None, why)


def test_code_that_was_whole_when_sampling_ended_counts() -> None:
    assert parse_completion(FENCED.removesuffix("```"), "length").code == KERNEL
    assert parse_completion(FENCED + "\nIt is fast bec", "length").code == KERNEL


def test_an_analysis_without_code_is_kept() -> None:
    found = parse_completion(
        "### Performance Analysis\nFastest: Kernel 1\n\n### Code\n```python\nimport", "length"
    )
    assert (found.analysis, found.fastest, found.parse_error) == (
        "Fastest: Kernel 1", 1, "truncated",
    )  # fmt: skip


def test_nul_and_lone_surrogates_are_replaced() -> None:
    found = parse_completion(answer().replace("fused", "fu\0sed\ud800"))
    assert found.analysis == "Fastest: Kernel 2\nIt is fu\ufffdsed?."
    wrapped = parse_completion('{"code": "' + KERNEL.replace("\n", "\\n") + '# \\ud800\\u0000"}')
    assert wrapped.code == KERNEL + "# ?\ufffd\n"


def test_techniques_are_in_the_vocabulary_of_the_features() -> None:
    parsed = parse_completion(
        "### Performance Analysis\nFuse it, use shared memory and CUDA graphs.\n"
    )
    assert parsed.techniques == ("cuda_graphs", "fusion", "shared_memory")
    assert set(parsed.techniques) <= set(completion.TECHNIQUES)
    for parser in (cuda_facts, python_facts):
        named = _named_techniques(inspect.getsource(parser))
        assert named
        assert named <= set(completion.TECHNIQUES)


def _named_techniques(source: str) -> set[str]:
    """Return the techniques that a parser adds, by its source text."""
    keys = re.findall(r'^        "(\w+)": ', source, re.MULTILINE)
    added = re.findall(r'techniques\.add\("(\w+)"\)', source)
    flagged = re.findall(r'\(facts\.\w+, "(\w+)"\)', source)
    return {*keys, *added, *flagged}


PIECES = [
    "```", "```python\n", "~~~", "\n", "\r\n", "`", KERNEL, "class ModelNew", "import torch\n",
    "### Performance Analysis\n", "**Code:**", "Fastest: Kernel ", "2", "<think>", "</think>", "{",
    '{"code": "', '"}', "[", "<tool_call>", "<code>", "</", "\0", "\ud800", "'''", '"""', "(", "\\",
    "<|im_end|>", "File `a.py`:\n", "-", " ", "\t", "> ", "\u2028", "é",
]  # fmt: skip


@settings(max_examples=count_examples(150), deadline=None)
@given(
    st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=30).map("".join)), st.booleans()
)
def test_no_text_breaks_it(text: str, cut_off: bool) -> None:
    found = parse_completion(text, "length" if cut_off else "stop")
    assert (found.code is None) == (found.parse_error is not None)
    for part in (found.code, found.analysis, found.design):
        assert part is None or part.encode().decode() == part
        assert part is None or "\0" not in part
    assert found.code is None or (found.code.strip() and found.code.endswith("\n"))


REPEATS = [
    "`", "```\n", "```python\n", "~~~\n```\n", "```python\nclass ModelNew:\n", "class ModelNew:\n",
    "import torch\n", "class ModelNew: pass\n(\n", "### Code\n", "# " , "*", "1.", "fastest ",
    "fastest is ", "<think>", "</think>", "<code>", "<code>class ModelNew: pass\n", "{", '{"a":',
    "[", "[TOOL_CALLS]{", '<tool_call>{"code": "class ModelNew"}', "</s>", "File `a.py`:\n```\n",
    "\n", " ", "\r", "'''", '"', "(", "-", "> ", "warp ",
]  # fmt: skip


def steps_of(call: Callable[[], Any]) -> Counter[str]:
    """Count the lines of our own module that a call runs, by function."""
    import sys

    counted: Counter[str] = Counter()

    def trace(frame: Any, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != completion.__file__:
            return None
        if event == "line":
            counted[frame.f_code.co_name] += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return counted


@pytest.mark.repeats(run=8)
@pytest.mark.parametrize("piece", REPEATS, ids=repr)
def test_the_work_grows_no_faster_than_the_text(piece: str) -> None:
    once = steps_of(lambda: parse_completion(piece * 300))
    thrice = steps_of(lambda: parse_completion(piece * 900))
    assert thrice.total() <= 3.2 * once.total() + 200


@pytest.mark.parametrize(
    ("piece", "times"),
    [("`", 1_000_000), ("```\n", 50_000), ("{", 300_000), ("<code>", 50_000), ("\ud800", 300_000)],
)
def test_long_repeats_end(piece: str, times: int) -> None:
    assert parse_completion(piece * times).code is None
