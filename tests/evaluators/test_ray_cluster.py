"""`evaluators run --ray` and `serve --ray`: judges on the nodes of a cluster, any of which may die.

The nodes are raylets on this machine that declare a GPU each (`declared_gpus`). `kill -9` hits the
process of an actor, its judge process, a node, the run, or the server; or the device of an actor is
found sick (`slow_evaluator`). No kernel is lost, and none has two verdicts in the lake.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import commands
import declared_gpus
import pytest
import slow_evaluator
from judge_services import Service, wait_until
from slow_evaluator import KERNELS, count_verdicts

import store
from evaluators import Pool
from evaluators.scheduling import ray_cluster

pytest.importorskip("ray", reason="Ray is not installed")
pytestmark = pytest.mark.slow

ROOT = Path(ray_cluster.__file__).parents[2]
NODE: dict[str, Any] = {
    "num_cpus": 1,
    "num_gpus": 1,
    "object_store_memory": 80 << 20,
    "include_dashboard": False,
}
LIMIT_S = 240.0
STARTS = 5


def start_nodes(*nodes: dict[str, Any]) -> Any:
    """Return a cluster with these nodes. On a busy machine one may not start in Ray's 30 s."""
    from ray.cluster_utils import Cluster

    for left in reversed(range(STARTS)):
        started = Cluster()
        try:
            for node in nodes:
                started.add_node(**node)
        except Exception:
            started.shutdown()
            if not left:
                raise
        else:
            return started
    raise AssertionError


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a cluster of two nodes with a GPU each, which find the evaluator in tmp_path."""
    monkeypatch.chdir(tmp_path)
    slow_evaluator.write(tmp_path)
    for name, value in {
        "FLYWHEEL_CACHE": str(tmp_path / "cache"),
        "PYTHONPATH": str(ROOT),
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }.items():
        monkeypatch.setenv(name, value)
    started = start_nodes(NODE, NODE)
    try:
        yield started
    finally:
        started.shutdown()


@pytest.fixture
def lake(lake_url: str) -> str:
    """Return a lake with kernels to judge."""
    slow_evaluator.append_kernels(lake_url)
    return lake_url


@pytest.fixture
def driver(cluster: Any, lake: str) -> Iterator[subprocess.Popen[str]]:
    """Return a run that has given its first verdict and is in the middle of other kernels."""
    process = subprocess.Popen(
        command(lake, cluster, "--seconds", "4", "--verbose"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    said = ""
    try:
        while "correct " not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def command(url: str, cluster: Any, *options: str) -> list[str]:
    """Return the words of a run on the GPUs of a cluster."""
    words = ["evaluators", "run", "--evaluator", "slow", "--lake", url, "--ray", cluster.address]
    return [sys.executable, declared_gpus.__file__, *words, *options]


def read_rest(driver: subprocess.Popen[str]) -> str:
    """Wait for the end of a run; return what it printed."""
    said = driver.communicate(timeout=LIMIT_S)[0]
    assert driver.returncode == 0, said
    return said


def list_actors(cluster: Any) -> list[int]:
    """Return the processes of the judges' actors, by the title that Ray gives them."""
    raylets = {
        info.process.pid
        for node in cluster.list_all_nodes()
        for info in node.all_processes["raylet"]
    }
    return [
        pid
        for pid, parent, title in list_processes()
        if parent in raylets and title.startswith("ray::_Remote")
    ]


def list_judges(actors: list[int]) -> list[int]:
    """Return the judge processes that actors have started."""
    return [pid for pid, parent, _ in list_processes() if parent in actors]


