"""A real browser for the tests: Debian's chromium, without a window and without a network."""

import os
import shutil
from contextlib import contextmanager

import pytest

_FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
]


@contextmanager
def chromium():
    """Yield a driver of chromium; without chromium the test is skipped.

    Where DIVPRISM_NEEDS_BROWSER is set, a missing browser is a failure.
    """
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        reason = "chromium and chromedriver are missing: apt-get install chromium chromium-driver"
        if os.environ.get("DIVPRISM_NEEDS_BROWSER"):
            pytest.fail(reason)
        pytest.skip(reason)
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in _FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    window = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield window
    finally:
        window.quit()


def show(window, path, width=1100, height=900, scheme="light"):
    """Open a page in a window of this size, in light or dark colours."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    window.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    window.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    window.get(path.as_uri())
