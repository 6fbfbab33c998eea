"""The HTML page of a report in a headless Chromium: clicks, keys, widths, and that nothing is fetched."""

from __future__ import annotations

import json
import shutil

import pytest
from report_sample import graph_break, recompile, report

from torchdynamo.report.page import page

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make browser")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on PATH: apt install chromium")

# The least contrast of what is shown on what lies behind it, and the text that has it: WCAG 2, for colors of sRGB.
CONTRAST = """() => {
  const light = ([r, g, b]) => [r, g, b].map((each) => each / 255)
    .map((each) => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
    .reduce((sum, each, at) => sum + each * [0.2126, 0.7152, 0.0722][at], 0);
  const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
  const behind = (each) => {
    const color = numbers(getComputedStyle(each).backgroundColor);
    return color.length === 4 && color[3] === 0 ? behind(each.parentElement) : color;
  };
  let least = [21, ""];
  for (const each of document.querySelectorAll("body *")) {
    const text = [...each.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data.trim()).join("");
    if (!text || !each.checkVisibility() || each.closest("svg")) continue;
    const [one, other] = [light(numbers(getComputedStyle(each).color)), light(behind(each))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < least[0]) least = [ratio, text];
  }
  return least;
}"""


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as session:
        started = session.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def show(browser, tmp_path):
    """Open a report's page; in the end there must be no message, no error and no request but the file itself."""
    told: list[str] = []
    contexts = []

    def open_page(built, width=1280, scheme="light"):
        file = tmp_path / "report.html"
        file.write_text(page(built), encoding="utf-8")
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme))
        opened = contexts[-1].new_page()
        opened.on("console", lambda message: told.append(message.text))
        opened.on("pageerror", lambda error: told.append(str(error)))
        opened.on("request", lambda request: told.append(request.url))
        opened.goto(file.as_uri())
        assert told.pop(0) == file.as_uri()
        return opened

    yield open_page
    assert [each for each in told if not each.startswith("blob:")] == []
    for each in contexts:
        each.close()


@pytest.mark.parametrize("graphs", [0, 1, 300])
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")])
def test_the_page_fits_its_window(show, graphs, width, scheme):
    breaks = [graph_break(line=line + 1) for line in range(graphs)]
    opened = show(report(graphs, breaks=breaks, recompiles=[recompile()] * graphs), width, scheme)
    assert opened.evaluate("document.documentElement.scrollWidth") == width
    background = opened.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (int(background[4:].split(",")[0]) < 128) == (scheme == "dark")
    assert opened.locator(".tile").count() == 4


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")])
def test_all_text_can_be_read(show, tmp_path, width, scheme):
    file = tmp_path / "model.py"
    file.write_text("import torch\n\ndef forward(x):  # 1\n    y = x.sin('a')\n    if y.isnan():\n        return x\n")
    broken = graph_break(str(file), 5, source="if y.isnan():", function="forward_with_quite_a_long_name")
    opened = show(report(2, str(file), breaks=[broken], recompiles=[recompile()]), width, scheme)
    opened.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    opened.wait_for_selector("#v1-0 h3")
    contrast, text = opened.evaluate(CONTRAST)
    assert contrast >= 4.5, text
    for cut in (".figure", ".rating", "#worst a", ".stack td:first-child > :first-child", "h1", ".actions button"):
        lines = opened.eval_on_selector_all(cut, "all => all.map(each => each.getClientRects().length)")
        assert set(lines) <= {0, 1}, f"{cut} is broken within"
    for tile in opened.locator(".tile").all():
        rating, noun = tile.locator(".rating").bounding_box(), tile.locator("small").bounding_box()
        assert noun["x"] + noun["width"] <= rating["x"] or noun["y"] >= rating["y"] + rating["height"] - 4


def test_long_lists_fold_and_say_their_length(show):
    opened = show(report(300, breaks=[graph_break(line=line) for line in range(1, 301)]))
    rows = opened.locator("#worst tbody tr:visible")
    assert rows.count() == 200
    opened.locator("#worst .more button").click()
    assert rows.count() == 300
    more = opened.locator("#guard-table .more button")
    assert more.text_content() == "Show all 3,000 rows"
    more.focus()
    opened.keyboard.press("Enter")
    assert opened.locator("#guard-table tbody tr").count() == 3000


