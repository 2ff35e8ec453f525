"""The report in a real browser: nothing runs but our script, tables sort and filter, it fits a phone, it can be printed."""

import base64
import re

import numpy as np
import pytest
from browser import chromium, show
from sample_files import image_bytes, write

import divprism as dp
from divprism.data.samples import Text

HOSTILE = '<img src=x onerror="window.hacked=1">'
NAME = 'it\'s "quoted" & <b>bold<'  # what a file system takes: all but a slash


@pytest.fixture(scope="module")
def window():
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Pictures of three prompts, one of which is a tag; one file has quotes and a tag in its name."""
    folder = tmp_path_factory.mktemp("report")
    lines = []
    for place, prompt in enumerate([HOSTILE, "a red square", "a blue circle"]):
        for count in range(6 + 2 * place):
            name = f"{NAME}.png" if (place, count) == (1, 0) else f"{place}-{count}.png"
            write(folder / "images", {name: image_bytes(17 * place + count, (300, 200))})
            lines.append(
                {
                    "file_name": name,
                    "prompt": prompt,
                    "model": "</title><script>window.hacked=2</script>",
                }
            )
    from sample_files import jsonl

    write(folder / "images", {"metadata.jsonl": jsonl(lines)})
    settings = {"kernel_t": dp.Categorical(), "interval": 0.95, "num_permutations": 19}
    result = dp.evaluate(str(folder / "images"), **settings)
    labels = [line["prompt"] for line in lines]
    path = folder / "report.html"
    path.write_text(dp.html_report(result, labels, num_examples=9), encoding="utf-8")
    return path


@pytest.fixture
def shown(window, page):
    show(window, page)
    return window


def _groups(window):
    rows = window.find_elements("css selector", "table.groups tbody tr")
    return [row.find_elements("css selector", "th, td") for row in rows if row.is_displayed()]


def _column(window, place):
    return [cells[place].text for cells in _groups(window)]


def test_nothing_is_wrong_and_nothing_runs(shown):
    assert shown.get_log("browser") == []
    assert shown.execute_script("return window.hacked") is None
    loaded = shown.execute_script(
        "return performance.getEntriesByType('resource').map(one => one.name)"
    )
    assert [name for name in loaded if not name.startswith("data:")] == []


def test_prompts_and_names_are_shown_as_text(shown):
    assert any(HOSTILE in title for title in _column(shown, 0))
    shown.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert NAME in shown.find_element("tag name", "main").text
    assert "window.hacked=2" in shown.title
    for image in shown.find_elements("tag name", "img"):
        assert image.get_attribute("src").startswith("data:image/jpeg;base64,")
        assert int(image.get_attribute("naturalWidth")) == 160


def test_a_script_that_came_in_would_not_run(shown):
    """The policy of the page is the second wall, were the first one to fall."""
    shown.execute_script(
        "const s = document.createElement('script'); s.textContent = 'window.hacked = 3'; document.body.append(s);"
        "const i = document.createElement('img'); i.setAttribute('onerror', 'window.hacked = 4'); i.src = 'data:,'; "
        "document.body.append(i);"
    )
    assert shown.execute_async_script(
        "setTimeout(() => arguments[0](window.hacked === undefined), 200)"
    )
    assert any("Content Security Policy" in entry["message"] for entry in shown.get_log("browser"))


@pytest.mark.parametrize("column", [1, 3, 5])
def test_a_column_sorts_up_and_down(shown, column):
    button = shown.find_elements("css selector", "table.groups th button")[column]
    head = button.find_element("xpath", "..")
    for direction, sign in (("ascending", 1), ("descending", -1)):
        button.click()
        assert head.get_attribute("aria-sort") == direction
        numbers = [float(text.rstrip("%").replace(",", "")) for text in _column(shown, column)]
        assert numbers == sorted(numbers, key=lambda number: sign * number)
    assert len(numbers) == 3


def test_names_sort_as_texts(shown):
    shown.find_element("css selector", "table.groups th button").click()
    names = _column(shown, 0)
    assert names == sorted(names, key=str.lower)


def test_the_keyboard_reaches_and_sorts(shown):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    body = shown.find_element(By.TAG_NAME, "body")
    body.send_keys(Keys.TAB)
    assert shown.switch_to.active_element.text == "Skip to the numbers"
    for _ in range(40):
        shown.switch_to.active_element.send_keys(Keys.TAB)
        if shown.switch_to.active_element.text.startswith("vendi"):
            break
    shown.switch_to.active_element.send_keys(Keys.ENTER)
    assert len(shown.find_elements(By.CSS_SELECTOR, "th[aria-sort=ascending]")) == 1


def test_the_filter_keeps_groups_whose_examples_fit(shown):
    box = shown.find_element("css selector", "input[type=search]")
    box.send_keys("CIRCLE")
    assert len(_groups(shown)) == 1
    assert "a blue circle" in _column(shown, 0)[0]
    assert (
        len(
            [
                one
                for one in shown.find_elements("css selector", "details.gallery")
                if one.is_displayed()
            ]
        )
        == 1
    )
    assert shown.find_element("css selector", "output").text == "1 of 3 groups"
    box.clear()
    box.send_keys('"quoted"')
    assert ["a red square" in title for title in _column(shown, 0)] == [True]
    box.clear()
    box.send_keys(" ")
    assert len(_groups(shown)) == 3


def test_a_link_to_a_group_opens_it(shown):
    last = _groups(shown)[-1][0].find_element("tag name", "a")
    target = last.get_attribute("href").split("#")[1]
    assert (
        shown.execute_script("return document.getElementById(arguments[0]).open", target) is False
    )
    last.click()
    assert shown.execute_script("return document.getElementById(arguments[0]).open", target) is True


@pytest.mark.parametrize("width", [360, 390, 1100])
def test_the_page_is_no_wider_than_the_screen(window, page, width):
    show(window, page, width)
    assert window.execute_script("return document.documentElement.scrollWidth") <= width


def test_light_and_dark_have_their_colours(window, page):
    def lightness(element):
        color = window.execute_script(
            "return getComputedStyle(arguments[0])[arguments[1]]", *element
        )
        return np.mean([int(part) for part in color.strip("rgb()").split(",")[:3]])

    for scheme in ("light", "dark"):
        show(window, page, scheme=scheme)
        paper = lightness((window.find_element("tag name", "body"), "backgroundColor"))
        ink = [
            lightness((window.find_element("css selector", "h1"), "color")),
            lightness((window.find_element("css selector", "svg.plot text"), "fill")),
        ]
        assert all(one < paper - 128 if scheme == "light" else one > paper + 128 for one in ink)


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Three models with long names, their groups folded away; texts as outputs, so that a column of words stands last."""
    rng = np.random.default_rng(0)
    words = [f"w{place}" for place in range(60)]
    prompts = [f"prompt number {place}" for place in range(12) for _ in range(5)]
    samples = {
        f"a-rather-long-name-of-a-model-{name}-instruct-preview": dp.Samples(
            tuple(Text(" ".join(rng.choice(words[:wide], 6))) for _ in prompts),
            tuple(map(Text, prompts)),
        )
        for name, wide in (("one", 60), ("two", 20), ("three", 4))
    }
    path = tmp_path_factory.mktemp("compared") / "report.html"
    path.write_text(dp.html_report(dp.compare(samples), num_repeats=2), encoding="utf-8")
    return path


