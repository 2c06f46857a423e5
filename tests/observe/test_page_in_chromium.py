"""The page in a real browser: what a person gets to with three clicks, or without a mouse."""

import asyncio
import json
import shutil
import subprocess
import tempfile
from contextlib import asynccontextmanager, contextmanager
from itertools import count, pairwise

import aiohttp
import pytest

from zerowait.observe import write_page

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here"),
    pytest.mark.timeout(300),
]
PATIENCE_S = 120
FALLS_AT = 6
EXPLAINED = "document.querySelector('.panel #chosen') !== null"
GROUP = ".panel .group[open]"
REPLY = f"{GROUP} .response:last-child details[open]"


class Tab:
    """A tab of Chromium, by its DevTools protocol."""

    def __init__(self, socket):
        self._socket, self._ids = socket, count(1)
        self.errors = []

    async def call(self, method, **parameters):
        asked = next(self._ids)
        await self._socket.send_json({"id": asked, "method": method, "params": parameters})
        while True:
            message = json.loads((await self._socket.receive(timeout=PATIENCE_S)).data)
            if message.get("id") == asked:
                assert "error" not in message, message
                return message["result"]
            if message.get("method") == "Runtime.exceptionThrown":
                self.errors.append(message["params"])
            if message.get("method") == "Log.entryAdded":
                self.errors.append(message["params"]["entry"]["text"])

    async def evaluate(self, script):
        done = await self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    async def until(self, condition):
        async with asyncio.timeout(PATIENCE_S):
            while not await self.evaluate(condition):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)

    async def click(self, selector, *, until):
        """Where it is on the screen, as a person does, and wait for what comes of it.

        Args:
            selector: of what is clicked; waited for until it is there and stands still.
            until: a JavaScript condition.
        """
        find = f"document.querySelector({selector!r})"
        await self.until(f"{find} !== null")
        await self.evaluate(f"{find}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        place = await self.evaluate(
            "(async () => { const frame = () => new Promise(requestAnimationFrame); let before = '';"
            f"for (;;) {{ await frame(); await frame(); const box = {find}.getBoundingClientRect();"
            "const at = {x: box.x + box.width / 2, y: box.y + box.height / 2};"
            "if (JSON.stringify(at) === before) return at; before = JSON.stringify(at); } })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            await self.call(
                "Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place
            )
        await self.until(until)

    async def key(self, key, code):
        for kind in ("keyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code
            )


