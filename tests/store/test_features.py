"""Features come from parsers: what is only mentioned does not count, and no text breaks them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from store.code import features
from store.code.completion import TECHNIQUES
from store.code.cuda_facts import read_cuda
from store.code.features import extract, extract_features
from store.schema import catalog

CUDA = r"""
#include <torch/extension.h>
template <typename T>
__global__ void __launch_bounds__(256) scale(const T* __restrict__ x, float4* y, int n) {
    __shared__ float tile[32];
    #pragma unroll
    for (int i = 0; i < 4; i++) tile[i] = __ldg(x + i) + __shfl_down_sync(~0u, 1.f, 1);
}
extern "C" __global__ void second() {}
void run() { scale<float><<<1, 32>>>(a, b, 1); second<<<1, 32>>>(); }
"""
LOADED = f"""
import torch
from torch.utils.cpp_extension import load_inline
source = '''{CUDA}'''
module = load_inline(name="m", cpp_sources="void run();", cuda_sources=source)
"""
TRITON = """
import triton
import triton.language as tl

@triton.autotune(configs=[triton.Config({}, num_warps=4)], key=["n"])
@triton.jit
def add(x, y, n, BLOCK: tl.constexpr):
    tl.store(y, tl.dot(tl.load(x), tl.load(y)))
