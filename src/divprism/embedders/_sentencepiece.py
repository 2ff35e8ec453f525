"""The tokenizer of a SentencePiece model: normalization, then the best division into pieces.

Only what the model of `multilingual` uses: a unigram model whose pieces never contain a blank
inside, and rules of normalization as a double-array trie ("nmt_nfkc"). The file is known by its
hash, so its structure is not validated.
"""

import math
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache

__all__ = ["Unigram"]

_SPACE = "\u2581"  # the sign that pieces have in place of a blank
_UNKNOWN, _BEGIN, _END = 0, 1, 2  # their numbers in the vocabulary
# What sentencepiece takes off the score of the rarest piece for a character without a piece.
_PENALTY = 10.0
# Fields of the file, by the numbers that its protocol buffer has.
_PIECES, _TRAINER, _TEXT, _SCORE, _CHARSMAP = 1, 3, 1, 2, 2
_HAS_VALUE = 0x100  # bit of a node of the trie where a rule ends
_CACHED_WORDS = 1 << 15
_CACHED_LENGTH = 32  # longer words are rare, and would take the memory of many


class Unigram:
    """Divides texts into numbered pieces, as `SentencePieceProcessor.encode` does."""

    def __init__(self, content: bytes) -> None:
        fields = list(_fields(content))
        self._pieces: dict[str, tuple[int, float]] = {}
        lowest = 0.0
        for number, entry in enumerate(value for field, value in fields if field == _PIECES):
            piece = dict(_fields(entry))
            (score,) = struct.unpack("<f", piece.get(_SCORE, bytes(4)))
            self._pieces[piece[_TEXT].decode()] = (number, score)
            lowest = min(lowest, score)
        self._unknown_score = lowest - _PENALTY
        self._longest_piece = max(map(len, self._pieces))
        trainer = next(value for field, value in fields if field == _TRAINER)
        self._rules = _Rules(dict(_fields(trainer))[_CHARSMAP])
        self._cached_word = lru_cache(maxsize=_CACHED_WORDS)(self._word)

    def encode(self, text: str, limit: int) -> list[int]:
        """Return the numbers of the first `limit` pieces, between those of begin and end."""
        ids = [_BEGIN]
        # No piece crosses a blank, so the best division of a text is that of each word.
        for word in self.normalized(text).split(_SPACE)[1:]:
            if len(ids) > limit:
                break
            if len(word) > _CACHED_LENGTH:
                ids += self._word(_SPACE + word)
            else:
                ids += self._cached_word(_SPACE + word)
        if len(ids) == 1:
            ids.append(_UNKNOWN)
        return [*ids[: limit + 1], _END]

    def normalized(self, text: str) -> str:
        """Return a text after the rules, each run of blanks as one sign before the next word."""
        words = filter(None, self._rules.apply(text).split(" "))
        return "".join(f"{_SPACE}{word}" for word in words).rstrip(_SPACE)

    def _word(self, word: str) -> Sequence[int]:
        """Return the pieces whose scores have the highest sum (Viterbi)."""
        size = len(word)
        # The highest sum of scores of a division of each beginning of the word.
        best = [0.0] + [-math.inf] * size
        # The last piece of the best division of each beginning: where it starts, and its number.
        last = [(0, _UNKNOWN)] * (size + 1)
        for start in range(size):
            base = best[start]
            is_single = False
            for end in range(start + 1, min(start + self._longest_piece, size) + 1):
                piece = self._pieces.get(word[start:end])
                if piece is None:
                    continue
                is_single = is_single or end == start + 1
                # Of equal sums the piece that starts first is kept, as in sentencepiece.
                if base + piece[1] > best[end]:
                    best[end] = base + piece[1]
                    last[end] = (start, piece[0])
            if not is_single and base + self._unknown_score > best[start + 1]:
                best[start + 1] = base + self._unknown_score
                last[start + 1] = (start, _UNKNOWN)
        # Read backwards, from the last piece to the first.
        ids = []
        end = size
        while end:
            end, number = last[end]
            ids.append(number)
        return ids[::-1]


def _fields(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of the fields of a protocol buffer that are no integers."""
    position = 0
    while position < len(content):
        tag, position = _integer(content, position)
        kind = tag & 7
        size = {1: 8, 5: 4}.get(kind, 0)
        if kind == 0:
            _, position = _integer(content, position)
            continue
        if kind == 2:
            size, position = _integer(content, position)
        yield tag >> 3, content[position : position + size]
        position += size


def _integer(content: bytes, position: int) -> tuple[int, int]:
    """Return the integer at a position, seven bits a byte, and the position after it."""
    value = shift = 0
    while True:
        byte = content[position]
        position += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, position


class _Rules:
    """What the charsmap of a normalizer replaces, and by what.

    A double-array trie as darts-clone writes it: the child of a node for a byte is at the offset
    of the node XOR that byte, and has the byte as its label.
    """

    def __init__(self, charsmap: bytes) -> None:
        (size,) = struct.unpack("<I", charsmap[:4])
        self._units = struct.unpack(f"<{size // 4}I", charsmap[4 : 4 + size])
        self._replacements = charsmap[4 + size :]
        # The beginnings of words repeat, and a walk takes ten times as long as a look here.
        self._found = lru_cache(maxsize=_CACHED_WORDS)(self._walk)

    def apply(self, text: str) -> str:
        """Return a text in which the longest rule that matches at each character is applied."""
        parts = []
        start = 0
        while start < len(text):
            replacement, used = text[start], 1
            for end in range(start + 1, len(text) + 1):
                is_prefix, found = self._found(text[start:end])
                if found is not None:
                    replacement, used = found, end - start
                if not is_prefix:
                    break
            parts.append(replacement)
            start += used
        return "".join(parts)

    def _walk(self, key: str) -> tuple[bool, str | None]:
        """Return whether rules may start with a key, and the replacement of the key itself."""
        units = self._units
        place = _offset(units[0])
        unit = 0
        for byte in key.encode():
            place ^= byte
            if place >= len(units) or units[place] & 0x800000FF != byte:
                return False, None
            unit = units[place]
            place ^= _offset(unit)
        if not unit & _HAS_VALUE:
            return True, None
        value = units[place] & 0x7FFFFFFF
        return True, self._replacements[value : self._replacements.index(0, value)].decode()


def _offset(unit: int) -> int:
    # Bit 9 says that the offset is in units of 256.
    return (unit >> 10) << ((unit & 0x200) >> 6)