def test_graphs_unfold_by_mouse_and_by_keyboard(show):
    opened = show(report(2))
    opened.locator("#v0-0 > summary").click()
    assert opened.locator("#v0-0 h3").all_text_contents() == ["Inputs", "Symbols", "Operators", "Guards"]
    opened.locator("#v1-0 > summary").focus()
    opened.keyboard.press("Enter")
    opened.wait_for_selector("#v1-0 h3")
    assert opened.locator("#v1-0 table").nth(2).locator("tbody tr").count() == 20


def test_the_timeline_is_walked_by_arrow_keys(show):
    opened = show(report(2))
    opened.locator("#timeline .scroll").first.focus()
    opened.keyboard.press("ArrowRight")
    opened.keyboard.press("ArrowRight")
    assert opened.locator("#timeline output").first.text_content() == "forward_1 graph 1/0: 1.20 ms"
    opened.keyboard.press("Enter")
    opened.wait_for_selector("#v1-0 h3")
    assert opened.evaluate("location.hash") == "#v1-0"
    opened.locator("#timeline [data-zoom='2']").first.click()
    assert opened.evaluate(
        "document.querySelector('.scroll').scrollWidth > document.querySelector('.scroll').clientWidth"
    )


def test_links_lead_to_lines_and_open_their_file(show, tmp_path):
    file = tmp_path / "model.py"
    file.write_text("def forward(x):\n    y = x.sin()\n    if y.isnan():\n        return x\n")
    opened = show(report(1, str(file), breaks=[graph_break(str(file), 3, source="if y.isnan():")]))
    opened.locator("details.file > summary").click()
    assert not opened.locator("#f0-3").is_visible()
    opened.locator("#worst a").first.click()
    opened.wait_for_selector("#f0-3", state="visible")
    assert opened.locator("#f0-3 code").text_content() == "    if y.isnan():"
    assert opened.locator("#f0-3 i").text_content() == "!"


def test_guards_are_filtered_as_one_types(show):
    opened = show(report(3))
    opened.keyboard.press("/")
    opened.keyboard.type("layers.7")
    assert opened.locator("#guard-table tbody tr").count() == 3


def test_the_theme_is_switched(show):
    opened = show(report(1))
    opened.locator("#theme").click()
    assert opened.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 27)"


def test_the_json_is_the_report(show):
    built = report(30, breaks=[graph_break(), graph_break(text="</script>\u2028\0&")], recompiles=[recompile()])
    opened = show(built)
    assert opened.evaluate("report") == json.loads(json.dumps(built))
    with opened.expect_download() as download:
        opened.locator("#json").click()
    assert json.loads(download.value.path().read_text()) == built


def test_injected_texts_are_shown_as_text(show):
    bad = "</script><img src=x onerror=alert(1)>{{ 7 * 7 }}\u202e\0"
    built = report(1, title=bad, breaks=[graph_break(source=bad, text=bad, hint=bad)], recompiles=[recompile(old=bad)])
    built["functions"][0]["versions"][0]["guards"][0]["object"] = bad
    opened = show(built)
    shown = bad.replace("\u202e", "<U+202E>").replace("\0", "<U+0000>")
    assert opened.locator("h1").text_content() == shown
    assert opened.locator("#worst code").first.text_content() == shown
    assert shown in opened.locator("#guard-table").text_content()
    assert opened.locator("img").count() == 0


def numbers(value):
    """Yield the numbers of a JSON value, and the lengths of its lists."""
    if isinstance(value, dict):
        for item in value.values():
            yield from numbers(item)
    elif isinstance(value, list):
        yield len(value)
        for item in value:
            yield from numbers(item)
    elif isinstance(value, (int, float)):
        yield float(value)


def test_every_number_is_in_the_dict(show):
    built = report(3, breaks=[graph_break()], recompiles=[recompile()])
    opened = show(built)
    for each in opened.locator("details.version > summary").all():
        each.click()
    opened.wait_for_selector("#v2-0 h3")
    values = opened.eval_on_selector_all("data", "all => all.map(each => Number(each.value))")
    assert len(values) > 100
    guards = sum(len(version["guards"]) for row in built["functions"] for version in row["versions"])
    assert set(values) <= {*numbers(built), guards}  # a folded list says how long it is