@contextmanager
def chromium():
    """A browser, and the port of its DevTools."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [
            CHROMIUM,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--remote-debugging-port=0",
        ]
        command += [f"--user-data-dir={profile}", "--window-size=1100,900", "about:blank"]
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        try:
            line = next(line for line in process.stderr if "DevTools listening" in line)
            yield line.split(":")[-1].split("/")[0]
        finally:
            process.kill()
            process.wait()
            process.stderr.close()


@asynccontextmanager
async def opened(port, page):
    async with aiohttp.ClientSession() as session:
        async with session.put(f"http://127.0.0.1:{port}/json/new?about:blank") as reply:
            address = (await reply.json())["webSocketDebuggerUrl"]
        async with session.ws_connect(address, max_msg_size=0) as socket:
            tab = Tab(socket)
            await tab.call("Runtime.enable")
            await tab.call("Log.enable")
            await tab.call("Page.enable")
            # what glides to its place is clicked beside
            still = [{"name": "prefers-reduced-motion", "value": "reduce"}]
            await tab.call("Emulation.setEmulatedMedia", features=still)
            await tab.call("Page.navigate", url=page.as_uri())
            await tab.until("document.querySelectorAll('canvas').length > 5")
            yield tab


@pytest.fixture(scope="module")
def browser():
    with chromium() as port:
        yield port


@pytest.fixture(scope="module")
def page(tmp_path_factory, prepare):
    """The page of the run whose judge drifted."""
    folder = prepare("a drifted judge", tmp_path_factory.mktemp("prepared") / "run")
    path = folder / "report.html"
    with path.open("wb") as file:
        write_page(folder, file)
    return path


def test_three_clicks_lead_from_the_curve_to_the_words_of_the_judge(browser, page):
    async def scenario():
        async with opened(browser, page) as tab:
            await tab.click(".pick button", until=EXPLAINED)
            why = await tab.evaluate("document.querySelector('.panel').innerText")
            await tab.click(
                ".panel .group > summary", until=f"document.querySelector({GROUP!r}) !== null"
            )
            await tab.click(
                f"{GROUP} .response:last-child details > summary",
                until=f"document.querySelector({REPLY!r}) !== null",
            )
            judge = await tab.evaluate(f"document.querySelector({REPLY!r}).innerText")
            return why, judge, tab.errors

    why, judge, errors = asyncio.run(scenario())
    assert f"Step {FALLS_AT}: why did the reward fall?" in why
    assert "The judge's scale moved" in why
    assert "Score: 2" in judge
    assert errors == []  # the page's own policy blocks nothing of it, and no script fails


def test_the_curve_is_read_with_the_keyboard_alone(browser, page):
    async def scenario():
        async with opened(browser, page) as tab:
            await tab.evaluate("document.querySelector('#reward .canvas').focus()")
            for _ in range(FALLS_AT - 1):
                await tab.key("ArrowRight", 39)
            await tab.key("Enter", 13)
            await tab.until("document.activeElement.id === 'chosen'")
            return await tab.evaluate("document.activeElement.innerText"), tab.errors

    assert asyncio.run(scenario()) == (f"Step {FALLS_AT}: why did the reward fall?", [])


CONTRAST = """(() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (at) => { for (; at; at = at.parentElement) { const c = numbers(getComputedStyle(at).backgroundColor); if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
  const poor = [];
  for (const at of document.querySelectorAll('body *')) {
    if (![...at.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()) || !at.getClientRects().length || at.closest('svg')) continue;
    const [a, b] = [light(numbers(getComputedStyle(at).color)), light(behind(at))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) poor.push(`${at.tagName} ${at.className} ${at.innerText.slice(0, 40)}`);
  }
  return poor;
})()"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_stand_out_and_nothing_is_wider_than_a_phone(browser, page, theme):
    async def scenario():
        async with opened(browser, page) as tab:
            await tab.call(
                "Emulation.setEmulatedMedia",
                features=[
                    {"name": "prefers-color-scheme", "value": theme},
                    {"name": "prefers-reduced-motion", "value": "reduce"},
                ],
            )
            await tab.call(
                "Emulation.setDeviceMetricsOverride",
                width=390,
                height=844,
                deviceScaleFactor=1,
                mobile=True,
            )
            await tab.click(".pick button", until=EXPLAINED)
            background = await tab.evaluate("getComputedStyle(document.body).backgroundColor")
            wide = await tab.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            return background, wide, await tab.evaluate(CONTRAST)

    background, too_wide, poor = asyncio.run(scenario())
    assert (background == "rgb(255, 255, 255)") == (theme == "light")
    assert too_wide == 0
    assert poor == []


def test_every_chart_has_its_numbers_as_a_table_and_headings_are_in_order(browser, page):
    async def scenario():
        async with opened(browser, page) as tab:
            await tab.click(".pick button", until=EXPLAINED)
            return await tab.evaluate(
                "[document.querySelectorAll('.canvas').length, document.querySelectorAll('.canvas[aria-label]').length,"
                "document.querySelectorAll('.chart > .numbers table caption').length,"
                "[...document.querySelectorAll('h1, h2, h3, h4, h5')].filter((h) => h.checkVisibility()).map((h) => Number(h.tagName[1]))]"
            )

    charts, labels, tables, levels = asyncio.run(scenario())
    assert charts == labels == tables > 5
    assert all(deeper - level <= 1 for level, deeper in pairwise(levels))
