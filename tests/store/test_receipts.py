"""`store receipt` and `store verify`: what a receipt has, what follows from it, what is refused."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import builders as b
import commands
import jsonschema
import pytest
from new_lakes import copy_starter_lake

import store
from store.errors import FlywheelError, UnknownName
from store.receipts import check, figures, signing
from store.receipts.receipt import (
    MOST_BYTES,
    ReceiptRefused,
    canonicalize,
    get_signed,
    make_receipt,
    make_schema,
    read_receipt,
    write_receipt,
)

TASK = b.task("square \x1b[2J")
FAST = b.kernel("fast")
PARTS = b.kernel("parts", other_files=[{"path": "inc/tile.cuh", "code": "// tile\n"}])
UNJUDGED = b.kernel("unjudged")
DEFAULT, LARGE = b.workload(TASK), b.workload(TASK, "N=8", '{"N": 8}')
H200 = b.device("H200", kind="cuda", driver="580.1", gpu_uuid="GPU-secret")
LAPTOP = b.device()
RUN = b.run(
    host="secret-host",
    config=json.dumps({"evaluator": {"calls": 22}, "out": "/home/secret-user/out"}),
)
JUDGED = b.evaluation(
    FAST, TASK, DEFAULT, H200, precision="torch_default", run_id=RUN["run_id"], seeds=[7, 8],
    log="secret output", message="read /home/secret-user/kernel.py", flags=["fails_scaled"],
)  # fmt: skip
ON_LAPTOP = b.evaluation(FAST, TASK, DEFAULT, LAPTOP, "incorrect", minute=1)
AT_LARGE = b.evaluation(FAST, TASK, LARGE, H200, protocol="shape", minute=2)
OF_PARTS = b.evaluation(PARTS, TASK, DEFAULT, LAPTOP, minute=3)
FOUND = b.finding(FAST, confidence=0.6)


@pytest.fixture(scope="module")
def lake(empty_lake: Path, tmp_path_factory: pytest.TempPathFactory) -> store.Lake:
    """Return a lake with a kernel that has everything that a receipt can have."""
    url = str(tmp_path_factory.mktemp("receipts") / "lake")
    shutil.copytree(empty_lake, url)
    times = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 1.02, 0.98, 1.01]
    first = b.session(JUDGED, times, eager=[2 * ms for ms in times], compile=[1.5] * 9)
    first[0]["control_ratios"] = [1.0] * 9
    timings = [
        *first,
        *b.session(JUDGED, [ms + 0.5 for ms in times], eager=[2.5] * 9, minute=1),
        *b.session(JUDGED, times, eager=[3.0] * 9, clock="latency"),
        *b.session(AT_LARGE, [4.0] * 9, eager=[6.0] * 9, minute=2),
        *b.session(OF_PARTS, times, eager=[3.0] * 9),
    ]
    decided = b.standing(FOUND, "dismissed", author="secret-reviewer")
    with store.writer(url, author="tests") as writer:
        writer.append(
            {
                "tasks": [TASK], "task_labels": [b.label(TASK, "level1/1")],
                "workloads": [DEFAULT, LARGE], "kernels": [FAST, PARTS, UNJUDGED],
                "kernel_features": [b.features(FAST)], "policies": [b.policy()],
                "generations": [b.generation(b.policy(), TASK, FAST, license="MIT")],
                "devices": [H200, LAPTOP], "runs": [RUN],
                "evaluations": [JUDGED, ON_LAPTOP, AT_LARGE, OF_PARTS], "timings": timings,
                "findings": [FOUND], "standings": [decided],
                "session_spreads": [b.session_spread(H200, 0.02)],
            },
            "a kernel",
        )  # fmt: skip
    return store.open(url)


@pytest.fixture(scope="module")
def receipt(lake: store.Lake) -> bytes:
    return write_receipt(make_receipt(lake, FAST["kernel_id"][:8]))


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a private SSH key, with a file of allowed signers beside it."""
    folder = tmp_path_factory.mktemp("keys")
    made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key")]
    subprocess.run(made, check=True)
    public = (folder / "key.pub").read_text().split()
    (folder / "signers").write_text(f"alice@example.org {public[0]} {public[1]}\n")
    return folder / "key"