def _pages(window):
    """How many pages a print has."""
    return len(re.findall(rb"/Type\s*/Page\b", base64.b64decode(window.print_page())))


def test_in_print_tables_are_whole(window, compared):
    """On a page of A4 between its margins, 19 cm, the last column's head is on the paper, and nothing scrolls."""
    show(window, compared, width=718)
    window.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        window.execute_script("window.dispatchEvent(new Event('beforeprint'))")
        heads = [
            one
            for one in window.find_elements("css selector", "thead tr th:last-child")
            if one.is_displayed()
        ]
        assert [one.text for one in heads] == ["words", "clear"]
        for head in heads:
            assert head.rect["x"] + head.rect["width"] <= 718 + 1  # rounded
        for one in window.find_elements("css selector", ".scroll"):
            assert one.value_of_css_property("overflow-x") == "visible"
        window.execute_script("window.dispatchEvent(new Event('afterprint'))")
    finally:
        window.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_in_print_only_what_the_reader_opened_is_open(window, compared):
    show(window, compared)
    kinds = (
        "return [...document.querySelectorAll('details')].filter(d => d.open).map(d => d.className)"
    )
    before = window.execute_script(kinds)
    window.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    opened = window.execute_script(kinds)
    assert sorted(opened) == sorted([*before, "differences", *["settings"] * 3])
    window.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert window.execute_script(kinds) == before
    few = _pages(window)
    assert window.execute_script(kinds) == before
    window.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert _pages(window) > few + 3


