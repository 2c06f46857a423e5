"""The page in a real browser: what a person gets to with three clicks, or without a mouse."""

from itertools import pairwise

import msgspec
import pytest

from zerowait.observe import write_page
from zerowait.record import REWARDS, AppendOnlyFile, RewardRecord
from zerowait.types import Abstain, Reward, Sample, Score

FALLS_AT = 6
GROUP = ".panel .group[open]"
REPLY = f"{GROUP} .response:last-child details"
RIGHT, ENTER = "\ue014", "\ue007"


@pytest.fixture(scope="module")
def report(tmp_path_factory, prepare):
    """The page of the run whose judge drifted."""
    folder = prepare("a drifted judge", tmp_path_factory.mktemp("prepared") / "run")
    path = folder / "report.html"
    with path.open("wb") as file:
        write_page(folder, file)
    return path


@pytest.fixture
def page(browser, report):
    """The browser, in which that page is drawn."""
    browser.open(report.as_uri())
    browser.until(lambda: len(browser.all("canvas")) > 5)
    return browser


def test_three_clicks_lead_from_the_curve_to_the_words_of_the_judge(page):
    click(page, ".pick button")
    page.find(".panel #chosen")
    why = page.find(".panel").text
    click(page, ".panel .group > summary")
    page.find(GROUP)
    click(page, f"{REPLY} > summary")
    assert f"Step {FALLS_AT}: why did the reward fall?" in why
    assert "The judge's scale moved" in why
    assert "Score: 2" in page.find(f"{REPLY}[open]").text
    assert page.errors() == []  # the page's own policy blocks nothing of it, and no script fails


def click(page, css):
    """Click where it is on the screen, as a person does."""
    found = page.find(css)
    page.run("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", found)
    page.until(lambda: found.click() is None)


def test_the_curve_is_read_with_the_keyboard_alone(page):
    page.run("document.querySelector('#reward .canvas').focus()")
    for key in [RIGHT] * (FALLS_AT - 1) + [ENTER]:
        page.focused.send_keys(key)
    page.until(lambda: page.focused.get_attribute("id") == "chosen")
    assert page.focused.text == f"Step {FALLS_AT}: why did the reward fall?"
    assert page.errors() == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_stand_out_and_nothing_is_wider_than_a_phone(page, theme):
    page.emulate(theme, width=390, height=844)
    click(page, ".pick button")
    page.find(".panel #chosen")
    background = page.run("return getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (theme == "light")
    page.until(lambda: page.too_wide() <= 0)
    assert page.poor_contrast() == []


def test_every_chart_has_its_numbers_as_a_table_and_headings_are_in_order(page):
    click(page, ".pick button")
    page.find(".panel #chosen")
    page.run("for (const each of document.querySelectorAll('.numbers')) each.open = true;")
    charts = len(page.all(".canvas"))
    assert len(page.all(".canvas[aria-label]")) == charts > 5
    page.until(lambda: len(page.all(".chart > .numbers table caption")) == charts)
    levels = page.run(
        "return [...document.querySelectorAll('h1, h2, h3, h4, h5')]"
        ".filter((h) => h.checkVisibility()).map((h) => Number(h.tagName[1]))"
    )
    assert all(deeper - level <= 1 for level, deeper in pairwise(levels))


def test_a_step_in_which_everything_abstained_is_a_gap_and_no_line_is_drawn_over_it(
    browser, tmp_path
):
    """The held-out split has fewer points, between which its line goes on."""
    abstained = Reward(None, {"a": Abstain("timeout", "late")}, policy="neutral")
    file = AppendOnlyFile(tmp_path / REWARDS)
    for step, value, split in [
        *((step, None if step == 3 else 0.1 * step, "train") for step in range(1, 6)),
        *((step, 0.5, "val") for step in (1, 5)),
    ]:
        reward = abstained if value is None else Reward(value, {"a": Score(value)})
        sample = Sample("q", "r", step=step, split=split)
        file.write(msgspec.json.encode(RewardRecord(sample=sample, reward=reward)))
    file.close()
    with (tmp_path / "report.html").open("wb") as page:
        write_page(tmp_path, page)
    browser.open((tmp_path / "report.html").as_uri())
    plot = "document.querySelector('#reward .canvas').plot"
    browser.until(lambda: browser.run(f"return {plot} !== undefined"))
    segments = browser.run(
        f"const u = {plot}; return Object.fromEntries(u.series.slice(1)"
        ".filter((s) => ['train', 'val'].includes(s.label))"
        ".map((s) => [s.label, s._paths.gaps.length]))"
    )
    assert segments == {"train": 1, "val": 0}
