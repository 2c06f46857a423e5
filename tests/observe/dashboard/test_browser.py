"""The dashboard in a real Chromium: a run that goes on, filters, a group, thumbs, keyboard, colours.

One browser for all, which Debian's packages chromium and chromium-driver bring.
"""

import json
import shutil
from types import SimpleNamespace

import pytest

import zerowait
from zerowait.client import Secret
from zerowait.testing import FakeJudge
from zerowait.types import Sample

selenium = pytest.importorskip("selenium", reason="the browser's driver in Python is not installed")
from selenium.common.exceptions import TimeoutException  # noqa: E402
from selenium.webdriver import Chrome, ChromeOptions, ChromeService, Keys  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.support.ui import Select, WebDriverWait  # noqa: E402

PATIENCE_S = 60
BAD = "no verdict"

pytestmark = pytest.mark.skipif(
    not (shutil.which("chromium") and shutil.which("chromedriver")),
    reason="Debian's packages chromium and chromium-driver are not installed",
)


@pytest.fixture(scope="module")
def browser():
    options = ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.add_argument("--window-size=1300,900")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=ChromeService(shutil.which("chromedriver")))
    driver.set_page_load_timeout(PATIENCE_S)
    yield driver
    driver.quit()


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
        browser.get("about:blank")
        browser.get(f"{run.url}/{view}")
        if wait:
            find(browser, wait)
        return browser

    return opened


def until(browser, condition):
    """What the condition gives as soon as it holds; an element that was replaced is looked for again."""
    wait = WebDriverWait(browser, PATIENCE_S, 0.05, ignored_exceptions=[Exception])
    try:
        return wait.until(condition)
    except TimeoutException:
        seen = browser.execute_script("return document.body.innerText")
        raise AssertionError(
            f"not in {PATIENCE_S} s at {browser.current_url}; seen: {seen}"
        ) from None


def find(browser, css):
    """The first element of this kind that is seen."""
    return until(
        browser,
        lambda b: next(e for e in b.find_elements(By.CSS_SELECTOR, css) if e.is_displayed()),
    )


def text_of(browser, css):
    return [element.text for element in browser.find_elements(By.CSS_SELECTOR, css)]


def errors_of(browser):
    return [line["message"] for line in browser.get_log("browser") if line["level"] == "SEVERE"]


def steps_drawn(browser):
    """The steps in the table beside the curve of the reward."""
    return browser.execute_script(
        "const all = [...document.querySelectorAll('details.numbers')];"
        "const reward = all.find((each) => each.textContent.startsWith('Numbers: Reward'));"
        "return [...(reward?.querySelectorAll('tbody tr') ?? [])].map((row) => row.cells[0].textContent)"
    )


def test_a_curve_moves_while_the_run_goes_on(page, run):
    browser = page()
    until(browser, lambda b: steps_drawn(b) == ["1", "2", "3"])
    before = browser.execute_script("return document.querySelector('.canvas canvas').toDataURL()")
    run.train(4)
    until(browser, lambda b: steps_drawn(b) == ["1", "2", "3", "4"])
    after = browser.execute_script("return document.querySelector('.canvas canvas').toDataURL()")
    assert after != before
    assert errors_of(browser) == []


def test_abstentions_are_filtered_and_a_thumb_stays_after_a_reload(page, hostile):
    browser = page("#/samples", wait=".samples a")
    Select(find(browser, "select[name=outcome]")).select_by_value("unparseable")
    until(browser, lambda b: set(text_of(b, ".samples .value")) == {"abstained"})
    find(browser, ".samples a").click()
    find(browser, "article.chosen")
    assert len(browser.find_elements(By.CSS_SELECTOR, ".responses article")) == 3
    find(browser, "article.chosen details.judgement summary").click()
    assert "Well, well." in find(browser, "article.chosen details.judgement").text
    # what a response says is text, whatever it says
    texts = text_of(browser, ".responses article > pre")
    assert any(hostile in text for text in texts)
    assert browser.find_elements(By.CSS_SELECTOR, "article img, article script") == []

    find(browser, "article.chosen input[name=note]").send_keys("it says nothing")
    find(browser, "article.chosen button.down").click()
    pressed = "article.chosen button.down[aria-pressed=true]"
    find(browser, pressed)
    browser.refresh()
    find(browser, pressed)
    assert (
        find(browser, "article.chosen input[name=note]").get_attribute("value") == "it says nothing"
    )
    assert browser.title == "Samples · zerowait"
    assert errors_of(browser) == []


