"""What is hashed, what is cut, what stays, and that none of it can be guessed back."""

from __future__ import annotations

import hashlib
import json
import stat
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import FlywheelError
from store.hub import redact
from store.hub.redact import REMOVED, Redactor
from store.lake.location import SALT as SALT_FILE
from store.lake.location import FolderLocation
from store.schema import catalog

SALT = b"s" * 32
ONE = Redactor(SALT, catalog.load())


def test_a_name_reads_alike_under_one_salt_and_cannot_be_guessed() -> None:
    other = Redactor(b"t" * 32, catalog.load())
    assert ONE.hash_name("alice") == ONE.hash_name("alice")
    assert ONE.hash_name("alice") not in (ONE.hash_name("bob"), other.hash_name("alice"))
    for guess in (hashlib.sha256(b"alice"), hashlib.sha1(b"alice"), hashlib.md5(b"alice")):
        assert guess.hexdigest()[:16] not in ONE.hash_name("alice")


def test_what_was_hashed_by_another_lab_stays() -> None:
    other = Redactor(b"t" * 32, catalog.load())
    assert ONE.hash_name(other.hash_name("alice")) == other.hash_name("alice")


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ('File "/home/alice/k.py", line 3, in forward', "/home/alice"),
        (r"C:\Users\alice\k.py failed", "alice"),
        ("cannot open ~/keys/id.pem", "~/keys"),
        ("POST http://10.1.2.3:8000/v1/chat?key=1 timed out", "10.1.2.3"),
        ("https://me:pw@internal.example:9/x", "internal.example"),
        ("https://me:pw@github.com/a/b", "pw"),
        ("s3://bucket/of/ours", "bucket"),
        ("mail alice@lab.example now", "alice"),
        ("GPU-12345678-1234-1234-1234-123456789abc fell off", "12345678"),
        ("worker 192.168.0.7:5000 gone", "192.168"),
        ("Bearer hf_" + "a" * 34, "hf_a"),
        ("key sk-proj-" + "b" * 40, "sk-proj"),
        ("AKIA" + "A" * 16, "AKIA"),
        ("export HOME=/srv/people/lab", "/srv"),
    ],
)
def test_texts_lose_what_gives_somebody_away(text: str, gone: str) -> None:
    assert gone in text
    assert gone not in ONE.scrub_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "max error 1e-3 at [0, 1], 3/4 of elements", "level1/12", "torch 2.13.0, driver 570.86.15",
        "see https://arxiv.org/abs/2507.14111", "a // b and a /= 2", "127.0.0.1", "fp16/bf16", "",
    ],
)  # fmt: skip
def test_plain_texts_stay(text: str) -> None:
    assert ONE.scrub_text(text) == text


@pytest.mark.slow
@given(st.text(max_size=80), st.sampled_from(["/home/alice/x/k.py", "http://h.internal:80/v1"]))
def test_cutting_twice_is_cutting_once(around: str, inside: str) -> None:
    once = ONE.scrub_text(f"{around} {inside} {around}")
    assert "alice/x" not in once
    assert "h.internal" not in once
    assert ONE.scrub_text(once) == once


def test_json_loses_values_by_their_keys() -> None:
    config = {
        "out": "runs", "api_key": "abc", "hfToken": "abc", "max_tokens": 8, "seed": 1,
        "policy": {"endpoint": "me", "name": "m"}, "files": ["a", "b"], "half_width": 0.03,
    }  # fmt: skip
    clean = json.loads(ONE.scrub_json(json.dumps(config)))
    assert clean["api_key"] == clean["hfToken"] == REMOVED
    assert clean["max_tokens"] == 8
    assert clean["half_width"] == 0.03
    assert clean["policy"]["name"] == "m"
    for value in (clean["out"], clean["policy"]["endpoint"], *clean["files"]):
        assert value.startswith("anon-")


def test_json_in_which_nothing_is_found_keeps_its_letters() -> None:
    text = '{"b": 1,  "a": [1.50, null]}'
    assert ONE.scrub_json(text) == text


def test_lists_and_nulls_keep_their_shape() -> None:
    known = catalog.load()
    table = known.table("evaluations")
    flags = pa.chunked_array([pa.array([["/home/a/b", "x"], None, [], ["x"]])])
    clean = ONE.redact_column(table, table.columns["flags"], flags).to_pylist()
    assert clean[1:] == [None, [], ["x"]]
    assert clean[0][0].endswith("/b")
    assert "home" not in clean[0][0]


def test_ids_texts_and_enumerations_are_never_cut() -> None:
    known = catalog.load()
    for name, table in known.tables.items():
        for column in table.columns.values():
            if column.name in table.key or column.references or column.enum:
                assert not redact.is_scrubbed(table, column), f"{name}.{column.name}"
    assert not redact.is_scrubbed(known.table("kernels"), known.table("kernels").columns["code"])


def test_the_salt_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    made = FolderLocation(tmp_path).read_salt()
    file = tmp_path / SALT_FILE
    assert FolderLocation(tmp_path).read_salt() == made
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_bytes(b"short")
    with pytest.raises(FlywheelError, match="not whole"):
        FolderLocation(tmp_path).read_salt()
