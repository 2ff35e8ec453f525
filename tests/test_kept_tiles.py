"""Kernel values kept between sweeps: 16 bits, memory and disk change no more than is stated."""

import errno
import os
from collections import namedtuple

import numpy as np
import pytest

import divprism as dp
from divprism.core import kept_tiles
from divprism.core.kept_tiles import from_16_bits, in_16_bits
from divprism.core.operators import KernelOperator
from divprism.core.sweep import Sweep
from divprism.engines import Resources
from divprism.estimators import _lanczos_run, _rounding

SIZE = 400
LANCZOS = dp.Lanczos(num_probes=16, depth=8)


def outputs(width=24, size=SIZE):
    return np.random.default_rng(0).standard_normal((size, width)).astype(np.float32)


@pytest.fixture
def in_16(monkeypatch):
    """Round kernel values of matrices of any size."""
    monkeypatch.setattr(_rounding, "_COMPACT_SIZE", 0)


@pytest.fixture
def fast_disk(monkeypatch):
    """A disk that takes no time."""
    monkeypatch.setattr(kept_tiles, "_is_in_memory", lambda: False)
    monkeypatch.setattr(kept_tiles._Scratch, "seconds_per_byte", lambda scratch: 0.0)


def test_16_bits_are_exact_on_the_diagonal_and_round_by_half_a_step():
    values = np.linspace(-1, 1, 100_001).astype(np.float32)
    rounded = from_16_bits(in_16_bits(values))
    assert from_16_bits(in_16_bits(np.array([1, 0, -1], np.float32))).tolist() == [1, 0, -1]
    assert np.abs(rounded - values).max() <= 1.01 / 65535
    error = np.sqrt(np.mean((rounded.astype(np.float64) - values) ** 2))
    assert error == pytest.approx(2 / 65535 / np.sqrt(12), rel=0.01)


def test_a_value_that_rounding_put_above_one_stays_one():
    above = np.array([1 + 2**-20], np.float32)
    assert from_16_bits(in_16_bits(above))[0] == 1


def test_16_bits_change_scores_by_less_than_the_stated_error(in_16):
    x = outputs()
    exact = dp.vendi(x, kernel=dp.Gaussian(4.0), estimator=dp.Exact())
    coarse = dp.vendi(x, kernel=dp.Gaussian(4.0), estimator=LANCZOS)
    assert abs(coarse - exact) < 4 * coarse.standard_error


def test_norms_are_those_of_values_that_are_not_rounded(in_16):
    x = outputs()
    options = {"kernel_x": dp.Gaussian(4.0), "kernel_t": dp.Gaussian(4.0), "num_permutations": 0}
    coarse = dp.evaluate(x, x[::-1].copy(), estimator=LANCZOS, **options)
    exact = dp.conditional_rke(
        x, x[::-1].copy(), kernel_x=dp.Gaussian(4.0), kernel_t=dp.Gaussian(4.0)
    )
    assert float(coarse.conditional_rke) == pytest.approx(float(exact), rel=1e-7)


def test_rounding_to_16_bits_is_measured(in_16):
    operator = KernelOperator.from_data(
        dp.Gaussian(4.0), outputs(), np.full(SIZE, 1 / SIZE), dtype=np.float32, name="x"
    )
    values = operator.values(slice(0, SIZE), slice(0, SIZE)).astype(np.float64)
    rounded = from_16_bits(in_16_bits(values.astype(np.float32)))
    radius = np.abs(np.linalg.eigvalsh(rounded - values)).max() / SIZE
    assert _rounding.rounding(operator, compact=True) == pytest.approx(radius, rel=0.1)


def test_data_with_many_tiny_eigenvalues_are_computed_in_full(monkeypatch):
    # Points in a plane: all but some dozens of the eigenvalues are below the rounding.
    x = outputs(width=2)
    options = {"kernel": dp.Gaussian(1.0), "estimator": LANCZOS}
    in_full = dp.vendi(x, **options)
    monkeypatch.setattr(_rounding, "_COMPACT_SIZE", 0)
    assert dp.vendi(x, **options) == in_full
    monkeypatch.setattr(_lanczos_run, "_ROUNDING_SHARE", np.inf)
    monkeypatch.setattr(_lanczos_run, "_EARLY_ROUNDING_SHARE", np.inf)
    assert dp.vendi(x, **options) != in_full


