"""A winner of a lake as a function: whose code runs, and what is told otherwise."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import builders
import pytest
import torch
from winner_lakes import make_lake

import evaluators
import store
from store.errors import FlywheelError, RowsRejected, UnknownName
from store.receipts.receipt import get_signed, make_receipt, write_receipt
from store.receipts.signing import sign
from store.upkeep.history import add_tag


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a lake with a tag, in which diag_matmul/broadcast.py has won here."""
    url = make_lake(tmp_path_factory.mktemp("winners") / "lake", {"diag_matmul": "broadcast"})
    with store.writer(url, author="tests") as writer, store.open(url) as lake:
        add_tag(writer, "mine", lake.snapshot, "verdicts of this machine")
    return url


@pytest.fixture(scope="module")
def kernel_id(url: str) -> str:
    """Return the id of the winner."""
    with store.open(url) as lake:
        query = "SELECT kernel_id FROM kernels WHERE path = 'diag_matmul/broadcast.py'"
        [row] = lake.run(query).rows()
        return str(row["kernel_id"])


def uses(winner: object) -> list[str]:
    """Return the kernels that a winner has called."""
    return [one[2] for one in winner._tables.kernels.values() if one]  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_kernel_is_named_by_its_id_or_by_a_tag(url: str, kernel_id: str) -> None:
    for trust in (kernel_id, "mine", [kernel_id, "mine"]):
        diag_matmul = evaluators.load_best("diag_matmul", lake=url, trust=trust)
        inputs = diag_matmul._first.form  # type: ignore[attr-defined]
        scale, matrix = (torch.randn(one[0]) for one in inputs)
        for _ in range(2):
            torch.testing.assert_close(diag_matmul(scale, matrix), scale.diag() @ matrix)
        assert uses(diag_matmul) == [kernel_id]


def test_nothing_runs_unless_it_is_trusted(url: str, kernel_id: str) -> None:
    with pytest.raises(FlywheelError, match="without the sandbox") as refused:
        evaluators.load_best("diag_matmul", lake=url)
    assert 'trust="KERNEL_ID"' in str(refused.value)
    with pytest.raises(FlywheelError, match=f"trust does not cover the winner.*{kernel_id}"):
        evaluators.load_best("diag_matmul", lake=url, trust="0" * 64)


@pytest.mark.slow
def test_what_is_not_there_is_named(url: str, kernel_id: str) -> None:
    with pytest.raises(UnknownName, match='no tag "yours"'):
        evaluators.load_best("diag_matmul", lake=url, trust="yours")
    with pytest.raises(FlywheelError, match="is no tag, and no whole id of a kernel"):
        evaluators.load_best("diag_matmul", lake=url, trust=kernel_id[:12])
    with pytest.raises(UnknownName, match='no task "nothing"'):
        evaluators.load_best("nothing", lake=url, trust="mine")
    with pytest.raises(UnknownName, match="no device with a winner of diag_matmul"):
        evaluators.load_best("diag_matmul", lake=url, trust="mine", device="B200")
    with pytest.raises(FlywheelError, match=r"no kernel has won at single_gate.*trivial"):
        evaluators.load_best("single_gate", lake=url, trust="mine")


@pytest.mark.slow
def test_a_pulled_verdict_needs_the_key_of_its_publisher(tmp_path: Path) -> None:
    device = builders.device("here")
    task, kernel = builders.task(), builders.kernel()
    sizes = builders.workload(task)
    pulled = {"origin": "someone/lake"}
    judged = builders.evaluation(kernel, task, sizes, device, equivalent=True, **pulled)
    url = str(tmp_path / "lake")
    with store.writer(url, author="tests") as writer:
        writer.append(
            {
                "tasks": [task], "task_labels": [builders.label(task)], "workloads": [sizes],
                "devices": [device], "kernels": [kernel], "policies": [builders.policy()],
                "generations": [builders.generation(builders.policy(), task, kernel)],
                "evaluations": [judged],
                "timings": [
                    row | pulled for row in builders.session(judged, [1.0], eager=[2.0])
                ],
            },
            "as pulled",
        )  # fmt: skip
        with store.open(url) as lake:
            add_tag(writer, "mine", lake.snapshot, "")
    with pytest.raises(FlywheelError, match="whose verdict was pulled from someone/lake"):
        evaluators.load_best("level1/1", lake=url, trust="mine")

    key, other = tmp_path / "key", tmp_path / "other"
    for file in (key, other):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(file)]
        subprocess.run(command, check=True)
    with store.open(url) as lake:
        receipt = make_receipt(lake, kernel["kernel_id"])
    unsigned, signed = tmp_path / "unsigned.json", tmp_path / "receipt.json"
    unsigned.write_bytes(write_receipt(receipt))
    signed.write_bytes(write_receipt(receipt | {"signature": sign(get_signed(receipt), key)}))
    allowed, others = tmp_path / "allowed_signers", tmp_path / "other_signers"
    allowed.write_text(f"someone {key.with_suffix('.pub').read_text()}")
    others.write_text(f"someone {other.with_suffix('.pub').read_text()}")

    square = evaluators.load_best("level1/1", lake=url, trust=signed, signers=allowed)
    with pytest.warns(RuntimeWarning, match="no kernel has won on"):  # it won on another machine
        assert torch.equal(square(torch.full((4,), 3.0)), torch.full((4,), 9.0))
    for file, signers, told in (
        (signed, None, "may be anybody's"),
        (unsigned, allowed, "not signed"),
        (signed, others, "does not allow"),
    ):
        with pytest.raises(FlywheelError, match=told):
            evaluators.load_best("level1/1", lake=url, trust=file, signers=signers)


def test_code_without_its_id_is_not_written(tmp_path: Path) -> None:
    from store.winners.package import write_package
    from store.winners.selection import TaskWinners

    text = "raise SystemExit('it ran')\n"
    winners = TaskWinners(
        task_id=hashlib.sha256(text.encode()).hexdigest(), task="t", code=text, license=None,
        rows=[{"kernel_id": "0" * 64}],
        kernels={"0" * 64: {
            "code": text, "path": "kernel.py", "entry_point": "ModelNew", "other_files": None,
        }},
        models={},
    )  # fmt: skip
    with pytest.raises(RowsRejected, match="the id is the hash of the text"):
        write_package(winners, tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_name_alone_imports_no_torch() -> None:
    program = "import sys, evaluators\nevaluators.load_best\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
