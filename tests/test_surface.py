"""The surface of the package: public names, layers, cheap import, documentation, inputs kept."""

import ast
import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import divprism as dp
from divprism.cli import app

SOURCE = Path(dp.__file__).parent

# The folders and modules at the top of the package ("rooms"), from the lowest layer to the highest.
# A room imports only itself and the rooms before it.
ROOMS = [
    "_interrupts",
    "errors",
    "engines",
    "core",
    "estimators",
    "data",
    "embedders",
    "judges",
    "scores",
    "analysis",
    "report",
    "guidance",
    "integrations",  # adapters for other libraries, imported on demand
    "testing",
    "cli",
    "__main__",
]

# The exception: results render themselves, so their methods import the renderings when called.
IMPORTED_BY_METHODS = {"report"}

HEAVY_MODULES = [
    "torch",
    "torchmetrics",
    "pandas",
    "narwhals",
    "sklearn",
    "typer",
    "rich",
    "scipy.linalg",
    "scipy.optimize",
    "matplotlib",
]


def _modules() -> list[str]:
    """Every module of the package, without the leading "divprism."."""
    walked = pkgutil.walk_packages([str(SOURCE)], "divprism.")
    return [module.name.removeprefix("divprism.") for module in walked]


def _room(module: str) -> str:
    return module.partition(".")[0]


def _run(code: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a fresh interpreter: what this one has imported and allocated is gone."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def _source_file(module: str) -> Path:
    path = SOURCE.joinpath(*module.split("."))
    if path.is_dir():
        return path / "__init__.py"
    return path.with_suffix(".py")


def _imported(node: ast.AST) -> list[str]:
    """Modules of divprism that an import statement names; none for other nodes."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
        return [name.removeprefix("divprism.") for name in names if name.startswith("divprism")]
    if isinstance(node, ast.ImportFrom) and node.module == "divprism":
        # The version belongs to the package itself, above all rooms.
        return [alias.name for alias in node.names if alias.name != "__version__"]
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("divprism."):
        return [node.module.removeprefix("divprism.")]
    return []


def test_every_module_is_in_a_room():
    assert {_room(module) for module in _modules()} <= set(ROOMS)


@pytest.mark.parametrize("name", _modules())
def test_rooms_import_only_lower_rooms(name):
    tree = ast.parse(_source_file(name).read_text())
    allowed_anywhere = set(ROOMS[: ROOMS.index(_room(name)) + 1])
    top_level = set(tree.body)
    for node in ast.walk(tree):
        assert not (isinstance(node, ast.ImportFrom) and node.level), f"{name} imports relatively"
        allowed = allowed_anywhere
        if node not in top_level:
            allowed = allowed_anywhere | IMPORTED_BY_METHODS
        for target in _imported(node):
            assert _room(target) in allowed, f"{name} imports {target}, which is in a higher room"


def test_the_public_names_exist_once():
    assert len(dp.__all__) == len(set(dp.__all__))
    for name in dp.__all__:
        assert getattr(dp, name) is not None


def test_every_public_name_is_documented():
    for module_name in _modules():
        if module_name == "__main__":
            continue
        module = importlib.import_module(f"divprism.{module_name}")
        assert module.__doc__
        for name in getattr(module, "__all__", []):
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                assert inspect.getdoc(value), f"{module_name}.{name}"


def test_import_is_light():
    code = f"import sys, divprism; print(sorted(set({HEAVY_MODULES}) & set(sys.modules)))"
    assert _run(code).stdout.strip() == "[]"


def test_help_does_not_import_torch():
    code = (
        "import sys\nfrom divprism.cli import app\n"
        "try: app(['score', '--help'])\nexcept SystemExit: pass\n"
        "print(sorted({'torch', 'sklearn'} & set(sys.modules)), file=sys.stderr)"
    )
    assert _run(code).stderr.strip() == "[]"


def test_the_global_random_generator_is_never_used(pairs):
    before = np.random.get_state()  # noqa: NPY002
    dp.evaluate(*pairs, bandwidth_rule=dp.MedianDistance(max_rows=10))
    dp.kmeans_labels(pairs[1], 2)
    after = np.random.get_state()  # noqa: NPY002
    assert after[2] == before[2]
    assert (after[1] == before[1]).all()


def test_inputs_are_not_modified(library):
    x, t = np.random.default_rng(0).standard_normal((2, 30, 4))
    for order in (1, 2):
        given = library(x.copy()), library(t.copy())
        dp.evaluate(*given, order=order)
        assert (np.asarray(given[0]) == x).all()
        assert (np.asarray(given[1]) == t).all()


@pytest.mark.parametrize("kernel", ["dp.Gaussian(8.0)", "dp.Cosine()", "dp.Polynomial(2)"])
def test_order_two_never_holds_the_matrix(kernel):
    # 12,000 pairs: a kernel matrix in single precision would take 576 MB, and all quadratic
    # features of x 460 MB.
    code = (
        "import resource, numpy as np, divprism as dp\n"
        "rng = np.random.default_rng(0)\n"
        "x = rng.standard_normal((12000, 96), dtype=np.float32)\n"
        "t = rng.standard_normal((12000, 64), dtype=np.float32)\n"
        "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024\n"
        "before = peak()\n"
        f"dp.conditional_rke(x, t, kernel_x={kernel}, kernel_t={kernel})\n"
        f"dp.rke(x, kernel={kernel})\n"
        "print(peak() - before)"
    )
    # Copies of the data and a few tiles take less than 200 MB.
    assert float(_run(code).stdout) < 200


def _steps_of_the_walk():
    """The functions of the table "The way of the data" in docs/architecture.md, in order."""
    text = (SOURCE.parents[1] / "docs" / "architecture.md").read_text()
    table = text.split("## The path of the data")[1].split("\n\n")[2]
    names = [row.split("|")[2].strip(" `") for row in table.splitlines()[2:]]
    return {
        inspect.unwrap(pkgutil.resolve_name(f"divprism.{name}")).__code__: name for name in names
    }


def test_the_steps_of_a_score_are_visited_once_and_in_the_documented_order(tmp_path):
    steps = _steps_of_the_walk()
    visited = []

    def follow(frame, event, argument):
        if event == "call" and frame.f_code in steps:
            visited.append(steps[frame.f_code])

    source = tmp_path / "answers.jsonl"
    rows = [{"prompt": f"topic {i % 6}", "output": f"text {i} {i % 4}"} for i in range(24)]
    source.write_text("\n".join(map(json.dumps, rows)))
    before = sys.getprofile()
    sys.setprofile(follow)
    try:
        app(["score", str(source), "--quiet", "--no-cache"], standalone_mode=False)
    finally:
        sys.setprofile(before)
    assert visited == list(steps.values())