def list_processes() -> Iterator[tuple[int, int, str]]:
    """Yield the id, the parent and the command line of every process."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "stat").read_text()
            title = (folder / "cmdline").read_text()
        except OSError:
            continue
        yield int(folder.name), int(status.rpartition(")")[2].split()[1]), title


def are_gone(pids: list[int]) -> bool:
    """Return whether none of these processes runs."""
    return not any(pid in pids and title for pid, _, title in list_processes())


def run_again(url: str, cluster: Any) -> int:
    """Run the command once more; return the number of verdicts that it gives."""
    done = subprocess.run(
        command(url, cluster), capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "another run" not in done.stderr
    return int(done.stdout.partition("+")[2].split()[0])


def test_a_killed_actor_is_replaced(cluster: Any, lake: str, driver: subprocess.Popen[str]) -> None:
    first, second = list_actors(cluster)
    judges = list_judges([first])
    assert judges
    os.kill(first, signal.SIGKILL)
    assert "an actor is lost" in read_rest(driver)
    assert count_verdicts(lake) == [1] * KERNELS
    wait_until(lambda: are_gone([first, second, *judges]), LIMIT_S)


def test_the_next_run_continues_after_a_killed_driver(
    cluster: Any, lake: str, driver: subprocess.Popen[str]
) -> None:
    actors = list_actors(cluster)
    processes = [*actors, *list_judges(actors)]
    assert len(processes) >= 4
    driver.kill()
    driver.wait()
    assert 0 < run_again(lake, cluster) < KERNELS
    assert count_verdicts(lake) == [1] * KERNELS
    wait_until(lambda: are_gone(processes), LIMIT_S)


def test_a_killed_judge_is_started_again(
    cluster: Any, lake: str, driver: subprocess.Popen[str]
) -> None:
    [judge] = list_judges(list_actors(cluster)[:1])
    os.kill(judge, signal.SIGKILL)
    said = read_rest(driver)
    assert "ended by SIGKILL" in said
    assert "an actor is lost" not in said
    assert count_verdicts(lake) == [1] * KERNELS


def test_a_lost_node_leaves_its_kernels_to_the_other(
    cluster: Any, lake: str, driver: subprocess.Popen[str]
) -> None:
    [lost] = [node for node in cluster.list_all_nodes() if not node.head]
    cluster.remove_node(lost, allow_graceful=False)
    said = read_rest(driver)
    assert "an actor is lost" in said
    assert count_verdicts(lake) == [1] * KERNELS


def test_another_node_takes_the_place_of_a_lost_one(
    cluster: Any, lake: str, driver: subprocess.Popen[str]
) -> None:
    [lost] = [node for node in cluster.list_all_nodes() if not node.head]
    cluster.add_node(**NODE)
    cluster.remove_node(lost, allow_graceful=False)
    said = read_rest(driver)
    assert "an actor is lost" in said
    assert "takes no more kernels" not in said
    assert count_verdicts(lake) == [1] * KERNELS


def test_a_service_on_a_cluster_outlives_nodes_and_is_outlived_by_its_queue(
    cluster: Any, lake_url: str
) -> None:
    task = slow_evaluator.append_kernels(lake_url)
    options = ("--evaluator", "slow", "--seconds", "1", "--ray", cluster.address)
    texts = [f"class ModelNew:\n    m = {n}\n" for n in range(KERNELS)]
    body = {"judgements": [{"task": task, "code": text} for text in texts]}
    with Service(lake_url, *options, start=declared_gpus.__file__) as service:
        wait_until(service.has_device, LIMIT_S)
        views = service.call("POST", "/v1/judgements/batch", body).json()["judgements"]
        service.wait(views[0]["id"])
        [lost] = [node for node in cluster.list_all_nodes() if not node.head]
        cluster.remove_node(lost, allow_graceful=False)
        for view in views[1 : KERNELS // 2]:
            service.wait(view["id"])
        port = service.port
        service.kill()
    with Service(lake_url, *options, start=declared_gpus.__file__, port=port) as service:
        ends = [service.wait(view["id"]) for view in views]
        assert [end["verdict"]["status"] for end in ends] == ["correct"] * KERNELS
        assert service.stop() == 0
    assert count_verdicts(lake_url) == [1] * KERNELS


def count_statuses(url: str) -> dict[str, int]:
    """Return the number of evaluations of each status."""
    with store.open(url) as opened:
        rows = opened.sql("SELECT status, count(*) AS n FROM evaluations GROUP BY status").rows()
        return {row["status"]: row["n"] for row in rows}


def test_a_sick_device_leaves_its_kernels_to_the_others(
    cluster: Any, lake: str, driver: subprocess.Popen[str]
) -> None:
    first, second = list_actors(cluster)
    slow_evaluator.make_sick(Path.cwd(), [first])
    said = read_rest(driver)
    assert said.count("takes no more kernels") == 1
    assert "cannot be measured on: it multiplies matrices wrongly" in said
    assert "an actor is lost" not in said
    assert count_verdicts(lake) == [1] * KERNELS
    # The kernel after which the device was found sick is the last one that it judged.
    assert count_statuses(lake) == {"correct": KERNELS - 1, "crash": 1}
    wait_until(lambda: are_gone([first, second]), LIMIT_S)


def test_without_a_device_left_a_run_ends_and_the_next_one_continues(
    cluster: Any, lake: str, driver: subprocess.Popen[str]
) -> None:
    actors = list_actors(cluster)
    processes = [*actors, *list_judges(actors)]
    slow_evaluator.make_sick(Path.cwd(), actors)
    said = driver.communicate(timeout=LIMIT_S)[0]
    assert driver.returncode == 1, said
    assert said.count("takes no more kernels") == 2
    assert f"error: on {socket.gethostname()}: " in said
    assert "Check it with nvidia-smi, then run again." in said
    statuses = count_statuses(lake)
    assert statuses["crash"] == 2
    stored = sum(statuses.values())
    assert 2 < stored < KERNELS
    assert count_verdicts(lake) == [1] * stored
    wait_until(lambda: are_gone(processes), LIMIT_S)
    slow_evaluator.make_sick(Path.cwd(), [])
    assert run_again(lake, cluster) == KERNELS - stored
    assert count_verdicts(lake) == [1] * KERNELS


def test_a_pool_judges_on_a_cluster(cluster: Any, lake: str) -> None:
    with store.open(lake) as opened:
        rows = opened.sql("SELECT kernel_id, task_id FROM generations LIMIT 2").rows()
    pairs = [(row["kernel_id"], row["task_id"]) for row in rows]
    with Pool(lake, "cpu", evaluator="slow", workers=2, ray=cluster.address) as pool:
        verdicts = pool.judge(pairs)
    assert [verdicts[pair].status for pair in pairs] == ["correct"] * 2


def test_actors_judge_the_starter_suite(cluster: Any, lake_url: str) -> None:
    starter = ["store", "import", "starter", "--no-measured", "--lake", lake_url]
    assert commands.run(starter, cwd=Path.cwd()).returncode == 0
    words = ["evaluators", "run", "--lake", lake_url, "--timing-s", "0.1"]
    two = ["--on", "cpu", "--ray", cluster.address, "--workers", "2", "--limit", "4"]
    done = commands.run([*words, *two], cwd=Path.cwd(), timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("evaluations +4, ")
    assert count_verdicts(lake_url) == [1] * 4


def test_a_cluster_without_a_gpu_or_an_answer_is_refused(lake: str) -> None:
    bare = start_nodes(NODE | {"num_gpus": 0})
    words = ["evaluators", "run", "--lake", lake]
    try:
        for address, why in (
            (str(bare.address), "has no GPU"),
            ("127.0.0.1:1", "no Ray cluster at"),
        ):
            done = commands.run([*words, "--ray", address], cwd=Path.cwd(), timeout=LIMIT_S)
            assert done.returncode == 1
            assert why in done.stderr
            assert "Traceback" not in done.stderr
    finally:
        bare.shutdown()
    assert count_verdicts(lake) == []
