"""The parts of a judgement: comparison, intervals, messages, shared memory, fingerprints."""

from __future__ import annotations

import math
import os
import socket
from typing import Any

import pytest
import torch

from evaluators.device import fingerprint, placement
from evaluators.device.placement import Place, recognize_devices
from evaluators.device.timing_conditions import compute_flush_bytes
from evaluators.judging.comparison import compare
from evaluators.memory.tensors import (
    Box,
    BoxFull,
    MappedBox,
    create_sealed_file,
    has_same_bits,
    lay_out,
)
from evaluators.processes import messages
from evaluators.references.task import Expected, ReferenceFailed
from evaluators.timing.intervals import MISSED, bound_median


def expect_value(value: Any) -> Expected:
    """Return what a reference without rounding error would answer."""
    return Expected(value, [value.double()])


def test_small_answers_do_not_let_zeros_pass() -> None:
    answers = torch.randn(64, generator=torch.Generator().manual_seed(0)) * 1e-6
    assert compare(expect_value(answers), torch.zeros(64)).reason == "incorrect_numerical"
    assert compare(expect_value(answers), answers.clone()).reason is None


def test_large_answers_may_round() -> None:
    answers = torch.full((64,), 1e6)
    found = compare(expect_value(answers), answers * (1 + 2e-6))
    assert found.reason is None
    assert found.precision_class == "fp32"
    assert found.max_abs_error == pytest.approx(2, rel=0.1)


def test_the_tolerance_is_the_stated_one() -> None:
    answers = torch.ones(100, dtype=torch.float64)  # rms 1, so the limit is 1e-10 * 2
    for factor, reason in ((0.9, None), (1.1, "incorrect_numerical")):
        given = answers.clone()
        given[7] += factor * 2e-10
        found = compare(expect_value(answers), given)
        assert found.reason == reason
        assert found.max_scaled_error == pytest.approx(factor, rel=1e-3)


def test_the_eager_references_own_error_widens_the_tolerance() -> None:
    exact = torch.ones(10, dtype=torch.float64)
    eager = (exact + 1e-3).float()
    far = (exact + 4e-3).float()
    assert compare(Expected(eager, [exact]), far).reason is None
    assert compare(Expected(exact.float(), [exact]), far).reason == "incorrect_numerical"


@pytest.mark.parametrize(
    ("wanted", "given", "reason"),
    [
        ([1.0, math.nan], [1.0, math.nan], None),
        ([1.0, math.inf], [1.0, math.inf], None),
        ([1.0, math.inf], [1.0, -math.inf], "nan"),
        ([1.0, math.nan], [1.0, 0.0], "nan"),
        ([1.0, 0.0], [1.0, math.nan], "nan"),
        ([1.0, 0.0], [math.inf, 0.0], "nan"),
        ([0.0, 0.0], [0.0, 0.0], None),
        ([0.0, 0.0], [0.0, 1e-30], "incorrect_numerical"),
    ],
)
def test_what_is_not_finite_has_to_stand_where_the_reference_has_it(
    wanted: list[float], given: list[float], reason: str | None
) -> None:
    assert compare(expect_value(torch.tensor(wanted)), torch.tensor(given)).reason == reason


def test_whole_numbers_are_exact() -> None:
    wanted = Expected(torch.arange(5), [None])
    assert compare(wanted, torch.arange(5)).reason is None
    assert compare(wanted, torch.arange(5) + torch.eye(5)[1].long()).reason is not None


def test_lists_and_tuples_differ() -> None:
    pair = torch.ones(2), torch.ones(3)
    wanted = Expected(pair, [t.double() for t in pair])
    assert compare(wanted, pair).reason is None
    assert compare(wanted, list(pair)).reason == "incorrect_type"
    assert compare(wanted, pair[:1]).reason == "incorrect_count"
    assert compare(wanted, pair[::-1]).reason == "incorrect_shape"


