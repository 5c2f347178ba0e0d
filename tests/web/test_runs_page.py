"""The page for runs in a real browser: it follows a training, and is never blank."""

import csv
import json
import shutil
import subprocess
import sys

import pytest
from watching import wait_for

from diamond_attention.evaluation.evaluate import evaluate
from diamond_attention.learning.ppo_settings import PpoSettings
from diamond_attention.policies.diamond_settings import DiamondSettings
from diamond_attention.runs.bundle_format import SHIPPED
from diamond_attention.runs.settings import Settings
from diamond_attention.runs.train import train
from diamond_attention.web.runs_page import runs_answers

TINY = Settings(policy=DiamondSettings(width=8), ppo=PpoSettings(envs=8, steps=2, batch=16), total_steps=320)
READ = "document.querySelector('#when').textContent !== ''"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("web") / "runs"
    for run in train(TINY, [0, 1], folder / "xor", preset="xor"):
        evaluate(run, episodes=8, play=["greedy"])
    return folder


@pytest.fixture
def runs(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "runs")


def test_curves_tables_films_and_runs_are_there_and_follow_the_files(served, opened, runs):
    member = runs / "xor" / "seed_0"
    with served(runs_answers(runs)) as address:
        page = opened(address, "#curvesPart:not([hidden])")
        wait_for(page, "document.querySelectorAll('#panels path').length === 3")  # two seeds and their mean
        wait_for(page, "document.querySelectorAll('#scores td').length > 0")
        assert page.locator("#summary").inner_text() == "2 runs: 2 finished."
        assert page.locator("#runs tr[data-state=finished]").count() == 2
        assert page.locator("#picturesPart").is_hidden()
        page.locator("#seeds").uncheck()
        wait_for(page, "document.querySelectorAll('#panels path').length === 1")
        page.locator("#column").select_option("entropy")
        wait_for(page, "document.querySelector('#panels .title').textContent === 'XOR, 2x2: entropy'")
        drawn = page.locator("#panels path").get_attribute("d")
        # The training goes on, a film is drawn: nobody touches the page.
        (member / "finished.json").unlink()
        header, *_, last = csv.reader((member / "metrics.csv").open())
        row = dict(zip(header, last, strict=True)) | {"update": "21", "step": "336", "entropy": "0.1"}
        for each in ("seed_0", "seed_1"):
            with (runs / "xor" / each / "metrics.csv").open("a") as file:
                file.write(",".join(row.values()) + "\n")
        shutil.copy(SHIPPED.parents[1] / "docs" / "images" / "theory.png", runs / "a film.png")
        wait_for(page, "document.querySelector('#summary').textContent.includes('1 interrupted')")
        assert "diamond resume" in page.locator("#runs tr[data-state=interrupted]").inner_text()
        wait_for(page, f"document.querySelector('#panels path').getAttribute('d') !== {json.dumps(drawn)}")
        wait_for(page, "document.querySelector('#pictures img')?.naturalWidth > 100")
        assert page.complaints == []


def test_an_empty_folder_says_what_to_type_and_sees_what_comes(served, opened, trained, tmp_path):
    folder = tmp_path / "none_yet"
    folder.mkdir()
    with served(runs_answers(folder)) as address:
        page = opened(address, "#main")
        wait_for(page, READ)
        assert "There are no runs here yet" in page.locator("#summary").inner_text()
        assert "diamond train" in page.locator("#summary").inner_text()
        shutil.copytree(trained / "xor", folder / "xor")
        wait_for(page, "document.querySelectorAll('#panels path').length === 3")


def test_broken_and_half_written_runs_are_said_beside_the_whole_ones(served, opened, runs):
    (runs / "xor" / "seed_0" / "settings.json").write_text("{")
    (runs / "xor" / "seed_7").mkdir()
    with served(runs_answers(runs)) as address:
        page = opened(address, "#runsPart:not([hidden])")
        broken = page.locator("#runs tr[data-state=broken]")
        assert broken.count() == 2
        assert "settings.json" in broken.nth(0).inner_text()
        assert "being made" in broken.nth(1).inner_text()
        wait_for(page, "document.querySelectorAll('#panels path').length === 1")
        assert page.complaints == []


def test_names_from_files_are_text_and_never_code(served, opened, runs):
    settings = runs / "xor" / "seed_0" / "settings.json"
    settings.write_text('{"<img src=x onerror=alert(1)>": ')
    (runs / "<b>bold.png").write_bytes(b"no picture")
    with served(runs_answers(runs)) as address:
        page = opened(address, "#runsPart:not([hidden])")
        wait_for(page, "document.querySelectorAll('#pictures figure').length === 1")
        assert page.locator("#pictures b, #runs img").count() == 0
        assert page.locator("#pictures figcaption").inner_text() == "<b>bold.png"


def test_it_says_when_nobody_answers_any_more(opened, runs):
    words = [sys.executable, "-m", "diamond_attention", "web", str(runs), "--port", "0"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        page = opened(process.stdout.readline().split()[0], "#curvesPart:not([hidden])")
        wait_for(page, READ)
    finally:
        process.kill()
        process.wait()
    page.wait_for_selector("#trouble:not([hidden])")
    assert "start it again" in page.locator("#trouble").inner_text()
    assert page.locator("#runs tr").count() == 3  # what was seen stays


def test_without_javascript_it_says_so(served, browser, runs):
    with served(runs_answers(runs)) as address:
        context = browser.new_context(java_script_enabled=False)
        page = context.new_page()
        page.goto(address)
        assert "needs" in page.locator("noscript").inner_text()
        context.close()


def test_it_fits_a_phone(served, opened, runs):
    with served(runs_answers(runs)) as address:
        page = opened(address, "#curvesPart:not([hidden])", viewport={"width": 390, "height": 844})
        wait_for(page, "document.querySelectorAll('#scores td').length > 0")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
