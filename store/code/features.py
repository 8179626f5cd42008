"""Static features of kernels: language, device code, techniques, near-duplicate bands."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rensa import RMinHash  # pyright: ignore[reportAttributeAccessIssue]  (no stubs)

from store.code.cuda_facts import read_cuda
from store.code.languages import CPP, CUDA, PYTORCH, TRITON, is_native, is_python
from store.code.python_facts import read_python

if TYPE_CHECKING:
    import pyarrow as pa


PERMUTATIONS = 128
BANDS = 16
SHINGLE = 5
SEED = 20250718

# A lexer rather than a search: it consumes comments and strings whole, so that their content is
# never taken for code. The first alternative that matches at a position wins.
_PYTHON_TOKEN = re.compile(
    rb"#[^\n]*"
    rb"|(?P<block>'''(?:[^\\]|\\.)*?'''|\"\"\"(?:[^\\]|\\.)*?\"\"\")"
    rb"|(?P<token>'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"|[A-Za-z_\x80-\xff][\w\x80-\xff]*"
    rb"|[0-9][\w.]*|[^\s\w])",
    re.DOTALL,
)
_C_TOKEN = re.compile(
    rb"//[^\n]*|/\*.*?(?:\*/|\Z)"
    rb"|(?P<token>'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"|[A-Za-z_\x80-\xff][\w\x80-\xff]*"
    rb"|[0-9][\w.]*|<<<|>>>|[^\s\w])",
    re.DOTALL,
)


def tokenize_python(code: bytes, prose: Sequence[tuple[int, int]] = ()) -> list[bytes]:
    """Return the tokens of Python text without comments and without the `prose` byte ranges.

    Prose means the docstrings and bare strings that the parser found. Every other triple-quoted
    string is treated as embedded C++ and also split into tokens, because kernels differ there.

    >>> tokenize_python(b"x = 1  # one")
    [b'x', b'=', b'1']
    """
    skipped = {start for start, _ in prose}
    tokens: list[bytes] = []
    for match in _PYTHON_TOKEN.finditer(code):
        kind = match.lastgroup
        if kind is None or match.start() in skipped:
            continue
        if kind == "block":
            tokens += tokenize_c(match.group()[3:-3])
        else:
            tokens.append(match.group())
    return tokens


def tokenize_c(code: bytes) -> list[bytes]:
    """Return the tokens of C++ or CUDA text without comments.

    >>> tokenize_c(b"k<<<1, 2>>>(); // launch")
    [b'k', b'<<<', b'1', b',', b'2', b'>>>', b'(', b')', b';']
    """
    return [m.group() for m in _C_TOKEN.finditer(code) if m.lastgroup]


def compute_bands(texts: Sequence[Sequence[bytes]]) -> NDArray[np.int64]:
    """Return the bands of each token list; shape (texts, BANDS), int64.

    Signatures are 128 minima (rensa's R-MinHash) over the shingles of 5 tokens, cut into 16
    bands of 8: two texts of Jaccard similarity s share a band with probability 1 - (1 - s^8)^16,
    which is one half near s = 0.67 and 0.94 at s = 0.8. A text of fewer than 5 tokens is one
    shingle. The same tokens give the same bands on every machine.
    """
    if not texts:
        return np.empty((0, BANDS), dtype=np.int64)
    hashed = [_hash_shingles(tokens) for tokens in texts]
    offsets = np.concatenate([[0], np.cumsum([len(h) for h in hashed])]).astype(np.uint64)
    matrix = RMinHash.digest_matrix_from_flat_token_hashes(
        np.concatenate(hashed), offsets, PERMUTATIONS, SEED
    )
    rows = np.asarray(matrix.to_rows(), dtype="<u4").reshape(len(texts), BANDS, -1)
    # The hash includes the number of the band, so equal minima in different bands do not match.
    digests = [
        hashlib.blake2b(band.tobytes(), digest_size=8, salt=number.to_bytes(2, "little")).digest()
        for row in rows
        for number, band in enumerate(row)
    ]
    return np.frombuffer(b"".join(digests), dtype="<i8").reshape(len(texts), BANDS)


def _hash_shingles(tokens: Sequence[bytes]) -> NDArray[np.uint64]:
    codes: dict[bytes, int] = {token: zlib.crc32(token) for token in set(tokens)}
    values = np.array([codes[token] for token in tokens], dtype=np.uint64)
    count = max(len(values) - SHINGLE + 1, 1)
    mixed = np.zeros(count, dtype=np.uint64)
    for place in range(min(SHINGLE, len(values))):
        mixed = mixed * np.uint64(0x9E3779B97F4A7C15) + values[place : place + count]
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    return np.unique(mixed)


EXTRACTOR_VERSION = 4
"""Raised whenever the same text may give other features."""

_CHUNK = 2000


def extract(
    code: str, other_files: Sequence[Mapping[str, str]] | None = None, path: str = "kernel.py"
) -> tuple[dict[str, Any], list[bytes]]:
    """Return a kernel's features by column, and its code tokens; never raises for any text.

    `code` is the file with the entry point, Python unless `path` ends as C++ or CUDA files do;
    `other_files` are mappings of path and code. C++ is looked for in the strings of the Python
    files and in C++ and CUDA files.

    >>> features, _ = extract("import torch\\nf = torch.compile(torch.relu)")
    >>> features["language"], features["techniques"]
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
    return {
        "parsed": parsed,
        "language": language,
        "has_device_code": global_functions + triton_kernels > 0,
        "global_functions": global_functions,
        "triton_kernels": triton_kernels,
        "uses_cuda_graphs": "cuda_graphs" in techniques,
        "uses_torch_compile": "torch_compile" in techniques,
        "uses_torch_jit": "torch_jit" in techniques,
        "sets_cudnn_flags": "cudnn_flags" in techniques,
        "uses_streams": any(part.uses_streams for part in (*modules, *cuda)),
        "techniques": sorted(techniques),
        "code_bytes": sum(len(text.encode(errors="replace")) for text in texts),
        "code_lines": sum(text.count("\n") + (not text.endswith("\n")) for text in texts),
    }, tokens


def extract_features(kernels: pa.Table) -> pa.Table:
    """Return rows of table kernel_features for kernels: kernel_id, code, path, other_files.

    One row per input row, in order, without created_at; reads 2,000 kernels at a time.
    """
    import pyarrow as pa

    from store.schema import catalog

    schema = catalog.load().table("kernel_features").open_schema
    schema = schema.remove(schema.get_field_index("created_at"))
    names = {"kernel_id", "code", "path", "other_files"}.intersection(kernels.column_names)
    batches = [
        pa.Table.from_pylist(extract_row_features(batch.to_pylist()), schema=schema)
        for batch in kernels.select([*names]).to_batches(max_chunksize=_CHUNK)
    ]
    return pa.concat_tables(batches) if batches else schema.empty_table()


def extract_row_features(kernels: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of `kernel_features` of rows of `kernels`."""
    extracted = [
        extract(one["code"], one.get("other_files"), one.get("path") or "kernel.py")
        for one in kernels
    ]
    signatures = compute_bands([tokens for _, tokens in extracted])
    return [
        {
            "kernel_id": kernel["kernel_id"],
            "extractor_version": EXTRACTOR_VERSION,
            **features,
            "minhash_bands": signature.tolist(),
        }
        for kernel, (features, _), signature in zip(kernels, extracted, signatures, strict=True)
    ]
