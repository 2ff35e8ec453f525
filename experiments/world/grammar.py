"""A probabilistic grammar of short stories: ten genres, twenty subjects."""

import re
from collections.abc import Sequence

import numpy as np

# What a story of a genre may contain. In every list of this module an earlier entry is likelier:
# the entry of rank k has a probability in proportion to 1 / k.
GENRES: dict[str, dict[str, tuple[str, ...]]] = {
    "mystery": {
        "place": ("the old hotel", "a foggy harbour", "the empty library", "a locked study"),
        "person": ("the detective", "a silent witness", "the night porter", "a retired judge"),
        "event": (
            "all the lamps went out",
            "a second alibi fell apart",
            "someone had wiped away the footprints",
            "the telephone rang and nobody spoke",
        ),
        "ending": ("The culprit had been in the room all along", "One clue was never explained"),
    },
    "romance": {
        "place": ("a small café", "the lakeside park", "a crowded wedding", "the flower market"),
        "person": ("a shy musician", "the new florist", "an old sweetheart", "the best man"),
        "event": (
            "their hands touched for a moment",
            "a slow song began to play",
            "the rain kept both of them indoors",
            "a train was missed on purpose",
        ),
        "ending": ("They danced until the morning", "The kiss came a year too late"),
    },
    "horror": {
        "place": ("the flooded cellar", "an abandoned clinic", "a house of mirrors", "the crypt"),
        "person": ("a pale child", "the thing in the attic", "a faceless nurse", "the undertaker"),
        "event": (
            "something scratched behind the wall",
            "the blood would not wash off",
            "a scream came from the well",
            "every mirror showed a stranger",
        ),
        "ending": ("No one ever left that house", "The scratching has started again"),
    },
    "adventure": {
        "place": ("the deep jungle", "a frozen pass", "the coral island", "a desert canyon"),
        "person": ("the guide", "a rival explorer", "the ship's cook", "a daring pilot"),
        "event": (
            "the rope bridge snapped",
            "a storm drove the boat off course",
            "the compass spun in circles",
            "wolves followed the camp fire",
        ),
        "ending": ("The summit was worth every bruise", "The next expedition leaves in spring"),
    },
    "comedy": {
        "place": ("the village bakery", "a hopeless office", "the school play", "a tiny caravan"),
        "person": ("the clumsy mayor", "an angry goose", "a proud uncle", "the wrong plumber"),
        "event": (
            "the cake landed on the vicar",
            "everyone hid in the same cupboard",
            "the goose was elected chairman",
            "two pairs of trousers were ruined",
        ),
        "ending": ("Nobody has laughed so much since", "The goose still denies everything"),
    },
    "fantasy": {
        "place": ("the dragon's valley", "a floating castle", "the elven wood", "a ruined tower"),
        "person": ("the young wizard", "a talking raven", "the exiled queen", "a stone giant"),
        "event": (
            "a spell turned the river to glass",
            "the dragon woke from its sleep",
            "the runes began to glow",
            "an oath bound them both for ever",
        ),
        "ending": ("Magic had its price", "The raven was crowned at dawn"),
    },
    "science fiction": {
        "place": ("the orbital station", "a colony on Mars", "the cloning lab", "a silent cruiser"),
        "person": ("the ship's computer", "an android", "the chief engineer", "a time traveller"),
        "event": (
            "the oxygen dropped to four per cent",
            "a signal arrived from another galaxy",
            "the robots stopped obeying",
            "gravity failed on every deck",
        ),
        "ending": ("Earth never answered", "The android chose to be human"),
    },
    "historical": {
        "place": ("the royal court", "a Roman road", "the besieged city", "a medieval abbey"),
        "person": ("the archbishop", "a stable boy", "the duke's envoy", "a veteran of two wars"),
        "event": (
            "the king signed the treaty",
            "the plague reached the gates",
            "cannons fired across the river",
            "the harvest failed for a third year",
        ),
        "ending": ("The chronicles do not mention it", "The empire fell within a decade"),
    },
    "western": {
        "place": ("the dusty saloon", "a gold mine", "the cattle ranch", "a prairie railroad"),
        "person": ("the sheriff", "a wanted outlaw", "the gambler", "a tired cowgirl"),
        "event": (
            "a shot rang out at noon",
            "the stagecoach came in without a driver",
            "the herd broke through the fence",
            "four aces lay on the table",
        ),
        "ending": ("The stranger rode into the sunset", "The town was renamed the next day"),
    },
    "fairy tale": {
        "place": ("a gingerbread hut", "the glass mountain", "a miller's barn", "the frog pond"),
        "person": ("the wicked stepmother", "a kind fox", "the youngest prince", "a clever tailor"),
        "event": (
            "the witch granted three wishes",
            "the straw turned into gold",
            "a hundred years passed in one night",
            "the frog asked for a kiss",
        ),
        "ending": ("And they lived happily ever after", "The fox kept the golden apple"),
    },
}

