"""What needs a browser is left to `make test-web`, whose environment has what drives it; the rest needs node."""

import shutil
import threading
from contextlib import contextmanager
from importlib.util import find_spec

import pytest

collect_ignore = [] if find_spec("playwright") else ["test_live_page.py", "test_runs_page.py"]

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
FLAGS += ["--disable-background-networking", "--disable-component-update"]


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        yield found
        found.close()


@pytest.fixture(scope="session")
def served():
    """`with served(answers) as address`: a server of ours for as long as that lasts."""
    from diamond_attention.web.server import Server

    @contextmanager
    def serving(answers):
        with Server(answers, 0) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
            thread.start()
            try:
                yield f"http://127.0.0.1:{server.server_address[1]}/"
            finally:
                server.shutdown()
                thread.join()

    return serving


@pytest.fixture
def opened(browser):
    """`opened(address)`: a page of its own, without a network; what it complains of is in `page.complaints`."""
    contexts = []

    def open_page(address, expected="#main:not([hidden])", **options):
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **options})
        contexts.append(context)
        # Anything but this machine is out of reach, and asking for it is a complaint.
        context.route(lambda url: not url.startswith("http://127.0.0.1:"), lambda route: route.abort())
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.complaints = []
        page.on("console", lambda said: page.complaints.append(said.text))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("requestfailed", lambda request: page.complaints.append(request.url))
        page.goto(address)
        page.wait_for_selector(expected)
        return page

    yield open_page
    for context in contexts:
        context.close()
