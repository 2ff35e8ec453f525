"""Metrics of torchmetrics: known answers, the numbers of dp.Metric, and sums over processes."""

import importlib
import math
import pickle
import sys
import warnings

import numpy as np
import pytest
import torch
from gloo_workers import KERNELS, SHARES, T, X, metric_of, run_two
from torchmetrics import MetricCollection

import divprism as dp
from divprism.integrations import torchmetrics as metrics
from divprism.scores.spec import available

STREAMED = {spec.name: spec for spec in available(["x", "t", "joint"])}
BASES = {"AllScores", "StreamedScore"}
CLASSES = {name: getattr(metrics, name) for name in metrics.__all__ if name not in BASES}


def filled(name, kernels="gaussian", cuts=(120,), **settings):
    metric = metric_of(name, kernels, **settings)
    start = 0
    for stop in cuts:
        metric.update(torch.tensor(X[start:stop]), torch.tensor(T[start:stop]))
        start = stop
    return metric


def test_every_score_of_a_stream_has_a_metric():
    assert {cls.spec.name for cls in CLASSES.values()} == set(STREAMED)


def test_scores_of_designs_are_known_on_paper():
    # Four prompts with five outputs each, all different: 20 = 5 x 4 at every order.
    x, t = torch.eye(20), torch.eye(4).repeat_interleave(5, dim=0)
    known = {"vendi": 20, "conditional": 5, "information": 4, "prompts": 4}
    for cls in CLASSES.values():
        metric = cls(dp.Cosine(), dp.Cosine())
        metric.update(x, t)
        assert metric.compute().item() == pytest.approx(known[cls.spec.family], rel=1e-12)


@pytest.mark.parametrize("order", [0.7, 1.0, math.inf])
@pytest.mark.parametrize("kernels", KERNELS)
def test_the_number_is_that_of_metric(kernels, order):
    stream = dp.Metric(*KERNELS[kernels], num_features=64, order=order, truncation=20, rng=3)
    stream.update(X, T)
    right = stream.compute().scores
    assert set(right) == set(STREAMED)
    for name, cls in CLASSES.items():
        settings = {"truncation": 20, "rng": 3}
        if cls.spec.order is None:
            settings["order"] = order
        found = filled(name, kernels, [7, 60, 120], **settings)
        assert found.compute().item() == pytest.approx(right[cls.spec.name].value, rel=1e-9)


@pytest.mark.parametrize("kernels", KERNELS)
def test_all_scores_at_once_are_those_of_their_own_metrics(kernels):
    found = filled("AllScores", kernels, [40, 120]).compute()
    assert list(found) == list(STREAMED)
    for name, cls in CLASSES.items():
        assert found[cls.spec.name] == filled(name, kernels, [40, 120]).compute()
    outputs_alone = metrics.AllScores(dp.Cosine())
    outputs_alone.update(X, T)
    assert list(outputs_alone.compute()) == ["vendi", "rke"]
    # Collections and loggers take dictionaries apart.
    collection = MetricCollection([filled("AllScores", kernels)])
    assert set(collection.compute()) == set(STREAMED)


def test_two_processes_equal_one(tmp_path):
    processes = run_two(tmp_path)
    tolerances = {torch.float32: 1e-6, torch.float64: 1e-12}
    for kernels in KERNELS:
        for dtype, tolerance in tolerances.items():
            right = filled("ConditionalVendi", kernels, dtype=dtype).compute()
            assert right.dtype == dtype
            for case in SHARES:
                for process in processes:
                    value = process["values"][f"{case}, {kernels}, {dtype}"]
                    assert value == pytest.approx(right.item(), rel=tolerance)
    for process in processes:
        # With `dist_sync_on_step`, `forward` returns the score of the batches of both processes.
        steps = [filled("ConditionalVendi", cuts=[cut]).compute().item() for cut in (60, 120)]
        assert process["steps"] == pytest.approx(steps, rel=1e-12)
        assert len(process["refusals"]) == 2
        for text in process["refusals"]:
            assert text.startswith("these metrics cannot be added up")


