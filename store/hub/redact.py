"""Redacts published rows: drops private columns, hashes names, and removes paths and addresses.

A name becomes `anon-` and 16 hex digits of its HMAC under the lake's salt, which is never
published. Within one lake the same name has the same pseudonym in every table and edition, and
nobody can find the name by hashing guesses. Texts that an id is the hash of (tasks, kernels,
prompts) and texts that a policy wrote stay unchanged; if one of them contains a secret, nothing is
published.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections import Counter
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store.schema.catalog import Catalog, Column, Table

VERBATIM = frozenset(
    {
        *(("tasks", "code"), ("workloads", "axes"), ("prompts", "messages")),
        *(("kernels", name) for name in ("code", "path", "entry_point", "other_files")),
        ("kernels", "build_flags"),
        *(("generations", name) for name in ("completion", "analysis", "design")),
        ("findings", "quote"),
        ("catalogs", "definition"),
    }
)
"""Texts that stay unchanged: part of an id, a policy's own words, or the content of a catalog."""
SECRETS = re.compile(
    r"\bhf_[A-Za-z0-9]{20,}|\bsk-[A-Za-z0-9_-]{20,}|\bgh[pousr]_[A-Za-z0-9]{30,}"
    r"|\bgithub_pat_[A-Za-z0-9_]{30,}|\bAKIA[0-9A-Z]{16}\b|\bxox[abprs]-[A-Za-z0-9-]{10,}"
    r"|\bglpat-[A-Za-z0-9_-]{20,}|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
"""Tokens and keys by the forms that their issuers give them."""
HOMES = r"(?:/home/|/Users/|[A-Za-z]:\\+Users\\+)[^/\\\s\"']"
"""The beginning of a person's folder."""
PUBLIC_HOSTS = frozenset({"arxiv.org", "github.com", "huggingface.co", "pytorch.org", "nvidia.com"})
"""Addresses of these hosts and their subdomains stay in texts."""

PSEUDONYM = re.compile(r"anon-[0-9a-f]{16}")
"""The pseudonym of a name; each lake has its own pseudonym for the same name."""
_URL = re.compile(r"\b[a-zA-Z][a-zA-Z0-9+.-]*://[^\s\"'<>`|\\)\]}]+")
_PATH = re.compile(
    r"(?<![\w.:/~-])(?:~|[A-Za-z]:(?=\\)|(?=/))(?:[\\/][^\s\\/:\"'<>|,;()\[\]{}*?]+)+"
)
_EMAIL = re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b")
_GPU = re.compile(r"\b(?:GPU|MIG)-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_ADDRESS = re.compile(
    r"(?<![\w.])(?!127\.0\.0\.1\b|0\.0\.0\.0\b)(?:\d{1,3}\.){3}\d{1,3}(?!\.?\d)(?::\d+)?"
)
_SUSPECT = (
    r"[\\/@~]|(?i:GPU|MIG)-|hf_|sk-|gh[pousr]_|github_pat_|AKIA|xox|glpat-|PRIVATE KEY|\d\.\d"
)
"""A text without any of these is not searched further."""
_WORDS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_SECRET_WORDS = frozenset(
    {"token", "key", "apikey", "secret", "password", "passwd", "credential", "credentials"}
    | {"authorization", "cookie"}
)
_NAME_WORDS = frozenset(
    {"path", "file", "files", "folder", "dir", "directory", "out", "output", "url", "uri"}
    | {"endpoint", "host", "hostname", "user", "username", "author", "email", "node"}
)
REMOVED = "<removed>"


class Redactor:
    """Removes from rows what must not be published, and counts the changes."""

    def __init__(self, salt: bytes, catalog: Catalog) -> None:
        self._salt = salt
        self._catalog = catalog
        self.hashed: Counter[str] = Counter()
        """table.column to the number of values that were hashed."""
        self.scrubbed: Counter[str] = Counter()
        """table.column to the number of texts from which something was removed."""
        self.unchanged: Counter[str] = Counter()
        """table.column to the number of verbatim texts that name a person's folder."""

    def list_columns(self, table: Table) -> list[Column]:
        """Return the columns of a table that are published, in order."""
        return [one for one in table.columns.values() if one.sensitivity != "private"]

    def build_schema(self, table: Table) -> pa.Schema:
        """Return the Arrow schema of a table's published rows."""
        return pa.schema([table.open_schema.field(one.name) for one in self.list_columns(table)])

    def redact_rows(self, table: Table, rows: pa.Table) -> pa.Table:
        """Return rows of a table without private columns, with names hashed and texts scrubbed."""
        for name in rows.column_names:
            if (table.name, name) in VERBATIM:
                place = f"{table.name}.{name}"
                self.unchanged[place] += len(_find_matching(rows.column(name), HOMES))
        kept: list[pa.ChunkedArray] = []
        for column in self.list_columns(table):
            values, place = rows.column(column.name), f"{table.name}.{column.name}"
            if column.sensitivity == "pseudonymous":
                self.hashed[place] += len(values) - values.null_count
                kept.append(_map_values(values, self.hash_name, None))
                continue
            kept.append(self.redact_column(table, column, values))
            if is_scrubbed(table, column):
                self.scrubbed[place] += _count_differences(values, kept[-1])
        return pa.Table.from_arrays(kept, schema=self.build_schema(table))

    def hash_name(self, value: str) -> str:
        """Return the pseudonym of a name; a pseudonym stays unchanged.

        >>> redactor = Redactor(b"salt", Catalog(tables={}, enums={}))
        >>> redactor.hash_name("alice") == redactor.hash_name("alice") != redactor.hash_name("bob")
        True
        >>> redactor.hash_name(redactor.hash_name("alice")) == redactor.hash_name("alice")
        True
        """
        if PSEUDONYM.fullmatch(value):
            return value
        digest = hmac.new(self._salt, value.encode(), hashlib.sha256).hexdigest()
        return f"anon-{digest[:16]}"

    def scrub_text(self, value: str) -> str:
        """Return a text without secrets, addresses, hosts, cards and folders.

        Keeps the last part of a path, and a public address without its query.

        >>> redactor = Redactor(b"salt", Catalog(tables={}, enums={}))
        >>> redactor.scrub_text("see /home/alice/runs/k.py, line 3").endswith("/k.py, line 3")
        True
        >>> redactor.scrub_text("https://arxiv.org/abs/2507.14111v4 and level1/12, 3/4")
        'https://arxiv.org/abs/2507.14111v4 and level1/12, 3/4'
        """
        cut = SECRETS.sub(REMOVED, value)
        cut = _URL.sub(lambda found: self._scrub_address(found[0]), cut)
        cut = _EMAIL.sub(lambda found: self.hash_name(found[0]), cut)
        cut = _GPU.sub(lambda found: self.hash_name(found[0]), cut)
        cut = _ADDRESS.sub(lambda found: self.hash_name(found[0]), cut)
        return _PATH.sub(lambda found: self._scrub_path(found[0]), cut)

    def scrub_json(self, value: str) -> str:
        """Return a JSON text without private values.

        Values under keys such as `out` or `endpoint` are hashed, values under `api_key` or `token`
        are removed, and other texts are scrubbed. A text without a finding is returned unchanged.
        """
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            return self.scrub_text(value)
        clean = self._scrub_value(found, "")
        return value if clean == found else json.dumps(clean, ensure_ascii=False)

    def redact_column(
        self, table: Table, column: Column, values: pa.ChunkedArray
    ) -> pa.ChunkedArray:
        """Return the texts of a scrubbed column in their published form."""
        if not is_scrubbed(table, column):
            return values
        return _map_values(values, self.scrub_json, _SUSPECT + r"|[{\[]")

    def _scrub_value(self, value: Any, key: str) -> Any:
        if isinstance(value, dict):
            pairs = cast("dict[str, Any]", value)
            return {
                self.scrub_text(name): self._scrub_value(inner, name)
                for name, inner in pairs.items()
            }
        if isinstance(value, list):
            return [self._scrub_value(inner, key) for inner in cast("list[Any]", value)]
        if not isinstance(value, str) or not value:
            return value
        words = {word.lower() for word in _WORDS.findall(key)}
        if words & _SECRET_WORDS:
            return REMOVED
        if words & _NAME_WORDS:
            return self.hash_name(value)
        return self.scrub_text(value)

    def _scrub_address(self, address: str) -> str:
        try:
            host = (urlsplit(address).hostname or "").lower()
        except ValueError:
            host = ""
        if any(host == known or host.endswith(f".{known}") for known in PUBLIC_HOSTS):
            parts = urlsplit(address)
            return urlunsplit((parts.scheme, host, parts.path, "", parts.fragment))
        return self.hash_name(address)

    def _scrub_path(self, path: str) -> str:
        place = max(path.rfind("/"), path.rfind("\\"))
        return f"{self.hash_name(path[:place])}/{path[place + 1 :]}" if place > 0 else path


def is_scrubbed(table: Table, column: Column) -> bool:
    """Return whether a column's texts are scrubbed: not ids, enumerations or verbatim texts."""
    return (
        column.type in ("VARCHAR", "VARCHAR[]")
        and column.enum is None
        and (table.name, column.name) not in VERBATIM
        and not table.is_looked_up(column)
    )


def find_secret_holders(table: Table, rows: pa.Table) -> list[str]:
    """Return the ids of rows whose verbatim texts contain a secret, with the column."""
    found: list[str] = []
    for column in table.columns.values():
        if (table.name, column.name) not in VERBATIM or column.name not in rows.column_names:
            continue
        for index in _find_matching(rows.column(column.name), SECRETS.pattern):
            key = ", ".join(f"{name}={rows.column(name)[index]}" for name in table.key)
            found.append(f"{table.name}.{column.name} {key}")
    return found


def find_secret_rows(rows: pa.Table) -> list[int]:
    """Return the positions of rows whose texts contain a secret."""
    return sorted(
        {place for column in rows.columns for place in _find_matching(column, SECRETS.pattern)}
    )


def _find_matching(values: Any, pattern: str) -> list[int]:
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_struct(whole.type):
        parts = [pc.struct_field(whole, [at]) for at in range(whole.type.num_fields)]
        return sorted({place for part in parts for place in _find_matching(part, pattern)})
    if pa.types.is_list(whole.type):
        parents = pc.list_parent_indices(whole)
        inner = _find_matching(pc.list_flatten(whole), pattern)
        return sorted({int(parents[place].as_py()) for place in inner})
    if not pa.types.is_string(whole.type):
        return []
    return _find_hits(whole, pattern)


def _map_values(values: Any, change: Any, suspect: str | None) -> pa.ChunkedArray:
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_list(whole.type):
        inner = _map_values(pc.list_flatten(whole), change, suspect).combine_chunks()
        # Offsets into the flattened values, where NULL lists are empty.
        lengths: Any = pc.list_value_length(whole)
        ends = np.cumsum(np.nan_to_num(lengths.to_numpy(zero_copy_only=False)))
        offsets: Any = pa.array(np.concatenate([[0], ends]).astype(np.int32))
        nulls: Any = whole.is_null() if whole.null_count else None
        lists = pa.ListArray.from_arrays(offsets, inner, type=whole.type, mask=nulls)
        return pa.chunked_array([lists])
    distinct = pc.unique(whole)
    places = range(len(distinct)) if suspect is None else _find_hits(distinct, suspect)
    if not len(places):
        return pa.chunked_array([whole], whole.type)
    texts: list[Any] = distinct.to_pylist()
    for place in places:
        if texts[place] is not None:
            texts[place] = change(texts[place])
    changed = pa.array(texts, whole.type)
    return pa.chunked_array([changed.take(pc.index_in(whole, distinct))])


def _find_hits(texts: Any, pattern: str) -> list[int]:
    found: Any = pc.indices_nonzero(pc.match_substring_regex(texts, pattern))
    return found.to_pylist()


def _count_differences(before: Any, after: Any) -> int:
    if pa.types.is_list(before.type):
        before, after = pc.list_flatten(before), pc.list_flatten(after)
    return int(pc.sum(pc.not_equal(before, after)).as_py() or 0)
