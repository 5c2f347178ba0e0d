"""Waiting for what a page does; Playwright's own way needs `eval`, which our pages forbid."""

import time


def wait_for(page, expression, seconds=60):
    """Until the expression is true in the page."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"in {seconds} s it was never true: {expression}"
        page.wait_for_timeout(50)
