"""Measure the style of Python sources: python tools/style.py [--list] [FOLDER ...].

Prints the counts that CONTRIBUTING.md limits, and with --list every line that breaks a limit.
"""

import argparse
import ast
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

MAX_LINE = 100
MAX_FUNCTION = 40
MAX_ARGUMENTS = 12
PACKAGE = Path("src/divprism")

LONG_LINE = "line over 100 characters"
PACKED_LINE = "line with two comprehensions, ternaries or lambdas"
LONG_FUNCTION = "function over 40 lines of code"
WIDE_SIGNATURE = "public signature over 12 arguments"
PARSED_NAME = "name of a score taken apart"
CONDITIONAL = "conditional expression"
COMMENT = "comment"
ANY = "Any"

PACKED_NODES = (
    ast.IfExp,
    ast.ListComp,
    ast.DictComp,
    ast.SetComp,
    ast.GeneratorExp,
    ast.Lambda,
)

# Facts about a score belong into the table of scores, not into its name.
PARSED_NAME_PATTERN = re.compile(
    r'endswith\("(_)?(rke|vendi)"|startswith\("(conditional|information|cluster)'
)


@dataclass
class Counts:
    """Counts by rule, and the lines that break a limit."""

    lines: int = 0
    functions: int = 0
    numbers: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def violation(self, rule: str, path: Path, line: int) -> None:
        """Count a line that breaks a rule."""
        self.numbers[rule] += 1
        self.violations.append(f"{path}:{line}: {rule}")


def is_public(path: Path, name: str) -> bool:
    """Whether a function belongs to the public interface."""
    parts = [*path.with_suffix("").parts, name]
    return not any(part.startswith("_") and part != "__init__" for part in parts)


def measure_text(counts: Counts, path: Path, text: str) -> None:
    """Count what single lines show."""
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > MAX_LINE:
            counts.violation(LONG_LINE, path, number)
        # An approximation: a string that contains "  # " counts as a comment, too.
        if line.lstrip().startswith("#") or "  # " in line:
            counts.numbers[COMMENT] += 1
        if PARSED_NAME_PATTERN.search(line):
            counts.violation(PARSED_NAME, path, number)


def measure_function(
    counts: Counts, path: Path, node: ast.FunctionDef | ast.AsyncFunctionDef
) -> None:
    """Count the length and the arguments of a function."""
    counts.functions += 1
    body = node.body
    if ast.get_docstring(node) and len(body) > 1:
        body = body[1:]
    if (node.end_lineno or 0) - body[0].lineno + 1 > MAX_FUNCTION:
        counts.violation(LONG_FUNCTION, path, node.lineno)
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    if len(arguments) > MAX_ARGUMENTS and is_public(path, node.name):
        counts.violation(WIDE_SIGNATURE, path, node.lineno)


def measure_tree(counts: Counts, path: Path, tree: ast.Module) -> None:
    """Count what needs the syntax tree."""
    packed: Counter[int] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.IfExp):
            counts.numbers[CONDITIONAL] += 1
        if isinstance(node, ast.Name) and node.id == ANY:
            counts.numbers[ANY] += 1
        if isinstance(node, PACKED_NODES) and node.lineno == node.end_lineno:
            packed[node.lineno] += 1
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            measure_function(counts, path, node)
    for line, number in packed.items():
        if number > 1:
            counts.violation(PACKED_LINE, path, line)


def python_files(path: Path) -> list[Path]:
    """The Python files below a folder; a file stands for itself."""
    if path.is_file():
        return [path]
    return sorted(path.rglob("*.py"))


def measure(paths: list[Path]) -> Counts:
    """Count everything in some Python files, or in those below some folders."""
    counts = Counts()
    for folder in paths:
        for path in python_files(folder):
            text = path.read_text(encoding="utf-8")
            counts.lines += text.count("\n")
            measure_text(counts, path, text)
            measure_tree(counts, path, ast.parse(text))
    return counts


def package_counts() -> dict[str, str]:
    """Counts of the whole package, whichever folders are measured."""
    # py.typed is a marker for type checkers, not a place to look for code.
    hidden = ("__pycache__", "py.typed")
    entries = [path for path in PACKAGE.iterdir() if path.name not in hidden]
    cli_lines = 0
    for path in (PACKAGE / "cli").rglob("*.py"):
        cli_lines += path.read_text(encoding="utf-8").count("\n")
    # The table of commands has a row for each, with an example that begins so.
    table = (PACKAGE / "cli" / "__init__.py").read_text(encoding="utf-8")
    num_commands = table.count(': "divprism ')
    return {
        # A command parses, calls the library once and prints: what grows with them is their number.
        "lines of cli/ per command (under 80)": f"{cli_lines / num_commands:.0f}",
        "entries at the top of the package (at most 16)": str(len(entries)),
    }


def report(counts: Counts) -> dict[str, str]:
    """The figures to print, by what they count and its limit."""
    numbers = counts.numbers
    # Empty folders have no lines and no functions; all their rates are zero.
    thousands = max(counts.lines, 1) / 1000
    long_functions = numbers[LONG_FUNCTION] / max(counts.functions, 1)
    return {
        "source lines": str(counts.lines),
        "lines over 100 characters (0)": str(numbers[LONG_LINE]),
        "lines with two comprehensions, ternaries, lambdas (0)": str(numbers[PACKED_LINE]),
        "conditional expressions per 1,000 lines (under 12)": (
            f"{numbers[CONDITIONAL] / thousands:.1f}"
        ),
        "Any per 1,000 lines (under 20)": f"{numbers[ANY] / thousands:.1f}",
        "comments per 100 lines (5 or more)": f"{numbers[COMMENT] / thousands / 10:.1f}",
        "functions over 40 lines of code (under 2 %)": f"{long_functions:.1%}",
        "public signatures over 12 arguments (0)": str(numbers[WIDE_SIGNATURE]),
        "names of scores taken apart (0)": str(numbers[PARSED_NAME]),
        **package_counts(),
    }


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, default=[Path("src")])
    parser.add_argument("--list", action="store_true", help="print every line over a limit")
    arguments = parser.parse_args()
    counts = measure(arguments.folders)
    if arguments.list:
        for violation in counts.violations:
            print(violation)
    for title, figure in report(counts).items():
        print(f"{title:<54} {figure}")


if __name__ == "__main__":
    main()
