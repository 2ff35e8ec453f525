"""The report in a real browser: only our script runs, tables sort and filter, any screen fits."""

import base64
import os
import re
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from browser import chromium, show
from report_cases import HOSTILE
from sample_files import image_bytes, jsonl, write

import divprism as dp
from divprism.data.items import Text

NAME = 'it\'s "quoted" & <b>bold<'  # file systems accept every letter but a slash
OPEN_ALL = "document.querySelectorAll('details').forEach(d => d.open = true)"
OPEN_KINDS = (
    "return [...document.querySelectorAll('details')].filter(d => d.open).map(d => d.className)"
)
IS_OPEN = "return document.getElementById(arguments[0]).open"


@pytest.fixture(scope="module")
def window():
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Images of three prompts, one of which is a tag; one file has quotes and a tag in its name."""
    folder = tmp_path_factory.mktemp("report")
    lines = []
    for index, prompt in enumerate([HOSTILE, "a red square", "a blue circle"]):
        for count in range(6 + 2 * index):
            name = f"{index}-{count}.png"
            if (index, count) == (1, 0):
                name = f"{NAME}.png"
            write(folder / "images", {name: image_bytes(17 * index + count, (300, 200))})
            model = "</title><script>window.hacked=2</script>"
            lines.append({"file_name": name, "prompt": prompt, "model": model})
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


def _column(window, index):
    return [cells[index].text for cells in _groups(window)]


def _displayed(window, selector):
    elements = window.find_elements("css selector", selector)
    return [element for element in elements if element.is_displayed()]


def test_the_console_is_empty_and_nothing_is_loaded(shown):
    assert shown.get_log("browser") == []
    assert shown.execute_script("return window.hacked") is None
    loaded = shown.execute_script(
        "return performance.getEntriesByType('resource').map(entry => entry.name)"
    )
    assert [name for name in loaded if not name.startswith("data:")] == []


def test_prompts_and_names_are_shown_as_text(shown):
    assert any(HOSTILE in title for title in _column(shown, 0))
    shown.execute_script(OPEN_ALL)
    assert NAME in shown.find_element("tag name", "main").text
    assert "window.hacked=2" in shown.title
    for image in shown.find_elements("tag name", "img"):
        assert image.get_attribute("src").startswith("data:image/jpeg;base64,")
        assert int(image.get_attribute("naturalWidth")) == 160


def test_an_injected_script_would_not_run(shown):
    """The content security policy holds even if a tag escaped the template."""
    shown.execute_script(
        "const script = document.createElement('script');"
        "script.textContent = 'window.hacked = 3'; document.body.append(script);"
        "const image = document.createElement('img');"
        "image.setAttribute('onerror', 'window.hacked = 4');"
        "image.src = 'data:,'; document.body.append(image);"
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
    assert len(_displayed(shown, "details.gallery")) == 1
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
    assert shown.execute_script(IS_OPEN, target) is False
    last.click()
    assert shown.execute_script(IS_OPEN, target) is True


@pytest.mark.parametrize("width", [360, 390, 1100])
def test_the_page_is_no_wider_than_the_screen(window, page, width):
    show(window, page, width)
    assert window.execute_script("return document.documentElement.scrollWidth") <= width


def _lightness(window, selector, attribute):
    """Return the mean of red, green and blue of an element's colour, from 0 to 255."""
    element = window.find_element("css selector", selector)
    script = "return getComputedStyle(arguments[0])[arguments[1]]"
    color = window.execute_script(script, element, attribute)
    return np.mean([int(part) for part in color.strip("rgb()").split(",")[:3]])


@pytest.mark.parametrize(("scheme", "sign"), [("light", -1), ("dark", 1)])
def test_text_and_plots_stand_out_in_light_and_dark(window, page, scheme, sign):
    show(window, page, scheme=scheme)
    paper = _lightness(window, "body", "backgroundColor")
    for selector, attribute in (("h1", "color"), ("svg.plot text", "fill")):
        ink = _lightness(window, selector, attribute)
        assert sign * (ink - paper) > 128


def test_every_card_has_a_colour_of_its_family(window, page):
    show(window, page)
    script = (
        "return [...document.querySelectorAll('.cards div')].map(card => ["
        "card.style.getPropertyValue('--family'), getComputedStyle(card).borderLeftColor])"
    )
    colors = {}
    for family, color in window.execute_script(script):
        colors.setdefault(family, set()).add(color)
    assert len(colors) >= 3
    assert all(len(shades) == 1 for shades in colors.values())
    assert len({min(shades) for shades in colors.values()}) == len(colors)