@pytest.mark.parametrize("options", [{"order": np.inf}, {"order": 3}, {"truncation": 5}])
def test_scores_of_the_largest_eigenvalues_alone_are_computed_in_full(options, monkeypatch):
    # Unlike items: all values are near zero, and so are all rounded in the same direction.
    x = 3 * outputs(width=8)
    expected = dp.vendi(x, kernel=dp.Gaussian(1.5), estimator=LANCZOS, **options)
    monkeypatch.setattr(_rounding, "_COMPACT_SIZE", 0)
    assert dp.vendi(x, kernel=dp.Gaussian(1.5), estimator=LANCZOS, **options) == expected


@pytest.mark.parametrize("compact", [False, True])
def test_memory_and_disk_change_no_bit(compact, fast_disk):
    sweeps = {}
    for keep in (0, 100_000, 10**9):
        sweep = sweep_of(keep, compact)
        sweeps[keep] = [products(sweep) for _ in range(2)]
    assert sweep_of(100_000, compact).uses_disk
    expected = sweeps[0][0]
    for results in sweeps.values():
        for result in results:
            assert np.array_equal(result, expected)


def sweep_of(keep, compact):
    operator = KernelOperator.from_data(
        dp.Gaussian(4.0), outputs(), np.full(SIZE, 1 / SIZE), dtype=np.float32, name="x"
    )
    return Sweep.over([operator], Resources(tile=50), keep=keep, compact=compact)


def products(sweep):
    vectors = np.random.default_rng(1).standard_normal((SIZE, 3))
    [product], _ = sweep.run([vectors])
    return product


def test_tiles_on_disk_are_read_and_not_computed(fast_disk):
    sweep = sweep_of(100_000, True)
    expected = products(sweep)
    # From now on nothing can be computed.
    sweep._tiles.sources = [None]
    assert np.array_equal(products(sweep), expected)


def test_a_full_disk_costs_time_and_no_number(fast_disk, monkeypatch):
    expected = products(sweep_of(0, True))
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(kept_tiles.shutil, "disk_usage", lambda path: usage(100, 95, 5))
    sweep = sweep_of(100_000, True)
    assert np.array_equal(products(sweep), expected)
    assert np.array_equal(products(sweep), expected)


def test_a_disk_that_fails_costs_time_and_no_number(fast_disk, monkeypatch):
    sweep = sweep_of(100_000, True)
    expected = products(sweep)

    def broken(descriptor, buffers, position):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "preadv", broken)
    for _ in range(2):
        assert np.array_equal(products(sweep), expected)


def test_a_disk_slower_than_computing_is_not_used(monkeypatch):
    monkeypatch.setattr(kept_tiles, "_is_in_memory", lambda: False)
    monkeypatch.setattr(kept_tiles._Scratch, "seconds_per_byte", lambda scratch: 1.0)
    assert not sweep_of(100_000, True).uses_disk


def test_a_disk_that_is_memory_is_not_used(fast_disk, monkeypatch):
    monkeypatch.setattr(kept_tiles, "_is_in_memory", lambda: True)
    assert not sweep_of(100_000, True).uses_disk


def test_the_plan_names_the_disk(fast_disk, monkeypatch):
    monkeypatch.setattr(_lanczos_run, "_LONG", -1.0)
    seen = []
    least = LANCZOS.least_bytes(SIZE, 1)
    dp.vendi(
        outputs(),
        kernel=dp.Gaussian(4.0),
        estimator=LANCZOS,
        memory=int(least) + 100_000,
        progress=lambda text, share: seen.append(text),
    )
    assert "100 kB kept in memory and " in seen[0]
    assert " on disk" in seen[0]
