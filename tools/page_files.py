"""The files that the commands on each page name, made on the fly.

A page says "your answers" and means any; here they are the texts of `divprism demo`, and images,
videos and sounds of the tests (`tests/sample_files.py`, `tests/onnx_files.py`).
"""

import json
import shutil
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import onnx_files
import sample_files

import divprism as dp

PROMPTS = ["a dog", "a cat", "a house", "a boat"]


def write_answers(
    folder: Path, name: str, models: dict[str, str], field: str = "model", **fields: object
) -> None:
    """Write the texts of some models of the demo under other names; an empty name is left out."""
    samples = dp.demo_samples()
    rows = []
    for model, prompt, output in zip(samples.models, samples.prompts, samples.outputs, strict=True):
        if model not in models:
            continue
        row = {"prompt": prompt.text, "output": output.text, **fields}
        if models[model]:
            row[field] = models[model]
        rows.append(json.dumps(row))
    (folder / name).write_text("\n".join(rows) + "\n")


def _one_model(folder: Path) -> None:
    write_answers(folder, "answers.jsonl", {"poet": ""})


def _three_models(folder: Path) -> None:
    write_answers(folder, "answers.jsonl", {"parrot": "a", "clerk": "b", "poet": "c"})


def _sounds(folder: Path) -> None:
    for name in ("sounds", "clips"):
        (folder / name).mkdir()
        for number, prompt in enumerate(PROMPTS):
            for index in range(3):
                sound = sample_files.tone(pitch=200 + 100 * number + 30 * index)
                path = folder / name / f"{prompt}-{index}.wav"
                path.write_bytes(sample_files.wav_bytes(sound))
    # The clips themselves lie beside their sounds.
    for index, prompt in enumerate(PROMPTS):
        sample_files.write_video(folder / "clips" / f"{prompt}-0.mp4", seed=index)


def _first_result(folder: Path) -> None:
    write_answers(folder, "new.jsonl", {"poet": ""})
    dp.evaluate(dp.load(folder / "new.jsonl")).save(folder / "first.json")


def _workflow(folder: Path) -> None:
    _one_model(folder)
    answers = (folder / "answers.jsonl").read_text()
    (folder / "generate_answers.py").write_text(f"print({answers!r}, end='')\n")


def _differences(folder: Path) -> None:
    write_answers(folder, "first.jsonl", {"parrot": ""})
    write_answers(folder, "second.jsonl", {"clerk": ""})
    write_answers(folder, "models.jsonl", {"parrot": "old", "clerk": "new"})
    write_answers(folder, "outputs.jsonl", {"clerk": ""})
    write_answers(folder, "real.jsonl", {"poet": ""})


def _outputs_of_types(folder: Path) -> None:
    _one_model(folder)
    (folder / "DIR").mkdir()
    types = {"parrot": "phrase", "clerk": "paraphrase", "poet": "idea"}
    write_answers(folder / "DIR", "data.jsonl", types, field="variety")


def _two_models(folder: Path) -> None:
    write_answers(folder, "answers.jsonl", {"clerk": "gemma", "poet": "crpo"})
    write_answers(folder, "gemma.jsonl", {"clerk": ""})
    write_answers(folder, "crpo.jsonl", {"poet": ""})


def _network(folder: Path) -> None:
    model = onnx_files.export("video", folder / "i3d")
    model.rename(model.with_name("i3d.onnx"))
    (folder / "i3d" / "model.json").rename(folder / "i3d" / "i3d.json")
    (folder / "videos").mkdir()
    for number, prompt in enumerate(PROMPTS):
        for index in range(3):
            path = folder / "videos" / f"{prompt}-{index}.mp4"
            sample_files.write_video(path, seed=3 * number + index)


def _rated(folder: Path) -> None:
    write_answers(folder, "answers.jsonl", {"clerk": "a", "poet": "b"}, stars=4)
    (folder / "rubric.txt").write_text("Rate how clear the answer is.\n")


def _many_outputs(folder: Path) -> None:
    _three_models(folder)
    shutil.copy(folder / "answers.jsonl", folder / "outputs.jsonl")
    for model in range(2):
        for number, prompt in enumerate(PROMPTS):
            place = folder / "images" / f"model {model}" / prompt
            place.mkdir(parents=True)
            for index in range(12):
                content = sample_files.image_bytes(seed=100 * model + 12 * number + index)
                (place / f"{index}.png").write_bytes(content)


FILES: dict[str, Callable[[Path], None]] = {
    "docs/how-to/audio.md": _sounds,
    "docs/how-to/bandwidths.md": _first_result,
    "docs/how-to/ci.md": _workflow,
    "docs/how-to/differences.md": _differences,
    "docs/how-to/embedders.md": _one_model,
    "docs/how-to/endpoints.md": _one_model,
    "docs/how-to/large-data.md": _one_model,
    "docs/how-to/mixtures.md": _two_models,
    "docs/how-to/onnx.md": _network,
    "docs/how-to/overlap.md": _three_models,
    "docs/how-to/papers.md": _outputs_of_types,
    "docs/how-to/quality.md": _rated,
    "docs/how-to/report.md": _one_model,
    "docs/how-to/sample-size.md": _one_model,
    "docs/how-to/select.md": _many_outputs,
}
"""What makes the files of each page; other pages name none."""


class Endpoint(ThreadingHTTPServer):
    """A server of models at a port that a page names: vectors of texts, and ratings of outputs."""

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Models)
        threading.Thread(target=self.serve_forever, daemon=True).start()


def _vectors(request: dict) -> dict:
    data = []
    for index, text in enumerate(request["input"]):
        vector = [float(text.count(letter)) for letter in "aeinorst"]
        data.append({"object": "embedding", "index": index, "embedding": vector})
    return {"object": "list", "data": data}


def _rating(request: dict) -> dict:
    """The answer of a judge, who likes short texts."""
    length = len(request["messages"][-1]["content"])
    message = {"role": "assistant", "content": str(max(0, 10 - length // 50))}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


def _reward(request: dict) -> dict:
    length = len(request["messages"][-1]["content"])
    return {"object": "list", "data": [{"index": 0, "probs": [1 / (1 + length / 100)]}]}


_ANSWERS = {"/v1/embeddings": _vectors, "/v1/chat/completions": _rating, "/classify": _reward}


class _Models(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        answer = _ANSWERS[self.path](json.loads(self.rfile.read(length)))
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Not on our stderr."""
