"""Files that lie about their size or content: refused in one sentence, fast and in little memory.

`python tests/test_lying_files.py [SEED]` prints a table of cases tried and held.
"""

import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import divprism as dp
from divprism.data.media import open_image, open_video
from divprism.data.sounds import open_sound

MAX_SECONDS = 10  # of processor time: a hang, not a measure of speed
MAX_MEGABYTES = 1000


def _classes():
    """Return the cases by class: file name -> function that returns the content."""
    import lying_columns
    import lying_files
    import lying_logs
    import lying_media

    def named(cases, suffix):
        return {f"{name}{suffix}": make for name, make in cases.items()}

    return {
        "arrays": lying_files.ARRAYS,
        "texts": lying_files.TEXTS,
        "Parquet": named(lying_columns.PARQUET, ".parquet"),
        "Arrow": named(lying_columns.ARROW, ".arrow"),
        "images": named(lying_media.IMAGES, ".png"),
        "videos": lying_media.VIDEOS,
        "sounds": lying_media.SOUNDS,
        "logs": lying_logs.LOGS,
    }


CLASSES = ("arrays", "texts", "Parquet", "Arrow", "images", "videos", "sounds", "logs")


def _read(kind, path):
    if kind == "images":
        open_image(path.read_bytes(), path.name)
    elif kind == "videos":
        open_video(path, 4, path.name)
    elif kind == "sounds":
        open_sound(path.read_bytes(), 16_000, path.name)
    else:
        dp.load(path)


def _peak():
    """Return the peak of memory of this program or of one that it started, in megabytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    own = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) // 1024


def _processor_time():
    """Return the seconds of this program and those that it started, whatever else is running."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _read_all(kind, folder):
    """Read the files of a folder and print what happens to each; run in a process of its own."""
    for path in sorted(folder.iterdir()):
        start = _processor_time()
        answer = "read"
        try:
            _read(kind, path)
        except dp.DivprismError as error:
            answer = str(error)
        except Exception as error:  # any other exception is a crash of the reader
            answer = f"crash {error!r}"[:300]
        seconds = _processor_time() - start
        print(json.dumps([path.name, answer, seconds, _peak()]), flush=True)  # noqa: T201


def outcomes(kind, folder, seed=0):
    """Yield name, answer, seconds and peak in megabytes of each case of a class."""
    for number, (name, make) in enumerate(_classes()[kind].items()):
        content = make(np.random.default_rng((seed, number)))
        (folder / name).write_bytes(content)
    call = [sys.executable, "-W", "ignore", __file__, "--read", kind, str(folder)]
    # The package under test, also if another one is installed.
    environment = {**os.environ, "PYTHONPATH": str(Path(dp.__file__).parents[1])}
    done = subprocess.run(call, capture_output=True, text=True, env=environment, timeout=600)
    answers = {}
    for line in done.stdout.splitlines():
        name, *rest = json.loads(line)
        answers[name] = rest
    for name in _classes()[kind]:
        yield name, *answers.get(name, ["crash " + done.stderr[-300:], 0.0, 0])


def _is_held(answer, seconds, peak):
    is_sentence = len(answer.splitlines()) == 1 and len(answer) < 600 and answer.isprintable()
    is_refusal = answer != "read" and not answer.startswith("crash")
    return is_sentence and is_refusal and seconds < MAX_SECONDS and peak < MAX_MEGABYTES


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of memory need Linux")
@pytest.mark.parametrize("kind", CLASSES)
def test_lying_files_are_refused_fast_and_in_little_memory(kind, tmp_path):
    failed = [case for case in outcomes(kind, tmp_path) if not _is_held(*case[1:])]
    assert not failed


def test_odd_but_honest_files_are_read(tmp_path):
    import lying_columns
    import lying_files

    rng = np.random.default_rng(0)
    files = lying_files.honest(rng)
    files |= {name: make(rng) for name, make in lying_columns.HONEST.items()}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        assert len(dp.load(tmp_path / name)) >= 1


def test_rows_that_share_values_are_read_as_they_are(tmp_path):
    pa = pytest.importorskip("pyarrow")
    texts = [f"text {i % 7}" * (i % 3 + 1) for i in range(3000)]
    columns = {
        "prompt": pa.array(texts).dictionary_encode(),
        "output": pa.array(texts[::-1], pa.string_view()),
    }
    batch = pa.RecordBatch.from_pydict(columns)
    with pa.ipc.new_stream(str(tmp_path / "a.arrow"), batch.schema) as stream:
        stream.write_batch(batch)
    samples = dp.load(tmp_path / "a.arrow")
    assert [prompt.text for prompt in samples.prompts] == texts
    assert [output.text for output in samples.outputs] == texts[::-1]


def test_a_refused_number_names_its_line(tmp_path):
    for text in ("nan,1", "1_0,2", "1e999,2"):
        (tmp_path / "a.csv").write_text(f"1,2\n{text}\n")
        with pytest.raises(dp.DataError, match=r"line 2 of .*a\.csv"):
            dp.load(tmp_path / "a.csv")
    (tmp_path / "a.jsonl").write_text('{"embedding": [1]}\n{"embedding": [NaN]}\n')
    with pytest.raises(dp.DataError, match=r"line 2 of .*a\.jsonl has an embedding with NaN"):
        dp.load(tmp_path / "a.jsonl")


def test_threads_leave_the_limit_of_csv_as_it_was(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("prompt,output\n" + "p,a\n" * 5000)
    before = csv.field_size_limit()
    seen = set()

    def read():
        for _ in range(5):
            dp.load(path, limit=3)
            dp.load(path)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert csv.field_size_limit() == before
    from divprism.data.readers.tables import read_table

    for _ in read_table(path, ".csv", "a.csv"):
        seen.add(csv.field_size_limit())
    assert seen == {before}


def test_an_array_is_not_changed_by_a_file_that_is_cut(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((100_000, 2)))
    samples = dp.load(tmp_path / "x.npy")
    # A mapped file would end the process here.
    with (tmp_path / "x.npy").open("r+b") as file:
        file.truncate(200)
    assert samples.outputs.sum() == 200_000


def main():
    """Print a table of cases tried and held."""
    seed = int((*sys.argv[1:], "0")[0])
    print("class      tried   held   slowest    peak")  # noqa: T201
    for kind in CLASSES:
        with tempfile.TemporaryDirectory() as folder:
            cases = list(outcomes(kind, Path(folder), seed))
        held = [case for case in cases if _is_held(*case[1:])]
        slowest, peak = (max(case[index] for case in cases) for index in (2, 3))
        print(f"{kind:10}{len(cases):6}{len(held):7}{slowest:8.1f} s{peak:5} MB")  # noqa: T201
        for case in cases:
            if case not in held:
                print("   not held:", *case)  # noqa: T201


if __name__ == "__main__":
    if sys.argv[1:2] == ["--read"]:
        _read_all(sys.argv[2], Path(sys.argv[3]))
    else:
        main()
