"""The worlds of the experiments generate what they say: stories, captions and moving digits."""

from itertools import pairwise

import numpy as np
import pytest

for package in ("torch", "diffusers", "sklearn", "wordllama"):
    pytest.importorskip(package)

pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation:DeprecationWarning:diffusers"
)

from experiments.world import captions, clips, grammar, stories  # noqa: E402


@pytest.fixture(scope="module")
def writer():
    """A network that has read a few stories: enough for a softmax that is not flat."""
    training = stories.Training(steps=15, batch=16, width=32, stories=200, rate=2e-2)
    return stories.StoryModel(stories.train(training))


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_prompts_name_each_genre_and_subject_once():
    named = {grammar.parsed(sentence) for sentence in stories.prompts()}
    assert len(named) == len(stories.prompts()) == 200


def test_stories_of_the_grammar_are_made_of_the_vocabulary(rng):
    known = set(stories.vocabulary())
    for genre in grammar.GENRES:
        for subject in grammar.SUBJECTS:
            words = stories.split(grammar.told(genre, subject, rng))
            assert set(words) <= known
            assert len(words) < stories.LONGEST


def test_stories_mention_their_subject(rng):
    told = [grammar.told("western", "a black cat", rng) for _ in range(20)]
    assert all("the cat" in story for story in told)


def test_splitting_and_joining_a_story_changes_nothing(rng):
    story = grammar.capitalised(grammar.told("horror", "an old map", rng))
    assert stories.joined(stories.split(story)) == story


def test_temperature_zero_writes_one_story_per_prompt(writer):
    asked = [grammar.prompt("comedy", "a wild horse")] * 6
    assert len(set(writer.generate(asked, temperature=0))) == 1


def test_stories_depend_on_the_seed_and_on_nothing_else(writer):
    asked = stories.prompts()[:5]
    assert writer.generate(asked, seed=1) == writer.generate(asked, seed=1)
    assert writer.generate(asked, seed=1) != writer.generate(asked, seed=2)


def test_a_higher_temperature_uses_more_words(writer):
    asked = [grammar.prompt("comedy", "a wild horse")] * 30
    used = []
    for temperature in (0.1, 0.5, 1.3):
        told = writer.generate(asked, temperature=temperature)
        used.append(len({word for story in told for word in stories.split(story)}))
    assert all(later > earlier for earlier, later in pairwise(used))


def _white(strokes):
    """An image of 64 pixels, white where the strokes are."""
    image = np.full((8, 8), -1.0)
    for row, column in strokes:
        image[row, column] = 1
    return image.reshape(1, 64)


@pytest.mark.parametrize(("ink", "contrast"), [(0, 1.0), (1, -1.0), (2, 0.4)])
def test_a_stroke_is_measured_alike_in_every_ink(ink, contrast):
    stroke = _white([(row, 6 - row) for row in range(1, 6)])
    measured = captions.measured(contrast * stroke, np.array([ink]))
    assert measured["weight"][0] == pytest.approx(5 / 64)
    # From the upper right to the lower left: one pixel to the left for each pixel down.
    assert measured["slant"][0] == pytest.approx(-1)
    assert measured["height"][0] == pytest.approx(3)
    assert measured["side"][0] == pytest.approx(3)
    assert measured["width"][0] == pytest.approx(1)


@pytest.fixture
def views(rng):
    """A hundred images as a captioner sees them."""
    parts = {}
    for name in ("weight", "slant", "height", "side", "width"):
        parts[name] = rng.integers(3, size=100)
    return captions.Views(rng.integers(10, size=100), rng.integers(3, size=100), parts)


def test_the_constant_captioner_writes_one_caption(views):
    assert set(captions.captions("constant", views)) == {captions.CONSTANT}


def test_captions_get_longer_and_more_varied_with_detail(views):
    said = [captions.captions(name, views) for name in ("terse", "medium", "detailed")]
    lengths = [np.mean([len(caption) for caption in each]) for each in said]
    distinct = [len(set(each)) for each in said]
    assert all(later > earlier for earlier, later in pairwise(lengths))
    assert all(later > earlier for earlier, later in pairwise(distinct))


def test_seeing_captioners_name_the_digit_and_the_blind_one_mostly_another(views):
    names = [captions.DIGITS[digit] for digit in views.digits]
    right = {}
    for captioner in ("terse", "medium", "detailed", "blind"):
        said = captions.captions(captioner, views)
        right[captioner] = np.mean([name in text for name, text in zip(names, said, strict=True)])
    assert right.pop("blind") < 0.3
    assert set(right.values()) == {1.0}


def _centres(films):
    """Mean column and row of the ink in each frame."""
    ink = films.sum(axis=(2, 3))
    places = np.arange(clips.SIDE)
    columns = films.sum(axis=2) @ places / ink
    rows = films.sum(axis=3) @ places / ink
    return np.stack([columns, rows], axis=2)


@pytest.fixture
def digits(rng):
    """Blots of random grey levels in place of digits."""
    return rng.uniform(-1, 1, (40, 64))


@pytest.mark.parametrize("generator", clips.GENERATORS)
def test_no_ink_leaves_the_frame(generator, digits, rng):
    directions = np.arange(40) % 4
    films = clips.rendered(digits, clips.paths(generator, directions, rng))
    assert films.shape == (40, clips.FRAMES, clips.SIDE, clips.SIDE)
    ink = ((digits + 1) / 2).sum(axis=1)
    np.testing.assert_allclose(
        films.sum(axis=(2, 3)), np.repeat(ink[:, None], clips.FRAMES, axis=1), rtol=1e-4
    )


def test_a_still_clip_does_not_move(digits, rng):
    films = clips.rendered(digits, clips.paths("still", np.zeros(40, int), rng))
    assert np.ptp(films, axis=1).max() == 0


@pytest.mark.parametrize("direction", clips.DIRECTIONS)
def test_a_drifting_clip_moves_in_the_named_direction(direction, digits, rng):
    number = list(clips.DIRECTIONS).index(direction)
    films = clips.rendered(digits, clips.paths("drifting", np.full(40, number), rng))
    along, across = clips.DIRECTIONS[direction], clips.DIRECTIONS[direction][::-1]
    steps = np.diff(_centres(films), axis=1)
    assert (steps @ along).min() > 0.3
    np.testing.assert_allclose(steps @ across, 0, atol=1e-4)


def test_a_free_clip_moves_whatever_the_direction(rng):
    paths = clips.paths("free", np.zeros(400, int), rng)
    moved = paths[:, -1] - paths[:, 0]
    # As often to the left as to the right, and up as down.
    np.testing.assert_allclose((moved > 0).mean(axis=0), 0.5, atol=0.1)


def test_prompts_of_clips_name_each_digit_and_direction_once():
    assert len({clips.parsed(sentence) for sentence in clips.prompts()}) == 40


def test_an_embedding_of_clips_sees_motion(digits, rng):
    watcher = clips.train(clips.Training(steps=3, batch=8))
    corners = clips.paths("drifting", np.zeros(40, int), rng)
    forwards = watcher.features(clips.rendered(digits, corners))
    backwards = watcher.features(clips.rendered(digits, corners[:, ::-1]))
    # The frames are the same in reverse: their average could not tell the two apart.
    assert np.linalg.norm(forwards - backwards, axis=1).min() > 0.1