"""


def extract_one(code: str, other_files: list[dict[str, str]] | None = None) -> SimpleNamespace:
    return SimpleNamespace(**extract(code, other_files)[0])


def test_embedded_cuda_is_counted_by_the_grammar() -> None:
    seen = extract_one(LOADED)
    assert (seen.language, seen.global_functions, seen.has_device_code) == ("cuda", 2, True)
    assert seen.techniques == [
        "block_configuration",
        "coalesced_access",
        "shared_memory",
        "unrolling",
        "warp_reduction",
    ]
    assert read_cuda(CUDA).launches == 2


@pytest.mark.parametrize(
    "code",
    [
        '"""Written with __global__ void k() { } kernels and torch.compile(f)."""\nx = 1\n',
        "# __global__ void k() {}\nx = 1\n",
        "def f():\n    '''__global__ void k() {}'''\n    return 1\n",
        "x = 1\n'''\n__global__ void k() {}\n'''\n",
        "s = 'Please write a __global__ void kernel() { } here, it is fast.'\n",
        "s = '''// __global__ void k() {}\\nint f();'''\n",
        's = \'{"__global__": "void k() {}"}\'\n',
    ],
)
def test_a_mention_is_no_device_code(code: str) -> None:
    seen = extract_one(code)
    assert (seen.parsed, seen.language, seen.global_functions) == (True, "pytorch", 0)
    assert seen.techniques == []


def test_cuda_in_formatted_and_joined_strings_is_found() -> None:
    body = "__global__ void k(float* x) {{ x[0] = {n}; }}"
    assert extract_one(f"n = 4\ns = f'''{body}'''").global_functions == 1
    assert extract_one(f"s = '''{body}'''.format(n=4)").global_functions == 1
    assert extract_one("s = '__global__ void k(int* x) {' + ' x[0] = 1; }'").global_functions == 1
    assert extract_one("s = '__global__ void k(int* x) { x[0] = %d; }' % 4").global_functions == 1


def test_a_prototype_is_no_function() -> None:
    assert read_cuda("__global__ void k(); void f() {}").global_functions == 0


def test_languages() -> None:
    cpp = "import ctypes\nsource = 'extern \"C\" void f(float* x) { x[0] = 1; }'\n"
    assert extract_one("import torch\n").language == "pytorch"
    assert extract_one(TRITON).language == "triton"
    assert extract_one(cpp).language == "cpp"
    cublas = cpp.replace("extern", "#include <cublas_v2.h>\\nextern")
    assert extract_one(cublas).language == "cuda", "it needs a GPU, though none of it runs there"
    assert extract_one(TRITON + LOADED).language == "mixed"
    assert extract_one("def broken(:\n").language == "unknown"
    assert extract_one("x = 1", [{"path": "k.cu", "code": CUDA}]).language == "cuda"
    assert extract_one("x = 1", [{"path": "readme.txt", "code": CUDA}]).language == "pytorch"


def test_triton_kernels_and_their_techniques() -> None:
    seen = extract_one(TRITON)
    assert (seen.triton_kernels, seen.has_device_code) == (1, True)
    assert seen.techniques == ["block_configuration", "tensor_cores"]


@pytest.mark.parametrize(
    ("code", "field"),
    [
        ("import torch as t\nf = t.compile(g)", "uses_torch_compile"),
        ("import torch\n@torch.compile\ndef f(x): return x", "uses_torch_compile"),
        ("from torch import compile as fast\nf = fast(g)", "uses_torch_compile"),
        ("import torch\nf = torch.jit.script(g)", "uses_torch_jit"),
        ("from torch import jit\n@jit.script\ndef f(x): return x", "uses_torch_jit"),
        ("import torch\ng = torch.cuda.CUDAGraph()", "uses_cuda_graphs"),
        ("import torch\nwith torch.cuda.graph(g): pass", "uses_cuda_graphs"),
        ("from torch.cuda import make_graphed_callables as m\nm(f, x)", "uses_cuda_graphs"),
        ("s = 'void f() { cudaGraphLaunch(g, 0); }'", "uses_cuda_graphs"),
        ("import torch\nside = torch.cuda.Stream()", "uses_streams"),
        ("from torch.cuda import stream\nwith stream(s): pass", "uses_streams"),
        ("s = 'void f() { cudaStreamCreate(&s); }'", "uses_streams"),
        ("import torch\ntorch.backends.cudnn.benchmark = True", "sets_cudnn_flags"),
        ("import torch.backends.cudnn as c\nc.benchmark = True", "sets_cudnn_flags"),
        ("import torch\ntorch.backends.cuda.matmul.allow_tf32 = True", "sets_cudnn_flags"),
        ("import torch\ntorch.set_float32_matmul_precision('high')", "sets_cudnn_flags"),
        (
            "import torch\nsetattr(torch.backends.cudnn, 'benchmark', True)",
            "sets_cudnn_flags",
        ),
    ],
)
def test_what_is_used_is_seen_through_aliases(code: str, field: str) -> None:
    seen = extract_one(code)
    assert getattr(seen, field) is True
    flags = ("compile", "jit", "graphs", "cudnn", "streams")
    names = [name for name in vars(seen) if name.endswith(flags) or "cudnn" in name]
    assert [name for name in names if getattr(seen, name)] == [field]


def test_reading_a_flag_or_the_current_stream_is_no_use() -> None:
    code = "import torch\nx = torch.backends.cudnn.benchmark\ns = torch.cuda.current_stream()"
    seen = extract_one(code)
    assert not seen.sets_cudnn_flags
    assert not seen.uses_streams


MODEL = """
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = {kept}

    def forward(self, x):
        {body}
