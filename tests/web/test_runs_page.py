"""The page for runs in a real browser: it follows a training, and is never blank."""

import csv
import json
import re
import shutil
import subprocess
import sys

import numpy as np
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


def test_the_mean_is_drawn_where_the_seeds_means_are(served, opened, runs):
    """Of three values in the one seed and two in the other, the first two have a mean; a failed seed is in none."""
    header = (runs / "xor/seed_0/metrics.csv").read_text().splitlines()[0]
    for seed, values in ((0, [0.0, 0.5, 1.0]), (1, [1.0, 0.5])):
        cells = [{"update": str(i), "step": str(100 * i), "success": str(value)} for i, value in enumerate(values, 1)]
        lines = [",".join(each.get(name, "1") for name in header.split(",")) for each in cells]
        (runs / f"xor/seed_{seed}/metrics.csv").write_text("\n".join([header, *lines]) + "\n")

    def points(page, kind):
        drawn = page.locator(f"#panels path.{kind}").all()
        return [re.findall(r"[\d.]+", path.get_attribute("d")) for path in drawn]

    with served(runs_answers(runs)) as address:
        page = opened(address, "#curvesPart:not([hidden])")
        wait_for(page, "document.querySelectorAll('#panels path').length === 3")
        first, second = points(page, "seed")
        [mean] = points(page, "mean")
        assert [mean[0], mean[2]] == [first[0], first[2]] == [second[0], second[2]]
        assert len(mean) == 4
        assert float(mean[1]) == pytest.approx((float(first[1]) + float(second[1])) / 2, abs=0.2)
        assert mean[3] == first[3]
        (runs / "xor/seed_1/failed.json").write_text(json.dumps({"update": 2, "sentence": "the loss is no number."}))
        wait_for(page, "document.querySelectorAll('#panels path.mean').length === 0")
        assert page.locator("#panels path[stroke-dasharray='4 4']").count() == 1
        assert "2 seeds, 1 of them failed and in no mean" in page.locator("#panels .legend").inner_text()


def test_a_figure_that_is_drawn_anew_is_shown_anew(served, opened, runs):
    images = SHIPPED.parents[1] / "docs" / "images"
    one, other = (images / name for name in ("theory.png", "depots.png"))
    shutil.copy(one, runs / "figure.png")
    with served(runs_answers(runs)) as address:
        page = opened(address, "#picturesPart:not([hidden])")
        wait_for(page, "document.querySelector('#pictures img')?.naturalWidth > 100")
        before = page.evaluate("document.querySelector('#pictures img').naturalHeight")
        shutil.copy(other, runs / "figure.png")
        wait_for(
            page,
            f"document.querySelector('#pictures img').naturalHeight > 100 && "
            f"document.querySelector('#pictures img').naturalHeight !== {before}",
        )
        assert page.complaints == []


def test_a_film_is_played_and_gone_through(served, opened, runs):
    """Chromium asks for the part that it jumps to; of a server without parts it could only play from the start."""
    import imageio_ffmpeg

    frames = np.zeros((90, 64, 64, 3), np.uint8)
    frames[:, :, :32] = np.arange(90, dtype=np.uint8)[:, None, None, None] * 2  # the picture tells the time
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", "64x64", "-r", "30", "-i", "-"]
    words = [imageio_ffmpeg.get_ffmpeg_exe(), *raw, "-pix_fmt", "yuv420p", "-vcodec", "libx264", runs / "film.mp4"]
    subprocess.run(words, input=frames.tobytes(), check=True, capture_output=True)
    with served(runs_answers(runs)) as address:
        page = opened(address, "#pictures video")
        film = "document.querySelector('#pictures video')"
        wait_for(page, f"{film}.readyState >= 2 || {film}.error")
        assert page.evaluate(f"{film}.error && {film}.error.message") is None
        assert page.evaluate(f"{film}.duration") == pytest.approx(3.0, abs=0.1)
        assert page.evaluate(f"{film}.seekable.end(0)") == pytest.approx(3.0, abs=0.1)
        for second, brightness in ((2.0, 120), (0.5, 30)):
            page.evaluate(f"{film}.currentTime = {second}")
            wait_for(page, f"!{film}.seeking && {film}.readyState >= 2")
            shown = page.evaluate(
                f"(() => {{ const canvas = document.createElement('canvas'); canvas.width = canvas.height = 64; "
                f"const context = canvas.getContext('2d'); context.drawImage({film}, 0, 0); "
                "return context.getImageData(16, 32, 1, 1).data[0]; })()"
            )
            assert shown == pytest.approx(brightness, abs=12)
        page.evaluate(f"{film}.play().then(() => null)")
        wait_for(page, f"{film}.currentTime > 0.8")
        assert page.complaints == []


def test_what_was_not_looked_at_is_said(served, opened, runs):
    (runs / "a/b/c/d/e/f/g").mkdir(parents=True)
    with served(runs_answers(runs)) as address:
        page = opened(address, "#leftOut:not([hidden])")
        assert page.locator("#leftOut").inner_text() == "Folders more than 6 levels down were not looked into."
        shutil.rmtree(runs / "a")
        wait_for(page, "document.querySelector('#leftOut').hidden")


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


def altered(answers, name, change):
    """The same answers, with one of them changed while `change` says how."""

    def altering(address):
        answer = answers(address)
        return answer._replace(data=change(answer.data)) if address == name else answer

    return altering


def test_what_cannot_be_drawn_is_said_until_it_can_be_and_hides_nothing_else(served, opened, runs):
    """An answer that the page does not understand: a mistake of its own, not a server that is gone."""
    wrong = True

    def without_rows(data):
        return json.dumps({"sentences": [], "tables": [{"world": "xor"}]}).encode() if wrong else data

    with served(altered(runs_answers(runs), "scores", without_rows)) as address:
        page = opened(address, "#trouble:not([hidden])")
        page.wait_for_timeout(4000)  # one more look at the same answer
        assert page.locator("#trouble").is_visible()
        assert "does not answer" not in page.locator("#trouble").inner_text()
        assert page.locator("#runs tr").count() == 3
        assert page.locator("#panels path.mean").count() == 1
        wrong = False
        wait_for(page, "document.querySelector('#trouble').hidden && document.querySelectorAll('#scores td').length")


@pytest.mark.parametrize("feature", ["window.fetch", "Element.prototype.replaceChildren"])
def test_a_browser_that_lacks_something_is_told_what(served, browser, runs, feature):
    with served(runs_answers(runs)) as address:
        context = browser.new_context()
        context.add_init_script(f"delete {feature}")
        page = context.new_page()
        page.goto(address)
        page.wait_for_selector("#trouble:not([hidden])")
        page.wait_for_timeout(3500)  # nor does it look, and say what comes of that
        assert re.match(r"This browser lacks .+, which this page needs\.", page.locator("#trouble").inner_text())
        assert page.locator("#summary").is_hidden()  # it waits for nothing
        context.close()


def test_a_script_that_is_missing_or_broken_is_a_sentence(served, opened, runs):
    def gone(_):
        raise OSError

    for change, sentence in ((gone, "could not be loaded"), (lambda data: data[:-200], "Something went wrong")):
        with served(altered(runs_answers(runs), "training.js", change)) as address:
            page = opened(address, "#trouble:not([hidden])")
            assert sentence in page.locator("#trouble").inner_text()
            assert page.locator("#summary").is_hidden()


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
