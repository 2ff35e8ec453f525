"""Guidance of diffusers pipelines with random weights: the push, the hooks, and what stays."""

import copy
import doctest
import math
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import diffusers
import numpy as np
import pipelines
import pytest
import torch
from pipelines import CALLBACKS, PIPELINES, build, embeddings, run

from divprism.core.kernels import Gaussian
from divprism.errors import ArgumentError, DataError
from divprism.guidance import Bank, DiversityGuidance, Objective, objectives, score_gradient

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings(
        "ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"
    ),
]
SCORES = ["vendi", "rke", "conditional_vendi", "conditional_rke"]
ROOT = Path(__file__).parent.parent
GUIDE = ROOT / "docs/how-to/guidance.md"
_PAGES = GUIDE.read_text() + (ROOT / "README.md").read_text()
_TEXT_BLOCKS = re.findall(r"```text\n(.*?)```", _PAGES, re.DOTALL)
SHORT = [block for block in _TEXT_BLOCKS if "pipe(" in block]


@pytest.fixture(scope="module", params=list(PIPELINES))
def named(request):
    """Every pipeline, with its name."""
    return request.param, build(request.param)


@pytest.fixture
def sd():
    return build("sd")


def _hooked(guide):
    return {
        "callback_on_step_end": guide,
        "callback_on_step_end_tensor_inputs": guide.tensor_inputs,
    }


def _guided(pipe, name, guide, **options):
    """The result of a guided run, by the callback if the pipeline has one."""
    if name in CALLBACKS:
        return run(pipe, name, **_hooked(guide), **options)
    with guide.attach(pipe):
        return run(pipe, name, **options)


def _norms(a):
    return a.double().flatten(1).norm(dim=1)


def _moved(guided, plain):
    """How far each sample was moved, relative to its norm."""
    return _norms(guided.double() - plain.double()) / _norms(plain)


def _unit(a):
    return a.double() / _norms(a).reshape(-1, *[1] * (a.ndim - 1))


def _random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class _Watched:
    """A callback that calls a guide, and records after which steps it pushed, and how far."""

    def __init__(self, guide):
        self.guide = guide
        self.tensor_inputs = guide.tensor_inputs
        self.pushed = []
        self.moved = []

    def __call__(self, pipe, step, timestep, tensors):
        before = tensors["latents"]
        after = self.guide(pipe, step, timestep, tensors)
        if after["latents"] is not before:
            self.pushed.append(step)
            self.moved.append(_moved(after["latents"], before))
        return after


# every pipeline


@pytest.mark.parametrize("score", SCORES)
def test_every_pipeline_is_guided(named, score):
    name, pipe = named
    plain, guide = run(pipe, name), DiversityGuidance(score, every=2)
    result = _guided(pipe, name, guide)
    assert (result.shape, result.dtype, result.device) == (plain.shape, plain.dtype, plain.device)
    assert torch.isfinite(result).all()
    moved = _moved(result, plain)
    # Two pushes of 0.03 each, to which the models react a little.
    assert (moved > 0.03).all()
    assert (moved < 0.09).all()
    assert guide.bank.shape == tuple(plain.shape[1:])
    assert torch.allclose(guide.bank.latents.double(), _unit(result), atol=1e-6)


@pytest.mark.parametrize("output", ["latent", "np"])
def test_strength_zero_changes_no_bit(named, output):
    name, pipe = named
    guide = DiversityGuidance(strength=0, every=1)
    plain = run(pipe, name, output_type=output)
    results = [_guided(pipe, name, guide, output_type=output)]
    with guide.attach(pipe):
        results.append(run(pipe, name, output_type=output))
    for guided in results:
        assert np.array_equal(np.asarray(guided), np.asarray(plain))
    assert len(guide.bank) == 6  # the bank fills nevertheless


@pytest.mark.parametrize("name", CALLBACKS)
def test_attaching_equals_the_callback(name):
    pipe = build(name)
    guides = [DiversityGuidance(every=1) for _ in range(2)]
    called = run(pipe, name, **_hooked(guides[0]))
    with guides[1].attach(pipe):
        attached = run(pipe, name)
    assert torch.equal(called, attached)
    assert torch.equal(guides[0].bank.latents, guides[1].bank.latents)
    assert torch.equal(guides[0].bank.prompts, guides[1].bank.prompts)


