"""Tiny language models that answer "name a KIND" with words, built without a download."""

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

__all__ = [
    "KINDS",
    "LENGTH",
    "PROMPTS",
    "answers",
    "language_model",
    "share_that_fits",
    "tokenizer",
]

KINDS = {
    "animal": ["cat", "horse", "eagle", "shark", "frog", "spider", "whale", "mouse"],
    "tool": ["hammer", "saw", "drill", "rake", "ladder", "needle", "shovel", "knife"],
    "food": ["bread", "rice", "cheese", "apple", "soup", "honey", "carrot", "egg"],
    "place": ["beach", "forest", "kitchen", "airport", "library", "desert", "harbour", "stadium"],
}
PROMPTS = [f"name a {kind}" for kind in KINDS]
LENGTH = 2  # words of an answer

_WORDS = [word for words in KINDS.values() for word in words]
_VOCABULARY = ["<pad>", "<end>", "name", "a", *KINDS, *_WORDS]


def tokenizer() -> PreTrainedTokenizerFast:
    """A token for each word; chats are their messages, one after the other."""
    codes = {word: code for code, word in enumerate(_VOCABULARY)}
    words = Tokenizer(WordLevel(codes, unk_token="<pad>"))  # noqa: S106 - no password
    words.pre_tokenizer = WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token="<pad>",  # noqa: S106
        eos_token="<end>",  # noqa: S106
        padding_side="left",
    )
    fast.chat_template = "{% for message in messages %}{{ message.content }} {% endfor %}"
    return fast


def language_model(seed: int) -> LlamaForCausalLM:
    """One layer with random weights: at first all words are about equally likely."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(_VOCABULARY),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=1,
    )
    return LlamaForCausalLM(config)


def share_that_fits(prompts: list[str], completions: list[str], **columns: object) -> list[float]:
    """The quality of an answer: how many of its two words are of the kind that is asked for."""
    shares = []
    for prompt, completion in zip(prompts, completions, strict=True):
        fitting = KINDS[prompt.split()[-1]]
        shares.append(sum(word in fitting for word in completion.split()) / LENGTH)
    return shares


def answers(model: LlamaForCausalLM, prompt: str, count: int, seed: int) -> list[str]:
    """Answers that a model samples."""
    words = tokenizer()
    ids = words([prompt] * count, return_tensors="pt")
    length = ids["input_ids"].shape[1]
    torch.manual_seed(seed)
    generated = model.generate(
        input_ids=ids["input_ids"],
        attention_mask=ids["attention_mask"],
        max_new_tokens=LENGTH,
        do_sample=True,
        top_k=0,
    )
    return words.batch_decode(generated[:, length:], skip_special_tokens=True)