@pytest.mark.parametrize("width", [360, 390])
def test_charts_fit_a_phone_and_can_be_read(window, compared, width):
    show(window, compared, width)
    window.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    charts = window.find_elements("css selector", "svg.plot")
    assert len(charts) >= 2 + 3 * 5
    for chart in charts:
        assert chart.rect["x"] >= 0 and chart.rect["x"] + chart.rect["width"] <= width
    sizes = window.execute_script(
        "return [...document.querySelectorAll('svg.plot text')].filter(t => t.textContent.trim().length > 4)"
        ".map(t => t.getBoundingClientRect()).map(r => Math.min(r.width, r.height))"
    )
    assert min(sizes) > 8  # pixels, of whole lines
    outside = window.execute_script(
        "return [...document.querySelectorAll('svg.plot')].flatMap(s => { const b = s.getBoundingClientRect();"
        "return [...s.querySelectorAll('text')].filter(t => { const r = t.getBoundingClientRect();"
        "return r.left < b.left - 1 || r.right > b.right + 1 || r.top < b.top - 1 || r.bottom > b.bottom + 1 }) })"
        ".map(t => t.textContent)"
    )
    assert outside == []


def test_a_phone_is_told_what_scores_mean(window, page):
    show(window, page, 390)
    assert all(one.is_displayed() for one in window.find_elements("css selector", ".cards small"))


def test_blanks_come_last_both_ways(shown):
    cells = shown.find_elements("css selector", "table.groups tbody tr:first-child td")
    shown.execute_script("arguments[0].dataset.value = ''; arguments[0].textContent = ''", cells[0])
    button = shown.find_elements("css selector", "table.groups th button")[1]
    for _ in range(2):
        button.click()
        assert _column(shown, 1)[-1] == ""


def test_a_link_opens_a_gallery_again_after_it_was_closed(shown):
    link = _groups(shown)[-1][0].find_element("tag name", "a")
    gallery = shown.find_element("id", link.get_attribute("href").split("#")[1])
    for _ in range(2):
        link.click()
        assert gallery.get_attribute("open") is not None
        shown.execute_script("arguments[0].open = false", gallery)


def test_a_link_into_a_folded_part_unfolds_it(window, compared):
    show(window, compared)
    gallery = window.find_element("css selector", "details.more details.gallery:last-child")
    window.execute_script("location.hash = arguments[0].id", gallery)
    assert window.execute_async_script(
        "setTimeout(() => arguments[1](arguments[0].open), 50)", gallery
    )
    assert gallery.is_displayed()


def test_a_hash_that_is_no_place_does_no_harm(window, page):
    show(window, page)
    window.get_log("browser")
    window.get(f"{page.as_uri()}#%")
    window.execute_script("location.hash = '%E0%A4%A'")
    assert window.execute_async_script("setTimeout(() => arguments[0](true), 50)")
    assert window.get_log("browser") == []


@pytest.mark.parametrize("word", ["kind", "typical", "outputs", "distinct"])
def test_the_filter_does_not_find_our_own_words(shown, word):
    shown.find_element("css selector", "input[type=search]").send_keys(word)
    assert _groups(shown) == []
