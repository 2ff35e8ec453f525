"""Settings: one spelling, one list of keywords, and one way to override them."""

import json
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from itertools import product

import numpy as np
import pytest

import divprism as dp
from divprism.analysis.bandwidth_sweep import SweepOptions
from divprism.engines import Resources
from divprism.scores import settings as settings_module
from divprism.scores.settings import EvaluationOptions, ScoreOptions, Settings, read_options

KERNELS = [
    None,
    dp.Gaussian(0.25),
    dp.Cosine(),
    dp.Polynomial(3, 0.5, 0.0),
    dp.Polynomial(2),
    dp.Categorical(),
    dp.Precomputed(),
]
RULES = [None, dp.DistinctPrompts(0.2), dp.StableScore(0.1, 5, 100), dp.MedianDistance(50)]
ESTIMATORS = [
    dp.Auto(),
    dp.Auto(tolerance=0.01),
    dp.Exact(),
    dp.Dual(),
    dp.Lanczos(),
    dp.Nystrom(100),
    dp.Fourier(64),
    dp.Subsample(200),
]
ORDERS = [0.5, 1.0, 2.0, 3.5, math.inf]
OPTIONS = [
    value
    for name, value in vars(settings_module).items()
    if isinstance(value, type) and name.endswith("Options")
]


def through_json(settings):
    text = json.dumps(settings.to_dict(), allow_nan=False)
    return Settings.from_dict(json.loads(text))


@pytest.mark.parametrize("kernel_x", KERNELS, ids=str)
@pytest.mark.parametrize("kernel_t", KERNELS, ids=str)
def test_every_kernel_survives_its_spelling(kernel_x, kernel_t):
    settings = Settings(kernel_x=kernel_x, kernel_t=kernel_t)
    assert through_json(settings) == settings


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
def test_every_estimator_and_order_survives_its_spelling(estimator, order):
    for rule, truncation in product(RULES, (None, 7)):
        settings = Settings(
            bandwidth_rule=rule, order=order, truncation=truncation, estimator=estimator, rng=3
        )
        assert through_json(settings) == settings


def test_everything_else_survives_its_spelling():
    settings = Settings(
        embedder_x=dp.WordLlama(),
        embedder_t=dp.EfficientNetLite0(),
        interval=0.9,
        unit="prompt",
        num_permutations=0,
    )
    assert through_json(settings) == settings


def test_the_settings_of_a_document_give_the_result_again(pairs):
    first = dp.evaluate(*pairs, order=1.5, truncation=9, interval=0.9)
    settings = Settings.from_dict(json.loads(first.to_json())["settings"])
    again = dp.evaluate(*pairs, settings=settings)
    assert again.scores == first.scores and again.intervals == first.intervals


def test_a_setting_that_does_not_exist_is_refused():
    with pytest.raises(dp.ArgumentError, match="there is no setting 'sigma'"):
        Settings.from_dict({"sigma": 2.0})
    with pytest.raises(dp.ArgumentError, match="kernel cosine has no setting 'bandwidth'"):
        Settings.from_dict({"kernel_x": "cosine", "bandwidth_x": 2.0})


@pytest.mark.parametrize("options", [*OPTIONS, SweepOptions], ids=lambda kind: kind.__name__)
def test_every_keyword_is_a_field_of_settings_or_resources(options):
    known = {field.name for field in (*fields(Settings), *fields(Resources))}
    assert set(options.__annotations__) <= known | {"settings", "weights", "normalize"}


def test_keywords_override_settings(pairs):
    base = Settings(kernel_x=dp.Gaussian(2.0), kernel_t=dp.Gaussian(1.0), order=2.0, rng=5)
    read, _ = read_options({"settings": base, "order": 3.0}, EvaluationOptions, "evaluate")
    assert read == replace(base, order=3.0)
    found = dp.evaluate(*pairs, settings=base, order=3.0)
    assert found.settings.order == 3.0 and found.settings.kernel_x == base.kernel_x
    alone = dp.conditional_vendi(*pairs, settings=base, order=3.0, kernel_x=dp.Gaussian(4.0))
    assert alone.settings.kernel_x == dp.Gaussian(4.0) and alone.order == 3.0


def test_settings_without_an_order_given_keep_theirs(pairs):
    """A named keyword that is not given must not reset the field of the settings."""
    settings = Settings(kernel_x=dp.Gaussian(2.0), order=2.0)
    assert dp.vendi(pairs[0], settings=settings) == dp.rke(pairs[0], kernel=dp.Gaussian(2.0))


def test_resources_are_read_apart_from_settings():
    with ThreadPoolExecutor(1) as executor:
        options = {"memory": "1 GB", "engine": executor, "rng": 4}
        settings, resources = read_options(options, ScoreOptions, "vendi")
    assert settings == Settings(rng=4)
    assert (resources.memory, resources.engine) == (10**9, executor)


CALLS = {
    "vendi": lambda **options: dp.vendi(np.eye(3), **options),
    "conditional_rke": lambda **options: dp.conditional_rke(np.eye(3), [0, 1, 1], **options),
    "cluster_vendi": lambda **options: dp.cluster_vendi(np.eye(3), [0, 1, 1], **options),
    "evaluate": lambda **options: dp.evaluate(np.eye(3), **options),
    "compare": lambda **options: dp.compare({}, **options),
    "overlap": lambda **options: dp.overlap({}, **options),
    "mixture": lambda **options: dp.mixture({}, **options),
    "converge": lambda **options: dp.converge(np.eye(12), **options),
    "bandwidth_sweep": lambda **options: dp.bandwidth_sweep(np.eye(3), **options),
    "prompt_groups": lambda **options: dp.prompt_groups(np.eye(3), [0, 1, 1], **options),
    "nested_scores": lambda **options: dp.nested_scores(np.eye(3), [0, 1, 1], [0, 1, 1], **options),
    "shuffled_baseline": lambda **options: dp.shuffled_baseline(np.eye(3), [0, 1, 1], **options),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_unknown_keyword_is_a_type_error(name):
    message = rf"{name}\(\) got an unexpected keyword argument 'sigma'"
    with pytest.raises(TypeError, match=message):
        CALLS[name](sigma=2.0)


@pytest.mark.parametrize("name", CALLS)
def test_settings_must_be_settings(name):
    with pytest.raises(dp.ArgumentError, match=r"`settings` must be an object such as dp.Settings"):
        CALLS[name](settings={"order": 2.0})


def test_settings_are_frozen_and_compare_by_value():
    settings = Settings(kernel_x=dp.Gaussian(2.0))
    with pytest.raises(AttributeError):
        settings.order = 2.0
    assert settings == Settings(kernel_x=dp.Gaussian(2.0)) and hash(settings)


def test_a_bandwidth_as_a_keyword_leads_to_the_kernel():
    with pytest.raises(TypeError, match=r"'bandwidth'; a bandwidth belongs to its kernel, as in"):
        dp.evaluate([[1.0], [2.0]], bandwidth=2.0)


def test_a_rule_replaces_the_bandwidths_of_earlier_settings(pairs):
    x, t = pairs
    first = dp.evaluate(x, t)
    options = {"bandwidth_rule": dp.StableScore()}
    again = dp.evaluate(x, t, settings=first.settings, **options)
    assert again.settings.kernel_x == dp.evaluate(x, t, **options).settings.kernel_x
    assert again.settings.kernel_x != first.settings.kernel_x
    # A kernel that is given beside the rule stays.
    kept = dp.evaluate(x, t, settings=first.settings, kernel_x=dp.Gaussian(3.0), **options)
    assert kept.settings.kernel_x == dp.Gaussian(3.0)
