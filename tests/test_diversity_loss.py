"""The loss for torch: its value, its gradient, precisions, degenerate batches, refusals."""

import math

import numpy as np
import pytest
import torch

import divprism as dp
from divprism.guidance import Bank, Objective
from divprism.integrations.torch import diversity_loss

N = 8
PROMPTS = np.arange(N) % 3


def batch(dtype=torch.float64, n=N, d=3, requires_grad=True):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn((n, d), dtype=torch.float64, generator=generator)
    return x.to(dtype).requires_grad_(requires_grad)


CASES = [
    ("vendi", {}),
    ("vendi", {"order": 0.7}),
    ("vendi", {"order": 3}),
    ("vendi", {"order": math.inf}),
    ("rke", {}),
    ("conditional_vendi", {}),
    ("conditional_vendi", {"order": 2}),
    ("conditional_rke", {}),
]


def library_score(name, x, **settings):
    """The score as the public functions of the library compute it."""
    x = x.detach().numpy()
    if name.startswith("conditional"):
        return getattr(dp, name)(x, PROMPTS, kernel_x=dp.Gaussian(1.3), **settings)
    return getattr(dp, name)(x, kernel=dp.Gaussian(1.3), **settings)


def loss_of(x, name, **settings):
    t = None
    if name.startswith("conditional"):
        t = PROMPTS
    return diversity_loss(x, t, score=name, bandwidth=1.3, **settings)


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_the_value_is_minus_the_log_of_the_score(name, settings):
    x = batch()
    right = -math.log(library_score(name, x, **settings))
    assert loss_of(x, name, **settings).item() == pytest.approx(right, abs=1e-12)


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_the_gradient_is_that_of_finite_differences(name, settings):
    def loss(x):
        return loss_of(x, name, **settings)

    assert torch.autograd.gradcheck(loss, batch(), atol=1e-7, rtol=1e-5)


def by_autograd(x, order, t=None):
    """The loss as torch differentiates it: through distances and eigenvalues."""
    differences = x[:, None, :] - x[None, :, :]
    joint = torch.exp(-0.5 * (differences**2).sum(-1) / 1.3**2)
    same = torch.ones(())
    if t is not None:
        same = torch.as_tensor(t[:, None] == t[None, :]).double()
        joint = joint * same

    def entropy(matrix):
        values = torch.linalg.eigvalsh(matrix / len(x))
        if order == 1:
            return -(values * values.clamp(min=1e-300).log()).sum()
        return values.clamp(min=0).pow(order).sum().log() / (1 - order)

    loss = -entropy(joint)
    if t is not None:
        loss = loss + entropy(same)
    return loss


@pytest.mark.parametrize("t", [None, PROMPTS])
@pytest.mark.parametrize("order", [1, 1.5, 2, 3])
def test_the_gradient_is_that_of_autograd_through_eigenvalues(order, t):
    x = batch()
    (right,) = torch.autograd.grad(by_autograd(x, order, t), x)
    score = "vendi" if t is None else "conditional_vendi"
    loss = diversity_loss(x, t, score=score, order=order, bandwidth=1.3)
    loss.backward()
    assert loss.item() == pytest.approx(by_autograd(x, order, t).item(), abs=1e-12)
    assert torch.allclose(x.grad, right, rtol=0, atol=1e-12)


def test_steps_down_the_loss_raise_the_score():
    x = batch(dtype=torch.float32)
    optimizer = torch.optim.SGD([x], lr=0.5)
    before = library_score("vendi", x)
    for _ in range(20):
        optimizer.zero_grad()
        loss_of(x, "vendi").backward()
        optimizer.step()
    assert library_score("vendi", x) > before + 1


def test_the_loss_is_differentiated_as_a_part_of_another():
    x = batch()
    (alone,) = torch.autograd.grad(loss_of(x, "vendi"), x)
    (found,) = torch.autograd.grad((2 * x).sum() + 3 * loss_of(2 * x, "rke"), x)
    (inner,) = torch.autograd.grad(loss_of(y := 2 * x, "rke"), y)
    assert torch.allclose(found, 2 + 3 * 2 * inner)
    assert torch.allclose(torch.func.grad(lambda x: loss_of(x, "vendi"))(x.detach()), alone)


def test_embedded_prompts_and_earlier_outputs_count():
    x, t = batch(), batch(d=2, requires_grad=False)
    kernels = {"kernel_x": dp.Gaussian(1.3), "kernel_t": dp.Gaussian(0.8)}
    loss = diversity_loss(x, t, score="conditional_vendi", bandwidth=1.3, bandwidth_t=0.8)
    assert loss.item() == pytest.approx(-math.log(dp.conditional_vendi(x, t, **kernels)), abs=1e-12)
    same = diversity_loss(x, t, score=Objective(conditional=True), **kernels)
    assert same == loss
    # The last three rows are new, the first five come from earlier batches.
    bank = Bank(capacity=10)
    bank.append(x.detach()[:5])
    new = x.detach()[5:].requires_grad_()
    part = diversity_loss(new, bandwidth=1.3, bank=bank)
    part.backward()
    loss_of(x, "vendi").backward()
    assert part.item() == pytest.approx(loss_of(x, "vendi").item(), abs=1e-5)  # float32 banks
    assert torch.allclose(new.grad, x.grad[5:], atol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "of_loss", "tolerance"),
    [
        (torch.float32, torch.float32, 1e-5),
        (torch.bfloat16, torch.float32, 1e-2),
        (torch.float16, torch.float32, 2e-3),
    ],
)
def test_lower_precisions(dtype, of_loss, tolerance):
    x = batch(dtype)
    loss = loss_of(x, "vendi")
    # A scale beyond the range of half precision, as mixed precision uses.
    scale = 2.0**17
    (loss * scale / scale).backward()
    right = x.detach().double().requires_grad_()
    loss_of(right, "vendi").backward()
    assert loss.dtype == of_loss
    assert x.grad.dtype == dtype
    assert loss.item() == pytest.approx(loss_of(right, "vendi").item(), abs=1e-6)
    assert torch.allclose(x.grad.double(), right.grad, atol=tolerance)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # of torch, about its own compiler