# A subject, the noun that the story uses for it, and what may be said about it.
SUBJECTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "a lost letter": ("the letter", ("its ink had faded", "the stamp was foreign")),
    "a suspicious neighbor": ("the neighbor", ("the curtains never opened", "he dug at night")),
    "an old map": ("the map", ("a corner was torn off", "it showed a river that had dried up")),
    "a broken clock": ("the clock", ("it struck thirteen", "a spring was missing")),
    "a hidden door": ("the door", ("it had no handle", "it was painted over twice")),
    "a stolen ring": ("the ring", ("its ruby was false", "it fitted nobody")),
    "a strange garden": ("the garden", ("roses bloomed in the snow", "no bird ever sang there")),
    "a long voyage": ("the voyage", ("the sails were patched", "it lasted two winters")),
    "a family secret": (
        "the secret",
        ("grandmother took it to her grave", "two sisters shared it"),
    ),
    "a lonely lighthouse": ("the lighthouse", ("its beam was red", "the stairs were endless")),
    "a forgotten song": ("the song", ("its last verse was missing", "only sailors hummed it")),
    "a black cat": ("the cat", ("it had one white paw", "it slept on the piano")),
    "a wooden violin": ("the violin", ("one string was made of silver", "it played by itself")),
    "a heavy snowfall": ("the snow", ("it buried the fences", "it fell in July")),
    "a secret recipe": ("the recipe", ("it called for saffron", "it was written in code")),
    "a new teacher": ("the teacher", ("she taught without books", "her chalk never broke")),
    "a missing train": ("the train", ("the rails ended in a field", "its whistle was still heard")),
    "a painted portrait": ("the portrait", ("its eyes were unfinished", "the canvas was damp")),
    "a wild horse": ("the horse", ("it carried an old brand", "no saddle could hold it")),
    "a magic mirror": ("the mirror", ("it showed tomorrow", "its frame was full of thorns")),
}

# A word in braces is replaced by an entry of the list of that name, of the genre or of a subject.
STORY: dict[str, tuple[str, ...]] = {
    "story": (
        "{opening} {middle} {middle} {ending}.",
        "{opening} {middle} {ending}.",
        "{opening} {middle} {middle} {middle} {ending}.",
    ),
    "opening": (
        "It was a {weather} {time} when {hero} found {noun} in {place}.",
        "{hero} came to {place} because of {noun}.",
        "For {number} years nobody in {place} spoke of {noun}, until {hero} asked.",
        "{hero} never wanted {noun}.",
    ),
    "middle": (
        "Suddenly {event}.",
        "{hero} noticed that {detail}.",
        "{person} {said} that {detail}.",
        "Then {event}, and {person} {reacted}.",
        "In {place}, {person} waited for {hero}.",
    ),
    "weather": ("cold", "bright", "rainy", "windy", "golden"),
    "time": ("morning", "evening", "Wednesday", "night in autumn"),
    "hero": ("Sarah", "Omar", "Lucy", "Viktor", "Mei", "old Mrs Hale", "Pablo", "Ingrid"),
    "number": ("twenty", "seven", "a hundred", "three"),
    "said": ("whispered", "claimed", "wrote", "swore"),
    "reacted": ("laughed", "ran away", "wept", "said nothing", "drew a knife"),
}


def prompt(genre: str, subject: str) -> str:
    """The sentence that asks for a story."""
    article = "a"
    if genre[0] in "aeiou":
        article = "an"
    return f"Write {article} {genre} story about {subject}"


def parsed(sentence: str) -> tuple[int, int]:
    """The numbers of the genre and the subject that a prompt names."""
    kind, _, subject = sentence.removeprefix("Write ").partition(" story about ")
    genre = kind.partition(" ")[2]
    return list(GENRES).index(genre), list(SUBJECTS).index(subject)


def told(genre: str, subject: str, rng: np.random.Generator) -> str:
    """A story, drawn from the grammar, without capitals where a list begins a sentence."""
    noun, details = SUBJECTS[subject]
    lists = {**STORY, **GENRES[genre], "noun": (noun,), "detail": details}

    def expanded(found: re.Match[str]) -> str:
        return re.sub(r"\{(\w+)\}", expanded, _likely(lists[found[1]], rng))

    return re.sub(r"\{(\w+)\}", expanded, "{story}")


def capitalised(story: str) -> str:
    """A story with a capital at the start of each sentence."""
    return re.sub(r"(^|\. )(\w)", lambda found: found[1] + found[2].upper(), story)


def _likely(entries: Sequence[str], rng: np.random.Generator) -> str:
    """One of the entries, that of rank k with a probability in proportion to 1 / k."""
    weights = 1 / np.arange(1, len(entries) + 1)
    total = np.cumsum(weights)
    return entries[int(np.searchsorted(total, rng.random() * total[-1]))]
