"""Measure how the source is written: python tools/style.py [--list] [FOLDER ...].

Prints the counts that CONTRIBUTING.md asks for, and with --list every place that breaks one.
"""

import argparse
import ast
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

PACKED = (ast.IfExp, ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp, ast.Lambda)
NAMES_TAKEN_APART = re.compile(
    r'endswith\("(_)?(rke|vendi)"|startswith\("(conditional|information|cluster)'
)


@dataclass
class Counts:
    """What was counted, and where the limits are broken."""

    lines: int = 0
    functions: int = 0
    numbers: Counter = field(default_factory=Counter)
    places: list[str] = field(default_factory=list)

    def broken(self, rule: str, path: Path, line: int) -> None:
        """Count a place that breaks a rule."""
        self.numbers[rule] += 1
        self.places.append(f"{path}:{line}: {rule}")


def is_public(path: Path, name: str) -> bool:
    """Whether a function belongs to the public interface."""
    parts = [*path.with_suffix("").parts, name]
    return not any(part.startswith("_") and part != "__init__" for part in parts)


def measure_text(counts: Counts, path: Path, text: str) -> None:
    """Count what can be read off single lines."""
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > 100:
            counts.broken("line over 100 characters", path, number)
        if line.lstrip().startswith("#") or "  # " in line:
            counts.numbers["comment"] += 1
        if NAMES_TAKEN_APART.search(line):
            counts.broken("name of a score taken apart", path, number)


def measure_function(counts: Counts, path: Path, node: ast.FunctionDef) -> None:
    """Count the length and the arguments of a function."""
    counts.functions += 1
    body = node.body
    if ast.get_docstring(node) and len(body) > 1:
        body = body[1:]
    if node.end_lineno - body[0].lineno + 1 > 40:
        counts.broken("function over 40 lines of code", path, node.lineno)
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    if len(arguments) > 12 and is_public(path, node.name):
        counts.broken("public signature over 12 arguments", path, node.lineno)


def measure_tree(counts: Counts, path: Path, tree: ast.Module) -> None:
    """Count what needs the syntax tree."""
    packed: Counter = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.IfExp):
            counts.numbers["conditional expression"] += 1
        if isinstance(node, ast.Name) and node.id == "Any":
            counts.numbers["Any"] += 1
        if isinstance(node, PACKED) and node.lineno == node.end_lineno:
            packed[node.lineno] += 1
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            measure_function(counts, path, node)
    for line, number in packed.items():
        if number > 1:
            counts.broken("line with two comprehensions, ternaries or lambdas", path, line)


def measure(folders: list[Path]) -> Counts:
    """Count everything in the Python files below some folders."""
    counts = Counts()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            counts.lines += text.count("\n")
            measure_text(counts, path, text)
            measure_tree(counts, path, ast.parse(text))
    return counts


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, default=[Path("src")])
    parser.add_argument("--list", action="store_true", help="print every place that breaks a rule")
    given = parser.parse_args()
    counts = measure(given.folders)
    if given.list:
        print("\n".join(counts.places))
    numbers, thousands = counts.numbers, counts.lines / 1000
    package = Path("src/divprism")
    entries = [path for path in package.iterdir() if not path.name.startswith("__pycache__")]
    commands = sum(path.read_text().count("\n") for path in (package / "cli").rglob("*.py"))
    long_functions = numbers["function over 40 lines of code"] / counts.functions
    print(f"source lines                                         {counts.lines}")
    print(
        f"lines over 100 characters (0)                        {numbers['line over 100 characters']}"
    )
    print(
        "lines with two comprehensions, ternaries, lambdas (0)  "
        f"{numbers['line with two comprehensions, ternaries or lambdas']}"
    )
    print(
        f"conditional expressions per 1,000 lines (under 12)   {numbers['conditional expression'] / thousands:.1f}"
    )
    print(f"Any per 1,000 lines (under 20)                       {numbers['Any'] / thousands:.1f}")
    print(
        f"comments per 100 lines (5 or more)                   {numbers['comment'] / thousands / 10:.1f}"
    )
    print(f"functions over 40 lines of code (under 2 %)          {long_functions:.1%}")
    print(
        f"public signatures over 12 arguments (0)              {numbers['public signature over 12 arguments']}"
    )
    print(
        f"names of scores taken apart (0)                      {numbers['name of a score taken apart']}"
    )
    print(f"lines of cli/ (under 1,000)                          {commands}")
    print(f"entries at the top of the package (at most 14)       {len(entries)}")


if __name__ == "__main__":
    main()
