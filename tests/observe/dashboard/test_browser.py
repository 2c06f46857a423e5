"""The dashboard in a real Chromium: a run that goes on, filters, a group, thumbs, keyboard, colours."""

import json
from types import SimpleNamespace

import pytest

import zerowait
from zerowait.client import Secret
from zerowait.testing import FakeJudge
from zerowait.types import Sample

BAD = "no verdict"
TAB, ENTER, SPACE, ESCAPE = "\ue004", "\ue007", " ", "\ue00c"
"""Keys, as WebDriver has them."""


def answer(body):
    """A judge that counts: the more often the response says "good", the better."""
    asked = json.dumps(body)
    return "Well, well." if BAD in asked else f"Score: {min(10, 1 + asked.count('good'))}"


@pytest.fixture(scope="module")
def run(tmp_path_factory, serve_runs, hostile):
    """A run with a fake judge that goes on when a test says so, and the dashboard of it."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    with FakeJudge(answer=answer) as judge:
        config = {
            "cache": "off",
            "components": {"quality": {"judge": "quality", "normalize": True}},
            "judges": {
                "quality": {
                    "endpoints": [{"base_url": judge.url, "model": "judge-1"}],
                    "rubric": "quality",
                    "verdict": {"integer": [1, 10]},
                }
            },
        }
        with zerowait.open(config, record=folder) as rewards, serve_runs([folder]) as url:

            def train(step):
                rewards.score(
                    [
                        Sample(
                            f"Question {group} of step {step}: what is the capital of Peru?",
                            responses,
                            group=f"{step}-{group}",
                            step=step,
                        )
                        for group in range(2)
                        for responses in (
                            f"It is Lima. {'good ' * step}",
                            f"It is Cusco, {hostile} they say.",
                            f"There is {BAD} on answer {group}.",
                        )
                    ]
                )

            for step in (1, 2, 3):
                train(step)
            yield SimpleNamespace(folder=folder, url=url, train=train, rewards=rewards)


@pytest.fixture
def page(browser, run):
    """Opens a view of the dashboard; finds elements as soon as they are there."""

    def opened(view="", wait=None):
        browser.open(f"{run.url}/{view}")
        if wait:
            browser.find(wait)
        return browser

    return opened


def steps_drawn(browser):
    """The steps in the table beside the curve of the reward."""
    return browser.run(
        "const all = [...document.querySelectorAll('details.numbers')];"
        "const reward = all.find((each) => each.textContent.startsWith('Numbers: Reward'));"
        "if (reward) reward.open = true;"
        "return [...(reward?.querySelectorAll('tbody tr') ?? [])].map((row) => row.cells[0].textContent)"
    )


def test_a_curve_moves_while_the_run_goes_on(page, run):
    browser = page()
    browser.until(lambda: steps_drawn(browser) == ["1", "2", "3"])
    before = browser.run("return document.querySelector('.canvas canvas').toDataURL()")
    run.train(4)
    browser.until(lambda: steps_drawn(browser) == ["1", "2", "3", "4"])
    after = browser.run("return document.querySelector('.canvas canvas').toDataURL()")
    assert after != before
    assert browser.errors() == []


def select(element, value):
    from selenium.webdriver.support.ui import Select

    Select(element).select_by_value(value)


def test_abstentions_are_filtered_and_a_thumb_stays_after_a_reload(page, hostile):
    browser = page("#/samples", wait=".samples a")
    select(browser.find("select[name=outcome]"), "unparseable")
    browser.until(lambda: set(browser.texts(".samples .value")) == {"abstained"})
    browser.find(".samples a").click()
    browser.find("article.chosen")
    assert len(browser.all(".responses article")) == 3
    browser.find("article.chosen details.judgement summary").click()
    assert "Well, well." in browser.find("article.chosen details.judgement").text
    # what a response says is text, whatever it says
    texts = browser.texts(".responses article > pre")
    assert any(hostile in text for text in texts)
    assert browser.all("article img, article script") == []

    browser.find("article.chosen input[name=note]").send_keys("it says nothing")
    browser.find("article.chosen button.down").click()
    pressed = "article.chosen button.down[aria-pressed=true]"
    browser.find(pressed)
    asked = "return performance.getEntriesByName(location.origin + '/api/runs').length"
    first = browser.run(asked)
    browser.until(lambda: browser.run(asked) > first + 1)  # the page has heard of it
    assert not browser.all(".news")[0].is_displayed()  # a thumb is no growth of the run
    browser.driver.refresh()
    browser.find(pressed)
    assert (
        browser.find("article.chosen input[name=note]").get_attribute("value") == "it says nothing"
    )
    assert browser.driver.title == "Samples · zerowait"
    assert browser.errors() == []


def press(browser, *keys):
    for key in keys:
        browser.focused.send_keys(key)


def tab_to(browser, matches, most=60):
    """Press Tab until the focus is on an element that matches a selector."""
    for _ in range(most):
        press(browser, TAB)
        focused = browser.focused
        if browser.run("return arguments[0].matches(arguments[1])", focused, matches):
            return focused
    raise AssertionError(f"Tab does not lead to {matches}")


def test_everything_is_done_by_the_keyboard_alone(page, run):
    browser = page("#/samples", wait=".samples a")
    browser.find("body").send_keys("")
    tab_to(browser, "select[name=outcome]").send_keys("unp")
    browser.until(lambda: set(browser.texts(".samples .value")) == {"abstained"})
    tab_to(browser, ".samples a").send_keys(ENTER)
    browser.until(lambda: browser.focused.tag_name == "h2")
    tab_to(browser, "article.chosen button.up").send_keys(SPACE)
    browser.find("article.chosen button.up[aria-pressed=true]")
    browser.until(lambda: "up" in browser.focused.get_attribute("class"))
    press(browser, ESCAPE)
    browser.until(lambda: browser.focused.find_element("css selector", ".head"))
    assert not browser.all("section.sample")[0].is_displayed()
    assert "row" not in browser.driver.current_url


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_a_contrast_of_4_5(page, browser, scheme):
    browser.emulate(scheme)
    for view, part in (
        ("", "details.numbers"),
        ("#/samples?run=0&row=3", "article.chosen"),
        ("#/people", "form.anchors"),
    ):
        page(view, wait=part)
        assert browser.poor_contrast() == []


def test_on_a_phone_nothing_is_wider_than_the_screen(page, browser):
    browser.emulate(width=390, height=844)
    for view, part in (
        ("", "details.numbers"),
        ("#/samples", ".samples a"),
        ("#/samples?run=0&row=3", "article.chosen"),
    ):
        page(view, wait=part)
        browser.until(lambda: browser.too_wide() <= 0)
    assert not browser.all(".list")[0].is_displayed()


def test_thumbs_are_compared_with_the_score(page, browser):
    for row, thumb in ((1, "up"), (2, "down")):
        page(f"#/samples?run=0&row={row}", wait=f"article.chosen button.{thumb}")
        button = browser.find(f"article.chosen button.{thumb}")
        if button.get_attribute("aria-pressed") != "true":
            button.click()
        browser.find(f"article.chosen button.{thumb}[aria-pressed=true]")
    page("#/people", wait="table.confusion")
    threshold = browser.find("input[name=threshold]")
    threshold.send_keys("0.1")
    browser.until(lambda: "0.100" in browser.texts(".figures dd"))
    assert "Cohen's kappa" in browser.texts(".figures dt")
    assert int(browser.texts(".figures dd")[0]) >= 2


def test_a_token_is_asked_for_once_and_then_kept_in_a_cookie_that_scripts_cannot_read(
    browser, run, serve_runs
):
    with serve_runs([run.folder], token=Secret("the-token")) as url:
        browser.open(url)
        browser.find("#token").send_keys("the-token", ENTER)
        browser.find("details.numbers")
        assert "token" not in browser.driver.current_url
        assert browser.run("return document.cookie") == ""
        [cookie] = browser.driver.get_cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert "the-token" not in cookie["value"]
