"""Runs whose reward falls at step 6 for a known cause, by the real engine and the fake judge.

Also a real Chromium, for the pages about them: one for all, which Debian's packages chromium and
chromium-driver bring.
"""

import json
import re
import shutil
import socket
import time
from pathlib import Path

import pytest

import zerowait
from zerowait import Sample
from zerowait.testing import FakeJudge

STEPS, FALLS_AT = 8, 6
GROUPS, SIZE = 6, 4


def harder_prompts(folder: Path) -> None:
    """From step 6 most prompts are of the harder data source, which was rare before."""
    with FakeJudge(answer=verdict_in_response) as judge:
        run(
            folder, judge, sources=lambda step, g: "aime" if g == 0 or step >= FALLS_AT else "gsm8k"
        )


def harder_prompts_of_one_source(folder: Path) -> None:
    """Every fourth step has the hard prompts again; nothing but their own past tells it."""
    with FakeJudge(answer=verdict_in_response) as judge:
        run(
            folder,
            judge,
            prompts=lambda step, g: f"{'hard' if step % 3 == 0 else 'easy'} question {g}",
            right=lambda step, g, k: step % 3 != 0 or k == 0,
        )


def judge_outage(folder: Path) -> None:
    """The judge is gone from step 6; a failed judgement is worth 0 here, as the user chose."""
    with FakeJudge(answer=verdict_in_response) as judge:
        run(folder, judge, steps=range(1, FALLS_AT))
    # nothing waits long for a judge that is not there
    gone = {"deadline_s": 1, "attempts": 1}
    with socket.socket() as held:  # nobody else listens there, and neither does it
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}/v1"
        run(folder, judge_url=url, steps=range(FALLS_AT, STEPS + 1), traffic=gone)


def judge_drift(folder: Path) -> None:
    """From step 6 the judge gives 4 points less for the same."""
    shift = 0

    def answer(body):
        return verdict_in_response(body, less=shift)

    def begin(step):
        nonlocal shift
        shift = 4 if step >= FALLS_AT else 0

    anchors = folder.with_name(f"{folder.name}-anchors.jsonl")
    rows = [{"prompt": "q", "response": f"q={n}", "verdict": n} for n in (5, 6, 7, 8, 9)]
    anchors.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with FakeJudge(answer=answer) as judge:
        measured = {"anchors": str(anchors), "anchors_every": {"steps": 1}}
        run(folder, judge, begin=begin, end=anchors_are_measured, judged=measured)


def anchors_are_measured(step, rewards):
    """A training step takes long enough for that; here it is waited for."""
    give_up_at = time.monotonic() + 60
    while getattr(rewards.stats().anchors.get("grader"), "measurements", 0) < step:
        assert time.monotonic() < give_up_at
        time.sleep(0.005)


def length_hacking(folder: Path) -> None:
    """The judge likes long responses, so that they get longer, and from step 6 wrong."""
    with FakeJudge(answer=verdict_by_length) as judge:
        run(
            folder,
            judge,
            right=lambda step, g, k: (g + k) % 8 != 0 and (step < FALLS_AT or k == 0),
            words=lambda step, g, k: int(20 * 1.35 ** max(step - 3, 0)) + 6 * k,
        )


def broken_form(folder: Path) -> None:
    """From step 6 most responses do not close their tag, so that right answers are not found."""
    with FakeJudge(answer=verdict_in_response) as judge:
        run(
            folder,
            judge,
            close=lambda step, g, k: step < FALLS_AT or k == 0,
            components={"form": {"scorer": "format", "tags": ["answer"], "weight": 0.2}},
        )


def one_endpoint_of_two(folder: Path) -> None:
    """From step 6 one of the judge's two servers gives 1 to everything."""
    broken = False

    def answer(body):
        return "Score: 1" if broken else always_the_same(body)

    def begin(step):
        nonlocal broken
        broken = step >= FALLS_AT

    # which of them gets which response is not fixed, and so has to make no difference
    with FakeJudge(answer=always_the_same) as judge, FakeJudge(answer=answer) as other:
        both = [{"base_url": each.url, "model": "m"} for each in (judge, other)]
        run(folder, judge, begin=begin, judged={"endpoints": both})


def another_weight_on_resume(folder: Path) -> None:
    """The run is continued at step 6 with another weight of the judge."""
    with FakeJudge(answer=verdict_in_response) as judge:
        run(folder, judge, steps=range(1, FALLS_AT))
        quality = {"judge": "grader", "normalize": True, "weight": 0.1}
        run(folder, judge, steps=range(FALLS_AT, STEPS + 1), components={"quality": quality})