def test_results_repeat_for_the_same_seed(named):
    name, pipe = named
    first, again, other = (
        _guided(pipe, name, DiversityGuidance("conditional_vendi", every=1), seed=seed)
        for seed in (5, 5, 6)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("score", SCORES)
def test_the_order_of_the_batch_does_not_matter(sd, score):
    noise, turned = _random(3, 4, 8, 8), torch.tensor([2, 0, 1])
    given = pipelines.arguments("sd")
    bank = Bank()
    DiversityGuidance(score, bank=bank).remember(_random(5, 4, 8, 8, seed=9), embeddings(5, 8))
    results = []
    for order in (torch.arange(3), turned):
        guide = DiversityGuidance(score, every=1, bank=copy.deepcopy(bank))
        options = {key: value[order] for key, value in given.items()}
        results.append(run(sd, "sd", latents=noise[order], **options, **_hooked(guide)))
    # The pipeline computes in single precision.
    tolerance = 1e-4 * float(results[0].abs().max())
    assert torch.allclose(results[0][turned], results[1], rtol=1e-4, atol=tolerance)


# the push


def test_a_push_has_the_given_length_and_keeps_the_norm():
    latents = _random(5, 4, 8, 8) * torch.tensor([0.01, 1, 10, 100, 1000]).reshape(-1, 1, 1, 1)
    for score in SCORES:
        push = DiversityGuidance(score, strength=0.05).push(latents, embeddings(5))
        assert torch.allclose(_norms(push) / _norms(latents), torch.tensor(0.05).double())
        assert float((_unit(push) * _unit(latents)).flatten(1).sum(1).abs().max()) < 1e-6


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("banked", [False, True])
def test_a_push_is_uphill(score, banked):
    latents, prompts = _random(6, 4, 4, 4), embeddings(6)
    guide = DiversityGuidance(score, strength=1e-3, bandwidth_z=0.8)
    if banked:
        guide.remember(_random(20, 4, 4, 4, seed=1), embeddings(20, 2))
    t = _unit(prompts.mean(1))

    def value(z):
        return score_gradient(
            _unit(z).flatten(1), t, bank=guide.bank, score=score, kernel_x=Gaussian(0.8)
        ).value

    push = guide.push(latents, prompts)
    assert value(latents + push) > value(latents) > value(latents - push)


@pytest.mark.parametrize("score", SCORES)
def test_the_direction_is_that_of_the_gradient_by_autograd(score):
    """From the definition of the score, through the normalisation of latents."""
    latents, prompts = _random(4, 2, 3, 3).double().requires_grad_(), embeddings(4).double()
    guide = DiversityGuidance.preset(score)

    def kernel(rows, bandwidth):
        rows = rows / rows.norm(dim=1, keepdim=True)
        squares = ((rows[:, None] - rows[None]) ** 2).sum(-1)
        return torch.exp(-squares / (2 * bandwidth**2)) / len(rows)

    def entropy(matrix):
        if guide.score.order == 2:
            return -(matrix**2).sum().log()
        values = torch.linalg.eigvalsh(matrix)
        return -(values * values.log()).sum()

    k_z = kernel(latents.flatten(1), 0.8)
    value = entropy(k_z)
    if guide.score.conditional:
        k_t = kernel(prompts.mean(1), 0.3)
        value = entropy(4 * k_z * k_t)
    value.backward()
    expected = 0.03 * _norms(latents).reshape(-1, 1, 1, 1) * _unit(latents.grad)
    assert torch.allclose(guide.push(latents, prompts), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("bandwidth", [None, 0.8])
def test_the_scale_of_the_latents_does_not_matter(bandwidth):
    latents, guide = _random(5, 4, 8, 8), DiversityGuidance("rke", bandwidth_z=bandwidth)
    guide.remember(_random(5, 4, 8, 8, seed=1))
    push = guide.push(latents)
    assert torch.allclose(guide.push(1000 * latents) / 1000, push, rtol=1e-4, atol=1e-6)


def test_nothing_moves_without_a_slope():
    latent = _random(1, 4, 8, 8)
    for score in SCORES:
        for latents in (latent, latent.repeat(3, 1, 1, 1), torch.zeros(2, 4, 8, 8)):
            guide = DiversityGuidance(score, bandwidth_z=0.8)
            assert not guide.push(latents, embeddings(1)).any()
    mixed = torch.cat([torch.zeros_like(latent), latent, -latent])
    push = DiversityGuidance("rke").push(mixed)
    assert not push[0].any()
    assert torch.isfinite(push).all()


def test_samples_of_unrelated_prompts_leave_each_other_alone():
    """Four latents, two for each prompt: with ids only those of one prompt push each other."""
    latents = _random(4, 2, 3, 3)
    push = DiversityGuidance("conditional_rke", bandwidth_z=0.8).push(
        latents, ["a dog", "a cat", "a dog", "a cat"]
    )
    pair = DiversityGuidance("rke", bandwidth_z=0.8).push(latents[::2])
    assert torch.allclose(push[::2], pair, atol=1e-6)


# samplers


def _displacement(pipe, scheduler, steps=10, **settings):
    pipe.scheduler = scheduler
    guide = _Watched(DiversityGuidance(**settings))
    moved = _moved(run(pipe, "sd", steps=steps, **_hooked(guide)), run(pipe, "sd", steps=steps))
    return moved, guide


@pytest.mark.parametrize(
    ("score", "strength"), [*((score, 0.03) for score in SCORES), ("rke", 0.01), ("rke", 0.1)]
)
def test_a_strength_moves_latents_as_far_with_euler_as_with_ddim(sd, score, strength):
    """Their latents differ by a factor of up to 15."""
    settings = {"score": score, "strength": strength, "every": 3}
    with_euler, euler_guide = _displacement(sd, pipelines.euler(), **settings)
    with_ddim, ddim_guide = _displacement(sd, pipelines.ddim(), **settings)
    for guide in (euler_guide, ddim_guide):
        assert guide.pushed == [0, 3, 6]
        for moved in guide.moved:
            assert torch.allclose(moved, torch.tensor(strength).double(), rtol=1e-4)
    # At the end of the run, after the reaction of the model.
    assert torch.allclose(with_euler, with_ddim, rtol=0.2)


@pytest.mark.parametrize("name", list(pipelines.OTHERS))
@pytest.mark.parametrize("start", [0.0, 0.4])
def test_samplers_that_keep_latents_do_not_undo_the_push(sd, name, start):
    """Without a push of their copies, 0.003 (PNDM) and 0.008 (UniPC) of 0.03 would remain."""
    moved, guide = _displacement(sd, pipelines.OTHERS[name](), every=100, start=start)
    assert len(guide.pushed) == 1
    assert ((moved > 0.025) & (moved < 0.04)).all()


def test_steps_of_two_stages_count_once(sd):
    assert _displacement(sd, pipelines.OTHERS["heun"](), every=2)[1].pushed == [1, 5, 9, 13, 17]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("scheduler", [pipelines.euler, pipelines.ddim])
def test_half_precision_stays_half_and_finite(sd, dtype, scheduler):
    sd.scheduler = scheduler()
    sd.to(dtype)
    seen = []

    def watch(pipe, step, timestep, tensors):
        after = guide(pipe, step, timestep, tensors)
        seen.append(after["latents"])
        return after

    halves = {key: value.to(dtype) for key, value in pipelines.arguments("sd").items()}
    for score in SCORES:
        guide = DiversityGuidance(score, every=1)
        run(
            sd,
            "sd",
            callback_on_step_end=watch,
            callback_on_step_end_tensor_inputs=guide.tensor_inputs,
            **halves,
        )
    assert len(seen) == 16
    for latents in seen:
        assert latents.dtype == dtype
        assert torch.isfinite(latents).all()


def test_half_precision_stays_within_its_range():
    guide = DiversityGuidance("rke", strength=0.5, every=1, bank=None)
    latents = _random(3, 4, 4, 4).sign().half() * 65504
    tensors = {"latents": latents}
    moved = guide(build("sd"), 0, torch.tensor(1), tensors)["latents"]
    assert torch.isfinite(moved).all()
    assert tensors["latents"] is latents


@pytest.mark.parametrize(
    ("settings", "steps", "expected"),
    [
        ({}, 50, [0, 10, 20, 30, 40]),
        ({"every": 1}, 4, [0, 1, 2]),
        ({"every": 2, "start": 0.5}, 10, [5, 7]),
        ({"every": 10, "start": 0.1, "stop": 0.5}, 30, [3, 13]),
        ({"every": 5, "stop": 0.5}, 20, [0, 5]),
        ({}, 1, []),
    ],
)
def test_pushes_follow_the_scheduled_steps(settings, steps, expected):
    pipe, guide = build("flux"), _Watched(DiversityGuidance(**settings))
    run(pipe, "flux", steps=steps, **_hooked(guide))
    assert guide.pushed == expected


# prompts and bank


@pytest.mark.parametrize("scale", [1.0, 7.5])
@pytest.mark.parametrize("name", ["sd", "sdxl"])
def test_prompts_are_the_positive_ones_once_per_image(name, scale):
    pipe, guide = build(name), DiversityGuidance()
    run(pipe, name, images=2, guidance_scale=scale, **_hooked(guide))
    expected = _unit(pipelines.arguments(name)["prompt_embeds"].mean(1)).repeat_interleave(2, 0)
    assert torch.allclose(guide.bank.prompts.double(), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "tensor"), [("sdxl", "add_text_embeds"), ("sd3", "pooled_prompt_embeds")]
)
def test_pooled_prompts(name, tensor):
    guide = DiversityGuidance(prompt_tensor=tensor)
    run(build(name), name, **_hooked(guide))
    expected = _unit(pipelines.arguments(name)["pooled_prompt_embeds"])
    assert torch.allclose(guide.bank.prompts.double(), expected, atol=1e-6)


def test_a_pipeline_that_puts_its_prompts_first():
    pipe, guide = build("lumina"), DiversityGuidance()
    run(pipe, "lumina", **_hooked(guide))
    expected = _unit(pipelines.arguments("lumina")["prompt_embeds"].mean(1))
    assert torch.allclose(guide.bank.prompts.double(), expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["texts", "numbers", "tensor", "rows", "array"])
def test_prompts_can_be_passed_in_every_form(kind):
    prompts = {
        "texts": ["a dog", "a cat", "a fox"],
        "numbers": [3, 1, 2],
        "tensor": torch.tensor([3, 1, 2]),
        "rows": embeddings(3, tokens=0),
        "array": embeddings(3).numpy(),
    }[kind]
    pipe, guide = build("pixart-alpha"), DiversityGuidance.preset("conditional_rke", every=1)
    with guide.attach(pipe, prompts=prompts):
        run(pipe, "pixart-alpha", images=2)
    stored = guide.bank.prompts
    assert len(stored) == 6
    for first in range(0, 6, 2):
        assert (stored[first] == stored[first + 1]).all()
    assert len(torch.unique(stored, dim=0)) == 3


def test_sequences_of_tokens_count_by_their_mean_whatever_their_lengths():
    latents, guide = _random(3, 4, 4, 4), DiversityGuidance(bandwidth_z=0.8)
    sequences = [embeddings(1, seed, tokens)[0] for seed, tokens in enumerate((3, 5, 7))]
    means = torch.stack([sequence.mean(0) for sequence in sequences])
    assert torch.allclose(guide.push(latents, sequences), guide.push(latents, means))


def test_prompts_are_read_from_the_encoder(sd):
    guides = [DiversityGuidance(every=1) for _ in range(2)]
    given = {"num_inference_steps": 2, "output_type": "latent", "return_dict": False}
    with guides[0].attach(sd):
        for texts in (["a dog", "a cat"], ["an owl"]):
            sd(texts, generator=torch.Generator().manual_seed(0), **given)
    for texts in (["a dog", "a cat"], ["an owl"]):
        sd(texts, generator=torch.Generator().manual_seed(0), **given, **_hooked(guides[1]))
    assert len(guides[0].bank) == 3
    assert torch.equal(guides[0].bank.prompts, guides[1].bank.prompts)
    assert torch.equal(guides[0].bank.latents, guides[1].bank.latents)


def test_calls_add_up_in_the_bank_and_repel_the_next(sd):
    guide = DiversityGuidance("rke", every=1, bank=Bank(5))
    other = DiversityGuidance("rke", every=1)
    first, second = (run(sd, "sd", seed=seed, **_hooked(guide)) for seed in range(2))
    assert (len(guide.bank), guide.bank.arrived) == (5, 6)
    assert torch.allclose(
        guide.bank.latents.double(), _unit(torch.cat([first, second])[1:]), atol=1e-6
    )
    alone = run(sd, "sd", seed=1, **_hooked(other))  # without the first batch in the bank
    earlier = _unit(first).flatten(1)
    alone_cosine = float((_unit(alone).flatten(1) @ earlier.T).mean())
    second_cosine = float((_unit(second).flatten(1) @ earlier.T).mean())
    assert second_cosine < alone_cosine - 0.01


def test_one_sample_at_a_time_moves_away_from_earlier_ones(sd):
    """As in the paper: a batch of one and the window."""
    cosine_sums = []
    options = {key: value[:1] for key, value in pipelines.arguments("sd").items()}
    for strength in (0, 0.05):
        guide, results = DiversityGuidance("rke", strength=strength, every=1), []
        for seed in range(4):
            results.append(_unit(run(sd, "sd", seed=seed, **options, **_hooked(guide))))
        rows = torch.cat(results).flatten(1)
        cosine_sums.append(float((rows @ rows.T).sum()))
    assert cosine_sums[1] < cosine_sums[0]


def test_without_a_bank_runs_do_not_see_each_other(sd):
    guide = DiversityGuidance(every=1, bank=None)
    assert torch.equal(*(run(sd, "sd", **_hooked(guide)) for _ in range(2)))


def test_inference_mode_and_none_share_a_bank(sd):
    guide = DiversityGuidance(every=1)
    with torch.inference_mode():
        run(sd, "sd", **_hooked(guide))
    run(sd, "sd", **_hooked(guide))
    assert len(guide.bank) == 6


# attached


@pytest.mark.parametrize("eta", [0.0, 1.0])
def test_the_signature_of_a_step_stays_visible(sd, eta):
    plain = run(sd, "sd", eta=eta)
    with DiversityGuidance(strength=0).attach(sd):
        assert torch.equal(run(sd, "sd", eta=eta), plain)


class _StopError(Exception):
    pass


def _stop(pipe, step, timestep, tensors):
    if step == 1:
        raise _StopError
    return tensors


def test_the_pipeline_is_restored_after_an_exception(sd):
    before = set(vars(sd)), set(vars(sd.scheduler))
    plain = run(sd, "sd")
    guide = DiversityGuidance(every=1)
    with pytest.raises(_StopError), guide.attach(sd):
        run(sd, "sd", callback_on_step_end=_stop)
    assert "step" not in vars(sd.scheduler)
    assert "encode_prompt" not in vars(sd)
    assert not any(map(callable, vars(sd.scheduler).values()))
    assert set(vars(sd)) >= before[0]
    assert len(guide.bank) == 0
    assert torch.equal(run(sd, "sd"), plain)


def test_an_interrupted_run_does_not_count(sd):
    guides = [DiversityGuidance(every=2) for _ in range(2)]
    with guides[0].attach(sd):
        with pytest.raises(_StopError):
            run(sd, "sd", callback_on_step_end=_stop)
        result = run(sd, "sd")
    with guides[1].attach(sd):
        assert torch.equal(run(sd, "sd"), result)
    assert len(guides[0].bank) == 3


@pytest.mark.parametrize("late", [False, True])
def test_prompts_may_be_encoded_before_or_after_the_timesteps_are_set(sd, late):
    guide, x = DiversityGuidance(every=1), _random(2, 4, 8, 8)
    with guide.attach(sd):
        for texts in (["a dog", "a cat"], ["an owl", "a fox"]):
            calls = [
                lambda texts=texts: sd.encode_prompt(texts, "cpu", 1, False),
                lambda: sd.scheduler.set_timesteps(2),
            ]
            if late:
                calls.reverse()
            for call in calls:
                call()
            sd.encode_prompt("", "cpu", 1, False)  # negative prompts
            for t in sd.scheduler.timesteps:
                x = sd.scheduler.step(_random(2, 4, 8, 8), t, x).prev_sample
    with torch.no_grad():
        expected = sd.encode_prompt(["a dog", "a cat", "an owl", "a fox"], "cpu", 1, False)[0]
    assert torch.allclose(guide.bank.prompts.double(), _unit(expected.double().mean(1)), atol=1e-6)


def test_timesteps_may_be_set_again_for_each_part_of_a_run(sd):
    guide, x = DiversityGuidance(every=1), _random(2, 4, 8, 8)
    with guide.attach(sd):
        sd.encode_prompt(["a dog", "a cat"], "cpu", 1, False)
        for _ in range(2):
            sd.scheduler.set_timesteps(2)
            for t in sd.scheduler.timesteps:
                x = sd.scheduler.step(_random(2, 4, 8, 8), t, x).prev_sample
    assert torch.equal(guide.bank.prompts[:2], guide.bank.prompts[2:])


def test_a_scheduler_copy_of_another_batch_stays_unchanged(sd):
    sd.scheduler = pipelines.OTHERS["pndm"]()
    sd.scheduler.set_timesteps(4)
    kept = sd.scheduler.cur_sample = _random(5, 4, 8, 8)
    guide = DiversityGuidance("rke", every=1)
    guide(sd, 0, torch.tensor(1), {"latents": _random(3, 4, 8, 8)})
    assert sd.scheduler.cur_sample is kept


def test_a_third_party_wrapper_is_restored(sd):
    theirs = sd.scheduler.step
    sd.scheduler.step = theirs
    with DiversityGuidance().attach(sd):
        run(sd, "sd")
    assert vars(sd.scheduler)["step"] is theirs


def test_image_to_image_runs_are_guided(sd):
    pipe = diffusers.StableDiffusionImg2ImgPipeline(**sd.components, requires_safety_checker=False)
    pipe.set_progress_bar_config(disable=True)
    image = _random(3, 3, 16, 16).sigmoid()
    for scheduler in (pipelines.ddim(), pipelines.euler(), pipelines.OTHERS["heun"]()):
        pipe.scheduler = scheduler
        guides = [DiversityGuidance(every=2) for _ in range(2)]
        called = run(pipe, "sd", image=image, strength=0.5, steps=8, **_hooked(guides[0]))
        with guides[1].attach(pipe):
            attached = run(pipe, "sd", image=image, strength=0.5, steps=8)
        assert len(guides[0].bank) == len(guides[1].bank) == 3
        assert torch.equal(called, attached)


def test_a_doubled_batch_is_guided_once(monkeypatch):
    """DiT steps its batch with labels and without, and keeps the first half."""
    torch.manual_seed(0)
    pipe = pipelines.dit()
    pipe.set_progress_bar_config(disable=True)

    def images():
        generator = torch.Generator().manual_seed(0)
        return pipe([1, 2], num_inference_steps=4, generator=generator, output_type="np").images

    pushed, push = [], DiversityGuidance.push

    def watched(guide, latents, prompts, clean=None):
        pushed.append((len(latents), list(prompts)))
        return push(guide, latents, prompts)

    monkeypatch.setattr(DiversityGuidance, "push", watched)
    for scheduler in (pipelines.ddim(), pipelines.OTHERS["unipc"](), pipelines.noisy()):
        pipe.scheduler = scheduler
        plain = images()
        guide = DiversityGuidance("conditional_rke", every=1)
        with guide.attach(pipe, prompts=[1, 2]):
            images()
        with guide.attach(pipe, prompts=[1, 1]):
            result = images()
        assert len(guide.bank) == 4
        assert not np.allclose(result, plain)
    assert pushed == 3 * (3 * [(2, [1, 2])] + 3 * [(2, [1, 1])])
    with (
        pytest.raises(ArgumentError, match="DiTPipeline encodes none"),
        DiversityGuidance().attach(pipe),
    ):
        pass


# presets, refusals, extras


def test_presets_are_the_rows_of_table_1():
    assert set(objectives.OBJECTIVES) == set(SCORES)
    for name in objectives.OBJECTIVES:
        guide = DiversityGuidance.preset(name)
        assert guide.score == objectives.objective(name)
        assert (guide.strength, guide.every) == (0.03, 10)
        assert (guide.bandwidth_z, guide.bank.capacity) == (0.8, 300)
    bandwidths = [DiversityGuidance.preset(name).bandwidth_t for name in SCORES]
    assert bandwidths == [None, None, 0.3, 0.3]
    assert DiversityGuidance.preset("rke").bank is not DiversityGuidance.preset("rke").bank
    assert DiversityGuidance.preset("rke", strength=0.1, bank=None).strength == 0.1


def test_presets_distinguish_unrelated_latents():
    """At bandwidth 0.8 orthogonal unit rows have a kernel value of 0.21: similar, but no copies."""
    guide = DiversityGuidance.preset("rke", strength=0.5)
    rows = torch.eye(3)
    result = score_gradient(rows, score="rke", kernel_x=Gaussian(0.8))
    assert np.exp(result.value) == pytest.approx(9 / (3 + 6 * np.exp(-2 / 0.64)), rel=1e-6)
    assert (_moved(rows + guide.push(rows), rows) > 0.49).all()


WRONG = [
    (lambda: DiversityGuidance("novelty"), "there is no objective 'novelty'"),
    (lambda: DiversityGuidance(score=3), "`score` must be a name such as"),
    (
        lambda: DiversityGuidance(strength=-1),
        "`strength` must be a finite number of at least 0; got -1",
    ),
    (
        lambda: DiversityGuidance(strength=float("nan")),
        "`strength` must be a finite number of at least 0; got nan",
    ),
    (
        lambda: DiversityGuidance(strength=float("inf")),
        "`strength` must be a finite number of at least 0; got inf",
    ),
    (lambda: DiversityGuidance(every=0), "`every` must be a whole number of at least 1; got 0"),
    (lambda: DiversityGuidance(every=2.5), "`every` must be a whole number of at least 1; got 2.5"),
    (
        lambda: DiversityGuidance(bandwidth_z=0),
        "`bandwidth_z` must be a positive, finite number, or None",
    ),
    (
        lambda: DiversityGuidance(bandwidth_t="wide"),
        "`bandwidth_t` must be a positive, finite number, or None",
    ),
    (
        lambda: DiversityGuidance("rke", bandwidth_t=0.3),
        "`bandwidth_t` was given, but the score does not use prompts",
    ),
    (lambda: DiversityGuidance(bank=[]), "`bank` must be a Bank, or None; got list"),
    (
        lambda: DiversityGuidance(start=0.5, stop=0.5),
        "must be fractions with 0 <= start < stop <= 1; got 0.5 and 0.5",
    ),
    (
        lambda: DiversityGuidance(stop=50),
        "`start` and `stop` must be fractions with 0 <= start < stop <= 1; got 0.0 and 50",
    ),
    (
        lambda: DiversityGuidance.preset("d-vsg"),
        "there is no guidance preset 'd-vsg'; choose from vendi, conditional_vendi",
    ),
    (
        lambda: DiversityGuidance(bank=None).remember(_random(2, 3)),
        "this guidance has no `bank` to remember samples in",
    ),
    (
        lambda: DiversityGuidance("rke").push(np.ones((2, 3))),
        "`latents` must be a torch tensor; got ndarray",
    ),
    (
        lambda: (
            DiversityGuidance(prompt_tensor="add_text_embeds").attach(build("sdxl")).__enter__()
        ),
        "attach reads the first result of encode_prompt, not 'add_text_embeds': "
        "pass attach(pipe, prompts=...)",
    ),
    (
        lambda: run(build("sd"), "sd", callback_on_step_end=DiversityGuidance()),
        "a conditional score needs 'prompt_embeds' at each step: "
        "pass callback_on_step_end_tensor_inputs",
    ),
]
REFUSED = [
    (
        lambda: DiversityGuidance().push(_random(2, 3)),
        "a conditional score needs prompts: pass embeddings, texts or ids",
    ),
    (
        lambda: DiversityGuidance().push(_random(4, 3), embeddings(3)),
        "4 latents do not fit 3 prompts",
    ),
    (lambda: DiversityGuidance().push(_random(2, 3) * torch.nan, embeddings(2)), "NaN"),
    (
        lambda: DiversityGuidance()(
            build("sd"), 0, 1, {"latents": _random(2, 3), "prompt_embeds": embeddings(6)}
        ),
        "StableDiffusionPipeline has 6 prompts for 2 latents",
    ),
]


@pytest.mark.parametrize(("call", "message"), WRONG, ids=[message for _, message in WRONG])
def test_invalid_settings_are_refused(call, message):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        call()


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_latents_and_prompts_that_do_not_fit_are_refused(call, message):
    with pytest.raises(DataError, match=re.escape(message)):
        call()


def test_a_bank_of_another_resolution_is_refused(sd):
    guide = DiversityGuidance(every=1)
    run(sd, "sd", **_hooked(guide))
    with pytest.raises(DataError, match="do not fit a bank of samples"):
        run(sd, "sd", height=32, width=32, **_hooked(guide))


def test_scores_can_be_objectives():
    assert DiversityGuidance(Objective(order=2.0)).tensor_inputs == ["latents"]
    assert DiversityGuidance("conditional_vendi(truncation=50)").tensor_inputs == [
        "latents",
        "prompt_embeds",
    ]


@pytest.mark.parametrize("package", ["torch", "diffusers"])
def test_a_missing_package_is_reported(package):
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "import divprism.guidance\n"
        "try: divprism.guidance.DiversityGuidance\n"
        "except divprism.MissingExtraError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = (
        f"Guiding pipelines needs {package}, which is not installed: "
        "pip install 'divprism[guidance]'."
    )
    assert done.stdout.strip() == expected