@pytest.mark.repeats(run=2)
@pytest.mark.parametrize("n", [7, 20, 21, 40, 80])
def test_the_interval_covers_what_it_says_and_no_rank_more(n: int) -> None:
    low, _, high = bound_median([float(i) for i in range(1, n + 1)])
    rank = int(low)
    assert high == n + 1 - rank
    below = [sum(math.comb(n, i) for i in range(r + 1)) / 2**n for r in (rank - 1, rank)]
    assert 2 * below[0] <= MISSED < 2 * below[1]


@pytest.fixture
def box() -> Box:
    """Return a piece of shared memory."""
    fd = create_sealed_file(4096)
    made = MappedBox(fd, 4096)
    os.close(fd)
    return made


def test_values_come_back_as_they_were(box: Box) -> None:
    value = [torch.randn(3, 5).t(), (7, 1.5, None, "a", True), torch.zeros(0, 2), torch.tensor(3)]
    value.append(torch.randn(4).bfloat16())
    back = box.get(box.put(value))
    assert compare(Expected(value[0], [value[0].double()]), back[0]).max_abs_error == 0
    assert back[1] == value[1]
    assert [t.shape for t in (back[2], back[3])] == [(0, 2), ()]
    assert torch.equal(back[4], value[4])


def test_what_is_too_large_or_no_value_is_refused(box: Box) -> None:
    with pytest.raises(BoxFull):
        box.put([torch.zeros(2000)])
    with pytest.raises(TypeError):
        lay_out({1.5: 1})


@pytest.mark.parametrize(
    "spec",
    [
        {"tensor": ["float32", [4], [1], 4096, 16, 0, 0]},
        {"tensor": ["float32", [4], [1], 3, 16, 0, 0]},
        {"tensor": ["float32", [2**39], [1], 0, 4096, 0, 0]},
        {"tensor": ["float32", [4], [1], 0, 16, 1, 0]},
        {"tensor": ["float32", [2**35], [0], 0, 4, 0, 0]},
        {"list": [{"tensor": ["float32", [4], [1], 0, size, 0, 0]} for size in (2048, 4096)]},
    ],
)
def test_tensors_outside_of_their_memory_are_malformed(box: Box, spec: Any) -> None:
    with pytest.raises(messages.Malformed):
        box.get(spec)


def test_shared_memory_cannot_be_cut_short() -> None:
    fd = create_sealed_file(4096)
    with pytest.raises(PermissionError):
        os.ftruncate(fd, 0)
    os.close(fd)


@pytest.mark.parametrize(
    "packet", [b"x", b"[1]", b"\xff\xfe", b"[" * 100_000, b"1" * 5000, b"x" * 200_000]
)
def test_a_packet_that_is_no_message_is_malformed(packet: bytes) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        theirs.send(packet)
        with pytest.raises(messages.Malformed):
            messages.receive(ours)


def test_descriptors_sent_along_are_not_taken() -> None:
    ours, theirs = messages.make_pair()
    with ours, theirs, open(os.devnull) as file:
        before = len(os.listdir("/proc/self/fd"))
        messages.send(theirs, {"a": 1}, [file.fileno()])
        assert messages.receive(ours) == {"a": 1}
        assert len(os.listdir("/proc/self/fd")) == before


def test_a_closed_channel_says_so() -> None:
    ours, theirs = messages.make_pair()
    theirs.close()
    with ours, pytest.raises(messages.Closed):
        messages.receive(ours)


def test_a_fingerprint_is_stable_and_names_what_was_used() -> None:
    one, other = fingerprint.read_fingerprint("cpu"), fingerprint.read_fingerprint("cpu")
    assert one["device_id"] == other["device_id"]
    assert one["kind"] == "cpu"
    assert one["torch"] == torch.__version__
    assert compute_flush_bytes("cpu") >= 32 << 20


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def test_a_device_is_recognized_without_torch(device: str) -> None:
    if device != "cpu" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    [place] = placement.divide_machine(device).places
    row = fingerprint.read_fingerprint(device.partition(":")[0])
    other = row | {"torch": "1.0"}
    assert recognize_devices([other, row], [place]) == [row]
    assert recognize_devices([row], [place, place]) == [row, row]
    assert recognize_devices([other], [place]) == []
    assert recognize_devices([row], [place, Place("auto", place.cores)]) == []
    if device == "cpu":
        assert recognize_devices([row], [Place("cpu", (*place.cores, 9999))]) == []
    else:
        # A row of the same GPU that differs in what only torch tells leaves open which it is.
        assert recognize_devices([row, row | {"cores": 1}], [place]) == []


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GeForce RTX 3090", "RTX 3090"),
        ("NVIDIA GeForce RTX 4080 SUPER", "RTX 4080"),
        ("AMD EPYC 7R13 Processor", "AMD EPYC 7R13"),
        ("AMD Ryzen 9 7950X 16-Core Processor", "AMD Ryzen 9 7950X"),
    ],
)
def test_devices_have_short_names(model: str, name: str) -> None:
    assert fingerprint.shorten_name(model) == name