def forge(receipt: bytes, change: Any) -> bytes:
    """Return a receipt that somebody changed and gave the right hash."""
    content = json.loads(receipt)
    change(content)
    content.pop("sha256")
    # As JSON has it, but for NaN, which `write_receipt` refuses.
    plain = json.dumps(content | {"sha256": ""}, sort_keys=True, separators=(",", ":")) + "\n"
    digest = hashlib.sha256(plain.replace(',"sha256":""', "").encode()).hexdigest()
    return plain.replace('"sha256":""', f'"sha256":"{digest}"').encode()


def test_a_receipt_has_all_that_its_figures_are_computed_from(
    lake: store.Lake, receipt: bytes
) -> None:
    content = json.loads(receipt)
    [eager] = [
        row
        for row in content["figures"]["pooled_speedups"]
        if row["baseline"] == "eager" and row["clock"] == "gpu"
    ]
    shown = lake.sql(
        "SELECT speedup, speedup_low, speedup_high, sessions FROM kernel_speedups "
        "WHERE baseline = 'eager' AND clock = 'gpu'"
    ).rows()
    assert shown == [{name: eager[name] for name in shown[0]}]
    assert eager["sessions"] == 2
    for view in figures.VIEWS:
        question = f"FROM {view} WHERE kernel_id = '{FAST['kernel_id']}' ORDER BY ALL"
        stored = figures.to_json(lake.run(question).arrow())
        assert figures.find_difference(stored, content["figures"][view]) is None
    assert content["kernel"]["license"] == "MIT"
    assert content["kernel"]["authors"] == ["model"]
    assert content["tasks"][0]["name"] == "level1/1"
    assert [row["seeds"] for row in content["rows"]["evaluations"] if "seeds" in row] == [[7, 8]]
    assert {row.get("driver") for row in content["rows"]["devices"]} == {"580.1", None}
    assert any("control_ratios" in row for row in content["rows"]["timings"])
    assert content["rows"]["standings"][0]["decision"] == "dismissed"
    assert content["figures"]["shape_verdicts"][0]["speedup"] == pytest.approx(1.5)
    assert content["figures"]["fragile"][0]["flags"] == ["fails_scaled"]
    assert content["stated"]["ranking"]
    jsonschema.validate(content, make_schema())


def test_private_columns_and_names_are_left_out_as_in_an_edition(receipt: bytes) -> None:
    assert b"secret" not in receipt
    assert b"anon-" in receipt


def test_a_receipt_follows_from_its_rows_alone(receipt: bytes) -> None:
    done = check.verify(receipt)
    assert [line.partition(":")[0] for line in done.checked] == ["form", "figures"]
    assert any(line.startswith("code") for line in done.unchecked)
    assert any("not signed" in line for line in done.unchecked)


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    "chosen", [{"device": "h200"}, {"clock": "latency"}, {"device": "H200", "clock": "gpu"}]
)
def test_a_receipt_of_one_device_or_clock(
    lake: store.Lake, receipt: bytes, chosen: dict[str, str]
) -> None:
    part = write_receipt(make_receipt(lake, FAST["kernel_id"], **chosen))
    check.verify(part)
    wanted = {"device": "H200"} | chosen | ({"device": "H200"} if "device" in chosen else {})
    rows = json.loads(part)["figures"]["pooled_speedups"]
    every = json.loads(receipt)["figures"]["pooled_speedups"]
    assert rows == [row for row in every if row.items() >= wanted.items()]
    assert len(rows) > 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 20])
def test_receipts_of_measured_kernels_follow_from_their_rows(tmp_path: Path, number: int) -> None:
    with store.open(copy_starter_lake(tmp_path / "lake")) as starter:
        # Those with the oldest columns and most sessions first.
        kernels = starter.sql(
            "SELECT kernel_id, count(*) AS n FROM timings GROUP BY ALL ORDER BY n DESC, kernel_id"
        ).rows()
        for row in kernels[:number]:
            check.verify(write_receipt(make_receipt(starter, row["kernel_id"])))
            check.verify(write_receipt(make_receipt(starter, row["kernel_id"], clock="gpu")))