# the guide


def test_the_example_of_the_guide_runs(tmp_path, monkeypatch):
    """As written: the tiny pipeline is in a folder with the name of the real one."""
    (code,) = re.findall(r"```python\n(import torch.*?)```", GUIDE.read_text(), re.DOTALL)
    (name,) = re.findall(r'from_pretrained\(\s*"(.*?)"', code)
    build("sdxl").save_pretrained(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    scope = {}
    exec(code, scope)
    assert len(list(tmp_path.glob("*.png"))) == 8
    assert len(Bank.load("bank.npz", like=torch.zeros(0))) == len(scope["guide"].bank) == 8


@pytest.mark.parametrize("block", SHORT)
def test_the_short_examples_run(sd, block):
    exec(
        block,
        {
            "pipe": sd,
            "guide": DiversityGuidance(),
            "DiversityGuidance": DiversityGuidance,
            "prompts": ["a dog", "a cat"],
        },
    )


def test_the_reward_example_of_the_guide_runs():
    assert doctest.testfile(str(GUIDE), module_relative=False).failed == 0


def test_a_copy_of_a_scheduler_has_its_own_step():
    pipe = pipelines.dit()
    with DiversityGuidance("rke", strength=0).attach(pipe):
        other = copy.deepcopy(pipe.scheduler)
        assert other.step.__self__ is other
        assert other.set_timesteps.__self__ is other
        other.set_timesteps(3)
        assert len(pipe.scheduler.timesteps) != 3


@pytest.mark.parametrize("lost", [math.nan, math.inf])
@pytest.mark.parametrize("scheduler", [pipelines.ddim, pipelines.OTHERS["unipc"]])
def test_diverged_latents_are_left_out_with_a_warning(sd, lost, scheduler):
    """The others are pushed as if alone, in the scheduler's copies too."""
    latents = _random(3, 4, 8, 8)
    latents[1, 2] = lost
    kept = [0, 2]

    def start(batch):
        sd.scheduler = scheduler()
        sd.scheduler.set_timesteps(3)
        sd.scheduler.last_sample = 2 * batch
        return DiversityGuidance("rke", every=1)

    guide = start(latents)
    with pytest.warns(UserWarning, match=r"latents \[1\] of the batch are NaN or infinite"):
        moved = guide._after_step(sd, latents, None, 0, 3)
    moved_copy = sd.scheduler.last_sample
    with pytest.warns(UserWarning, match="neither pushed nor remembered"):
        guide._after_step(sd, latents, None, 2, 3)
    assert len(guide.bank) == 2

    guide = start(latents[kept])
    alone = guide._after_step(sd, latents[kept], None, 0, 3)
    alone_copy = sd.scheduler.last_sample
    guide._after_step(sd, latents[kept], None, 2, 3)
    assert len(guide.bank) == 2
    assert torch.equal(moved[kept], alone)
    assert torch.equal(moved_copy[kept], alone_copy)
    assert torch.equal(moved[1].nan_to_num(7), latents[1].nan_to_num(7))


def test_two_attached_guides_both_push(sd):
    plain = run(sd, "sd")
    guides = [DiversityGuidance("rke", every=2) for _ in range(2)]
    with guides[0].attach(sd):
        once = run(sd, "sd")
        with guides[1].attach(sd):
            twice = run(sd, "sd")
    assert [len(guide.bank) for guide in guides] == [6, 3]
    assert (_moved(twice, plain) > 1.3 * _moved(once, plain)).all()
    assert torch.equal(run(sd, "sd"), plain)


def test_prompts_are_those_of_the_call(sd):
    """And not those encoded before it, by the user or by a call that failed."""
    guide = DiversityGuidance(every=1)
    with guide.attach(sd):
        encoded = [
            sd.encode_prompt(text, "cpu", 1, False)[0]
            for text in (["an owl", "a fox"], ["a dog", "a cat"])
        ]
        for embedded in encoded:
            sd(
                prompt_embeds=embedded,
                guidance_scale=1,
                num_inference_steps=2,
                output_type="latent",
            )
        with pytest.raises(ValueError, match="custom timestep"):
            sd(["a hen", "a pig"], timesteps=[3, 1], num_inference_steps=2)
        sd(["a cow", "a bee"], guidance_scale=1, num_inference_steps=2, output_type="latent")
    with torch.no_grad():
        last = sd.encode_prompt(["a cow", "a bee"], "cpu", 1, False)[0]
    expected = _unit(torch.cat([*encoded, last]).double().mean(1))
    assert torch.allclose(guide.bank.prompts.double(), expected, atol=1e-6)


def test_a_call_that_encodes_nothing_is_refused(sd):
    """It is not guided by the prompts of the call before it."""
    with DiversityGuidance(every=1).attach(sd):
        run(sd, "sd")
        sd.check_inputs("a dog", 16, 16, 1)
        sd.scheduler.set_timesteps(2)
        with pytest.raises(DataError, match="a conditional score needs prompts"):
            sd.scheduler.step(_random(2, 4, 8, 8), sd.scheduler.timesteps[0], _random(2, 4, 8, 8))


def test_a_custom_loop_is_as_long_as_its_schedule(sd):
    run(sd, "sd", steps=2)
    guide, x = DiversityGuidance("rke", every=3), _random(2, 4, 8, 8)
    with guide.attach(sd):
        sd.scheduler.set_timesteps(10)
        for t in sd.scheduler.timesteps:
            x = sd.scheduler.step(_random(2, 4, 8, 8), t, x).prev_sample
    assert len(guide.bank) == 2
    assert sd.num_timesteps == 2


@pytest.mark.parametrize("settings", [{"strength": 0}, {"start": 0.9}])
@pytest.mark.parametrize("attached", [False, True])
def test_latents_that_a_bank_cannot_hold_are_refused_at_the_first_step(sd, settings, attached):
    guide = DiversityGuidance(**settings)
    run(sd, "sd", **_hooked(guide))
    steps = []

    def record(pipe, step, timestep, tensors):
        steps.append(step)
        if attached:
            return tensors
        return guide(pipe, step, timestep, tensors)

    options = {
        "callback_on_step_end": record,
        "callback_on_step_end_tensor_inputs": guide.tensor_inputs,
    }
    hook, expected_steps = nullcontext(), [0]
    if attached:
        # The wrapped step of the scheduler comes before the first callback.
        hook, expected_steps = guide.attach(sd), []
    with hook, pytest.raises(DataError, match="do not fit a bank of samples"):
        run(sd, "sd", height=32, width=32, **options)
    assert steps == expected_steps


@pytest.mark.parametrize("attached", [False, True])
def test_a_run_that_leaves_noise_for_a_refiner_is_pushed_and_not_remembered(attached):
    pipe = build("sdxl")
    pipe.scheduler = pipelines.euler()
    plain = run(pipe, "sdxl", steps=10, denoising_end=0.3)
    guide = DiversityGuidance("rke", every=1)
    if attached:
        with guide.attach(pipe):
            result = run(pipe, "sdxl", steps=10, denoising_end=0.3)
    else:
        watched = _Watched(guide)
        result = run(pipe, "sdxl", steps=10, denoising_end=0.3, **_hooked(watched))
        assert watched.pushed == [0, 1, 2]
    assert (_moved(result, plain) > 0.03).all()
    assert len(guide.bank) == 0
    run(pipe, "sdxl", **_hooked(guide))
    assert len(guide.bank) == 3


def test_replacing_the_scheduler_inside_attach_warns(sd):
    message = "the scheduler of the pipeline was replaced inside `attach`"
    with pytest.warns(UserWarning, match=message), DiversityGuidance().attach(sd):
        sd.scheduler = pipelines.euler()


def test_attributes_of_a_scheduler_may_be_copied_and_restored(sd):
    """As panorama pipelines do for each view."""
    with DiversityGuidance("rke", every=1).attach(sd):
        kept = copy.deepcopy(vars(sd.scheduler))
        vars(sd.scheduler).update(kept)
        assert torch.isfinite(run(sd, "sd")).all()
    assert "step" not in vars(sd.scheduler)


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        (
            {"a dog": 1},
            "`prompts` must be embeddings, or a list of texts or whole numbers; got dict",
        ),
        (
            [[1.0, 2.0], [1.0]],
            "`prompts` must be embeddings, or a list of texts or whole numbers; got list",
        ),
        ([np.ones(3), np.ones(4)], "the embeddings in `prompts` differ in width"),
    ],
)
def test_invalid_prompts_are_refused_before_the_first_step(sd, prompts, message):
    with (
        pytest.raises(DataError, match=re.escape(message)),
        DiversityGuidance().attach(sd, prompts=prompts),
    ):
        raise AssertionError


def test_one_text_is_one_prompt_and_arrays_may_differ_in_tokens(sd):
    for prompts in ("a dog", [np.ones((3, 4)), np.ones((2, 4)), np.ones((5, 4))]):
        guide = DiversityGuidance(every=1)
        with guide.attach(sd, prompts=prompts):
            run(sd, "sd")
        assert len(guide.bank) == 3


def test_a_callback_without_latents_is_refused():
    with pytest.raises(ArgumentError, match="the callback needs the latents"):
        DiversityGuidance("rke")(None, 0, 0, {"prompt_embeds": torch.zeros(1, 2)})