@pytest.mark.slow
def test_inputs_follow_their_seed_and_weights_theirs(references: Any) -> None:
    task = (
        "import torch\nclass Model(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.w = torch.nn.Parameter(torch.randn(4))\n"
        "    def forward(self, x): return x * self.w\n"
        "def get_inputs(): return [torch.randn(4)]\ndef get_init_inputs(): return []\n"
    )
    one, other = references(task), references(task)
    assert torch.equal(one.inputs(5)[0], other.inputs(5)[0])
    assert not torch.equal(one.inputs(5)[0], one.inputs(6)[0])
    torch.manual_seed(42)
    weights = torch.randn(4)
    assert torch.equal(one.answer([torch.ones(4)]).value, weights)
    with pytest.raises(ReferenceFailed, match="does not define get_inputs"):
        references("class Model: pass")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.uint8])
@pytest.mark.parametrize("size", [0, 1, 2, 7, 8, 16, 1001])
def test_bytes_are_compared_however_many_and_wherever_they_lie(
    dtype: torch.dtype, size: int
) -> None:
    held = (torch.arange(size + 3) % 7).to(dtype)
    for start in range(3):
        one = held[start : start + size]
        assert has_same_bits(one, one.clone())
        assert has_same_bits(one.clone(), one)
        for place in {0, size // 2, size - 1} if size else ():
            other = one.clone()
            other[place] += 1
            assert not has_same_bits(one, other)


def test_the_same_bytes_are_more_than_equal_numbers() -> None:
    nan, zero = torch.tensor([math.nan, 1.0]), torch.zeros(2)
    assert has_same_bits(nan, nan.clone())
    assert not has_same_bits(zero, -zero)
    assert not has_same_bits(zero, torch.zeros(1, 2))
    assert not has_same_bits(torch.zeros(2), torch.zeros(2, dtype=torch.float64))
    rows = torch.arange(16.0).view(4, 4)
    assert has_same_bits(rows.T, rows.T.contiguous())
    assert not has_same_bits(rows.T, rows)
    for few in (torch.zeros(4, dtype=torch.bool)[::2][:0], torch.ones(4)[::2][:1]):
        assert has_same_bits(few, few.clone())


@pytest.mark.slow
def test_inputs_are_those_that_torch_draws_under_their_seed(references: Any) -> None:
    code = (
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x, n):\n"
        "        return torch.nn.functional.dropout(x) + n\n"
        "def get_inputs(): return [torch.randn(9), torch.randint(99, (9,))]\n"
        "def get_init_inputs(): return []\n"
    )
    reference = references(code)
    torch.manual_seed(7)
    drawn = [torch.randn(9), torch.randint(99, (9,))]
    assert all(map(torch.equal, reference.inputs(7), drawn))
    torch.manual_seed(8)
    answer = torch.nn.functional.dropout(drawn[0]) + drawn[1]
    assert torch.equal(reference.answer(drawn, 8).value, answer)


def test_fast_cores_are_picked_among_those_allowed_and_pin_nothing() -> None:
    allowed = os.sched_getaffinity(0)
    picked = placement.pick_fast_cores(sorted(allowed))
    assert picked is not None
    assert len(set(picked)) == len(picked) == min(2, len(allowed))
    assert set(picked) <= allowed
    assert placement.pick_fast_cores([*allowed, 4000]) is None
    assert os.sched_getaffinity(0) == allowed