def test_every_changed_byte_is_refused(receipt: bytes) -> None:
    draw = random.Random(62)
    for place, byte in enumerate(receipt):
        other = bytes([(byte + draw.randrange(1, 256)) % 256])
        with pytest.raises(ReceiptRefused):
            read_receipt(receipt[:place] + other + receipt[place + 1 :])


def test_every_other_way_to_write_the_same_values_is_refused(receipt: bytes) -> None:
    text, content = receipt.decode(), json.loads(receipt)
    swapped = dict(reversed(content.items()))
    others = [
        json.dumps(content, sort_keys=True),
        json.dumps(content, indent=1, sort_keys=True) + "\n",
        json.dumps(swapped, separators=(",", ":")) + "\n",
        text.rstrip("\n"),
        text + "\n",
        "\ufeff" + text,
        text.replace("2.0", "2.00"),
        text.replace("2.0", "20e-1"),
        text.replace("kernel_id", "kernel\\u005fid"),
        text.replace('{"catalog"', '{"catalog":1,"catalog"'),
    ]
    for other in others:
        assert other != text
        # Each with the hash that is right for it, as far as it has one at the usual place.
        start = other.rfind(',"sha256":"')
        rest = other[:start] + other[start + 76 :]
        hashed = hashlib.sha256(rest.encode()).hexdigest()
        for data in (other, other[:start] + f',"sha256":"{hashed}"' + other[start + 76 :]):
            with pytest.raises(ReceiptRefused):
                read_receipt(data.encode())


def test_bytes_are_cut_added_or_moved(receipt: bytes) -> None:
    draw = random.Random(62)
    for _ in range(100):
        start, end = sorted(draw.sample(range(len(receipt)), 2))
        part = receipt[start:end]
        for changed in (
            receipt[:start] + receipt[end:],
            receipt[:end] + part + receipt[end:],
            receipt[end:] + receipt[:end],
        ):
            with pytest.raises(ReceiptRefused):
                read_receipt(changed)


FORGERIES: dict[str, tuple[Any, str]] = {
    "samples": (
        lambda r: [
            row.update(samples_ms=[ms / 2 for ms in row["samples_ms"]])
            for row in r["rows"]["timings"]
            if row["arm"] == "kernel"
        ],
        "figures",
    ),
    "a speedup": (lambda r: r["figures"]["pooled_speedups"][0].update(speedup=9.5), "9.5"),
    "a bound": (lambda r: r["figures"]["speedups"][0].update(speedup_low=1.99), "1.99"),
    "a verdict": (
        lambda r: [
            (row.update(status="correct"), row.pop("reason", None))
            for row in r["rows"]["evaluations"]
        ],
        "figures",
    ),
    "a NULL": (lambda r: r["rows"]["evaluations"][0].update(reason=None), "another form"),
    "a hidden failure": (lambda r: r["rows"]["evaluations"].pop(), "figures"),
    "a left out session": (lambda r: r["rows"]["timings"].pop(0), "figures"),
    "a view that is not computed": (lambda r: r["figures"].update(leaderboard=[]), "leaderboard"),
    "a spread": (lambda r: r["rows"]["session_spreads"].clear(), "figures"),
    "another kernel": (lambda r: r["kernel"].update(kernel_id="0" * 64), "another kernel"),
    "another task": (
        lambda r: r["tasks"][0].update(task_id="0" * 64),
        "a task_id that is not",
    ),
    "another setting": (lambda r: r["rows"]["workloads"][0].update(axes='{"N": 9}'), "workload"),
    "an unknown table": (lambda r: r["rows"].update(nothing=[]), "nothing"),
    "an unknown column": (lambda r: r["rows"]["findings"][0].update(evil=1), "unknown column"),
    "a text for a number": (lambda r: r["rows"]["runs"][0].update(snapshot_id="x"), "snapshot_id"),
    "an endless number": (lambda r: r["rows"]["runs"][0].update(snapshot_id=10**40), "BIGINT"),
    "an unknown field": (lambda r: r.update(evil="\x1b[2J"), "evil"),
    "not a number": (
        lambda r: r["figures"]["speedups"][0].update(speedup=float("nan")),
        "canonical",
    ),
    "no kernel": (lambda r: r.pop("kernel"), "kernel"),
    "a surrogate": (lambda r: r["rows"]["runs"][0].update(name="\ud800"), "surrogates"),
    "a surrogate in a name": (lambda r: r["tasks"][0].update(name="\ud800"), "surrogates"),
    "schema 0": (lambda r: r.update(receipt=0), "schema of receipts"),
    "an id that is no text": (lambda r: r["rows"]["devices"][0].update(device_id={}), "device_id"),
    "a whole number as a fraction": (
        lambda r: [
            row.update(evaluator_version=float(row["evaluator_version"]))
            for row in r["rows"]["evaluations"]
        ],
        "another form",
    ),
    "a time in other words": (
        lambda r: r["rows"]["runs"][0].update(
            started_at=r["rows"]["runs"][0]["started_at"].replace("T", " ")
        ),
        "another form",
    ),
    "a private column": (lambda r: r["rows"]["evaluations"][0].update(log="x"), "private column"),
    "a row twice": (lambda r: r["rows"]["timings"].append(r["rows"]["timings"][0]), "there twice"),
    "another order": (lambda r: r["rows"]["timings"].reverse(), "out of order"),
    "a figure in another form": (
        lambda r: r["figures"]["speedups"][0].update(n=float(r["figures"]["speedups"][0]["n"])),
        "its rows give",
    ),
}


