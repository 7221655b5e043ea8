"""Debian's Chromium without a screen, driven by Selenium."""

import contextlib
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.support import peers
from tests.support.ports import free_port

SECONDS = 60
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--disable-dev-shm-usage", "--force-prefers-reduced-motion"),
)


@contextlib.contextmanager
def chromium(
    folder: Path, width: int = 1280, height: int = 900, flags: Iterable[str] = ()
) -> Iterator[Any]:
    """A browser with an empty profile, for the length of the block."""
    peers.need_python("selenium")
    for program, package in (("chromium", "chromium"), ("chromedriver", "chromium-driver")):
        if shutil.which(program) is None:
            peers.miss(package)
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (
        *FLAGS,
        f"--window-size={width},{height}",
        f"--user-data-dir={folder}/profile",
        *flags,
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(shutil.which("chromedriver"), port=free_port())
    browser = webdriver.Chrome(options, service)
    try:
        yield browser
    finally:
        browser.quit()


def wait_until(
    browser: Any, is_true: Callable[[], Any], what: str, seconds: float = SECONDS
) -> Any:
    """Waits for something that the page brings about; elements may come and go meanwhile."""
    from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
    from selenium.webdriver.support.ui import WebDriverWait

    waiting = WebDriverWait(
        browser,
        seconds,
        ignored_exceptions=[NoSuchElementException, StaleElementReferenceException],
    )
    return waiting.until(lambda _: is_true(), what)


def photograph(browser: Any, path: Path) -> None:
    """Makes a picture of the whole page."""
    height = browser.execute_script("return document.documentElement.scrollHeight")
    size = browser.get_window_size()
    browser.set_window_size(size["width"], height + 150)
    browser.save_screenshot(str(path))
    browser.set_window_size(size["width"], size["height"])