def press(browser, *keys):
    for key in keys:
        browser.switch_to.active_element.send_keys(key)


def tab_to(browser, matches, most=60):
    """Press Tab until the focus is on an element that matches a selector."""
    for _ in range(most):
        press(browser, Keys.TAB)
        focused = browser.switch_to.active_element
        if browser.execute_script("return arguments[0].matches(arguments[1])", focused, matches):
            return focused
    raise AssertionError(f"Tab does not lead to {matches}")


def test_everything_is_done_by_the_keyboard_alone(page, run):
    browser = page("#/samples", wait=".samples a")
    find(browser, "body").send_keys("")
    tab_to(browser, "select[name=outcome]").send_keys("unp")
    until(browser, lambda b: set(text_of(b, ".samples .value")) == {"abstained"})
    tab_to(browser, ".samples a").send_keys(Keys.ENTER)
    until(browser, lambda b: b.switch_to.active_element.tag_name == "h2")
    tab_to(browser, "article.chosen button.up").send_keys(Keys.SPACE)
    find(browser, "article.chosen button.up[aria-pressed=true]")
    until(browser, lambda b: "up" in b.switch_to.active_element.get_attribute("class"))
    press(browser, Keys.ESCAPE)
    until(browser, lambda b: b.switch_to.active_element.find_element(By.CSS_SELECTOR, ".head"))
    assert not browser.find_element(By.CSS_SELECTOR, "section.sample").is_displayed()
    assert "row" not in browser.current_url


CONTRAST = """
const channel = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
const parts = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const ground = (e) => {
  for (; e; e = e.parentElement) {
    const c = parts(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] > 0) return c;
  }
  return [255, 255, 255];
};
const low = [];
for (const e of document.querySelectorAll("body *")) {
  const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  if (!(own || e.matches("input, select, button"))) continue;
  if (!e.checkVisibility() || e.matches("noscript, option")) continue;
  const [a, b] = [light(parts(getComputedStyle(e).color)), light(ground(e))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) low.push(`${e.tagName}.${e.className} ${ratio.toFixed(2)}: ${e.textContent.slice(0, 30)}`);
}
return low;
"""


def emulated(browser, scheme, width=1300, height=900):
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_a_contrast_of_4_5(page, browser, scheme):
    emulated(browser, scheme)
    for view, part in (
        ("", "details.numbers"),
        ("#/samples?run=0&row=3", "article.chosen"),
        ("#/people", "form.anchors"),
    ):
        page(view, wait=part)
        assert browser.execute_script(CONTRAST) == []
    emulated(browser, "light")


WIDE = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"


def test_on_a_phone_nothing_is_wider_than_the_screen(page, browser):
    emulated(browser, "light", width=390, height=844)
    for view, part in (
        ("", "details.numbers"),
        ("#/samples", ".samples a"),
        ("#/samples?run=0&row=3", "article.chosen"),
    ):
        page(view, wait=part)
        until(browser, lambda b: b.execute_script(WIDE) <= 0)
    assert not browser.find_element(By.CSS_SELECTOR, ".list").is_displayed()
    emulated(browser, "light")


def test_thumbs_are_compared_with_the_score(page, browser):
    for row, thumb in ((1, "up"), (2, "down")):
        page(f"#/samples?run=0&row={row}", wait=f"article.chosen button.{thumb}")
        button = find(browser, f"article.chosen button.{thumb}")
        if button.get_attribute("aria-pressed") != "true":
            button.click()
        find(browser, f"article.chosen button.{thumb}[aria-pressed=true]")
    page("#/people", wait="table.confusion")
    threshold = find(browser, "input[name=threshold]")
    threshold.send_keys("0.1")
    until(browser, lambda b: "0.100" in text_of(b, ".figures dd"))
    assert "Cohen's kappa" in text_of(browser, ".figures dt")
    assert int(text_of(browser, ".figures dd")[0]) >= 2


def test_a_token_is_asked_for_once_and_then_kept_in_a_cookie_that_scripts_cannot_read(
    browser, run, serve_runs
):
    with serve_runs([run.folder], token=Secret("the-token")) as url:
        browser.get(url)
        find(browser, "#token").send_keys("the-token", Keys.ENTER)
        find(browser, "details.numbers")
        assert "token" not in browser.current_url
        assert browser.execute_script("return document.cookie") == ""
        [cookie] = browser.get_cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert "the-token" not in cookie["value"]
