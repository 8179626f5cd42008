"""Static features of kernels: language, device code, techniques, near-duplicate bands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from store.code.cuda_facts import read_cuda
from store.code.languages import CPP, CUDA, PYTORCH, TRITON, is_native, is_python
from store.code.minhash import compute_bands, tokenize_c, tokenize_python
from store.code.python_facts import read_python

if TYPE_CHECKING:
    import pyarrow as pa

EXTRACTOR_VERSION = 3
"""Raised whenever the same text may give other features."""

_CHUNK = 2000


@dataclass(frozen=True, kw_only=True)
class Features:
    """Features of one kernel, without its near-duplicate bands."""

    parsed: bool
    language: str
    has_device_code: bool
    global_functions: int
    triton_kernels: int
    uses_cuda_graphs: bool
    uses_torch_compile: bool
    uses_torch_jit: bool
    sets_cudnn_flags: bool
    uses_streams: bool
    techniques: list[str]
    code_bytes: int
    code_lines: int


def extract(
    code: str,
    other_files: Sequence[Mapping[str, str]] | None = None,
    path: str = "kernel.py",
) -> tuple[Features, list[bytes]]:
    """Return the features of one kernel and its code tokens; never raises for any text.

    `code` is the file with the entry point, Python unless `path` ends as C++ or CUDA files do;
    `other_files` are mappings of path and code. C++ is looked for in the strings of the Python
    files and in C++ and CUDA files.

    >>> features, _ = extract("import torch\\nf = torch.compile(torch.relu)")
    >>> features.language, features.techniques
    ('pytorch', ['torch_compile'])
    """
    files = [(file["path"], file["code"]) for file in other_files or ()]
    modules = [read_python(text) for name, text in files if is_python(name)]
    native = [text for name, text in files if is_native(name)]
    parsed = True
    if is_native(path):
        native.insert(0, code)
        tokens = tokenize_c(code.encode(errors="replace"))
    else:
        main = read_python(code)
        modules.insert(0, main)
        parsed = main.parsed
        tokens = tokenize_python(code.encode(errors="replace"), main.prose)
    cuda = [read_cuda(text) for text in native]
    cuda += [read_cuda(text) for module in modules for text in module.strings]

    techniques: set[str] = set()
    for part in (*modules, *cuda):
        techniques |= part.techniques
    global_functions = sum(facts.global_functions for facts in cuda)
    triton_kernels = sum(module.triton_kernels for module in modules)
    for name, text in files:
        split = tokenize_c if is_native(name) else tokenize_python
        tokens += split(text.encode(errors="replace"))
    is_native_code = any(facts.functions for facts in cuda)
    if not parsed:
        language = "unknown"
    elif triton_kernels:
        language = "mixed" if is_native_code else TRITON.name
    elif is_native_code:
        needs_gpu = global_functions or any(facts.includes_cuda for facts in cuda)
        language = CUDA.name if needs_gpu else CPP.name
    else:
        language = PYTORCH.name
    texts = [code, *(text for _, text in files)]
    return Features(
        parsed=parsed,
        language=language,
        has_device_code=global_functions + triton_kernels > 0,
        global_functions=global_functions,
        triton_kernels=triton_kernels,
        uses_cuda_graphs=any(part.uses_cuda_graphs for part in (*modules, *cuda)),
        uses_torch_compile=any(module.uses_torch_compile for module in modules),
        uses_torch_jit=any(module.uses_torch_jit for module in modules),
        sets_cudnn_flags=any(module.sets_cudnn_flags for module in modules),
        uses_streams=any(part.uses_streams for part in (*modules, *cuda)),
        techniques=sorted(techniques),
        code_bytes=sum(len(text.encode(errors="replace")) for text in texts),
        code_lines=sum(text.count("\n") + (not text.endswith("\n")) for text in texts),
    ), tokens


def extract_features(kernels: pa.Table) -> pa.Table:
    """Return rows of table kernel_features for kernels: kernel_id, code, path, other_files.

    One row per input row, in order, without created_at; reads 2,000 kernels at a time.
    """
    import pyarrow as pa

    from store.schema import catalog

    schema = catalog.load().table("kernel_features").arrow_schema
    schema = schema.remove(schema.get_field_index("created_at"))
    schema = pa.schema([column.with_nullable(True) for column in schema])
    batches = [
        pa.Table.from_pylist(list(_build_rows(batch)), schema=schema)
        for batch in kernels.to_batches(max_chunksize=_CHUNK)
    ]
    return pa.concat_tables(batches) if batches else schema.empty_table()


def _build_rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    ids: list[Any] = batch.column("kernel_id").to_pylist()
    codes: list[Any] = batch.column("code").to_pylist()
    others: list[Any] = (
        batch.column("other_files").to_pylist()
        if "other_files" in batch.schema.names
        else [None] * len(ids)
    )
    paths: list[Any] = (
        batch.column("path").to_pylist()
        if "path" in batch.schema.names
        else ["kernel.py"] * len(ids)
    )
    extracted = [
        extract(code, other, path) for code, other, path in zip(codes, others, paths, strict=True)
    ]
    signatures = compute_bands([tokens for _, tokens in extracted])
    for kernel_id, (features, _), signature in zip(ids, extracted, signatures, strict=True):
        yield {
            "kernel_id": kernel_id,
            "extractor_version": EXTRACTOR_VERSION,
            **vars(features),
            "minhash_bands": signature.tolist(),
        }
