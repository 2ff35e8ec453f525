"""No command replaces a file that it reads, however it was named."""

import json
import shutil

import numpy as np
import pytest
from command_line import run
from PIL import Image

KERNELS = ("--bandwidth-x", "1", "--bandwidth-t", "1")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A folder of every kind of input."""
    folder = tmp_path_factory.mktemp("inputs")
    rng = np.random.default_rng(0)
    for part in (1, 2):
        (folder / "shards").mkdir(exist_ok=True)
        np.save(folder / "shards" / f"x-{part}.npy", rng.normal(size=(6, 3)))
    (folder / "pair").mkdir()
    for side in ("outputs", "prompts"):
        np.save(folder / "pair" / f"{side}.npy", rng.normal(size=(12, 3)))
    (folder / "images").mkdir()
    for number in range(4):
        pixels = rng.integers(0, 255, (8, 8, 3), np.uint8)
        Image.fromarray(pixels).save(folder / "images" / f"{number}.png")
    rows = [f"{number}.png,prompt {number % 2}" for number in range(4)]
    (folder / "images" / "prompts.csv").write_text("file,prompt\n" + "\n".join(rows) + "\n")
    lines = [json.dumps({"prompt": f"p{n % 3}", "output": f"answer {n}"}) for n in range(12)]
    (folder / "a.jsonl").write_text("\n".join(lines) + "\n")
    for part in (1, 2):
        made = run(
            *("state", "a.jsonl", "--shard", f"{part}/2", *KERNELS, "--num-features", "8"),
            *("-q", "--no-cache", "-o", f"s{part}.npz"),
            cwd=folder,
        )
        assert made.returncode == 0
    (folder / "link.npz").symlink_to("s1.npz")
    np.save(folder / "weights.npy", np.full(12, 1 / 12))
    np.save(folder / "labels.npy", np.arange(12) % 3)
    made = run("embed", "pair", "-o", "vectors", "-q", "--no-cache", cwd=folder)
    assert made.returncode == 0
    (folder / "linked").mkdir()
    for side in ("outputs", "prompts"):
        (folder / "linked" / f"{side}.npy").symlink_to(f"../pair/{side}.npy")
    frames = [f"images/{number}.png" for number in range(4)]
    videos = [{"prompt": f"p{n}", "output": frames[n : n + 2]} for n in range(3)]
    (folder / "videos.jsonl").write_text("\n".join(map(json.dumps, videos)) + "\n")
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text("{}")
    result = run("score", "a.jsonl", "--format", "json", "-o", "r.json", "--no-cache", cwd=folder)
    assert result.returncode == 0
    return folder


COMMANDS = [
    "score pair -o pair/outputs.npy",
    "score shards/x-*.npy -o shards/x-1.npy",
    "score shards --report shards/x-2.npy",
    "score images -o images/prompts.csv",
    "score images/prompts.csv -o images/3.png",
    "bandwidth images --plot images/3.png",
    "state pair --bandwidth-x 1 --bandwidth-t 1 -o pair/outputs.npy",
    "state a.jsonl --bandwidth-x 1 --bandwidth-t 1 -o a.jsonl",
    "merge s1.npz s2.npz -o s1.npz",
    "merge s1.npz s2.npz -o link.npz",
    "merge s*.npz -o s2.npz",
    "embed pair --limit 5 -o pair",
    "embed pair/outputs.npy --limit 5 -o pair",
    "score a.jsonl --format json -o new.json --report new.json",
    "score pair --weights weights.npy -o weights.npy",
    "score pair --weights weights*.npy -o weights.npy",
    "score pair --labels labels.npy -o labels.npy",
    "score pair --labels labels.npy --report labels.npy",
    "score pair --config r.json --report r.json",
    "groups pair --labels labels.npy -o labels.npy",
    "converge pair --config r.json -o r.json",
    "score vector* -o vectors/outputs.npy",
    "score vector* --report vectors/pairs.jsonl",
    "score shards --prompts vector*/prompts.npy -o vectors/prompts.npy",
    "state vector* --bandwidth-x 1 --bandwidth-t 1 -o vectors/outputs.npy",
    "compare a.jsonl vector* -o vectors/outputs.npy",
    "diff pair --reference images --report images/3.png",
    "score linked --allow-outside -o pair/outputs.npy",
    "score videos.jsonl --output-kind video -o images/3.png",
    "score a.jsonl --embedder-x transformers:model -o model/config.json",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_target_that_is_an_input_is_refused_and_nothing_changes(command, inputs, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(inputs, folder, symlinks=True)
    before = contents(folder)
    result = run(*command.split(), "-q", cwd=folder)
    assert result.returncode == 2, result.stderr
    assert b"would" in result.stderr
    assert contents(folder) == before


def contents(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path): path.read_bytes() for path in files}


def test_a_config_is_not_replaced_by_the_result(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"output": "a"}\n{"output": "b"}\n' * 5)
    (tmp_path / "config.json").write_text('{"order": "2"}')
    words = ("score", "a.jsonl", "--config", "config.json", "-o", "config.json", "--no-cache")
    result = run(*words, cwd=tmp_path)
    assert result.returncode == 2
    assert (tmp_path / "config.json").read_text() == '{"order": "2"}'


@pytest.mark.parametrize("name", ["outputs.npy", "prompts.npy", "pairs.jsonl", "embedding.json"])
def test_embed_keeps_files_that_it_did_not_write(name, inputs, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / name).write_text('{"model": "mine"}')
    result = run("embed", inputs / "pair" / "outputs.npy", "-o", folder, "-q")
    assert result.returncode == 2
    assert f"has a file {name}".encode() in result.stderr
    assert [path.name for path in folder.iterdir()] == [name]
    assert (folder / name).read_text() == '{"model": "mine"}'


def test_embed_replaces_its_own_files_beside_those_of_others(inputs, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    for source in ("pair", "pair/outputs.npy"):
        assert run("embed", inputs / source, "-o", folder, "-q").returncode == 0
    assert (folder / "notes.txt").read_text() == "mine"
    assert not (folder / "prompts.npy").exists()


def test_the_reference_is_not_replaced_by_the_result(inputs, tmp_path):
    real = tmp_path / "real.npy"
    np.save(real, np.random.default_rng(0).standard_normal((30, 4)))
    before = real.read_bytes()
    outputs = inputs / "pair" / "outputs.npy"
    result = run("score", outputs, "--reference", real, "-o", real, "-q")
    assert result.returncode == 2
    assert real.read_bytes() == before
