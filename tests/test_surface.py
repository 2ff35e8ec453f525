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

# A room imports only rooms above it.
ROOMS = [
    "version", "errors", "engines", "core", "estimators", "data", "embedders", "scores", "analysis", "report", "guidance",
    "cli", "__main__",
]  # fmt: skip

# Results render themselves: inside a method they may import the room of renderings, which stands below them.
IMPORTED_BY_METHODS = {"report"}


def _modules():
    return [
        m.name.removeprefix("divprism.") for m in pkgutil.walk_packages([str(SOURCE)], "divprism.")
    ]


def _room(module: str) -> str:
    return module.partition(".")[0]


def _imported(node: ast.AST) -> list[str]:
    """Modules of divprism that an import statement names."""
    if isinstance(node, ast.Import):
        return [
            alias.name.removeprefix("divprism.")
            for alias in node.names
            if alias.name.startswith("divprism")
        ]
    if isinstance(node, ast.ImportFrom) and node.module == "divprism":
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("divprism."):
        return [node.module.removeprefix("divprism.")]
    return []


def test_every_module_is_in_a_room():
    assert sorted({_room(module) for module in _modules()}) == sorted(ROOMS)


@pytest.mark.parametrize("name", _modules())
def test_rooms_import_from_above_only(name):
    path = SOURCE.joinpath(*name.split("."))
    tree = ast.parse(
        (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()
    )
    allowed = set(ROOMS[: ROOMS.index(_room(name)) + 1])
    at_the_top = set(tree.body)
    for node in ast.walk(tree):
        assert not (isinstance(node, ast.ImportFrom) and node.level), f"{name} imports relatively"
        for target in _imported(node):
            late = IMPORTED_BY_METHODS if node not in at_the_top else set()
            assert _room(target) in allowed | late, f"{name} imports {target}, a room below it"


def test_the_public_names_exist_once():
    assert len(dp.__all__) == len(set(dp.__all__))
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
    heavy = [
        "torch",
        "pandas",
        "sklearn",
        "typer",
        "rich",
        "scipy.linalg",
        "scipy.optimize",
        "matplotlib",
    ]
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
