"""Small files of every kind, made on the spot: pictures, clips, tables."""

import gzip
import io
import json
from pathlib import Path

import numpy as np

PROMPTS = ["a red square", "a blue circle"]
ANSWERS = ["It is red.", "It is blue.", "Neither, it is green.", "I could not say."]


def image_bytes(seed=0, size=(40, 30), form="PNG") -> bytes:
    """A picture of coloured blocks, as the bytes of a file."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(blocks).resize(size, Image.Resampling.NEAREST).save(buffer, form)
    return buffer.getvalue()


def write_video(path: Path, seed=0, frames=12, size=(64, 48)) -> Path:
    """A clip of coloured blocks that drift."""
    import av

    rng = np.random.default_rng(seed)
    base = np.kron(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8), np.ones((8, 8, 1), np.uint8))
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=8)
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        for place in range(frames):
            frame = av.VideoFrame.from_ndarray(np.roll(base, 4 * place, axis=1), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def records(models=("one",)) -> list[dict]:
    """Two prompts with two answers each, for every model."""
    return [
        {"model": model, "prompt": prompt, "output": answer, "prompt_id": place}
        for model in models
        for place, prompt in enumerate(PROMPTS)
        for answer in ANSWERS[2 * place : 2 * place + 2]
    ]


def jsonl(rows) -> bytes:
    """Records, a line each."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def write(folder: Path, files: dict[str, bytes | str]) -> Path:
    """Files of given content in a folder; .gz are packed."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = content.encode() if isinstance(content, str) else content
        path.write_bytes(gzip.compress(content, mtime=0) if name.endswith(".gz") else content)
    return folder
