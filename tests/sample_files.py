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


def chat_completion(answers, model="gpt-4o-mini-2024-07-18") -> dict:
    """Return what `ChatCompletion.model_dump()` of openai 3.51 returns, a choice per answer."""
    fields = ("refusal", "annotations", "audio", "function_call", "tool_calls")
    choices = [
        {
            "finish_reason": "stop",
            "index": index,
            "logprobs": None,
            "message": {"content": answer, "role": "assistant"} | dict.fromkeys(fields),
        }
        for index, answer in enumerate(answers)
    ]
    return {
        "id": "chatcmpl-1",
        "choices": choices,
        "created": 1760000000,
        "model": model,
        "object": "chat.completion",
        "metadata": None,
        "moderation": None,
        "service_tier": None,
        "system_fingerprint": None,
        "usage": {"completion_tokens": 4, "prompt_tokens": 9, "total_tokens": 13}
        | dict.fromkeys(("completion_tokens_details", "prompt_tokens_details")),
    }


def response(answer, model="gpt-5") -> dict:
    """Return what `Response.model_dump(exclude_unset=True)` of openai 3.51 returns."""
    text = {"annotations": [], "text": answer, "type": "output_text"}
    message = {"id": "msg_1", "content": [text], "role": "assistant", "status": "completed"}
    output = [{"id": "rs_1", "summary": [], "type": "reasoning"}, message | {"type": "message"}]
    return {"id": "resp_1", "created_at": 1.0, "model": model, "object": "response"} | {
        "output": output
    }


def user(text) -> list[dict]:
    """Return the messages of a request."""
    return [{"role": "user", "content": text}]


def batch_input(prompts) -> list[dict]:
    """Return the lines of the input of a Batch, a request per prompt."""
    return [
        {
            "custom_id": f"request-{number}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": "gpt-4o-mini", "messages": user(prompt)},
        }
        for number, prompt in enumerate(prompts)
    ]


def batch_output(bodies) -> list[dict]:
    """Return the lines of the output of a Batch, by the numbers of their requests."""
    return [
        {
            "id": f"batch_req_{number}",
            "custom_id": f"request-{number}",
            "response": {"status_code": 200, "request_id": f"req_{number}", "body": body},
            "error": None,
        }
        for number, body in bodies.items()
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