@pytest.mark.parametrize(("width", "most"), [(1100, 4), (390, 2)])
def test_cards_stand_in_rows_of_equal_width(window, page, width, most):
    show(window, page, width)
    cards = window.find_elements("css selector", ".cards div")
    assert 6 <= len(cards) <= 12
    widths = [card.rect["width"] for card in cards]
    assert max(widths) - min(widths) <= 1  # rounded to pixels
    tops = [card.rect["y"] for card in cards]
    assert max(tops.count(top) for top in tops) == most


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Three models with long names and texts as outputs, so that a column of words comes last."""
    rng = np.random.default_rng(0)
    words = [f"w{index}" for index in range(60)]
    prompts = [f"prompt number {index // 5}" for index in range(60)]
    samples = {}
    for name, num_words in (("one", 60), ("two", 20), ("three", 4)):
        outputs = [Text(" ".join(rng.choice(words[:num_words], 6))) for _ in prompts]
        model = f"a-rather-long-name-of-a-model-{name}-instruct-preview"
        samples[model] = dp.Samples(tuple(outputs), tuple(map(Text, prompts)))
    path = tmp_path_factory.mktemp("compared") / "report.html"
    path.write_text(dp.html_report(dp.compare(samples), num_repeats=2), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def chosen(tmp_path_factory):
    """Texts of two prompts, one of which is a tag, chosen from twelve."""
    outputs = tuple(Text(f"{HOSTILE} {row * 7919}") for row in range(12))
    prompts = tuple(Text(prompt) for prompt in [HOSTILE, "a question"] * 6)
    path = tmp_path_factory.mktemp("chosen") / "report.html"
    page = dp.html_report(dp.select(dp.Samples(outputs, prompts), k=5))
    path.write_text(page, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """The mixture of three models with nothing in common, also for each of five prompts."""
    prompts = np.repeat(np.arange(5), 2)
    models = {}
    for index in range(3):
        name = f"a-rather-long-name-of-a-model-{index}-instruct-preview"
        models[name] = dp.Samples(np.eye(30)[10 * index : 10 * index + 10], prompts)
    kernels = {"kernel_x": dp.Cosine(), "kernel_t": dp.Categorical()}
    path = tmp_path_factory.mktemp("mixed") / "report.html"
    page = dp.html_report(dp.mixture(models, per_group="prompt", **kernels))
    path.write_text(page, encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize("name", ["chosen", "mixed"])
def test_pages_of_other_results_fit_the_screen_and_run_nothing(window, request, name, width):
    show(window, request.getfixturevalue(name), width, 800)
    window.execute_script(OPEN_ALL)
    assert window.get_log("browser") == []
    assert window.execute_script("return window.hacked") is None
    assert window.execute_script("return document.documentElement.scrollWidth") <= width


def _pages(window):
    """Return the number of pages of a print."""
    return len(re.findall(rb"/Type\s*/Page\b", base64.b64decode(window.print_page())))


def test_in_print_tables_are_whole(window, compared):
    """On A4 between its margins, 19 cm, the last column is on the paper and nothing scrolls."""
    show(window, compared, width=718)
    window.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        window.execute_script("window.dispatchEvent(new Event('beforeprint'))")
        heads = _displayed(window, "thead tr th:last-child")
        assert [head.text for head in heads] == ["words", "clear", *["outputs"] * 3]
        for head in heads:
            assert head.rect["x"] + head.rect["width"] <= 718 + 1  # rounded
        for element in window.find_elements("css selector", ".scroll"):
            assert element.value_of_css_property("overflow-x") == "visible"
        window.execute_script("window.dispatchEvent(new Event('afterprint'))")
    finally:
        window.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_a_print_opens_settings_and_differences_only(window, compared):
    show(window, compared)
    before = window.execute_script(OPEN_KINDS)
    window.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    opened = window.execute_script(OPEN_KINDS)
    assert sorted(opened) == sorted([*before, "differences", *["settings"] * 3])
    window.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert window.execute_script(OPEN_KINDS) == before
    few = _pages(window)
    assert window.execute_script(OPEN_KINDS) == before
    window.execute_script(OPEN_ALL)
    assert _pages(window) > few + 3


@pytest.mark.parametrize("width", [360, 390])
def test_charts_fit_a_phone_and_can_be_read(window, compared, width):
    show(window, compared, width)
    window.execute_script(OPEN_ALL)
    charts = window.find_elements("css selector", "svg.plot")
    assert len(charts) >= 2 + 3 * 5
    for chart in charts:
        assert chart.rect["x"] >= 0 and chart.rect["x"] + chart.rect["width"] <= width
    sizes = window.execute_script(
        "return [...document.querySelectorAll('svg.plot text')]"
        ".filter(text => text.textContent.trim().length > 4)"
        ".map(text => text.getBoundingClientRect())"
        ".map(box => Math.min(box.width, box.height))"
    )
    assert min(sizes) > 8  # pixels, of whole lines
    outside = window.execute_script(
        "const isOutside = (inner, outer) => inner.left < outer.left - 1"
        " || inner.right > outer.right + 1 || inner.top < outer.top - 1"
        " || inner.bottom > outer.bottom + 1;"
        "return [...document.querySelectorAll('svg.plot')].flatMap(plot =>"
        " [...plot.querySelectorAll('text')].filter(text =>"
        " isOutside(text.getBoundingClientRect(), plot.getBoundingClientRect())))"
        ".map(text => text.textContent)"
    )
    assert outside == []


def test_a_phone_shows_what_scores_mean(window, page):
    show(window, page, 390)
    meanings = window.find_elements("css selector", ".cards small")
    assert len(_displayed(window, ".cards small")) == len(meanings) > 0


def test_a_phone_shows_the_score_of_the_order_and_the_names(window, compared):
    """Without scrolling the table, and the names also while it is scrolled."""
    show(window, compared, 390)
    table = window.find_element("css selector", "#comparison .scroll")
    rows = window.find_elements("css selector", "#comparison tbody tr")
    score = rows[0].find_elements("css selector", "td")[1]
    assert score.rect["x"] + score.rect["width"] <= 390
    window.execute_script("arguments[0].scrollLeft = 300", table)
    name = rows[0].find_element("css selector", "th")
    assert window.execute_script("return arguments[0].getBoundingClientRect().left", name) >= 0


def test_ranks_sort_by_their_numbers(window, compared):
    show(window, compared)
    rows = "[...document.querySelector('#comparison .sortable').tBodies[0].rows]"
    write_ranks = f"{rows}.forEach((row, i) => row.cells[1].dataset.value = arguments[0][i])"
    read_ranks = f"return {rows}.map(row => row.cells[1].dataset.value)"
    window.execute_script(write_ranks, ["10", "2-4", "1"])
    button = window.find_elements("css selector", "#comparison th button")[1]
    assert button.text.startswith("rank")
    button.click()
    assert window.execute_script(read_ranks) == ["1", "2-4", "10"]
    button.click()
    assert window.execute_script(read_ranks) == ["10", "2-4", "1"]


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


def test_a_hash_without_a_target_does_no_harm(window, page):
    show(window, page)
    window.get_log("browser")
    window.get(f"{page.as_uri()}#%")
    window.execute_script("location.hash = '%E0%A4%A'")
    assert window.execute_async_script("setTimeout(() => arguments[0](true), 50)")
    assert window.get_log("browser") == []


@pytest.mark.parametrize("word", ["kind", "typical", "outputs", "distinct"])
def test_the_filter_ignores_the_words_of_the_page(shown, word):
    shown.find_element("css selector", "input[type=search]").send_keys(word)
    assert _groups(shown) == []


def _axe() -> str:
    """Return the script of axe-core: the one of the PyPI package, or a newer file."""
    newer = os.environ.get("DIVPRISM_AXE")
    if newer:
        return Path(newer).read_text(encoding="utf-8")
    return (resources.files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("name", ["page", "compared", "chosen", "mixed"])
def test_axe_finds_no_barrier(window, request, name, width, scheme):
    show(window, request.getfixturevalue(name), width, 800, scheme)
    window.execute_script(OPEN_ALL)
    # Ten thousand elements take longer than the default of 30 s where the cores are busy.
    window.set_script_timeout(180)
    window.execute_script(_axe())
    found = window.execute_async_script("axe.run(document).then(arguments[0])")
    barriers = [(rule["id"], rule["impact"], len(rule["nodes"])) for rule in found["violations"]]
    assert barriers == []
    assert len(found["passes"]) > 30  # it has run


def test_the_first_screen_answers_the_question(window, compared):
    """At 1200 x 800: which model, by how much, how sure, and all models on one scale."""
    show(window, compared, 1200, 800)
    sections = window.find_elements(
        "css selector", ".verdict .answer, .verdict .sure, .verdict svg"
    )
    assert len(sections) >= 3
    for element in sections:
        assert element.rect["y"] + element.rect["height"] <= 800
    answer = window.find_element("css selector", ".answer").text
    assert "is the most diverse of 3 models" in answer
    assert "distinct outputs per kind of prompt" in answer
    assert "95" in window.find_element("css selector", ".sure").text


def _copied(window, selector):
    """Return what a button copies, and the text that it shows afterwards."""
    window.execute_script(
        "navigator.clipboard.writeText = async (text) => { window.copied = text; }"
    )
    button = window.find_element("css selector", selector)
    button.click()
    window.execute_async_script("setTimeout(arguments[0], 50)")
    return window.execute_script("return window.copied"), button.text


def test_numbers_can_be_copied(shown):
    copied, label = _copied(shown, ".cards dd .copy")
    assert label == "Copied"
    digits = shown.find_element("css selector", ".cards dd").get_attribute("data-copy")
    assert copied == digits
    assert len(digits) > 6  # all digits, not those of the card
    copied, _ = _copied(shown, "#verdict .copy")
    assert copied.startswith("</title><script>window.hacked=2</script> gives")


def test_a_table_is_copied_by_columns(window, compared):
    show(window, compared)
    copied, _ = _copied(window, "#comparison .copy")
    head, *rows = [line.split("\t") for line in copied.split("\n")]
    assert head[:2] == ["model", "rank"]
    assert len(rows) == 3
    assert {len(row) for row in rows} == {len(head)}
    assert float(rows[0][head.index("conditional")]) > 1


def test_copied_names_are_no_formulas(window, tmp_path):
    samples = {}
    t = np.repeat(["=1+1", "plain", "@SUM(A1)"], 6)
    for index, name in enumerate(["=cmd", "+1", "plain"]):
        samples[name] = dp.Samples(np.random.default_rng(index).standard_normal((18, 3)), t)
    page = tmp_path / "report.html"
    settings = {"kernel_x": dp.Gaussian(1.0), "kernel_t": dp.Categorical()}
    page.write_text(dp.html_report(dp.compare(samples, **settings), num_repeats=2), "utf-8")
    show(window, page)
    window.execute_script(OPEN_ALL)
    tables = window.find_elements("css selector", ".tools .copy")
    assert len(tables) > 4
    cells = []
    for button in tables:
        window.execute_script(
            "window.copied = ''; navigator.clipboard.writeText = async (t) => {window.copied = t;};"
            "arguments[0].click()",
            button,
        )
        window.execute_async_script("setTimeout(arguments[0], 20)")
        copied = window.execute_script("return window.copied")
        cells += [cell for line in copied.split("\n") for cell in line.split("\t")]
    names = [cell for cell in cells if re.search(r"=cmd|=1\+1|@SUM|^'?\+1$", cell)]
    assert {"'=cmd", "'+1", "'=1+1", "'@SUM(A1)"} <= {name.strip("\u2068\u2069") for name in names}
    assert not any(re.match("[\u2068]?[=+@]", name) for name in names)


def test_without_a_clipboard_the_older_command_copies(shown):
    shown.execute_script("navigator.clipboard.writeText = () => Promise.reject(new Error())")
    button = shown.find_element("css selector", ".cards dd .copy")
    button.click()
    shown.execute_async_script("setTimeout(arguments[0], 50)")
    assert button.text == "Copied"
    assert shown.find_elements("css selector", "textarea") == []


def test_files_are_saved_without_a_network(window, compared, tmp_path):
    show(window, compared)
    behavior = {"behavior": "allow", "downloadPath": str(tmp_path)}
    window.execute_cdp_cmd("Browser.setDownloadBehavior", behavior)
    for link in window.find_elements("css selector", "#downloads a[download]"):
        link.click()
    for _ in range(100):
        window.execute_async_script("setTimeout(arguments[0], 50)")
        names = {path.name for path in tmp_path.iterdir()}
        if names == {"scores.csv", "differences.csv", "result.json"}:
            break
    assert names == {"scores.csv", "differences.csv", "result.json"}
    assert (tmp_path / "scores.csv").read_text().startswith("model,score,n,value,")


def test_without_a_script_the_page_can_be_read(window, compared):
    window.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        show(window, compared)
        root = window.execute_cdp_cmd("DOM.getDocument", {})["root"]["nodeId"]
        for selector in ("#verdict .answer", "#beside .column", "#comparison table", "svg.plot"):
            query = {"nodeId": root, "selector": selector}
            node = window.execute_cdp_cmd("DOM.querySelector", query)["nodeId"]
            # An element that is not laid out has no box, and the command fails.
            box = window.execute_cdp_cmd("DOM.getBoxModel", {"nodeId": node})["model"]
            assert box["width"] > 0 and box["height"] > 0
        # Buttons that could do nothing are not there.
        buttons = {"nodeId": root, "selector": ".copy"}
        assert window.execute_cdp_cmd("DOM.querySelectorAll", buttons)["nodeIds"] == []
    finally:
        window.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_every_entry_of_the_contents_leads_to_a_section(window, compared):
    show(window, compared)
    links = window.find_elements("css selector", "nav a")
    titles = ["Verdict", "Warnings", "Comparison", "Side by side"]
    assert [link.text for link in links[:4]] == titles
    assert links[4].text == window.find_element("css selector", "#m0 h2").text
    for link in [*links, *window.find_elements("css selector", ".permalink")]:
        target = link.get_attribute("href").split("#")[1]
        assert len(window.find_elements("id", target)) == 1
