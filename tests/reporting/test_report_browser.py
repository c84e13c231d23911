"""The report in a real browser, opened from disk with the network off."""

import csv
import shutil

import numpy as np
import pytest

import reports
import rhocal
from helpers import PATIENCE
from rhocal import metrics
from rhocal.reporting.page import render_page as render

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium (as .ci/run does)")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
NAMES = ["uncalibrated", "rho-norm", "histogram-binning", "temperature"]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The quiet and the hostile page on disk, and what the quiet one is about."""
    folder = tmp_path_factory.mktemp("pages")
    document, data, cals = reports.quiet(tuple(NAMES[1:]))
    (folder / "quiet.html").write_text(render(document), encoding="utf-8")
    (folder / "hostile.html").write_text(render(reports.hostile()), encoding="utf-8")
    return folder, data, cals


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS, timeout=1000 * PATIENCE)
        yield running
        running.close()


class Watched:
    """A page that remembers what it complained of and what it asked for."""

    def __init__(self, browser, path, *, width=1440, **options):
        self.context = browser.new_context(viewport={"width": width, "height": 900}, offline=True, **options)
        self.context.set_default_timeout(1000 * PATIENCE)
        self.page = self.context.new_page()
        self.problems, self.requests = [], []
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready]")

    def ece(self, at):
        return float(self.page.locator(f".panel[data-method='{at}'] .ece").get_attribute("data-value"))

    def next_frames(self):
        """Wait for what the page does at its next frame."""
        self.page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def draw_everything(self):
        self.page.evaluate("dispatchEvent(new Event('beforeprint'))")

    def close(self):
        """Nothing was complained of, and nothing was asked for but the page itself (and what it made itself)."""
        self.context.close()
        assert self.problems == []
        assert len(self.requests) == 1
        assert self.requests[0].startswith("file://")


@pytest.fixture
def opened(browser, written):
    """Open a page; at the end of the test it must have been silent."""
    pages = []

    def open_page(name="quiet.html", **options):
        pages.append(Watched(browser, written[0] / name, **options))
        return pages[-1]

    yield open_page
    for watched in pages:
        watched.close()


def test_the_slider_recomputes_what_python_computes(opened, written):
    _, data, cals = written
    watched = opened()
    logits = [data.logits, *(cals[name].transform(data.logits) for name in NAMES[1:])]

    def check(metric, n_bins):
        watched.next_frames()
        for at, z in enumerate(logits):
            expected = metric(z, data.labels, kind="logits", n_bins=n_bins)
            assert watched.ece(at) == pytest.approx(expected, abs=1e-8)
            shown = watched.page.locator(f".panel[data-method='{at}'] .ece").inner_text()
            assert shown == f"{expected:.4f}"

    check(metrics.ece, 10)
    slider = watched.page.locator("#bins")
    slider.focus()
    slider.press("ArrowRight")  # by keyboard
    assert watched.page.locator("#bins-shown").inner_text() == "11"
    check(metrics.ece, 11)
    slider.fill("37")
    check(metrics.ece, 37)
    watched.page.get_by_role("radio", name="equal mass").check()
    assert watched.page.locator(".scheme-name").first.inner_text() == "AdaECE"
    check(metrics.adaptive_ece, 37)
    slider.fill("5")
    check(metrics.adaptive_ece, 5)


def test_bands_know_the_effective_sample_size(browser, tmp_path):
    """Four copies of each sample, as clusters: bands are as wide as without copies, and bins count the copies."""
    rng = np.random.default_rng(0)
    probs = rng.uniform(0.55, 0.95, 400)
    labels = (rng.random(400) < probs).astype(int)
    widths, counts = [], []
    for k in (1, 4):
        clusters = np.repeat(np.arange(400), k) if k > 1 else None
        rhocal.report(np.repeat(probs, k), np.repeat(labels, k), clusters=clusters).save(tmp_path / "page.html")
        watched = Watched(browser, tmp_path / "page.html")
        rows = watched.page.locator(".panel[data-method='0'] table.bins tbody tr").all()
        cells = [row.locator("td").all_text_contents() for row in rows]
        limits = [[float(limit.removesuffix(" %")) for limit in row[-1].split(" – ")] for row in cells]
        widths.append(np.array([high - low for low, high in limits]))
        counts.append(np.array([float(row[2].replace(",", "")) for row in cells]))
        watched.close()
    np.testing.assert_allclose(widths[1], widths[0], rtol=0.1, atol=0.2)
    np.testing.assert_allclose(counts[1], 4 * counts[0])


def test_charts_have_points_and_say_what_they_show(opened):
    watched = opened()
    watched.draw_everything()
    points = watched.page.locator(".panel[data-method='0'] .scatterlayer .point")
    assert points.count() >= 7
    label = watched.page.locator(".panel[data-method='1'] .chart").get_attribute("aria-label")
    assert "Reliability diagram of rho-norm: " in label
    watched.page.locator(".panel[data-method='0'] summary").click()
    assert watched.page.locator(".panel[data-method='0'] table.bins tbody tr").count() == points.count()
    chart = watched.page.locator(".panel[data-method='0'] .chart")
    chart.scroll_into_view_if_needed()
    points.last.hover(force=True)
    watched.page.wait_for_selector(".hoverlayer .hovertext")
    assert "samples" in watched.page.locator(".hoverlayer").first.text_content()


def test_the_table_sorts_both_ways(opened):
    watched = opened()
    cells = watched.page.locator("#methods tbody td:nth-child(2)")

    def column():
        return [float(cell.get_attribute("data-sort")) for cell in cells.all()]

    button = watched.page.locator("#methods thead th:nth-child(2) button")
    before = column()
    button.click()
    assert column() == sorted(before)
    assert watched.page.locator("#methods th[aria-sort='ascending']").count() == 1
    button.press("Enter")  # by keyboard
    assert column() == sorted(before, reverse=True)
    watched.page.locator("#methods thead th:nth-child(1) button").click()
    assert column() == before


def test_methods_are_switched_on_and_off(opened):
    watched = opened()
    panels = watched.page.locator(".panel[data-method]:visible")
    assert panels.count() == 4
    watched.draw_everything()
    lines = watched.page.locator("#risk .legendtext")
    assert lines.count() == 4
    watched.page.get_by_role("checkbox", name="temperature").uncheck()
    assert panels.count() == 3
    watched.draw_everything()
    assert lines.count() == 3
    watched.page.get_by_role("checkbox", name="temperature").check()
    assert panels.count() == 4


def test_dark_mode(opened):
    ground = "getComputedStyle(document.body).backgroundColor"
    ink = "document.querySelector('.panel .xtick text').style.fill"
    light, dark = opened(color_scheme="light"), opened(color_scheme="dark")
    assert light.page.evaluate(ground) != dark.page.evaluate(ground)
    button = light.page.locator("#theme")
    assert button.inner_text() == "Switch to dark"  # a label says what a click does
    light.draw_everything()
    first = light.page.evaluate(ink)
    button.click()
    assert button.inner_text() == "Switch to light"
    assert light.page.evaluate(ground) == dark.page.evaluate(ground)
    light.draw_everything()
    assert light.page.evaluate(ink) != first  # the diagrams follow


@pytest.mark.parametrize("name", ["quiet.html", "hostile.html"])
@pytest.mark.parametrize("width", [360, 1440])
def test_nothing_is_wider_than_the_window(opened, name, width):
    watched = opened(name, width=width)
    watched.draw_everything()
    for fold in watched.page.locator("details:not([open]) > summary").all():
        if fold.is_visible():
            fold.click()
    watched.page.wait_for_timeout(200)
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= width


def test_hostile_names_stay_names(opened):
    watched = opened("hostile.html")
    watched.draw_everything()
    assert watched.page.evaluate("window.hacked === undefined")
    assert watched.page.title().startswith(reports.HOSTILE[1])
    text = watched.page.locator("main").inner_text()
    for name in reports.HOSTILE:
        assert name[:50] in text
    assert "49" not in watched.page.locator("#methods th[scope=row]").all_inner_texts()
    legend = " ".join(watched.page.locator("#risk .legendtext").all_text_contents())
    assert "<script>" in legend  # as text
    assert watched.page.locator("#risk .legendtext script, #risk .legendtext a").count() == 0


def test_the_numbers_can_be_saved(opened, tmp_path):
    watched = opened("quiet.html", accept_downloads=True)
    with watched.page.expect_download() as saved:
        watched.page.locator("#download").click()
    saved.value.save_as(tmp_path / "report.json")
    assert '"format":"rhocal-report"' in (tmp_path / "report.json").read_text(encoding="utf-8")
    watched.requests = [url for url in watched.requests if not url.startswith("blob:")]


def test_pictures_and_the_table_can_be_saved(opened, tmp_path):
    watched = opened("quiet.html", accept_downloads=True)
    watched.draw_everything()
    for button, name in (("#download-table", "table.csv"), (".panel[data-method='1'] .picture", "picture.svg")):
        with watched.page.expect_download() as saved:
            watched.page.locator(button).click()
        saved.value.save_as(tmp_path / name)
    rows = list(csv.DictReader((tmp_path / "table.csv").read_text(encoding="utf-8").splitlines()))
    assert [row["method"] for row in rows][:2] == ["uncalibrated", "rho-norm"]
    assert float(rows[0]["ece"]) > float(rows[1]["ece"]) > 0
    picture = (tmp_path / "picture.svg").read_text(encoding="utf-8")
    assert picture.startswith("<svg")
    assert "confidence" in picture
    watched.requests = [url for url in watched.requests if not url.startswith(("blob:", "data:"))]


def test_it_prints(opened):
    watched = opened()
    watched.page.emulate_media(media="print")
    assert not any(controls.is_visible() for controls in watched.page.locator(".controls").all())
    assert watched.page.locator(".sentence").is_visible()
    assert len(watched.page.pdf()) > 20_000


def test_without_script_the_figures_are_there(browser, written):
    context = browser.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto((written[0] / "quiet.html").as_uri())
    assert page.locator("#methods tbody tr").count() == 4
    assert page.locator(".card").count() == 4
    assert "need JavaScript" in page.locator("noscript").inner_text()
    context.close()


def test_keyboard_reaches_everything(opened):
    watched = opened()
    seen = set()
    for _ in range(40):
        watched.page.keyboard.press("Tab")
        seen.add(
            watched.page.evaluate(
                "document.activeElement.id || document.activeElement.name || document.activeElement.tagName"
            )
        )
    assert {"theme", "download", "bins", "scheme", "method", "SUMMARY", "BUTTON"} <= seen


def test_the_slider_of_targets_shows_what_is_certified(opened, written):
    watched = opened()
    watched.draw_everything()
    page = watched.page
    page.locator("#target").fill("17")
    decision = rhocal.decide(written[2]["rho-norm"], written[1].logits, written[1].labels, target=0.3)
    assert page.locator("#target-shown").inner_text() == "30 %"
    assert f"probability at least {decision.policy.thresholds[0]:.4f}." in page.locator("#certified").inner_text()
    page.locator("#target").fill("0")
    assert page.locator("#certified").inner_text().startswith("No threshold is certified")
    assert page.locator("#decisions .scatterlayer .trace").count() >= 2