def test_compiled_code_gives_the_same():
    def total(x):
        return diversity_loss(2 * x, bandwidth=1.3) + x.sum()

    x = batch()
    (right,) = torch.autograd.grad(total(x), x)
    (found,) = torch.autograd.grad(torch.compile(total, backend="eager")(x), x)
    assert torch.equal(found, right)


def test_autocast_changes_nothing():
    x = batch(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        loss = loss_of(x, "vendi")
    assert loss == loss_of(x, "vendi")


@pytest.mark.parametrize("order", [0.7, 1.0, 2.0])
def test_copies_have_a_finite_gradient_and_are_not_pushed_apart(order):
    rows = batch(n=4).detach()
    x = rows[[0, 0, 1, 2]].requires_grad_()
    loss = diversity_loss(x, order=order, bandwidth=1.3)
    loss.backward()
    assert torch.allclose(x.grad[0], x.grad[1], rtol=0, atol=1e-9)
    assert torch.isfinite(x.grad).all()
    assert x.grad[0].abs().max() > 0.01
    # It is the derivative: one copy moves, the eigenvalue that is zero moves by the square.
    step = 1e-5 * torch.eye(3, dtype=torch.float64)[0]

    def value(direction):
        moved = x.detach().clone()
        moved[0] += direction
        return diversity_loss(moved, order=order, bandwidth=1.3).item()

    slope = (value(step) - value(-step)) / 2e-5
    # At order 0.7 what is left is |step|^(2 order - 1) = 1e-2 on either side, and cancels.
    assert slope == pytest.approx(x.grad[0, 0].item(), abs=1e-6)


def test_all_the_same_and_a_single_output_have_no_gradient():
    for x in (torch.ones((3, 2), requires_grad=True), torch.ones((1, 2), requires_grad=True)):
        loss = diversity_loss(x, bandwidth=1.0)
        loss.backward()
        assert str(loss.item()) == "0.0"
        assert (x.grad == 0).all()


def test_outputs_of_any_shape():
    x = torch.randn((4, 3, 2, 2), generator=torch.Generator().manual_seed(0), requires_grad=True)
    loss = diversity_loss(x, score="rke", bandwidth=2.0)
    loss.backward()
    assert loss == diversity_loss(x.reshape(4, 12), score="rke", bandwidth=2.0)
    assert x.grad.shape == x.shape


def test_without_gradients_only_the_value_is_returned():
    x = batch(requires_grad=False)
    assert not loss_of(x, "vendi").requires_grad
    with torch.no_grad():
        assert not loss_of(batch(), "vendi").requires_grad


def test_a_second_derivative_is_refused():
    x = batch()
    # A graph of the first derivative is fine as long as nobody asks for the second.
    (slopes,) = torch.autograd.grad(loss_of(x, "vendi") + (x**3).sum(), x, create_graph=True)
    with pytest.raises(dp.ArgumentError, match="no second derivative"):
        torch.autograd.grad((slopes**2).sum(), x)
    with pytest.raises(dp.ArgumentError, match="no second derivative"):
        torch.autograd.gradgradcheck(lambda x: loss_of(x, "vendi"), x)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "`bandwidth` or `kernel_x` must be given"),
        ({"bandwidth": 0}, "`bandwidth` must be positive"),
        ({"bandwidth": 1, "kernel_x": dp.Cosine()}, "`kernel_x` and `bandwidth` were both given"),
        ({"bandwidth": 1, "bandwidth_t": 1}, "`bandwidth_t` was given, but the score does not use"),
        ({"bandwidth": 1, "kernel_t": dp.Cosine()}, "`kernel_t` was given, but the score does not"),
        ({"bandwidth": 1, "score": "information_vendi"}, "there is no objective"),
        ({"bandwidth": 1, "score": "rke", "order": 1}, "rke has the order 2: leave it out"),
        ({"bandwidth": 1, "score": Objective(), "order": 2}, "Objective has the order 1"),
        ({"bandwidth": 1, "order": 0}, "`order` must be positive"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(dp.ArgumentError, match=message):
        diversity_loss(batch(), **settings)


def test_data_that_do_not_fit_are_refused():
    with pytest.raises(dp.ArgumentError, match="`x` must be a tensor; got ndarray"):
        diversity_loss(np.eye(3), bandwidth=1.0)
    with pytest.raises(dp.ArgumentError, match="`bandwidth_t` or `kernel_t` must be given"):
        diversity_loss(batch(), batch(), score="conditional_rke", bandwidth=1.0)
    with pytest.raises(dp.DataError, match="needs the prompts `t`"):
        diversity_loss(batch(), score="conditional_rke", bandwidth=1.0)
    with pytest.raises(dp.DataError, match="NaN"):
        diversity_loss(torch.full((2, 2), math.nan), bandwidth=1.0)
