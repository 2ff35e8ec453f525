"""Odd latents through every entry of guidance: finite numbers or one sentence, never NaN."""

import math
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import divprism as dp
from divprism.guidance import Bank, Objective, marginal_gain, score_gradient

torch = pytest.importorskip("torch")
pytest.importorskip("diffusers")

from divprism.guidance import DiversityGuidance  # noqa: E402, it needs torch

BASE = torch.tensor(np.random.default_rng(5).standard_normal((4, 2, 3, 3)))
PROMPTS = ["a", "b", "a", "b"]
LARGEST = sys.float_info.max
USABLE = {
    "huge": BASE * 1e307,
    "largest": torch.sign(BASE) * LARGEST,
    "equal and largest": torch.full((4, 2), LARGEST, dtype=torch.float64),
    "tiny": BASE * 1e-300,
    "subnormal": BASE * 5e-323,
    "zero": BASE * 0,
    "huge and tiny": torch.cat([BASE[:2] * 1e300, BASE[2:] * 1e-300]),
    "flat samples": BASE.flatten(1),
    "seven dimensions": BASE[..., None, None, None],
    "copies": BASE[:1].expand(4, 2, 3, 3),
    "transposed": BASE.transpose(1, 3),
    "with gradients": BASE.clone().requires_grad_(),
    "half": BASE.half(),
    "largest half": (torch.sign(BASE) * 65504).half(),
    "bfloat16": BASE.bfloat16(),
    "largest bfloat16": (torch.sign(BASE) * 3.38e38).bfloat16(),
    "largest single": (torch.sign(BASE) * 3.4e38).float(),
    "subnormal single": (BASE * 1e-44).float(),
}


def _unusable():
    """Tensors without finite numbers; torch warns about some kinds that they are experimental."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "no dimension": torch.tensor(1.0),
            "one dimension": BASE.flatten(),
            "meta": BASE.to("meta"),
            "complex": BASE.to(torch.complex64),
            "sparse": BASE.to_sparse(),
            "sparse rows": BASE.flatten(1).to_sparse_csr(),
            "no samples": BASE[:0],
            "no channels": BASE[:, :0],
            "NaN": BASE * math.nan,
            "infinite": BASE * math.inf,
            "nested": torch.nested.nested_tensor([BASE[0], BASE[1, :1]]),
            "quantized": torch.quantize_per_tensor(BASE.float(), 0.1, 0, torch.qint8),
            "eight bits": BASE.to(torch.float8_e4m3fn),
            "none": None,
            "text": "abc",
        }


UNUSABLE = _unusable()
# Only latents need floating-point numbers: score_gradient converts whole ones.
NO_LATENTS = {"whole numbers": BASE.long(), "booleans": BASE > 0, "an array": BASE.numpy()}
KERNELS = [None, dp.Gaussian(1.0), dp.Gaussian(1e300), dp.Cosine()]


def outcome(call):
    """Return the result of a call, or None if it was refused in one sentence."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call()
        except dp.DivprismError as error:
            message = str(error)
            assert message.isprintable(), message
            assert 10 < len(message) < 500, message
            return None


def require_finite(values):
    if values is not None:
        assert bool(torch.isfinite(torch.as_tensor(values).double()).all())


def pushed(latents, score, strength):
    prompts = None
    if score.startswith("conditional"):
        prompts = PROMPTS
    guide = DiversityGuidance(score=score, strength=strength, bank=Bank())
    return guide.push(latents, prompts)


def run(latents, score="rke"):
    """Guide ten steps and two more than the schedule has; return the last latents."""
    scheduler = SimpleNamespace(timesteps=list(range(10)), sample=latents)
    pipe = SimpleNamespace(scheduler=scheduler)
    guide = DiversityGuidance(score=score, bank=Bank())
    tensors = {"latents": latents}
    for step in range(12):
        tensors = guide(pipe, step, 0, tensors)
    return tensors["latents"]


@pytest.mark.parametrize("strength", [0.03, 1.0, 1e300, 2**70])
@pytest.mark.parametrize("score", ["rke", "vendi", "conditional_rke", "conditional_vendi"])
@pytest.mark.parametrize("name", USABLE)
def test_a_push_is_finite_in_every_range_of_numbers(name, score, strength):
    push = pushed(USABLE[name], score, strength)
    require_finite(push)
    assert push.shape == USABLE[name].shape