@pytest.mark.repeats(run=8)
@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_receipt_with_the_right_hash_is_refused(receipt: bytes, name: str) -> None:
    change, word = FORGERIES[name]
    with pytest.raises(ReceiptRefused, match=word):
        check.verify(forge(receipt, change))


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "not JSON"), (b"\xff\x00", "not JSON"), (b"[1]\n", "no receipt"),
        (b"null\n", "no receipt"), (b'{"a":NaN}\n', "no receipt"), (b'{"a":1e999}\n', "no receipt"),
        (b"[" * 100_000, "deeply nested"), (b"9" * 5000 + b"\n", "not JSON"),
        (b'{"receipt":2,"program":"9.0.0"}\n', "9.0.0"), (b'{"receipt":1,"catalog":99}\n', "99"),
        (b'{"receipt":"x"}\n', "schema of receipts"), (b" " * (MOST_BYTES + 1), "64 MiB"),
    ],
)  # fmt: skip
def test_what_is_no_receipt_is_refused_with_what_to_do(data: bytes, word: str) -> None:
    with pytest.raises(ReceiptRefused, match=word) as refused:
        check.verify(data)
    assert refused.value.hint


@pytest.mark.slow
def test_code_and_task_beside_a_receipt(lake: store.Lake, receipt: bytes, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FAST["code"])
    (tmp_path / "task.py").write_text(TASK["code"].replace("\n", "\r\n"))
    done = check.verify(receipt, code=tmp_path / "mine.py", tasks=[tmp_path / "task.py"])
    assert [line.partition(":")[0] for line in done.checked] == ["form", "figures", "code", "task"]
    with pytest.raises(ReceiptRefused, match=r"not the text of 'kernel\.py'"):
        check.verify(receipt, code=tmp_path / "task.py")
    with pytest.raises(ReceiptRefused, match="level1/1"):
        check.verify(receipt, tasks=[tmp_path / "mine.py"])
    with pytest.raises(FlywheelError, match="cannot read"):
        check.verify(receipt, code=tmp_path / "nothing.py")

    several = write_receipt(make_receipt(lake, PARTS["kernel_id"]))
    (tmp_path / "kernel" / "inc").mkdir(parents=True)
    (tmp_path / "kernel" / "kernel.py").write_text(PARTS["code"])
    (tmp_path / "kernel" / "inc" / "tile.cuh").write_text("// tile\n")
    check.verify(several, code=tmp_path / "kernel")
    outside = forge(several, lambda r: r["kernel"]["files"][1].update(path="../task.py"))
    with pytest.raises(ReceiptRefused, match="outside"):
        check.verify(outside, code=tmp_path / "kernel")
    entry = forge(several, lambda r: r["kernel"].update(entry_point="Other"))
    with pytest.raises(ReceiptRefused, match="hash of its files"):
        check.verify(entry, code=tmp_path / "kernel")