@pytest.mark.parametrize("kernels", KERNELS)
def test_a_collection_shares_states_and_gives_every_score(kernels):
    collection = MetricCollection({name: metric_of(name, kernels) for name in CLASSES})
    for rows in (slice(0, 40), slice(40, 120)):
        collection.update(torch.tensor(X[rows]), torch.tensor(T[rows]))
    assert len(collection.compute_groups) == 1
    found = collection.compute()
    for name in CLASSES:
        assert found[name] == filled(name, kernels, [40, 120]).compute()


def test_metrics_with_other_settings_share_no_states():
    # At the origin all kernels have the same features, so the moments are equal.
    first, second = metrics.Vendi(dp.Gaussian(1.0)), metrics.Vendi(dp.Gaussian(9.0))
    collection = MetricCollection({"narrow": first, "wide": second})
    collection.update(torch.zeros(1, 4))
    assert len(collection.compute_groups) == 2


@pytest.mark.parametrize("kernels", KERNELS)
def test_forward_returns_the_score_of_the_batch_and_adds_it(kernels):
    metric = metric_of("ConditionalVendi", kernels)
    first = metric(torch.tensor(X[:70]), torch.tensor(T[:70]))
    metric(torch.tensor(X[70:]), torch.tensor(T[70:]))
    assert first == filled("ConditionalVendi", kernels, [70]).compute()
    whole = filled("ConditionalVendi", kernels).compute()
    assert metric.compute().item() == pytest.approx(whole.item(), rel=1e-12)


def test_pickles_clones_and_resets_keep_what_they_should():
    metric = filled("ConditionalRKE", cuts=[70])
    for copy in (pickle.loads(pickle.dumps(metric)), metric.clone()):
        copy.update(torch.tensor(X[70:]), torch.tensor(T[70:]))
        whole = filled("ConditionalRKE").compute()
        assert copy.compute().item() == pytest.approx(whole.item(), rel=1e-12)
    metric.reset()
    assert metric.n == 0
    # Other widths than before: nothing is left of the earlier items.
    metric.update(torch.tensor(T), torch.tensor(X))
    assert metric.n == 120


def test_states_go_through_a_checkpoint():
    metric = filled("ConditionalVendi")
    metric.persistent(True)
    restored = metric_of("ConditionalVendi", "gaussian")
    restored.persistent(True)
    restored.load_state_dict(metric.state_dict())
    restored._update_count = 1  # torchmetrics does not store it, and warns
    assert restored.compute() == metric.compute()


def test_merged_states_are_those_of_all_items():
    first, second = filled("Vendi", cuts=[70]), metric_of("Vendi", "gaussian")
    second.update(torch.tensor(X[70:]), torch.tensor(T[70:]))
    first.merge_state(second)
    assert first.compute().item() == pytest.approx(filled("Vendi").compute().item(), rel=1e-12)
    with pytest.raises(dp.DataError, match="cannot be added up: their kernels, seeds"):
        first.merge_state(metric_of("Vendi", "gaussian", rng=1))


def test_moves_and_casts_keep_counts():
    metric = filled("Vendi")
    right = metric.compute()
    metric.n += 2**24  # the next odd number is none in single precision
    metric.n += 1
    metric.set_dtype(torch.float32)
    assert metric.moments_x.dtype == torch.float32
    assert int(metric.n) == 2**24 + 121
    metric.n -= 2**24 + 1
    metric._computed = None
    assert metric.compute().item() == pytest.approx(right.item(), rel=1e-6)
    # Half precision cannot hold sums.
    assert metric.to(torch.float16).moments_x.dtype == torch.float32
    # The meta device has shapes and no values: the only other one that every machine has.
    moved = metric.to("meta")
    states = [moved.n, moved.noise, moved.identity, moved.moments_x, moved.moments_joint]
    assert {state.device.type for state in states} == {"meta"}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_batches_of_any_precision_are_summed_in_double(dtype):
    metric = metric_of("ConditionalVendi", "gaussian")
    x, t = torch.tensor(X, dtype=dtype), torch.tensor(T, dtype=dtype)
    with torch.inference_mode(), torch.autocast("cpu"):
        metric.update(x[:60], t[:60])
    metric.update(x[60:].requires_grad_(), t[60:])
    stream = dp.Metric(*KERNELS["gaussian"], num_features=64)
    stream.update(x, t)
    right = float(stream.compute().conditional_vendi)
    assert metric.compute().item() == pytest.approx(right, rel=1e-9)
    assert not metric.compute().requires_grad


