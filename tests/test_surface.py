"""What the package shows: names, layers, cheap import, documentation."""

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import divprism as dp

SOURCE = Path(dp.__file__).parent

# A module imports only what stands above it.
LAYERS = [
    "version", "errors", "_files", "_blocks", "_arrays", "_validate", "kernels", "fidelity", "bandwidth", "operators",
    "_sweep", "features", "spectrum", "moments", "entropy", "estimators.base", "estimators._direct", "estimators._krylov",
    "estimators._quadrature", "estimators.exact", "estimators.dual", "estimators.lanczos", "estimators.nystrom",
    "estimators.fourier", "estimators.subsample", "estimators.auto", "estimators", "_problem", "report.texts",
    "report.plots", "result", "scores", "_extrapolation", "toy", "media", "samples", "readers.guards", "readers.arrays",
    "readers.tables", "readers.values", "readers.fields", "readers.pairing", "readers.folders", "readers.load", "readers",
    "embedders.base", "embedders.cache", "embedders.pipeline", "embedders.text", "embedders._efficientnet",
    "embedders.image", "embedders._hub", "embedders._inception", "embedders.inception", "embedders.torch_models",
    "embedders.http", "embedders.function", "embedders", "embedding", "objectives", "registry", "groups.cluster",
    "groups.grouping", "groups._inside", "groups.decomposition", "groups.nested", "groups", "bounds", "_jackknife",
    "uncertainty", "baseline", "bandwidth_sweep", "report.formats", "report.words", "report.thumbnails", "report.view",
    "report.page", "report", "evaluation", "comparison", "convergence", "details", "metric", "guidance._inputs",
    "guidance._pairs", "guidance.bank", "guidance._pool", "guidance.gradient", "guidance._hooks", "guidance._attached",
    "guidance.diffusers", "guidance", "cli.options", "cli.flags", "cli.report", "cli.score", "cli.embed", "cli.compare",
    "cli.bandwidth", "cli.groups", "cli.converge", "cli.cache", "cli.demo", "cli.listing", "cli.doctor", "cli", "__main__",
]  # fmt: skip


def _modules():
    return [m.name.removeprefix("divprism.") for m in pkgutil.walk_packages([str(SOURCE)], "divprism.")]


def test_every_module_has_its_layer():
    assert sorted(_modules()) == sorted(LAYERS)


@pytest.mark.parametrize("name", LAYERS)
def test_modules_import_from_above_only(name):
    path = SOURCE.joinpath(*name.split("."))
    text = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()
    above = set(LAYERS[: LAYERS.index(name)])
    for node in ast.walk(ast.parse(text)):
        targets = []
        if isinstance(node, ast.ImportFrom) and node.module == "divprism":
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            assert not any(alias.name.startswith("divprism") for alias in node.names), (
                "imports are written from divprism import"
            )
        elif isinstance(node, ast.ImportFrom) and node.level:
            raise AssertionError(f"{name} imports relatively")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("divprism."):
            module = node.module.removeprefix("divprism.")
            inside = [f"{module}.{alias.name}" for alias in node.names if f"{module}.{alias.name}" in LAYERS]
            targets = inside or [module]
        for target in targets:
            assert target in above, f"{name} imports {target}, which stands below it"


def test_the_public_names_are_sorted_and_there():
    assert dp.__all__ == sorted(dp.__all__)
    for name in dp.__all__:
        assert getattr(dp, name) is not None


def test_every_public_thing_is_documented():
    for module_name in _modules():
        if module_name == "__main__":
            continue
        module = importlib.import_module(f"divprism.{module_name}")
        assert module.__doc__
        for name in getattr(module, "__all__", []):
            thing = getattr(module, name)
            if inspect.isclass(thing) or inspect.isfunction(thing):
                assert inspect.getdoc(thing), f"{module_name}.{name}"


def test_import_is_light():
    heavy = ["torch", "pandas", "sklearn", "typer", "rich", "scipy.linalg", "scipy.optimize", "matplotlib"]
    code = f"import sys, divprism; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_does_not_import_torch():
    code = (
        "import sys\nfrom divprism.cli import app\n"
        "try: app(['score', '--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('torch', 'sklearn') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_nothing_is_drawn_from_a_global_generator(pairs):
    before = np.random.get_state()  # noqa: NPY002
    dp.evaluate(*pairs, bandwidth_rule=dp.MedianDistance(max_rows=10))
    dp.kmeans_labels(pairs[1], 2)
    after = np.random.get_state()  # noqa: NPY002
    assert after[2] == before[2]
    assert (after[1] == before[1]).all()


def test_inputs_are_left_as_they_were(library):
    x, t = np.random.default_rng(0).standard_normal((2, 30, 4))
    for order in (1, 2):
        given = library(x.copy()), library(t.copy())
        dp.evaluate(*given, order=order)
        assert (np.asarray(given[0]) == x).all()
        assert (np.asarray(given[1]) == t).all()


@pytest.mark.parametrize("kernel", ["dp.Gaussian(8.0)", "dp.Cosine()", "dp.Polynomial(2)"])
def test_order_two_never_holds_the_matrix(kernel):
    """12,000 pairs: a kernel matrix in single precision would take 576 MB, all quadratic features of x 460 MB."""
    code = (
        "import resource, numpy as np, divprism as dp\n"
        "rng = np.random.default_rng(0)\n"
        "x, t = (rng.standard_normal((12000, d), dtype=np.float32) for d in (96, 64))\n"
        "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024\n"
        "before = peak()\n"
        f"dp.conditional_rke(x, t, kernel_x={kernel}, kernel_t={kernel})\n"
        f"dp.rke(x, kernel={kernel})\n"
        "print(peak() - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 200  # megabytes: copies of the data and a few tiles
