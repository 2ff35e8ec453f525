"""The texts that `experiments/embedders.py` embeds: real outputs, functions, translations."""

import ast
import gzip
import importlib.util
import json
import re
import sysconfig
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

SEED = 0
# Packages whose folders hold translations (.po files) of their interface.
TRANSLATED = ("django", "wagtail")
FIVE = ("en", "fr", "de", "es", "ru")
NUM_MESSAGES = 100
# Those that `multilingual` was trained on, then others.
LANGUAGES = {
    "ar": "Arabic",
    "zh_Hans": "Chinese",
    "nl": "Dutch",
    "fr": "French",
    "de": "German",
    "it": "Italian",
    "ja": "Japanese",
    "ko": "Korean",
    "pl": "Polish",
    "pt_BR": "Portuguese",
    "ru": "Russian",
    "es": "Spanish",
    "th": "Thai",
    "tr": "Turkish",
    "cs": "Czech *",
    "fi": "Finnish *",
    "el": "Greek *",
    "hu": "Hungarian *",
    "fa": "Persian *",
    "sv": "Swedish *",
    "uk": "Ukrainian *",
    "vi": "Vietnamese *",
}


def read_rows(folder: Path) -> list[dict]:
    """The rows of the only JSON Lines file of a data set, in the order of the file."""
    [path] = folder.glob("*.jsonl.gz")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def long_texts(data: Path, num_words: int, count: int) -> list[list[str]]:
    """The words of stories and answers that are long enough, each to another prompt."""
    chosen: dict[str, list[str]] = {}
    for name in ("hanna_stories", "alpaca_eval"):
        for row in read_rows(data / name):
            words = row["output"].split()
            if len(words) >= num_words:
                chosen.setdefault(row["prompt"], words)
    return list(chosen.values())[:count]


def functions(count: int) -> list[tuple[str, str, str]]:
    """Functions of the standard library, each with its renamed form and another renamed one.

    The other one is the next function of the same module, so that both are about the same things.
    """
    found = []
    folder = Path(sysconfig.get_path("stdlib"))
    for path in sorted(folder.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        bodies = [node for node in ast.walk(tree) if _has_own_names_only(node)]
        of_module = [without_comments(node) for node in bodies]
        pairs = []
        for original in of_module:
            if 8 <= original.count("\n") < 40:
                pairs.append((original, renamed(original)))
        for number, (original, other_names) in enumerate(pairs):
            if len(pairs) > 1:
                found.append((original, other_names, pairs[number - 1][1]))
    return shuffled(found)[:count]


def shuffled(rows: list) -> list:
    """The rows in another order, always the same one."""
    return [rows[index] for index in np.random.default_rng(SEED).permutation(len(rows))]


def _has_own_names_only(node: ast.AST) -> bool:
    """Whether a node is a function without global variables, which must keep their names."""
    if not isinstance(node, ast.FunctionDef):
        return False
    return not any(isinstance(inner, ast.Global | ast.Nonlocal) for inner in ast.walk(node))


def without_comments(function: ast.FunctionDef) -> str:
    """The source of a function without its documentation, which would name what it does."""
    if ast.get_docstring(function) is not None:
        function.body = function.body[1:] or [ast.Pass()]
    return ast.unparse(function)


class _Names(ast.NodeTransformer):
    """Gives arguments, local variables and the function itself new names, in order."""

    def __init__(self, function: ast.FunctionDef) -> None:
        names = [function.name]
        for node in ast.walk(function):
            if isinstance(node, ast.arg):
                names.append(node.arg)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.append(node.id)
        self.new = {name: f"v{place}" for place, name in enumerate(dict.fromkeys(names))}

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self.new.get(node.id, node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.arg = self.new.get(node.arg, node.arg)
        return node


def renamed(source: str) -> str:
    """The same function with other names of its own variables."""
    [function] = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    names = _Names(function)
    names.visit(function)
    function.name = names.new[function.name]
    return ast.unparse(function)


def translations(language: str) -> list[tuple[str, str]]:
    """English sentences and their translations, without placeholders, of at least five words."""
    found = {}
    for path in _catalogues(language):
        for english, other in entries(path.read_text(encoding="utf-8")):
            is_plain = not re.search(r"[%{}<>_&]", english + other)
            if is_plain and len(english.split()) >= 5 and other and other != english:
                found[english] = other
    # In an order without meaning, the same for every language.
    return sorted(found.items(), key=lambda pair: zlib.crc32(pair[0].encode()))


def _catalogues(language: str) -> Iterator[Path]:
    for package in TRANSLATED:
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            raise SystemExit("Translations are read from packages: pip install django wagtail.")
        folder = Path(spec.origin).parent
        yield from sorted(folder.glob(f"**/locale/{language}/LC_MESSAGES/django.po"))


def entries(catalogue: str) -> Iterator[tuple[str, str]]:
    """The messages of a .po file and their translations; uncertain and plural ones are left out."""
    for block in catalogue.split("\n\n"):
        if re.search(r"^#,.*fuzzy|^msgid_plural|^#~", block, re.MULTILINE):
            continue
        found = re.search(r'^msgid (".*?")\nmsgstr (".*")', block, re.MULTILINE | re.DOTALL)
        if found is not None:
            yield _joined(found[1]), _joined(found[2])


def _joined(lines: str) -> str:
    """The text of a message, which a .po file writes as quoted lines."""
    parts = re.findall(r'^"(.*)"$', lines, re.MULTILINE)
    return "".join(parts).replace('\\"', '"').replace("\\n", "\n")