"""


@pytest.mark.parametrize(
    ("kept", "body", "there"),
    [
        ("None", "return torch.zeros(x.shape[0], 1, device=x.device)", True),
        ("torch.ones(8)", "return self.kept", True),
        ("torch.ones(8)", "return self.kept if x.is_cuda else torch.ones(8)", True),
        ("None", "y = torch.zeros_like(x)\n        return y", True),
        ("None", "return torch.relu(x)", False),
        ("torch.zeros(8)", "self.kept.copy_(x)\n        return self.kept", False),
        ("torch.zeros(8)", "torch.add(x, 1, out=self.kept)\n        return self.kept", False),
        (
            "torch.zeros(8)",
            "y = self.kept\n        if y.dtype != x.dtype:\n"
            "            y = torch.zeros(8, dtype=x.dtype)\n        return y",
            True,
        ),
        ("None", "y = torch.empty_like(x)\n        k(x, y)\n        return y", False),
        ("None", "y = torch.empty_like(x)\n        y.zero_()\n        return y", True),
        (
            "None",
            "y = torch.empty_like(x)\n        y.zero_()\n        k(x, y)\n        return y",
            False,
        ),
        ("None", "y = torch.relu(x)\n        y.zero_()\n        return y", False),
        ("None", "y = torch.zeros_like(x)\n        k(x, y)\n        return y", False),
        ("None", "return torch.full((8,), x.sum())", False),
        (
            "None",
            "if x.numel() == 0:\n            return torch.zeros(1)\n        return x * 2",
            False,
        ),
    ],
)
def test_short_circuit_is_a_constant_that_nothing_writes(kept: str, body: str, there: bool) -> None:
    assert ("short_circuit" in extract_one(MODEL.format(kept=kept, body=body)).techniques) is there


def test_short_circuit_through_a_registered_buffer() -> None:
    body = "self.register_buffer('zero', torch.zeros(8))\n        return self.zero.clone()"
    assert "short_circuit" in extract_one(MODEL.format(kept="None", body=body)).techniques


def test_short_circuit_through_a_replaced_call() -> None:
    body = (
        "if self.kept is None:\n"
        "            self.kept = torch.zeros(x.shape)\n"
        "        def fast(self, x):\n"
        "            return self.kept\n"
        "        self.__class__.__call__ = fast\n"
        "        return x"
    )
    assert "short_circuit" in extract_one(MODEL.format(kept="None", body=body)).techniques


@pytest.mark.parametrize(
    ("line", "technique"),
    [
        ("self.cache[x.data_ptr()] = y", "caching"),
        ("self._cached_output = y", "caching"),
        ("same = x.data_ptr() == self.last", "caching"),
        ("x = x.to(memory_format=torch.channels_last)", "memory_layout"),
        ("x = x.half()", "reduced_precision"),
        ("x = x.to(torch.bfloat16)", "reduced_precision"),
        ("x = torch.addcmul(a, b, c)", "fusion"),
        ("weight_t = self.weight.t().contiguous()", "memory_layout"),
        ("self.layout = torch.channels_last", "memory_layout"),
        ("x = x.to(self.device, non_blocking=True)", "async_execution"),
        ("threads_per_block = min(512, n)", "block_configuration"),
        ("x = torch.mm(x.mean(1), self.weight.mean(0))", "algebraic_rewrite"),
        ("self.flipped = self.conv.weight.flip(2, 3)", "algebraic_rewrite"),
        ("x.relu_()", "in_place"),
        ("m = torch.nn.ReLU(inplace=True)", "in_place"),
    ],
)
def test_techniques_in_python(line: str, technique: str) -> None:
    assert extract_one(f"import torch\ndef f(self, x, y):\n    {line}\n").techniques == [technique]


@pytest.mark.parametrize(
    "line",
    [
        "self.register_buffer('weight_scaled', self.weight * 2.0)",
        "self.fused_bias.copy_((bias - mean) * scale)",
        "y = torch.addmm(self.bias * 2.0, x, self.weight)",
        "y = torch.nn.functional.linear(x, self.linear.weight / divisor)",
        "self.conv.weight.div_(divisor)",
        "scale = gamma * torch.rsqrt(bn.running_var + bn.eps)",
        "w = self.conv.weight\n    self.conv.weight = w * factor",
    ],
)
def test_a_layer_folded_into_weights_is_a_rewrite_and_fused(line: str) -> None:
    techniques = set(extract_one(f"import torch\ndef f(self, x):\n    {line}\n").techniques)
    assert techniques - {"in_place"} == {"algebraic_rewrite", "fusion"}


@pytest.mark.parametrize(
    "line",
    [
        "x = x * self.weight + self.bias",
        "y = torch.nn.functional.linear(x + self.bias, self.weight, self.bias)",
        "y = torch.addmm(self.bias, x, self.weight)",
        "attn_weights = attn_weights / scale",
        "weight_size = self.weight_size * 4",
        "std = math.sqrt(bn.running_var)",
        "with torch.autocast('cuda', enabled=False): y = x",
    ],
)
def test_weights_used_as_they_are_are_no_technique(line: str) -> None:
    assert extract_one(f"import math, torch\ndef f(self, x):\n    {line}\n").techniques == []


@pytest.mark.parametrize(
    ("product", "there"),
    [
        ("B * A.unsqueeze(1)", True),
        ("A.view(-1, 1) * B", True),
        ("A[:, None] * B", True),
        ("A * B", False),
        ("A.unsqueeze(1) * self.scale", False),
    ],
)
def test_a_product_of_inputs_by_broadcast_is_a_rewrite(product: str, there: bool) -> None:
    seen = extract_one(f"class M:\n    def forward(self, A, B):\n        return {product}\n")
    assert ("algebraic_rewrite" in seen.techniques) is there


def test_what_the_backward_pass_does_and_the_constructor_names_a_cache_does_not_count() -> None:
    backward = "def backward(ctx, g):\n    g.mul_(2)\n    bias = g.sum(0) * weight\n"
    assert extract_one(backward).techniques == []
    made = "class M:\n    def __init__(self, w):\n        self.cached_weights = [w]\n"
    assert extract_one(made).techniques == []


@pytest.mark.parametrize(
    ("statement", "technique"),
    [
        ("float acc[4];", "register_use"),
        ("float taps[2] = {0};", "register_use"),
        ("int row = blockIdx.y * blockDim.y + threadIdx.y;", "block_configuration"),
        ("for (int i = threadIdx.x; i < n; i += blockDim.x * gridDim.x) x[i] = 0;",
         "block_configuration"),
        ("__shared__ float tile[32];", "shared_memory"),
        ("int i = blockIdx.x * blockDim.x + threadIdx.x; x[i] = 0;", None),
    ],
)  # fmt: skip
def test_techniques_in_cuda(statement: str, technique: str | None) -> None:
    facts = read_cuda(f"__global__ void k(float* x, int n) {{ {statement} }}")
    assert facts.techniques == ({technique} if technique else set())


def test_sizes_of_blocks_and_arrays_of_the_host() -> None:
    launch = "void run() {{ {} k<<<blocks, threads>>>(x); }}"
    for size in ("int blocks = std::min(65535, n);", "int threads = max(32, n);"):
        assert read_cuda(launch.format(size)).techniques == {"block_configuration"}
    for plain in ("int blocks = (n + 255) / 256;", "int smallest = min(a, b);", "float x[4];"):
        assert not read_cuda(launch.format(plain)).techniques


@pytest.mark.parametrize(
    ("name", "there"),
    [("conv2d_gelu_pool_kernel", True), ("relu_avgpool2d", True), ("fused", True),
     ("max_pool1d_kernel", False), ("instance_norm_mean_kernel", False), ("softmax", False)],
)  # fmt: skip
def test_a_kernel_named_after_two_operations_is_fused(name: str, there: bool) -> None:
    assert ("fusion" in read_cuda(f"__global__ void {name}() {{}}").techniques) is there


@pytest.mark.parametrize("line", ["torch.nn.init.uniform_(w)", "w.requires_grad_()", "_f_()"])
def test_making_a_tensor_is_not_in_place(line: str) -> None:
    assert extract_one(f"import torch\n{line}\n").techniques == []


@pytest.mark.repeats(run=5)
@pytest.mark.parametrize(
    "code",
    [
        "",
        "\0",
        "x = '\udc80'",
        "-" * 100_000 + "1",
        "(" * 100_000,
        "1+" * 200_000 + "1",
        "'a'+" * 900 + "'a'",
        "a." * 100_000 + "b",
        "x = '''" + "{" * 200_000,
        "def f(:",
        "\ufeffx = 1",
        "'{'.format(1)",
        "'{a!z}'.format(1)",
        "\r\r\n\x0c'''doc'''\rx = 1",
        "s = '" + "{;" * 100_000 + "'",
    ],
    ids=range(15),
)
def test_hostile_text_is_described_not_raised(code: str) -> None:
    seen, tokens = extract(code)
    assert seen["language"] in {"unknown", "pytorch"}
    assert features.compute_bands([tokens]).shape == (1, features.BANDS)


@pytest.mark.slow
def test_a_text_too_long_to_be_a_kernel_is_measured_but_not_parsed() -> None:
    seen = extract_one("x = 1\n" * 900_000)
    assert (seen.parsed, seen.language) == (False, "unknown")
    assert (seen.code_bytes, seen.code_lines) == (5_400_000, 900_000)


def test_a_text_that_warns_is_read_in_silence() -> None:
    assert extract_one(r"x = '\d'; y = 1 is 1").parsed


def test_table_has_the_columns_of_the_catalog_and_keeps_order() -> None:
    kernels = pa.table(
        {
            "kernel_id": ["b", "a"],
            "code": [LOADED, "x = 1\n"],
            "other_files": pa.array(
                [None, [{"path": "k.cu", "code": CUDA}]],
                pa.list_(pa.struct([("path", pa.string()), ("code", pa.string())])),
            ),
        }
    )
    rows = extract_features(kernels)
    schema = catalog.load().table("kernel_features").arrow_schema
    assert rows.schema.names == [name for name in schema.names if name != "created_at"]
    assert rows.column("kernel_id").to_pylist() == ["b", "a"]
    assert rows.column("global_functions").to_pylist() == [2, 2]
    assert rows.column("code_bytes").to_pylist()[1] == len("x = 1\n") + len(CUDA)
    assert not any(column.null_count for column in rows.columns)
    assert {name for seen in rows.column("techniques").to_pylist() for name in seen or ()} <= set(
        TECHNIQUES
    )
    assert extract_features(kernels.slice(0, 0)).num_rows == 0
    assert rows.column("extractor_version").to_pylist()[0] == features.EXTRACTOR_VERSION


def shared_bands(one: str, other: str) -> int:
    first, second = features.compute_bands([extract(one)[1], extract(other)[1]])
    return len(set(first.tolist()) & set(second.tolist()))


def test_comments_docstrings_and_layout_do_not_change_the_signature() -> None:
    code = "import torch\n" + "".join(f"a{i} = torch.relu(b{i})\n" for i in range(60))
    noisy = '"""About this."""\n' + code.replace("\n", "  # why\n").replace(" = ", "  =  ")
    assert shared_bands(code, noisy) == features.BANDS


def test_bands_find_near_copies_and_not_strangers() -> None:
    lines = [f"a{i} = torch.relu(b{i} + {i})\n" for i in range(100)]
    near = lines.copy()
    near[50] = "c = torch.tanh(d)\n"
    stranger = [f"self.m{i}[{i}] -= numpy.exp(q{i})\n" for i in range(100)]
    assert shared_bands("".join(lines), "".join(near)) >= 1
    assert shared_bands("".join(lines), "".join(stranger)) == 0


def test_embedded_cuda_takes_part_in_the_signature() -> None:
    other = LOADED.replace("tile", "cells").replace("float", "double").replace("second", "third")
    assert shared_bands(LOADED, other) < features.BANDS


@pytest.mark.slow
def test_bands_follow_their_probability() -> None:
    """At Jaccard s a pair shares a band with probability 1 - (1 - s^8)^16."""
    random = np.random.default_rng(7)
    words = [
        [str(number).encode() for number in random.integers(0, 10**9, 1004)] for _ in range(200)
    ]
    for share, low, high in ((0.9, 198, 200), (0.7, 100, 140), (0.4, 0, 8)):
        # A run of a text of distinct words has that share of its 1,000 shingles.
        signatures = features.compute_bands(
            [one for text in words for one in (text, text[: int(1000 * share) + 4])]
        )
        pairs = zip(signatures[::2].tolist(), signatures[1::2].tolist(), strict=True)
        assert low <= sum(not set(one).isdisjoint(other) for one, other in pairs) <= high


def test_signature_is_the_same_everywhere() -> None:
    """Stored bands stay comparable: a new rensa or lexer has to raise EXTRACTOR_VERSION."""
    bands = features.compute_bands([[b"a", b"b", b"c", b"d", b"e", b"f"], []])
    assert bands[0, :2].tolist() == [-3363048384346790321, -5186370345763401307]
    assert bands.dtype == np.int64
