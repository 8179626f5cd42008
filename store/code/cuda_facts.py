"""Facts that tree-sitter finds in C++ and CUDA text: functions, launches, streams, techniques."""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tree_sitter

MAX_BYTES = 1_000_000
"""Longer text is not parsed: no kernel is that long, and a hostile one could take minutes."""

# A prose sentence or a page of Python also yields a tree, but one that is mostly errors.
_MOST_ERROR_SHARE = 0.5

_QUERY = """
(ERROR) @error
(function_definition) @function
(function_definition "__global__") @global
(function_declarator declarator: (identifier) @defined)
(call_expression function: (identifier) @call)
(call_expression function: (qualified_identifier name: (identifier) @call))
(call_expression function: (template_function name: (identifier) @call))
(call_expression (kernel_call_syntax)) @launch
(type_identifier) @type
(namespace_identifier) @namespace
("__shared__") @shared
(launch_bounds) @launch_bounds
(preproc_call argument: (preproc_arg) @directive)
(preproc_include path: (_) @include)
(gnu_asm_expression (string_literal (string_content) @asm))
(function_definition "__global__" declarator: (function_declarator
  declarator: (identifier) @kernel))
(function_definition ["__global__" "__device__"] @device)
((field_expression argument: (identifier) @_place field: (field_identifier) @_axis) @plane
  (#match? @_place "^(thread|block)(Idx|Dim)$") (#match? @_axis "^[yz]$"))
((identifier) @grid_size (#eq? @grid_size "gridDim"))
((field_identifier) @processors (#eq? @processors "multiProcessorCount"))
((init_declarator declarator: (identifier) @_size value: (call_expression function: [
  (identifier) @_choice (qualified_identifier name: (identifier) @_choice)])) @chosen_size
  (#match? @_size "block|thread") (#match? @_choice "^(min|max)$"))
(declaration . type: (_) declarator: [(array_declarator)
  (init_declarator declarator: (array_declarator))]) @array
"""

_VECTOR_TYPES = frozenset(
    f"{base}{width}"
    for base in ("char", "uchar", "short", "ushort", "int", "uint", "float", "double", "longlong")
    for width in (2, 4)
) | {"half2", "__half2", "__nv_bfloat162", "nv_bfloat162"}
_SMALL_TYPES = frozenset(
    ("half", "__half", "half2", "__half2", "__nv_bfloat16", "nv_bfloat16", "__nv_bfloat162")
)

_OPERATIONS = re.compile(
    r"(?:^|_)(?:conv|linear|matmul|gemm|norm|bn|[a-z]{0,5}pool|[a-z]{0,5}relu|gelu|tanh|sigmoid|softmax|"
    r"silu|swish|mish|scale|clamp|residual|dropout|hard(?:tanh|swish)|logsumexp)(?=\d|_|$)"
)
"""Operations of tasks in the name of a kernel, which is fused when it has two."""

_CUDA_HEADERS = ("cuda", "cublas", "cudnn", "cufft", "curand", "cusparse", "cusolver", "cutlass")
"""Parts of the names of headers that only a program for a GPU includes."""


@dataclass(frozen=True, kw_only=True)
class CudaFacts:
    """Facts of one C++ or CUDA text."""

    functions: int = 0
    """Functions with a body."""
    global_functions: int = 0
    """Functions with a body that are `__global__`."""
    launches: int = 0
    """Launches written as <<<...>>>."""
    includes_cuda: bool = False
    """Whether it includes headers of CUDA or of its libraries, so that it needs a GPU."""
    uses_streams: bool = False
    techniques: frozenset[str] = field(default_factory=frozenset[str])


@cache
def _load_parser(query: str) -> tuple[tree_sitter.Parser, tree_sitter.Query]:
    import tree_sitter
    import tree_sitter_cuda

    language = tree_sitter.Language(tree_sitter_cuda.language())
    return tree_sitter.Parser(language), tree_sitter.Query(language, query)


