"""Guidance in a feature space, and the step of Conditional Vendi, eq. 14."""

import math
import re
from pathlib import Path

import diffusers
import numpy as np
import pipelines
import pytest
import torch
from pipelines import PIPELINES, build, embeddings, run
from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

from divprism import Cosine, Gaussian
from divprism.errors import ArgumentError, DataError
from divprism.guidance import Bank, DiversityGuidance, Features, objectives, presets
from divprism.guidance._clean import predicted_clean

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings(
        "ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"
    ),
]
GUIDE = Path(__file__).parent.parent / "docs/how-to/guidance.md"
SCORES = ["vendi", "rke", "conditional_vendi", "conditional_rke"]
KERNELS = [Gaussian(0.7), Cosine()]


def _random(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def _norms(a):
    return a.double().flatten(1).norm(dim=1)


def _network(size=18, width=5, seed=3):
    """A smooth function of latents with a bend, in double precision."""
    first, second = _random(size, 7, seed=seed), _random(7, width, seed=seed + 1)

    def function(latents):
        return torch.tanh(latents.flatten(1) @ first.to(latents) / 4) @ second.to(latents) + 0.3

    return function


def _entropy(matrix, order):
    if order == 2:
        return -(matrix**2).sum().log()
    values = torch.linalg.eigvalsh(matrix)
    values = values[values > 1e-12]
    return -(values * values.log()).sum()


def _kernel_matrix(rows, kernel):
    rows = rows / rows.norm(dim=1, keepdim=True)
    if isinstance(kernel, Cosine):
        return rows @ rows.T
    squares = ((rows[:, None] - rows[None]) ** 2).sum(-1)
    return torch.exp(-squares / (2 * kernel.bandwidth**2))


def _score(guide, features, kernel, prompts=None):
    """The score from its definition, for autograd: features and prompts of all samples."""
    n, order = len(features), guide.score.order
    k_z = _kernel_matrix(features, kernel)
    if not guide.score.conditional:
        return _entropy(k_z / n, order).exp()
    k_t = _kernel_matrix(prompts, Gaussian(0.3))
    return (_entropy(k_z * k_t / n, order) - _entropy(k_t / n, order)).exp()


# the gradient


def test_features_that_leave_out_a_coordinate_do_not_move_it():
    """Two coordinates with norm 5 at a known angle; the third only adds to the norm."""
    latents = torch.tensor([[3.0, 4.0, 12.0], [4.0, 3.0, 12.0]], dtype=torch.float64)
    guide = DiversityGuidance("rke", bank=None, features=lambda z: z[:, :2])
    push = guide.push(latents)
    # Apart at right angles to (3, 4) and (4, 3), of length 0.03 * 13.
    expected = 0.03 * 13 / 5 * torch.tensor([[-4.0, 3.0, 0.0], [3.0, -4.0, 0.0]])
    assert torch.allclose(push, expected.double(), atol=1e-12)


@pytest.mark.parametrize("score", SCORES)
def test_features_that_change_nothing_give_the_push_of_latents(score):
    latents, prompts = _random(4, 2, 3, 3), embeddings(4)
    plain = DiversityGuidance.preset(score, bank=None)
    same = DiversityGuidance.preset(score, bank=None, features=lambda z: 7 * z)
    assert torch.allclose(plain.push(latents, prompts), same.push(latents, prompts), atol=1e-12)


def _settings(score, kernel, **changes):
    settings = {"features": Features(_network(), kernel), "bank": Bank(dtype="float64"), **changes}
    if objectives.objective(score).conditional:
        settings["bandwidth_t"] = 0.3
    return DiversityGuidance(score, **settings)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("relative", [False, True])
def test_the_gradient_is_that_of_autograd_through_the_whole_score(score, kernel, relative):
    guide = _settings(score, kernel, strength=0.4, relative=relative)
    earlier, clean, latents = _random(6, 2, 3, 3, seed=5), _random(4, 2, 3, 3), _random(4, 2, 3, 3)
    prompts = embeddings(10, tokens=0).double()
    guide.remember(earlier, prompts[:6])
    push = guide.push(latents, prompts[6:], clean)

    leaf = clean.clone().requires_grad_()
    features = _network()(torch.cat([earlier, leaf]))
    _score(guide, features, kernel, prompts).backward()
    expected = 0.4 * leaf.grad
    if relative:
        scale = _norms(latents) / _norms(leaf.grad)
        expected = expected * scale.reshape(-1, 1, 1, 1)
    assert torch.allclose(push, expected, rtol=1e-6, atol=1e-6 * float(expected.abs().max()))


@pytest.mark.parametrize("score", SCORES)
def test_the_gradient_is_that_of_finite_differences(score):
    kernel, step = Gaussian(0.7), 1e-5
    guide = _settings(score, kernel, strength=1.0, relative=False)
    latents, prompts = _random(4, 2, 3, 3), embeddings(4, tokens=0).double()
    push = guide.push(latents, prompts)
    for index in (0, 5, 17, 40):
        moved = []
        for sign in (1, -1):
            other = latents.clone()
            other.view(-1)[index] += sign * step
            moved.append(float(_score(guide, _network()(other), kernel, prompts)))
        slope = (moved[0] - moved[1]) / (2 * step)
        assert float(push.reshape(-1)[index]) == pytest.approx(slope, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_batches_change_neither_push_nor_bank(size):
    sizes = []

    def watched(latents):
        sizes.append(len(latents))
        return _network()(latents)

    latents, pushes, banks = _random(5, 2, 3, 3), [], []
    for features in (Features(_network()), Features(watched, batch_size=size)):
        guide = DiversityGuidance("vendi", features=features)
        guide.remember(latents)
        pushes.append(guide.push(latents + 0.1))
        banks.append(guide.bank.latents)
    assert torch.allclose(*pushes, rtol=1e-12)
    assert torch.allclose(*banks)
    # No graph holds more samples than a batch.
    assert max(sizes) == size


def test_the_weights_of_the_features_get_no_gradient():
    layer = torch.nn.Linear(18, 4).double()
    guide = DiversityGuidance("rke", features=lambda z: layer(z.flatten(1)))
    with torch.no_grad():
        assert guide.push(_random(3, 2, 3, 3)).any()
    assert layer.weight.grad is None


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_features_work_where_gradients_are_off(mode):
    latents = _random(3, 2, 3, 3)
    expected = DiversityGuidance("rke", features=_network()).push(latents)
    guide = DiversityGuidance("rke", features=Features(_network(), batch_size=2))
    with mode():
        assert torch.allclose(guide.push(latents * 1), expected, rtol=1e-12)
        guide.remember(latents * 1)
        assert not guide.push(latents * 1).requires_grad


def test_latents_without_a_slope_stay():
    latents = _random(1, 2, 3, 3).repeat(3, 1, 1, 1)
    for relative in (True, False):
        for features in (None, _network(), lambda z: 0 * z.flatten(1)):
            guide = DiversityGuidance("vendi", relative=relative, features=features)
            assert not guide.push(latents).any()
            assert not guide.push(0 * latents).any()


def test_samples_whose_features_have_an_infinite_slope_stay_with_a_warning():
    latents = _random(3, 18)
    latents[1, 0] = 0.0
    guide = DiversityGuidance("rke", features=lambda z: z.abs().sqrt(), relative=False)
    with pytest.warns(UserWarning, match=r"is NaN or infinite for samples \[1\] of the batch"):
        push = guide.push(latents)
    assert torch.equal(push.any(1), torch.tensor([True, False, True]))
    assert torch.isfinite(push).all()


# the step of eq. 14


def test_the_literal_step_is_the_slope_on_paper():
    """Two latents of norm r at an angle a have RKE 2 / (1 + k^2), k = exp((cos a - 1) / s^2)."""
    angle, norm, bandwidth, weight = 0.8, 5.0, 0.6, 0.03
    k = math.exp((math.cos(angle) - 1) / bandwidth**2)
    # d RKE / da = -4 k / (1 + k^2)^2 dk / da, and moving by e turns a latent by e / r.
    slope = 4 * k**2 * math.sin(angle) / bandwidth**2 / (1 + k**2) ** 2 / norm
    first = [norm, 0.0]
    second = [norm * math.cos(angle), norm * math.sin(angle)]
    guide = DiversityGuidance(
        "rke", strength=weight, bandwidth_z=bandwidth, bank=None, relative=False
    )
    push = guide.push(torch.tensor([first, second], dtype=torch.float64))
    assert torch.allclose(push[0], torch.tensor([0.0, -weight * slope]).double(), rtol=1e-9)
    assert float(push[1].norm()) == pytest.approx(weight * slope, rel=1e-9)


@pytest.mark.parametrize("score", SCORES)
def test_the_literal_step_is_the_gradient_of_the_score_itself(score):
    """And not of its logarithm; through the scaling of latents to norm one."""
    latents, prompts = _random(5, 2, 3, 3).requires_grad_(), embeddings(5, tokens=0).double()
    guide = DiversityGuidance.preset(score, relative=False, strength=0.03)
    _score(guide, latents.flatten(1), Gaussian(0.8), prompts).backward()
    assert torch.allclose(guide.push(latents, prompts), 0.03 * latents.grad, rtol=1e-7, atol=1e-12)


def test_only_the_relative_push_grows_with_the_latents():
    latents = _random(4, 2, 3, 3)
    for relative, factor in ((True, 10.0), (False, 0.1)):
        guide = DiversityGuidance("vendi", bandwidth_z=0.8, relative=relative, bank=None)
        assert torch.allclose(guide.push(10 * latents), factor * guide.push(latents), rtol=1e-9)


@pytest.mark.parametrize(
    ("shape", "score", "expected"),
    [
        ((4, 128, 128), "vendi", 6e-8),
        ((4, 128, 128), "conditional_rke", 4e-8),
        ((4, 8, 8), "vendi", 2e-5),
        ((4, 8, 8), "conditional_rke", 9e-6),
    ],
)
def test_the_literal_step_at_the_published_weight_has_the_length_in_the_guide(
    shape, score, expected
):
    guide = DiversityGuidance(score, strength=0.03, bandwidth_z=0.8, relative=False)
    guide.remember(_random(100, *shape, seed=1).float(), np.arange(100) % 4)
    latents = _random(4, *shape)
    moved = _norms(guide.push(latents, np.arange(4))) / _norms(latents)
    # The guide rounds to one digit.
    assert float(moved.mean()) == pytest.approx(expected, rel=0.15)


# clean latents

_BETAS = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
_VELOCITY = {"prediction_type": "v_prediction"}
_FLOW = {"prediction_type": "flow_prediction", "use_flow_sigmas": True}
_PLMS = {**_BETAS, "skip_prk_steps": True}
_UNCLIPPED = {**_BETAS, "clip_sample": False}
SAMPLERS = {
    "ddim": ("DDIMScheduler", _UNCLIPPED),
    "ddim-v": ("DDIMScheduler", {**_UNCLIPPED, **_VELOCITY}),
    "ddpm": ("DDPMScheduler", _UNCLIPPED),
    "euler": ("EulerDiscreteScheduler", _BETAS),
    "euler-ancestral": ("EulerAncestralDiscreteScheduler", _BETAS),
    "heun": ("HeunDiscreteScheduler", _BETAS),
    "lms": ("LMSDiscreteScheduler", _BETAS),
    "pndm": ("PNDMScheduler", _PLMS),
    "pndm-v": ("PNDMScheduler", {**_PLMS, **_VELOCITY}),
    "tcd": ("TCDScheduler", _UNCLIPPED),
    "lcm": ("LCMScheduler", _UNCLIPPED),
    "unipc": ("UniPCMultistepScheduler", _BETAS),
    "unipc-flow": ("UniPCMultistepScheduler", {**_BETAS, **_FLOW}),
    "dpm": ("DPMSolverMultistepScheduler", _BETAS),
    "dpm-v": ("DPMSolverMultistepScheduler", {**_BETAS, **_VELOCITY}),
    "dpm-clean": ("DPMSolverMultistepScheduler", {**_BETAS, "prediction_type": "sample"}),
    "dpm-karras": ("DPMSolverMultistepScheduler", {**_BETAS, "use_karras_sigmas": True}),
    "dpm-flow": ("DPMSolverMultistepScheduler", {**_BETAS, **_FLOW}),
    "dpm-single": ("DPMSolverSinglestepScheduler", _BETAS),
    "deis": ("DEISMultistepScheduler", _BETAS),
    "sa": ("SASolverScheduler", _BETAS),
    "flow-euler": ("FlowMatchEulerDiscreteScheduler", {"shift": 3.0}),
    "flow-heun": ("FlowMatchHeunDiscreteScheduler", {}),
    "flow-lcm": ("FlowMatchLCMScheduler", {}),
}


def _exact_output(scheduler, clean, noise, index):
    """What a perfect model predicts at a step."""
    kind = getattr(scheduler.config, "prediction_type", "flow_prediction")
    if kind == "flow_prediction":
        return noise - clean
    if kind == "sample":
        return clean
    if kind == "epsilon":
        return noise
    # alpha e - sigma x, with alpha^2 + sigma^2 = 1.
    share = scheduler.alphas_cumprod[int(scheduler.timesteps[index])]
    return share**0.5 * noise - (1 - share) ** 0.5 * clean


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("return_dict", [False, True])
@pytest.mark.parametrize("index", [0, 3])
def test_a_perfect_model_predicts_the_clean_latents(name, return_dict, index):
    kind, settings = SAMPLERS[name]
    scheduler = getattr(diffusers, kind)(**settings)
    scheduler.set_timesteps(8)
    if hasattr(scheduler, "set_begin_index"):
        scheduler.set_begin_index(index)
    clean, noise = _random(2, 4, 8, 8).float(), _random(2, 4, 8, 8, seed=1).float()
    timestep = scheduler.timesteps[index]
    if hasattr(scheduler, "add_noise"):
        noisy = scheduler.add_noise(clean, noise, timestep.reshape(1))
    else:
        noisy = scheduler.scale_noise(clean, timestep.reshape(1), noise)
    if hasattr(scheduler, "scale_model_input"):
        # Some samplers warn where it was not called, as pipelines do before the model.
        scheduler.scale_model_input(noisy, timestep)
    output = _exact_output(scheduler, clean, noise, index)
    result = scheduler.step(output, timestep, noisy, return_dict=return_dict)
    arguments = {"model_output": output, "timestep": timestep, "sample": noisy}
    found = predicted_clean(scheduler, arguments, result)
    # Single precision, in which the difference of noisy latents and noise loses two digits.
    assert torch.allclose(found, clean, atol=2e-4)


def test_a_sampler_that_predicts_no_clean_latents_is_refused_at_its_first_step():
    pipe = build("sd")
    pipe.scheduler = diffusers.IPNDMScheduler()
    guide = DiversityGuidance("rke", features=_network(256), start=0.9, every=1)
    message = "which IPNDMScheduler does not give. Use a DDIM, Euler"
    with pytest.raises(ArgumentError, match=message), guide.attach(pipe):
        pipe.scheduler.set_timesteps(4)
        latents = torch.ones(2, 4, 8, 8)
        pipe.scheduler.step(latents, pipe.scheduler.timesteps[0], latents)


# pipelines


def _encoder(images):
    pooled = torch.nn.functional.adaptive_avg_pool2d(images, 3)
    return torch.cat([pooled.flatten(1), (pooled**2).flatten(1)], 1)


def _features_of(pipe, name):
    if name in ("flux", "wan"):
        # Packed tokens and videos: a function of the latents themselves.
        return lambda latents: torch.tanh(latents.flatten(1)[:, ::3])
    return Features.of_images(pipe, _encoder)


@pytest.mark.parametrize("name", [*PIPELINES, "lumina"])
@pytest.mark.parametrize("score", ["vendi", "conditional_rke"])
def test_every_pipeline_is_guided_in_a_feature_space(name, score):
    pipe = build(name)
    plain = run(pipe, name)
    guide = DiversityGuidance(score, every=2, features=_features_of(pipe, name))
    with guide.attach(pipe):
        result = run(pipe, name)
    assert (result.shape, result.dtype) == (plain.shape, plain.dtype)
    moved = _norms(result - plain) / _norms(plain)
    # Two pushes of 0.03 each, to which the models react: Lumina by up to 0.3 in latent space too.
    assert (moved > 0.02).all()
    assert (moved < 0.5).all()
    finished = guide.features.values(result).double()
    expected = finished / _norms(finished).reshape(-1, *[1] * (finished.ndim - 1))
    assert torch.allclose(guide.bank.latents.double(), expected, atol=1e-6)
    assert torch.equal(run(pipe, name), plain)


def test_a_doubled_batch_is_guided_by_the_features_of_its_first_half():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        pipe = pipelines.dit()
    pipe.set_progress_bar_config(disable=True)
    sizes = []

    def watched(images):
        sizes.append(len(images))
        return _encoder(images)

    features = Features.of_images(pipe, watched, batch_size=None)
    guide = DiversityGuidance("vendi", every=1, features=features)
    with guide.attach(pipe):
        pipe([1, 2], num_inference_steps=3, generator=torch.Generator().manual_seed(0))
    assert len(guide.bank) == 2
    # One image to check the fit, two pushes of two, and two to remember.
    assert sizes == [1, 2, 2, 2]


@pytest.mark.parametrize("sampler", [pipelines.ddim, pipelines.euler, *pipelines.OTHERS.values()])
def test_every_sampler_raises_the_score_of_features(sampler):
    """Copies of nearly the same noise end further apart in the feature space."""
    pipe = build("sd")
    pipe.scheduler = sampler()
    noise = _random(1, 4, 8, 8).float() + 0.05 * _random(4, 4, 8, 8, seed=1).float()
    features = Features.of_images(pipe, _encoder)
    given = pipelines.arguments("sd", 4)
    same = {key: value[:1].expand_as(value) for key, value in given.items()}

    def spread(guide):
        with guide.attach(pipe):
            result = run(pipe, "sd", steps=6, latents=noise, **same)
        rows = features.values(result).double()
        rows = rows / rows.norm(dim=1, keepdim=True)
        return float(torch.cdist(rows, rows).sum())

    settings = {"features": features, "every": 1, "bank": None}
    plain = spread(DiversityGuidance("vendi", **settings, strength=0))
    assert spread(DiversityGuidance("vendi", **settings, strength=0.05)) > plain


def test_strength_zero_changes_no_bit_with_features():
    pipe = build("sdxl")
    plain = run(pipe, "sdxl")
    guide = DiversityGuidance("rke", strength=0, features=Features.of_images(pipe, _encoder))
    with guide.attach(pipe):
        assert torch.equal(run(pipe, "sdxl"), plain)
    assert len(guide.bank) == 3


@pytest.mark.parametrize("name", ["sd", "sdxl"])
@pytest.mark.parametrize(
    ("dtype", "decoded"), [(torch.float16, torch.float32), (torch.bfloat16, torch.bfloat16)]
)
@pytest.mark.parametrize("output", ["latent", "np"])
@pytest.mark.filterwarnings("ignore:.upcast_vae. is deprecated:FutureWarning")
def test_features_of_half_precision_pipelines(name, dtype, decoded, output):
    """Autoencoders that overflow in float16 decode in single precision, and stay as they are."""
    pipe, seen = build(name).to(dtype), set()

    def watched(images):
        seen.add(images.dtype)
        return _encoder(images)

    halves = {key: value.to(dtype) for key, value in pipelines.arguments(name).items()}
    guide = DiversityGuidance("vendi", every=1, features=Features.of_images(pipe, watched))
    with guide.attach(pipe):
        result = run(pipe, name, **halves, output_type=output)
    assert np.isfinite(torch.as_tensor(result).float().numpy()).all()
    assert len(guide.bank) == 3
    assert (seen, pipe.vae.dtype) == ({decoded}, dtype)


def test_predictions_that_diverged_are_left_out_with_a_warning():
    pipe = build("sd")
    pipe.scheduler.set_timesteps(3)
    latents, clean = _random(3, 4, 8, 8), _random(3, 4, 8, 8, seed=1)
    clean[1] = math.nan
    guide = DiversityGuidance("rke", every=1, features=_network(256))
    with pytest.warns(UserWarning, match=r"latents \[1\] of the batch are NaN or infinite"):
        moved = guide._after_step(pipe, latents, None, 0, 3, lambda: clean)
    assert torch.equal(moved[1], latents[1])
    alone = guide.push(latents[[0, 2]], None, clean[[0, 2]])
    assert torch.allclose(moved[[0, 2]], latents[[0, 2]] + alone)


def test_features_of_another_width_are_refused_at_the_first_step():
    pipe = build("sd")
    bank = Bank()
    DiversityGuidance("rke", bank=bank, features=_network(256, 5)).remember(_random(2, 4, 8, 8))
    guide = DiversityGuidance("rke", bank=bank, start=0.9, features=_network(256, 6))
    with pytest.raises(DataError, match="do not fit a bank of samples"), guide.attach(pipe):
        pipe.scheduler.set_timesteps(9)
        latents = torch.ones(2, 4, 8, 8)
        pipe.scheduler.step(latents, pipe.scheduler.timesteps[0], latents)


def test_the_example_of_the_guide_runs(tmp_path, monkeypatch):
    """As written: a tiny encoder is in a folder with the name of the real one."""
    (code,) = re.findall(r"```python\n(from torch.*?)```", GUIDE.read_text(), re.DOTALL)
    (name,) = re.findall(r'from_pretrained\(\s*"(.*?)"', code)
    config = CLIPVisionConfig(
        hidden_size=8,
        intermediate_size=8,
        projection_dim=4,
        num_hidden_layers=1,
        num_attention_heads=2,
        patch_size=32,
    )
    CLIPVisionModelWithProjection(config).save_pretrained(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    scope = {"pipe": build("sd"), "prompts": ["a dog", "a cat"]}
    exec(code, scope)
    assert scope["guide"].bank.shape == (4,)
    assert len(scope["guide"].bank) == 2


# presets and refusals


def test_the_preset_of_c_vsg_has_the_published_settings():
    guide = DiversityGuidance.preset("c-vsg", features=_network())
    assert (guide.score.order, guide.score.conditional, guide.score.truncation) == (1, False, None)
    assert (guide.every, guide.bank.capacity, guide.relative) == (5, 300, True)
    assert presets.C_VSG_STRENGTHS == (0.04, 0.05, 0.06, 0.07)
    assert guide.strength in presets.C_VSG_STRENGTHS
    assert guide.features.kernel == Cosine()
    changed = DiversityGuidance.preset("c-vsg", features=_network(), strength=0.07, bandwidth_z=0.5)
    assert (changed.strength, changed.features.kernel) == (0.07, None)
    own = Features(_network(), Gaussian(2.0), batch_size=3)
    assert DiversityGuidance.preset("c-vsg", features=own).features is own


def test_presets_do_not_share_a_bank():
    first, second = (DiversityGuidance.preset("rke") for _ in range(2))
    assert first.bank is not second.bank


def _after(function):
    return lambda: DiversityGuidance("rke", features=function).push(_random(2, 2, 3, 3))


WRONG = [
    (
        lambda: DiversityGuidance.preset("c-vsg"),
        "the preset 'c-vsg' compares samples in a feature space: pass features=...",
    ),
    (
        lambda: DiversityGuidance(features=3),
        "`features` must be a function from latents to a tensor, or Features; got int",
    ),
    (lambda: Features(_network(), "cosine"), "`kernel` of features must be Gaussian, Cosine"),
    (lambda: Features(_network(), batch_size=0), "`batch_size` must be a whole number of at least"),
    (
        lambda: DiversityGuidance(bandwidth_z=1, features=Features(_network(), Cosine())),
        "`bandwidth_z` was given, but the features have a kernel of their own",
    ),
    (lambda: DiversityGuidance(relative=0), "`relative` must be True or False; got 0"),
    (
        lambda: run(
            build("sd"), "sd", callback_on_step_end=DiversityGuidance("rke", features=_network())
        ),
        "`features` are those of predicted clean latents, which callbacks do not see: use `with",
    ),
    (_after(lambda z: z.flatten(1).detach()), "`features` returned a tensor without a gradient"),
    (_after(lambda z: np.ones((2, 3))), "must return a floating-point tensor; got ndarray"),
    (_after(lambda z: z.flatten(1).int()), "must return a floating-point tensor; got dtype int32"),
    (
        lambda: Features.of_images(build("wan"), _encoder),
        "WanPipeline does not decode its latents by a scale and a shift: pass a function",
    ),
]
REFUSED = [
    (_after(lambda z: z.mean(0, keepdim=True)), "a row for each of the 2 latents; got shape (1,"),
    (_after(lambda z: z.flatten(1).sum(1)), "a row for each of the 2 latents; got shape (2,)"),
    (
        lambda: DiversityGuidance.preset("c-vsg", features=lambda z: 0 * z).push(_random(2, 3)),
        "`features` returned a row of zeros, which has no cosine with others",
    ),
    (_after(lambda z: z.flatten(1) / 0), "`features` returned NaN or infinity. If a model"),
    (
        lambda: DiversityGuidance("rke", features=_network()).push(
            _random(2, 2, 3, 3), None, _random(3, 2, 3, 3)
        ),
        "`clean` must be a tensor of the shape of the latents, (2, 2, 3, 3); got",
    ),
    (
        lambda: Features.of_images(build("flux"), _encoder).values(torch.ones(1, 16, 4)),
        "decoding needs latents of shape (b, c, h, w); got shape (1, 16, 4)",
    ),
]


@pytest.mark.parametrize(("call", "message"), WRONG, ids=[message for _, message in WRONG])
def test_invalid_features_are_refused(call, message):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        call()


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_features_that_do_not_fit_are_refused(call, message):
    with pytest.raises(DataError, match=re.escape(message)):
        call()
