"""Near-duplicate signatures: texts that share a band are probably copies with small edits."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rensa import RMinHash  # pyright: ignore[reportAttributeAccessIssue]  (no stubs)

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
    """Hash every run of SHINGLE tokens into 64 bits, distinct and sorted."""
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