def capture_nodes(data: bytes, query: str) -> dict[str, list[tree_sitter.Node]]:
    """Return the nodes that a query captures in C++ text; none if most of the text is errors."""
    import tree_sitter

    parser, compiled = _load_parser(query)
    found = tree_sitter.QueryCursor(compiled).captures(parser.parse(data).root_node)
    # Error nodes nest: count the bytes under them once.
    total, reached = 0, 0
    for start, end in sorted((node.start_byte, node.end_byte) for node in found.get("error", [])):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return {} if total > _MOST_ERROR_SHARE * len(data.strip()) else found


def read_cuda(text: str) -> CudaFacts:
    """Return the facts of C++ text; text that is not C++, or too long, has none.

    >>> read_cuda("__global__ void k(float* x) { x[0] = 1; }").global_functions
    1
    >>> read_cuda("Calls a __global__ function called kernel(x) { fast }.").global_functions
    0
    """
    data = text.encode(errors="replace")
    if len(data) > MAX_BYTES or b"{" not in data:
        return CudaFacts()
    found = capture_nodes(data, _QUERY)
    functions = [node for node in found.get("function", []) if not _is_in_sentence(node)]
    if not functions:
        return CudaFacts()

    def names(capture: str) -> set[str]:
        return {(node.text or b"").decode(errors="replace") for node in found.get(capture, [])}

    calls, types, assembly = names("call"), names("type"), names("asm")

    def calls_any(*prefixes: str) -> bool:
        return any(name.startswith(prefixes) for name in calls)

    streams = calls_any("cudaStream") or bool(
        calls & {"getStreamFromPool", "setCurrentCUDAStream"}
        or types & {"CUDAStreamGuard", "CUDAMultiStreamGuard"}
    )
    bodies = sorted(
        (body.start_byte, body.end_byte)
        for function in found.get("device", [])
        if function.parent and (body := function.parent.child_by_field_name("body"))
    )
    # The vocabulary is `store.code.completion`.
    seen = {
        "coalesced_access": bool(types & _VECTOR_TYPES)
        or calls_any("__ldg", "__ldcs", "__ldcg", "make_float4", "make_float2"),
        "fusion": any("fuse" in name.lower() for name in names("defined"))
        or any(len(_OPERATIONS.findall(name.lower())) > 1 for name in names("kernel")),
        "block_configuration": any(
            capture in found
            for capture in ("launch_bounds", "plane", "grid_size", "processors", "chosen_size")
        )
        or calls_any("cudaOccupancy"),
        "warp_reduction": calls_any("__shfl", "__reduce_")
        or bool(types & {"WarpReduce", "WarpScan"}),
        "shared_memory": "shared" in found,
        "register_use": any(
            (place := bisect.bisect(bodies, (array.start_byte, len(data)))) > 0
            and array.end_byte <= bodies[place - 1][1]
            for array in found.get("array", [])
        ),
        "unrolling": any(text.split()[:1] == ["unroll"] for text in names("directive")),
        "async_execution": streams
        or calls_any("__pipeline_", "memcpy_async", "cudaMemcpyAsync")
        or any("cp.async" in text for text in assembly),
        "tensor_cores": "wmma" in names("namespace")
        or any("mma.sync" in text or "wgmma" in text for text in assembly),
        "reduced_precision": bool(types & _SMALL_TYPES),
        "cuda_graphs": calls_any("cudaGraph")
        or bool(calls & {"cudaStreamBeginCapture", "cudaStreamEndCapture"}),
    }
    return CudaFacts(
        functions=len(functions),
        global_functions=sum(not _is_in_sentence(node) for node in found.get("global", [])),
        launches=len(found.get("launch", [])),
        includes_cuda=any(name in path for path in names("include") for name in _CUDA_HEADERS),
        uses_streams=streams,
        techniques=frozenset(name for name, is_there in seen.items() if is_there),
    )


def _is_in_sentence(function: tree_sitter.Node) -> bool:
    """Return whether words that are not C++ share the function's first or last line."""
    before, after = function.prev_sibling, function.next_sibling
    return (
        before is not None and before.is_error and before.end_point.row == function.start_point.row
    ) or (after is not None and after.is_error and after.start_point.row == function.end_point.row)