def test_only_a_signature_says_who_made_a_receipt(lake: store.Lake, key: Path) -> None:
    content = make_receipt(lake, PARTS["kernel_id"])
    signers = key.with_name("signers")
    with pytest.raises(ReceiptRefused, match="not signed"):
        check.verify(write_receipt(content), allowed_signers=signers)
    content["signature"] = signing.sign(get_signed(content), key)
    signed = write_receipt(content)
    assert check.verify(signed, allowed_signers=signers).signer == "alice@example.org"
    assert any("SHA256:" in line for line in check.verify(signed).unchecked)

    # ssh-keygen accepts what follows a signature, which a receipt in its one form has not.
    for tail in ("junk", "\n", content["signature"]):
        with pytest.raises(ReceiptRefused, match="signature"):
            check.verify(write_receipt(content | {"signature": content["signature"] + tail}))
    # Somebody with another key who changes it cannot sign for alice.
    other = signers.with_name("other")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)
    changed = json.loads(signed)
    changed["stated"]["withheld"] = None
    changed["kernel"]["license"] = "0BSD"
    with pytest.raises(ReceiptRefused, match="signature"):
        check.verify(write_receipt(changed))
    changed["signature"] = signing.sign(get_signed(changed), other)
    with pytest.raises(ReceiptRefused, match="does not allow"):
        check.verify(write_receipt(changed), allowed_signers=signers)
    # A signature of alice for another purpose is none of a receipt.
    purpose = ["ssh-keygen", "-Y", "sign", "-f", str(key), "-n", "file"]
    made = subprocess.run(purpose, input=get_signed(content), capture_output=True, check=True)
    content["signature"] = made.stdout.decode()
    with pytest.raises(ReceiptRefused, match="signature"):
        check.verify(write_receipt(content), allowed_signers=signers)
    with pytest.raises(FlywheelError, match="cannot sign"):
        signing.sign(b"", signers)


def test_a_kernel_without_numbers_has_no_receipt(lake: store.Lake) -> None:
    with pytest.raises(UnknownName, match="no verdict"):
        make_receipt(lake, UNJUDGED["kernel_id"])
    with pytest.raises(UnknownName, match="no device"):
        make_receipt(lake, FAST["kernel_id"], device="MI300")
    with pytest.raises(UnknownName, match="not timed by clock throughput"):
        make_receipt(lake, FAST["kernel_id"], clock="throughput")


def test_the_commands(lake: store.Lake, receipt: bytes, key: Path, tmp_path: Path) -> None:
    def run(*words: str, stdin: str = "") -> tuple[int, str, str]:
        env = {**os.environ, "FLYWHEEL_LAKE": lake.url}
        done = commands.run(["store", *words], cwd=tmp_path, env=env, stdin=stdin)
        return done.returncode, done.stdout, done.stderr

    assert run("receipt", FAST["kernel_id"][:8]) == (0, receipt.decode(), "")
    name = FAST["kernel_id"][:8]
    code, out, _ = run("receipt", name, "--sign", str(key), "--out", "r.json")
    assert (code, out.split(",")[0]) == (0, f"receipt of kernel {FAST['kernel_id'][:12]}")
    signers = str(key.with_name("signers"))
    code, out, _ = run("verify", "r.json", "--allowed-signers", signers, "--lake", "none")
    assert code == 0
    assert "speedup      1.9" in out
    assert "checked      author: signed by alice@example.org" in out
    assert "not checked  code" in out
    code, out, _ = run("verify", "r.json", "--format", "json")
    assert (code, json.loads(out)["kernel"]["kernel_id"]) == (0, FAST["kernel_id"])
    (tmp_path / "r.json").write_bytes(receipt.replace(b"correct", b"corrupt"))
    code, out, err = run("verify", "r.json")
    assert (code, out) == (3, "")
    assert "changed" in err
    assert run("verify", "missing.json")[0] == 1
    assert run("receipt")[0] == 2
    assert json.loads(run("receipt", "--schema")[1]) == make_schema()
    assert canonicalize(json.loads(receipt)) == receipt