@pytest.mark.parametrize("factor", [1e-200, 1e200, 1e-300, 1e305])
def test_a_push_scales_with_the_latents(factor):
    expected = pushed(BASE, "rke", 0.03) * factor
    push = pushed(BASE * factor, "rke", 0.03)
    assert torch.allclose(push, expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize("name", USABLE)
def test_a_run_keeps_latents_finite(name):
    require_finite(run(USABLE[name]).detach())


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("score", ["rke", "vendi(order=0.5, truncation=2)"])
@pytest.mark.parametrize("name", USABLE)
def test_gradients_and_gains_are_finite_or_refused(name, score, kernel):
    settings = {"score": score, "kernel_x": kernel}
    for log in (True, False):
        result = outcome(lambda log=log: score_gradient(USABLE[name], log=log, **settings))
        if result is not None:
            require_finite(result.gradient)
            assert math.isfinite(result.value)
    require_finite(outcome(lambda: marginal_gain(USABLE[name], **settings)))


ENTRIES = {
    "push": lambda latents: pushed(latents, "rke", 0.1),
    "push with prompts": lambda latents: pushed(latents, "conditional_vendi", 0.1),
    "remember": lambda latents: DiversityGuidance(score="rke", bank=Bank()).remember(latents),
    "gradient": lambda latents: score_gradient(latents, score="rke"),
    "gain": lambda latents: marginal_gain(latents, score="rke"),
    "append": lambda latents: Bank().append(latents),
    "bank": lambda latents: score_gradient(BASE, score="rke", bank=latents),
}


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("name", UNUSABLE)
def test_latents_without_finite_numbers_are_refused(name, entry):
    latents = UNUSABLE[name]
    if latents is None and entry == "bank":
        return  # no bank at all
    with pytest.raises(dp.DivprismError):
        ENTRIES[entry](latents)
    assert outcome(lambda: ENTRIES[entry](latents)) is None


@pytest.mark.parametrize("name", [*UNUSABLE, *NO_LATENTS])
def test_a_run_refuses_latents_that_are_no_batch_of_numbers(name):
    """NaN is the one exception: a sampler that diverged ends its run, with a warning."""
    latents = {**UNUSABLE, **NO_LATENTS}[name]
    if name in ("NaN", "infinite"):
        with pytest.warns(UserWarning, match="NaN or infinite"):
            run(latents)
        return
    with pytest.raises(dp.DivprismError):
        run(latents)


@pytest.mark.parametrize("name", UNUSABLE)
def test_odd_prompts_are_used_or_refused(name):
    odd = UNUSABLE[name]
    guide = DiversityGuidance(score="conditional_rke", bank=Bank())
    require_finite(outcome(lambda: guide.push(BASE, odd)))
    outcome(lambda: Bank().append(BASE, odd))
    outcome(lambda: score_gradient(BASE, odd, score="conditional_rke"))
    outcome(lambda: score_gradient(BASE, PROMPTS, bank=(BASE, odd), score="conditional_rke"))


@pytest.mark.parametrize("dtype", [np.longdouble, ">f8", ">f4"])
def test_prompts_of_any_floating_point_format_are_embeddings(dtype):
    embeddings = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    guide = DiversityGuidance(score="conditional_rke", bandwidth_t=1.0)
    expected = guide.push(BASE, embeddings)
    assert torch.equal(guide.push(BASE, embeddings.astype(dtype)), expected)


NUMBERS = [math.nan, math.inf, -1, 10**400, -(10**400), "x", "\x1b[31m", True, [], 1j, 2**70, 1e308]


@pytest.mark.parametrize("value", NUMBERS, ids=[str(value)[:8] for value in NUMBERS])
@pytest.mark.parametrize(
    "name", ["strength", "every", "bandwidth_z", "bandwidth_t", "start", "stop", "score", "bank"]
)
def test_settings_out_of_range_are_refused_in_one_sentence(name, value):
    settings = {"score": "conditional_rke", "bank": Bank(), name: value}
    require_finite(outcome(lambda: DiversityGuidance(**settings).push(BASE, PROMPTS)))


@pytest.mark.parametrize("value", NUMBERS, ids=[str(value)[:8] for value in NUMBERS])
def test_objectives_banks_and_steps_out_of_range_are_refused(value):
    outcome(lambda: Objective(order=value))
    outcome(lambda: Objective(truncation=value))
    outcome(lambda: Bank(value))
    outcome(lambda: Bank(dtype=value))
    outcome(lambda: DiversityGuidance.preset(value))
    outcome(lambda: score_gradient(BASE, score=value))
    outcome(lambda: score_gradient(BASE, score="rke", kernel_x=dp.Gaussian(value)))
    guide = DiversityGuidance(score="rke", bank=Bank())
    for pipe, step in (
        (SimpleNamespace(scheduler=SimpleNamespace(timesteps=[2, 1, 0])), value),
        (SimpleNamespace(scheduler=SimpleNamespace(timesteps=[2, 1, 0]), num_timesteps=value), 0),
    ):
        outcome(lambda pipe=pipe, step=step: guide(pipe, step, 0, {"latents": BASE}))


def test_long_and_hostile_objectives_are_quoted_shortly():
    for text in ("x" * 10**6, "vendi(" * 5000, "vendi(order=" + "9" * 500 + ")", "\x1b[31m\n"):
        with pytest.raises(dp.ArgumentError) as caught:
            score_gradient(BASE, score=text)
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 300


def test_a_batch_may_change_its_size_in_the_middle_of_a_run():
    pipe = SimpleNamespace(scheduler=SimpleNamespace(timesteps=list(range(6))))
    guide = DiversityGuidance(score="rke", bank=Bank())
    for step, size in enumerate([4, 2, 1, 3, 4, 2]):
        moved = guide(pipe, step, 0, {"latents": BASE[:size]})["latents"]
        assert moved.shape == BASE[:size].shape
        require_finite(moved)
    assert len(guide.bank) == 2


def test_a_bank_is_not_moved_to_a_device_without_values(tmp_path):
    bank = Bank()
    bank.append(BASE)
    bank.save(tmp_path / "bank.npz")
    for like in ("cuda:0", 3, BASE.to("meta"), BASE.to_sparse()):
        with pytest.raises(dp.DivprismError, match="`like`"):
            Bank.load(tmp_path / "bank.npz", like=like)
