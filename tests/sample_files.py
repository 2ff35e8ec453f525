"""Small sample files for tests: images, videos, sounds, tables."""

import gzip
import io
import json
import wave
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


def tone(pitch=440.0, seconds=0.5, rate=16_000, decay=3.0) -> np.ndarray:
    """Return a tone of five harmonics as whole numbers of 16 bits."""
    time = np.arange(round(seconds * rate)) / rate
    harmonics = sum(np.sin(2 * np.pi * pitch * k * time) / k for k in range(1, 6))
    return (8000 * harmonics * np.exp(-decay * time)).astype("<i2")


def wav_bytes(samples: np.ndarray, rate=16_000) -> bytes:
    """Return samples (n,) or (n, channels) as a file of Python's `wave`."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1 if samples.ndim == 1 else samples.shape[1])
        file.setsampwidth(samples.dtype.itemsize)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
    return buffer.getvalue()


CODECS = {"wav": "pcm_s16le", "flac": "flac", "mp3": "libmp3lame", "ogg": "libopus", "m4a": "aac"}
"""The encoder of each suffix; opus knows no rate but 48 kHz and its parts."""


def encoded_sound(samples: np.ndarray, suffix: str, rate=16_000) -> bytes:
    """Return samples (n,) as a file that FFmpeg wrote."""
    import av

    buffer = io.BytesIO()
    form = {"m4a": "ipod"}.get(suffix, suffix)
    with av.open(buffer, "w", format=form) as container:
        stream = container.add_stream(CODECS[suffix], rate=rate, layout="mono")
        # The encoder states the size of its frames; a resampler cuts them and converts.
        frame = av.AudioFrame.from_ndarray(samples[None], format="s16", layout="mono")
        frame.sample_rate = rate
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return buffer.getvalue()


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


def inspect_sample(number, epoch, prompt, answers, model) -> dict:
    """Return a sample of a log of inspect-ai 0.3.285, of which it writes a member each."""
    asked = {"id": "u1", "content": prompt, "source": "input", "role": "user"}
    said = {"id": "a1", "source": "generate", "role": "assistant", "model": model}
    choices = [{"message": said | {"content": answer}, "stop_reason": "stop"} for answer in answers]
    completion = "".join(answers[:1])
    return {
        "id": number,
        "epoch": epoch,
        "input": prompt,
        "target": "x",
        "messages": [asked, *(choice["message"] for choice in choices[:1])],
        "output": {"model": model, "choices": choices, "completion": completion, "time": 0.1},
        "scores": {"match": {"value": "I", "answer": completion, "history": []}},
        "metadata": {},
        "store": {},
        "events": [{"event": "model", "model": model, "output": {"choices": choices}}],
        "attachments": {},
    }


def inspect_samples(model="mockllm/model") -> list[dict]:
    """Return two prompts with two epochs each, in the order in which they are run."""
    return [
        inspect_sample(number + 1, epoch + 1, prompt, [ANSWERS[2 * number + epoch]], model)
        for epoch in range(2)
        for number, prompt in enumerate(PROMPTS)
    ]


def inspect_header(model="mockllm/model", status="success") -> dict:
    """Return the header of a log of inspect-ai 0.3.285."""
    about = {"task": "shapes", "model": model, "dataset": {"samples": 2, "sample_ids": [1, 2]}}
    return {"version": 2, "status": status, "eval": about | {"config": {"epochs": 2}}}


def inspect_log(samples=None, header=None, method=None, start=None) -> bytes:
    """Return a log in the format .eval; `method` is the compression, zstd by default.

    A run that did not end has a `start` and no header.
    """
    from backports.zstd import zipfile

    samples = inspect_samples() if samples is None else samples
    members = {}
    if start is not None:
        members["_journal/start.json"] = start
    for sample in samples:
        members[f"samples/{sample['id']}_epoch_{sample['epoch']}.json"] = sample
    members["summaries.json"] = [{"id": sample["id"]} for sample in samples]
    if start is None:
        members["header.json"] = inspect_header() if header is None else header
    buffer = io.BytesIO()
    method = zipfile.ZIP_ZSTANDARD if method is None else method
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, member in members.items():
            archive.writestr(zipfile.ZipInfo(name), json.dumps(member), method)
    return buffer.getvalue()


def lm_eval_samples(answers=ANSWERS, filters=("first", "upper")) -> list[dict]:
    """Return the lines of a file of samples of lm-eval 0.4.13: each document once per filter."""
    return [
        {
            "doc_id": number,
            "doc": {"q": prompt, "a": "x"},
            "target": "x",
            "arguments": {"gen_args_0": {"arg_0": prompt, "arg_1": {"until": ["."]}}},
            "resps": [answers[2 * number : 2 * number + 2]],
            "filtered_resps": answers[2 * number],
            "filter": name,
            "metrics": ["exact_match"],
            "exact_match": 0.0,
        }
        for name in filters
        for number, prompt in enumerate(PROMPTS)
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