def outage_behind_a_rising_rule(folder: Path) -> None:
    """The judge is gone for step 6, while the policy gets better at what the rule looks at."""
    right = {"right": lambda step, g, k: k < step // 2}
    with FakeJudge(answer=verdict_in_response) as judge:
        run(folder, judge, steps=range(1, FALLS_AT), **right)
        gone = {"deadline_s": 1, "attempts": 1}
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{held.getsockname()[1]}/v1"
            run(folder, judge_url=url, steps=[FALLS_AT], traffic=gone, **right)
        run(folder, judge, steps=range(FALLS_AT + 1, STEPS + 1), **right)


FALLS = {
    "harder prompts": harder_prompts,
    "harder prompts of one source": harder_prompts_of_one_source,
    "a judge outage": judge_outage,
    "a drifted judge": judge_drift,
    "reward hacking by length": length_hacking,
    "a broken form": broken_form,
    "one endpoint of two": one_endpoint_of_two,
    "another weight on resume": another_weight_on_resume,
    "an outage behind a rising rule": outage_behind_a_rising_rule,
}


@pytest.fixture(scope="session")
def prepare():
    """``prepare(name, folder)`` makes the run of that name; its reward falls at step 6."""

    def prepared(name, folder):
        FALLS[name](folder)
        return folder

    return prepared


def verdict_in_response(body, less=0):
    (quality,) = re.findall(r"q=(\d+)", asked(body))[-1:]
    return f"Fair enough.\nScore: {max(1, int(quality) - less)}"


def always_the_same(body):
    del body
    return "Score: 7"


def verdict_by_length(body):
    return f"So thorough!\nScore: {min(10, 3 + asked(body).count('really') // 10)}"


def asked(body):
    return body["messages"][-1]["content"]


def run(
    folder,
    judge=None,
    *,
    judge_url="",
    steps=range(1, STEPS + 1),
    sources=lambda step, g: "gsm8k",
    prompts=lambda step, g: f"question {step}-{g}",
    right=None,
    words=lambda step, g, k: 20,
    begin=lambda step: None,
    end=lambda step, rewards: None,
    close=lambda step, g, k: True,
    judged=None,
    traffic=None,
    components=None,
):
    config = {
        "components": {
            "correct": {"scorer": "qa_em"},
            "quality": {"judge": "grader", "normalize": True, "weight": 0.5},
        }
        | (components or {}),
        "judges": {
            "grader": {
                "endpoints": [
                    {"base_url": judge_url or judge.url, "model": "m", "api_key": "sk-test"}
                ],
                "verdict": {"integer": [1, 10]},
            }
            | (judged or {})
        },
        "traffic": {"hedge": "off"} | (traffic or {}),
        "on_failure": {"default": {"value": 0.0}},
        "cache": "off",
    }
    right = right or (
        lambda step, g, k: (g + k) % 8 != 0 if sources(step, g) == "gsm8k" else k == 0
    )
    with zerowait.open(config, record=folder) as rewards:
        for step in steps:
            begin(step)
            samples = []
            for g in range(GROUPS):
                for k in range(SIZE):
                    answer = "yes" if right(step, g, k) else "no"
                    filler = " really" * words(step, g, k)
                    tail = "</answer>" if close(step, g, k) else ""
                    samples.append(
                        Sample(
                            prompts(step, g),
                            f"q={6 + (g + k) % 3}{filler} <answer>{answer}{tail} {step} {k}",
                            "yes",
                            data_source=sources(step, g),
                            group=f"{step}-{g}",
                            group_size=SIZE,
                            step=step,
                        )
                    )
            rewards.score(samples)
            end(step, rewards)


PATIENCE_S = 60
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
  if (!e.checkVisibility() || e.matches("noscript, option") || e.closest("svg")) continue;
  const [a, b] = [light(parts(getComputedStyle(e).color)), light(ground(e))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) low.push(`${e.tagName}.${e.className} ${ratio.toFixed(2)}: ${e.textContent.slice(0, 30)}`);
}
return low;
"""
TOO_WIDE = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"


class Browser:
    """Chromium and what is seen in it; ``driver`` is Selenium's."""

    def __init__(self, driver):
        self.driver = driver

    def open(self, url):
        """Open an address anew; one that differs in its fragment only would not be loaded."""
        self.driver.get("about:blank")
        self.driver.get(url)

    def run(self, script, *arguments):
        """What a script returns."""
        return self.driver.execute_script(script, *arguments)

    def until(self, condition):
        """What ``condition()`` gives as soon as it holds; an element that was replaced is no error."""
        from selenium.common.exceptions import TimeoutException
        from selenium.webdriver.support.ui import WebDriverWait

        wait = WebDriverWait(self.driver, PATIENCE_S, 0.05, ignored_exceptions=[Exception])
        try:
            return wait.until(lambda _: condition())
        except TimeoutException:
            seen = self.run("return document.body.innerText")
            raise AssertionError(
                f"not in {PATIENCE_S} s at {self.driver.current_url}; seen: {seen}"
            ) from None

    def all(self, css):
        """The elements of this kind that are there now."""
        return self.driver.find_elements("css selector", css)

    def find(self, css):
        """The first element of this kind that is seen, as soon as there is one."""
        return self.until(lambda: next(each for each in self.all(css) if each.is_displayed()))

    def texts(self, css):
        """The texts of these elements."""
        return [each.text for each in self.all(css)]

    @property
    def focused(self):
        """The element that has the focus."""
        return self.driver.switch_to.active_element

    def errors(self):
        """What scripts and the page's own policy complained about since the last time."""
        log = self.driver.get_log("browser")
        return [line["message"] for line in log if line["level"] == "SEVERE"]

    def emulate(self, scheme="light", width=1300, height=900):
        """Prefer a colour scheme, on a screen of this size."""
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},  # what glides is clicked beside
        ]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )

    def poor_contrast(self):
        """The texts whose contrast to their ground is below 4.5."""
        return self.run(CONTRAST)

    def too_wide(self):
        """By how many pixels the page is wider than the screen."""
        return self.run(TOO_WIDE)


@pytest.fixture(scope="session")
def chromium():
    """The browser, which all tests share."""
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("Debian's packages chromium and chromium-driver are not installed")
    pytest.importorskip("selenium", reason="the browser's driver in Python is not installed")
    from selenium.webdriver import Chrome, ChromeOptions, ChromeService

    options = ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.add_argument("--window-size=1300,900")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=ChromeService(shutil.which("chromedriver")))
    driver.set_page_load_timeout(PATIENCE_S)
    yield Browser(driver)
    driver.quit()


@pytest.fixture
def browser(chromium):
    """The browser as a person has it: light, on a screen."""
    chromium.emulate()
    chromium.errors()  # of another test's page
    return chromium
