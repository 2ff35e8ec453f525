"""Small sample files for tests: images, videos, tables."""

import gzip
import io
import json
from pathlib import Path

import numpy as np

PROMPTS = ["a red square", "a blue circle"]
ANSWERS = ["It is red.", "It is blue.", "Neither, it is green.", "I could not say."]


def image_bytes(seed=0, size=(40, 30), form="PNG") -> bytes:
    """Return an encoded image of coloured blocks."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(blocks).resize(size, Image.Resampling.NEAREST).save(buffer, form)
    return buffer.getvalue()


def write_video(path: Path, seed=0, frames=12, size=(64, 48)) -> Path:
    """Write a video of moving coloured blocks."""
    import av

    rng = np.random.default_rng(seed)
    base = np.kron(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8), np.ones((8, 8, 1), np.uint8))
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=8)
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        for index in range(frames):
            frame = av.VideoFrame.from_ndarray(np.roll(base, 4 * index, axis=1), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def records(models=("one",)) -> list[dict]:
    """Return two prompts with two answers each, for every model."""
    return [
        {"model": model, "prompt": prompt, "output": answer, "prompt_id": number}
        for model in models
        for number, prompt in enumerate(PROMPTS)
        for answer in ANSWERS[2 * number : 2 * number + 2]
    ]


def jsonl(rows) -> bytes:
    """Return records as JSONL."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def write(folder: Path, files: dict[str, bytes | str]) -> Path:
    """Write files to a folder and return it; files named .gz are compressed."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = content.encode() if isinstance(content, str) else content
        path.write_bytes(gzip.compress(content, mtime=0) if name.endswith(".gz") else content)
    return folder
