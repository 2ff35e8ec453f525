"""Engines: a Dask cluster gives the bits of threads, whatever happens to its workers.

Real clusters of real processes. Faults are real signals, sent at a known moment: when the first
part of a sweep is done, or by the kernel inside a worker.

Workers are forks of a server that has imported Dask: an interpreter for each of some thirty workers
would take most of the time. Those of `--workers` are interpreters.
"""

import contextlib
import multiprocessing.forkserver
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from command_line import PRELOADED, SERVER, run, start_server
from engine_cases import Troubled

import divprism as dp
from divprism.core.arrays import StoredRows
from divprism.engines import Serial, Threads, Tree, spell_bytes
from divprism.engines._interrupts import interrupts_remembered, raise_interrupt

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

pytestmark = pytest.mark.filterwarnings("ignore")  # of Dask, about ports and processes

SIZE = 400
SCORES = {"kernel_x": dp.Gaussian(3.0), "kernel_t": dp.Gaussian(2.0)}
SWEPT = dp.Lanczos(num_probes=8, depth=4)


def pairs(size=SIZE):
    """Outputs and prompts, four outputs to a prompt."""
    rng = np.random.default_rng(0)
    t = np.repeat(rng.standard_normal((size // 4, 6)), 4, axis=0)
    return rng.standard_normal((size, 10)).astype(np.float32), t.astype(np.float32)


def bits(result):
    """Every number of an evaluation."""
    numbers = [float(score) for score in result.scores.values()]
    numbers += [score.standard_error for score in result.scores.values()]
    for interval in result.intervals.values():
        numbers += [interval.low, interval.high]
    if result.baseline is not None:
        numbers.append(result.baseline.baseline)
    return numbers


@pytest.fixture(scope="module", autouse=True)
def server_with_dask():
    """Fork from a server of its own, because Dask also replaces a part of the standard library."""
    server = multiprocessing.forkserver.ForkServer()
    server.set_forkserver_preload([*PRELOADED, "distributed.nanny", "engine_cases"])
    start_server(server)
    connect = server.connect_to_new_process
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiprocessing.forkserver, "connect_to_new_process", connect)
        yield
    SERVER.set_forkserver_preload(PRELOADED)  # Dask has set what the other server preloads
    server._stop()


@pytest.fixture(scope="module")
def client():
    """A client of a cluster of three processes."""
    with cluster(3) as local, distributed.Client(local) as client:
        yield client


@contextlib.contextmanager
def cluster(processes, **options):
    """Start a cluster of single-threaded processes, which ends with the context."""
    options = {"dashboard_address": ":0", "silence_logs": 50, **options}
    forks = {"distributed.worker.multiprocessing-method": "forkserver"}
    with (
        dask.config.set(forks),
        distributed.LocalCluster(n_workers=processes, threads_per_worker=1, **options) as local,
    ):
        yield local


@pytest.fixture
def two_workers():
    """A client of a fresh cluster of two processes, for tests that damage it."""
    with cluster(2) as local, distributed.Client(local) as client:
        yield client


SETTINGS = {
    "order 1": {"estimator": SWEPT},
    "order 2": {"order": 2},
    "order 0.5": {"order": 0.5, "estimator": SWEPT},
    "truncated": {"truncation": 20, "estimator": SWEPT},
    "nystrom": {"estimator": dp.Nystrom(64)},
    "fourier": {"estimator": dp.Fourier(32)},
    "subsample": {"order": 2, "estimator": dp.Subsample(200)},
    "intervals": {"interval": 0.9, "num_permutations": 19, "estimator": SWEPT},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_cluster_gives_the_bits_of_threads(name, client):
    options = SCORES | SETTINGS[name]
    expected = bits(dp.evaluate(*pairs(), **options))
    assert bits(dp.evaluate(*pairs(), engine=client, **options)) == expected


def test_weights_and_files_give_the_bits_of_threads(client, tmp_path):
    x, t = pairs()
    weights = np.random.default_rng(1).dirichlet(np.ones(SIZE))
    options = SCORES | {"estimator": SWEPT, "weights": weights}
    expected = bits(dp.evaluate(x, t, **options))
    assert bits(dp.evaluate(x, t, engine=client, **options)) == expected
    np.save(tmp_path / "x.npy", x)
    stored = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert bits(dp.evaluate(stored, t, engine=client, **options)) == expected


def test_workers_embed_and_this_process_finds_all_vectors_in_the_cache(client, tmp_path):
    texts = [f"answer number {number % 300}" for number in range(600)]
    samples = dp.Samples(outputs=texts, prompts=["a prompt"] * 600)
    expected = dp.embed(samples, cache=False)
    embedded = dp.embed(samples, cache=tmp_path, engine=client)
    assert np.array_equal(embedded.outputs, expected.outputs)
    notes = [str(note) for note in embedded.notes if " distinct text" in str(note)]
    assert len(notes) == 2
    assert all("nothing to embed, all in the cache" in note for note in notes)


def test_an_image_that_workers_cannot_read_is_named(client, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no image")
    samples = dp.load(tmp_path)
    with pytest.raises(dp.DataError, match=r"broken\.png"):
        dp.embed(samples, cache=tmp_path / "cache", engine=client)


@pytest.mark.parametrize("estimator", [SWEPT, dp.Nystrom(64), dp.Fourier(32)])
def test_a_run_that_began_on_a_cluster_continues_in_threads(estimator, client, tmp_path):
    x, t = pairs()
    options = {**SCORES, "estimator": estimator, "interval": None, "resume": tmp_path}
    expected = bits(dp.evaluate(x, t, engine=client, **options))
    finished = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert bits(dp.evaluate(x, t, **options)) == expected
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == finished


def test_a_worker_killed_in_the_middle_of_a_sweep_changes_no_bit(two_workers, tmp_path):
    kernel = Troubled(3.0, trouble="kill", home=os.getpid(), folder=str(tmp_path))
    options = {"kernel_t": dp.Gaussian(2.0), "estimator": SWEPT}
    expected = bits(dp.evaluate(*pairs(), kernel_x=kernel, **options))
    assert not (tmp_path / "killed").exists()
    found = dp.evaluate(*pairs(), kernel_x=kernel, engine=two_workers, **options)
    assert (tmp_path / "killed").exists()
    assert bits(found) == expected


def test_the_only_worker_killed_takes_the_data_along_and_they_are_sent_again(tmp_path):
    kernel = Troubled(3.0, trouble="kill", home=os.getpid(), folder=str(tmp_path))
    expected = float(dp.rke(pairs(1000)[0], kernel=kernel))
    with cluster(1) as local, distributed.Client(local) as client:
        assert float(dp.rke(pairs(1000)[0], kernel=kernel, engine=client)) == expected
    assert (tmp_path / "killed").exists()


def test_a_worker_that_joins_late_changes_no_bit():
    x, t = pairs()
    options = SCORES | {"estimator": SWEPT}
    expected = bits(dp.evaluate(x, t, **options))
    with cluster(1) as local, distributed.Client(local) as client:

        def join(text, fraction):
            local.scale(2)

        assert bits(dp.evaluate(x, t, engine=client, progress=join, **options)) == expected
        client.wait_for_workers(2, timeout=60)


def test_a_slow_worker_changes_no_bit(two_workers, tmp_path):
    kernel = Troubled(3.0, trouble="slow", home=os.getpid(), folder=str(tmp_path))
    expected = float(dp.rke(pairs(4000)[0], kernel=dp.Gaussian(3.0)))
    assert float(dp.rke(pairs(4000)[0], kernel=kernel, engine=two_workers)) == expected


def test_a_worker_computes_each_tile_once_for_all_sweeps(tmp_path):
    kernel = Troubled(3.0, trouble="count", home=os.getpid(), folder=str(tmp_path))
    x, _ = pairs()
    # Dask drops copies of the same data; here many times in each sweep.
    often = {"distributed.scheduler.active-memory-manager.interval": "20ms"}
    with dask.config.set(often), cluster(2) as local, distributed.Client(local) as client:
        dp.vendi(x, kernel=kernel, estimator=dp.Lanczos(num_probes=8, depth=8), engine=client)
    num_tiles = 4 * 5 // 2
    counts = [path.stat().st_size for path in tmp_path.iterdir()]
    assert sum(counts) >= num_tiles
    # A worker without work may take that of the other, and then computes its tiles.
    assert max(counts) <= num_tiles


def test_a_worker_that_runs_out_of_memory_is_replaced(tmp_path):
    kernel = Troubled(3.0, trouble="memory", home=os.getpid(), folder=str(tmp_path))
    expected = float(dp.rke(pairs(1000)[0], kernel=dp.Gaussian(3.0)))
    with cluster(2, memory_limit="400MB") as local, distributed.Client(local) as client:
        assert float(dp.rke(pairs(1000)[0], kernel=kernel, engine=client)) == expected
    assert (tmp_path / "filled").exists()


def test_workers_that_always_run_out_of_memory_end_in_a_sentence(tmp_path):
    kernel = Troubled(3.0, trouble="always-memory", home=os.getpid(), folder=str(tmp_path))
    with (
        cluster(1, memory_limit="400MB") as local,
        distributed.Client(local) as client,
        pytest.raises(dp.EngineError, match="workers of the cluster ended 5 times"),
    ):
        dp.rke(pairs(1000)[0], kernel=kernel, engine=client)


def test_an_error_inside_a_task_is_raised_as_it_is(two_workers):
    class Broken(dp.Gaussian):
        def block(self, a, b):
            if len(a) > 1:
                raise dp.DataError("these points are broken.")
            return super().block(a, b)

    with pytest.raises(dp.DataError, match="these points are broken"):
        dp.rke(pairs(1000)[0], kernel=Broken(1.0), engine=two_workers)


def test_a_scheduler_that_vanishes_is_one_sentence():
    code = (
        "from distributed import LocalCluster\n"
        "if __name__ == '__main__':\n"
        "    c = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=':0')\n"
        "    print(c.scheduler_address, flush=True)\n"
        "    input()\n"
    )
    command = [sys.executable, "-c", code]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        address = process.stdout.readline().strip()

        def vanish(text, fraction):
            process.send_signal(signal.SIGKILL)

        engine = dp.Dask(address)
        with pytest.raises(dp.EngineError, match="the cluster was lost"):
            dp.evaluate(*pairs(), engine=engine, progress=vanish, estimator=SWEPT, **SCORES)
        engine.client.close(timeout=1)


def test_engines_refuse_what_they_cannot_run(two_workers):
    torch = pytest.importorskip("torch")
    x = torch.zeros((4, 2)) + torch.arange(4)[:, None]
    with pytest.raises(dp.ArgumentError, match="a cluster computes with NumPy arrays only"):
        dp.rke(x, kernel=dp.Gaussian(1.0), engine=two_workers)
    with pytest.raises(dp.ArgumentError, match="`client` must be a distributed"):
        dp.Dask(3)


def test_far_more_processes_than_cores_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", pairs()[0])
    result = run("score", tmp_path / "x.npy", "--workers", "1000000")
    assert result.returncode == 2
    assert result.stderr.decode().startswith("divprism: --workers must be at most ")


def test_no_scheduler_at_an_address_is_one_sentence(monkeypatch):
    monkeypatch.setattr("divprism.engines.dask._CONNECT_SECONDS", 0.5)
    with pytest.raises(dp.EngineError, match="no scheduler of Dask answers at tcp"):
        dp.Dask("tcp://127.0.0.1:9")


@pytest.mark.parametrize("greeting", [b"", b"\0" * 64, b"\xff" * 64, b"HTTP/1.1 400 Bad\r\n"])
def test_a_server_that_is_no_scheduler_is_one_sentence(greeting, monkeypatch):
    monkeypatch.setattr("divprism.engines.dask._CONNECT_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=greet, args=(server, greeting), daemon=True).start()
        port = server.getsockname()[1]
        with pytest.raises(dp.EngineError, match="no scheduler of Dask answers at tcp"):
            dp.Dask(f"tcp://127.0.0.1:{port}")


def greet(server, greeting):
    """Send the same bytes to everybody, and stay connected."""
    held = []
    with contextlib.suppress(OSError):
        while True:
            connection, _ = server.accept()
            connection.sendall(greeting)
            held.append(connection)


@pytest.mark.parametrize(
    "address", ["", "host", "tls://h:1", "tcp://\x1b[31m:1", "tcp://h:99999", "tcp://h:1/x"]
)
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(dp.ArgumentError, match="must be like tcp://HOST:PORT"):
        dp.Dask(address)


def test_the_command_line_computes_in_processes_and_closes_them(tmp_path):
    x, t = pairs()
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "t.npy", t)
    arguments = ["score", str(tmp_path / "x.npy"), "--prompts", str(tmp_path / "t.npy")]
    arguments += ["--estimator", "lanczos(num_probes=8, depth=4)", "--format", "csv", "-q"]
    expected = run(*arguments)
    found = run(*arguments, "--workers", "2")
    assert (found.returncode, found.stdout) == (0, expected.stdout)


def test_an_interrupt_ends_the_command_and_its_processes(tmp_path):
    """Ctrl-C reaches the whole group of processes, as in a terminal."""
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((60_000, 64)))
    command = [sys.executable, "-m", "divprism", "score", str(tmp_path / "x.npy"), "--order", "2"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True}
    with subprocess.Popen([*command, "--workers", "2"], **pipes) as process:
        session = os.getpgid(process.pid)
        # Interrupts are ignored until all workers have started.
        wait_for(lambda: num_workers(session) == 2 and not ignores_interrupts(process.pid))
        os.killpg(session, signal.SIGINT)
        _, complaint = process.communicate(timeout=60)
        # A shell shows 130 for both. Python ends itself by the signal if it came while a module
        # was imported.
        assert process.returncode in (130, -signal.SIGINT)
        assert b"Traceback" not in complaint
    wait_for(lambda: not members(session))


def test_an_interrupt_inside_the_hook_of_dask_is_raised_later(tmp_path):
    """Python prints and drops what is raised there, also in what the hook calls."""
    hook = str(tmp_path / "distributed" / "gc.py")
    caught = []
    code = compile("def hook(call):\n    call()\n", hook, "exec")
    names = {}
    exec(code, names)

    def clock():
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            caught.append("inside")

    with interrupts_remembered():
        names["hook"](clock)
        assert caught == []
        with pytest.raises(KeyboardInterrupt):
            raise_interrupt()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    raise_interrupt()  # nothing is left for the next computation


def ignores_interrupts(pid):
    """Whether a process ignores SIGINT, by the bits that Linux shows."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [mask] = [line.split()[1] for line in lines if line.startswith("SigIgn")]
    return bool(int(mask, 16) >> (signal.SIGINT - 1) & 1)


def num_workers(group):
    """Processes of a group that multiprocessing has started to run something."""
    import psutil

    lines = [psutil.Process(pid).cmdline() for pid in members(group)]
    return sum("spawn_main" in " ".join(line) for line in lines)


def members(group):
    """Processes of a group that are alive."""
    import psutil

    found = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


def wait_for(condition, seconds=60):
    """Ask again and again; fail if it does not come true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("count", range(1, 20))
def test_neighbours_are_merged_in_a_tree_of_fixed_shape(count):
    class Text(str):
        __slots__ = ()

        def merged(self, other):
            return Text(f"({self}{other})")

    tree = Tree()
    level = [Text(chr(97 + number)) for number in range(count)]
    for one in level:
        tree.add(one)
    while len(level) > 1:
        above = [a.merged(b) for a, b in zip(level[::2], level[1::2], strict=False)]
        level = above + level[len(above) * 2 :]
    assert tree.sum() == level[0]


def test_threads_and_the_calling_thread_give_the_same_bits():
    expected = bits(dp.evaluate(*pairs(), engine=Threads(), estimator=SWEPT, **SCORES))
    assert bits(dp.evaluate(*pairs(), engine=Serial(), estimator=SWEPT, **SCORES)) == expected


def test_rows_of_a_file_are_found_again_by_another_process(tmp_path):
    whole = np.arange(60.0).reshape(20, 3)
    np.save(tmp_path / "x.npy", whole)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    for rows in (slice(0, 20), slice(5, 9), slice(19, 20)):
        place = pickle.loads(pickle.dumps(StoredRows.of(mapped[rows])))
        np.testing.assert_array_equal(place.open(), whole[rows])


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (999.4, "999 B"),
        (999.7, "1 kB"),
        (999_700, "1 MB"),
        (999_999_999, "1 GB"),
        (1e13, "10,000 GB"),
    ],
)
def test_amounts_of_memory_are_never_printed_as_powers_of_ten(amount, text):
    assert spell_bytes(amount) == text


def test_workers_that_leave_as_soon_as_they_have_come_are_waited_for_again(client, monkeypatch):
    options = {"kernel": dp.Gaussian(3.0), "estimator": SWEPT}
    expected = float(dp.vendi(pairs()[0], **options))
    engine = dp.Dask(client)
    wait, known = client.wait_for_workers, engine._workers
    waits = []

    def counted(*arguments, **options):
        waits.append("waited")
        return wait(*arguments, **options)

    def workers():
        # They leave between the first wait and the question who is there.
        if waits == ["waited"]:
            waits.append("left")
            return {}
        return known()

    monkeypatch.setattr(client, "wait_for_workers", counted)
    monkeypatch.setattr(engine, "_workers", workers)
    assert float(dp.vendi(pairs()[0], engine=engine, **options)) == expected
    assert waits[:3] == ["waited", "left", "waited"]