def test_arrays_of_numpy_are_taken_and_prompts_ignored_without_a_kernel():
    metric = metrics.RKE(dp.Cosine())
    metric.update(X, T)
    assert metric.compute().item() == pytest.approx(float(dp.rke(X, kernel=dp.Cosine())))


def test_metrics_say_what_is_better_and_plot():
    assert metrics.ConditionalVendi.higher_is_better
    assert metrics.InformationVendi.higher_is_better is None
    assert not metrics.ConditionalVendi.is_differentiable
    figure, _ = filled("Vendi").plot()
    figure.clear()


# What the repository of torchmetrics asks of every metric, as far as tests above do not.
@pytest.mark.parametrize("name", ["AllScores", *CLASSES])
def test_the_contract_of_torchmetrics_holds(name):
    metric = metric_of(name, "gaussian")
    for flag in ("is_differentiable", "higher_is_better"):
        with pytest.raises(RuntimeError, match="Can't change const"):
            setattr(metric, flag, True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit, and of torchmetrics
        torch.jit.script(metric)
    assert metric.state_dict() == {}  # unless it is made persistent
    assert metric.full_state_update is False
    before = hash(metric)
    metric.update(torch.tensor(X), torch.tensor(T))
    assert hash(metric) != before
    assert hash(metric.clone()) != hash(metric)  # states of their own


def test_forward_needs_no_second_update_of_the_whole_state(monkeypatch):
    # Both ways of torchmetrics to compute the score of a batch, of which the first is the default.
    values = []
    for whole in (False, True):
        monkeypatch.setattr(metrics.ConditionalVendi, "full_state_update", whole)
        metric = metric_of("ConditionalVendi", "gaussian")
        batches = [metric(torch.tensor(X[i::2]), torch.tensor(T[i::2])) for i in range(2)]
        values.append([each.item() for each in (*batches, metric.compute())])
    assert values[0] == pytest.approx(values[1], rel=1e-12)


def test_a_refused_batch_changes_nothing():
    metric = filled("ConditionalVendi")
    right = metric.compute()
    refused = {
        "`x` has 3 columns; earlier chunks had 4": (X[:, :3], T),
        "`t` has 2 columns; earlier chunks had 3": (X, T[:, :2]),
        "must pair up row by row": (X, T[:5]),
        "NaN": (np.full((2, 4), np.nan), T[:2]),
        "`t` goes with `kernel_t`": (X, None),
    }
    for text, batch in refused.items():
        with pytest.raises((dp.DataError, dp.ArgumentError), match=text):
            metric.update(*batch)
        assert metric.n == 120
        assert metric.compute() == right


def test_wrong_settings_are_refused():
    with pytest.raises(dp.ArgumentError, match="ConditionalVendi needs `kernel_t`"):
        metrics.ConditionalVendi(dp.Cosine())
    with pytest.raises(dp.ArgumentError, match="RKE has order 2: leave `order` out"):
        metrics.RKE(dp.Cosine(), order=1.0)
    with pytest.raises(dp.ArgumentError, match="`truncation`"):
        metrics.Vendi(dp.Cosine(), truncation="auto")
    with pytest.raises(dp.ArgumentError, match="features together, above 4,096"):
        metrics.Vendi(dp.Polynomial(2)).update(torch.ones(2, 200))
    empty = metrics.Vendi(dp.Cosine())
    with (
        pytest.warns(UserWarning, match="before the ``update`` method"),
        pytest.raises(dp.DataError, match="call update first"),
    ):
        empty.compute()


def test_a_missing_torchmetrics_is_explained(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    monkeypatch.delitem(sys.modules, "divprism.integrations.torchmetrics")
    with pytest.raises(dp.MissingExtraError, match=r"pip install 'divprism\[torchmetrics\]'"):
        importlib.import_module("divprism.integrations.torchmetrics")
