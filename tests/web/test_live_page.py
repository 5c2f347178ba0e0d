"""The live page in a real browser: every control, by mouse, finger and keyboard; what it says when it cannot play."""

import json
import re
from collections.abc import Callable

import pytest
from watching import wait_for

from diamond_attention.runs.bundle_format import SHIPPED
from diamond_attention.web.live_page import LIVE_POLICIES, live_answers

WORLDS = {"xor": "XOR game", "dispatch": "Dispatch", "spread": "Simple Spread"}


@pytest.fixture(scope="module")
def live(served):
    with served(live_answers) as address:
        yield address


@pytest.fixture
def play(live, opened):
    """`play("world=xor")`: the page with that address, once its first decision is there."""

    def begin(words="", **options):
        page = opened(f"{live}#{words}", **options)
        wait_for(page, "live.game.shown !== null")
        return page

    return begin


def ask(page, expression):
    return page.evaluate(f"(() => {{ const {{ game, state, picture }} = live; return {expression}; }})()")


def until(page, expression):
    wait_for(page, f"(() => {{ const {{ game, state, picture }} = live; return {expression}; }})()")


def on_canvas(page, x, y):
    """Where on the screen a place of the canvas is."""
    page.locator("#picture").scroll_into_view_if_needed()
    box = page.locator("#picture").bounding_box()
    return box["x"] + x, box["y"] + y


# --- Playing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_plays_by_itself_without_a_network_or_a_complaint(play, name):
    page = play(f"world={name}&speed=fast")
    until(page, "game.decisions >= 3")
    assert WORLDS[name] in page.locator("nav [aria-pressed=true]").inner_text()
    assert re.search(r"\d+ %", page.locator("#score").inner_text())
    assert page.locator("#trouble").is_hidden()
    assert page.complaints == []


@pytest.mark.parametrize("name", WORLDS)
def test_every_policy_of_a_world_can_be_chosen(play, name):
    page = play(f"world={name}&speed=fast")
    for radio in page.locator("#policies input").all():
        radio.check()
        chosen = radio.get_attribute("value")
        until(page, f"state.policy === '{chosen}' && game.options.policy !== null && game.shown !== null")
        played = json.loads((LIVE_POLICIES[chosen] / "policy.json").read_text())
        assert ask(page, "game.options.policy.kind") == played["kind"]
        assert ask(page, "game.options.policy.mask") == played["settings"].get("mask")
        before = ask(page, "game.decisions")
        until(page, f"game.decisions > {before}")
    assert page.locator("#trouble").is_hidden()
    assert page.complaints == []


def test_players_with_an_order_win_and_with_equal_numbers_they_all_do_the_same(play):
    page = play("world=xor&speed=fast")
    until(page, "game.history.length >= 8")
    assert ask(page, "game.history.every((won) => won === 1)")
    page.locator("#same").check()
    until(page, "game.history.length >= 4")
    assert ask(page, "game.history.every((won) => won === 0)")
    until(page, "game.decided")
    assert ask(page, "new Set(game.thoughts.map((thought) => thought.action)).size") == 1


def test_lost_packets_are_lost_and_show(play):
    page = play("world=xor&agents=16&tasks=16&paused=1&select=0")
    assert ask(page, "game.shown.every((thought) => thought.heard.every(Boolean))")
    page.locator("#lost").check()
    until(page, "game.shown !== null")
    heard = ask(page, "game.shown.flatMap((thought) => thought.heard).filter(Boolean).length")
    assert 16 + 0.3 * 240 < heard < 16 + 0.7 * 240
    wait_for(page, "document.querySelector('#seenWords').textContent.includes('did not hear')")
    assert "not heard" in page.locator("#agents").inner_text()


def test_the_mask_hides_lower_numbers_and_the_page_says_so(play):
    page = play("world=spread&agents=6&paused=1")
    numbers = ask(page, "game.shownNumbers")
    for agent in range(6):
        page.locator("#agents button").nth(agent).click()
        assert ask(page, "state.select") == agent
        hidden = ask(page, f"game.shown[{agent}].hidden")
        assert hidden == [number < numbers[agent] for number in numbers]
        names = [chr(65 + i) for i, each in enumerate(hidden) if each]
        wait_for(page, f"document.querySelector('#seenTitle').textContent === 'What {chr(65 + agent)} sees'")
        words = page.locator("#seenWords").inner_text()
        assert all(name in words.split("It hides")[1] for name in names) if names else "It sees everybody" in words
        # A hidden peer's column is empty, and a row sums to one.
        rows = ask(page, f"game.shown[{agent}].attention.map((weights) => Array.from(weights.values))")
        order = ask(page, f"game.shown[{agent}].order")
        for weights in rows:
            for task in range(ask(page, "game.tasks.length")):
                row = weights[6 * task : 6 * task + 6]
                assert sum(row) == pytest.approx(1, abs=1e-5)
                assert all(weight == 0 for peer, weight in zip(order, row, strict=True) if hidden[peer])
        assert page.locator("#agents .hidden").count() == len(names)


def test_teams_grow_and_shrink_while_they_play(play):
    page = play("world=spread&speed=fast")
    for _ in range(12):
        page.locator("#moreAgents").click()
        page.locator("#moreTasks").click()
    assert (ask(page, "game.agents.length"), ask(page, "game.tasks.length")) == (16, 16)
    assert page.locator("#moreAgents").is_disabled()
    assert page.locator("#agentCount").inner_text() == "16"
    before = ask(page, "game.decisions")
    until(page, f"game.decisions > {before} + 2")
    for _ in range(14):
        page.locator("#fewerAgents").click()
    assert ask(page, "game.agents.length") == 2
    assert page.locator("#fewerAgents").is_disabled()
    until(page, "game.shown !== null && game.shown.length === 2")
    assert page.locator("#agents button").count() == 2
    assert page.complaints == []


@pytest.mark.parametrize("name", ["dispatch", "spread"])
def test_agents_and_tasks_are_dragged(play, name):
    page = play(f"world={name}&start=scattered&paused=1")
    for things, shown in (("agents", "agentsAt"), ("tasks", "tasksAt")):
        # One that nothing lies on.
        free = ask(
            page,
            f"picture.{shown}.findIndex((at, i) => {{ const found = picture.at(at); "
            f"return found && found['{things[:-1]}'] === i; }})",
        )
        at = ask(page, f"picture.{shown}[{free}]")
        page.mouse.move(*on_canvas(page, at["x"], at["y"]))
        page.mouse.down()
        target = ask(page, "picture.toScreen({ x: 0.31, y: -0.47 })")
        page.mouse.move(*on_canvas(page, target["x"], target["y"]), steps=4)
        page.mouse.up()
        moved = ask(page, f"game.{things}[{free}]")
        assert (moved["x"], moved["y"]) == (pytest.approx(0.31, abs=0.02), pytest.approx(-0.47, abs=0.02))
        far = ask(page, "picture.toScreen({ x: -0.9, y: 0.9 })")  # out of the way of the next
        page.mouse.move(*on_canvas(page, target["x"], target["y"]))
        page.mouse.down()
        page.mouse.move(*on_canvas(page, far["x"], far["y"]), steps=3)
        page.mouse.up()
    assert ask(page, "state.select") is None  # a drag is no click
    assert page.complaints == []


def test_a_click_selects_and_a_second_one_lets_go(play):
    page = play("world=spread&paused=1")
    at = ask(page, "picture.agentsAt[2]")
    page.mouse.click(*on_canvas(page, at["x"], at["y"]))
    assert ask(page, "state.select") == ask(page, "game.agents[picture.at(picture.agentsAt[2]).agent].id")
    page.mouse.click(*on_canvas(page, at["x"], at["y"]))
    assert ask(page, "state.select") is None


def test_a_finger_drags_an_agent_on_a_phone(play):
    page = play("world=spread&paused=1", viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    assert ask(page, "document.documentElement.scrollWidth") <= 390
    at = ask(page, "picture.agentsAt[0]")
    page.touchscreen.tap(*on_canvas(page, at["x"], at["y"]))
    assert ask(page, "state.select") is not None
    assert page.complaints == []


def test_the_keyboard_reaches_everything(play):
    page = play("world=spread&paused=1")
    wanted = {each.get_attribute("id") for each in page.locator("button[id]:enabled, input[id]").all()}
    wanted = {name for name in wanted if page.locator(f"#{name}").is_visible()}
    reached = set()
    for _ in range(80):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id"))
    assert wanted <= reached
    page.locator("#agents button").nth(1).focus()
    page.keyboard.press("Enter")
    assert ask(page, "state.select") == 1
    before = ask(page, "game.agents[1]")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowUp")
    after = ask(page, "game.agents[1]")
    assert (after["x"] - before["x"], after["y"] - before["y"]) == (pytest.approx(0.05), pytest.approx(0.05))
    page.keyboard.press("Delete")
    assert ask(page, "game.agents.map((agent) => agent.id)") == [0, 2, 3]
    assert ask(page, "state.select") is None
    page.locator("#picture").focus()
    decisions = ask(page, "game.decisions")
    page.keyboard.press("n")
    assert ask(page, "game.decisions") == decisions + 1
    page.keyboard.press(" ")
    assert ask(page, "state.paused") is False


def test_time_stops_goes_on_and_goes_step_by_step(play):
    page = play("world=xor")
    page.locator("#pause").click()
    stood = ask(page, "game.clock")
    page.wait_for_timeout(300)
    assert ask(page, "game.clock") == stood
    decisions = ask(page, "game.decisions")
    for _ in range(2):
        page.locator("#step").click()
    assert ask(page, "game.decisions") == decisions + 1
    page.locator("#pause").click()
    until(page, f"game.decisions > {decisions + 1}")
    for speed in ("slow", "normal", "fast"):
        page.locator(f"[data-speed={speed}]").click()
        assert ask(page, "state.speed") == speed
    seed = ask(page, "state.seed")
    page.locator("#again").click()
    assert ask(page, "state.seed") != seed


def test_the_state_is_in_the_address_and_comes_back_from_it(play, live, opened):
    page = play("world=dispatch")
    page.locator("#moreAgents").click()
    page.locator("#lost").check()
    page.locator("#point").uncheck()
    page.locator("#agents button").nth(2).click()
    page.locator("#pause").click()
    address = page.evaluate("location.href")
    again = opened(address)
    kept = ("world", "agents", "tasks", "policy", "lost", "same", "start", "seed", "select", "paused")
    for name in kept:
        assert ask(again, f"state.{name}") == ask(page, f"state.{name}"), name
    wait_for(again, "live.game.shown !== null")
    assert ask(again, "game.agents.length") == 7
    # The same seed begins alike.
    third = opened(address)
    assert ask(third, "game.tasks") == ask(again, "game.tasks")


@pytest.mark.parametrize(
    "words",
    ["world=chess", "agents=1e9&tasks=-3", "policy=../../x", "select=nobody&speed=", "%E0%A4%A", "same=2&seed=abc"],
)
def test_an_address_that_says_nonsense_is_read_as_far_as_it_makes_sense(play, words):
    page = play(words)
    assert 2 <= ask(page, "game.agents.length") <= 16
    assert page.locator("#trouble").is_hidden()
    assert page.complaints == []


def test_everything_to_try_can_be_tried(play):
    page = play()
    for item in range(page.locator("#tries a").count()):
        link = page.locator("#tries a").nth(item)
        wanted = link.get_attribute("href")
        link.click()
        for name, value in (part.split("=") for part in wanted.lstrip("#").split("&")):
            until(page, f"String(Number(state.{name} === true) || state.{name}) === '{value}'")
        until(page, "game.options.policy !== null && game.shown !== null")
    assert page.locator("#trouble").is_hidden()
    assert page.complaints == []


def test_light_and_dark(play):
    def ground(page):
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    light, dark = play(color_scheme="light"), play(color_scheme="dark")
    assert ground(light) != ground(dark)
    light.locator("#theme").click()
    assert ground(light) == ground(dark)
    assert "theme=dark" in light.evaluate("location.hash")


def test_frames_are_computed_in_time_at_eight_agents(play):
    """Where many programs share the machine some frames are interrupted, so one of three windows is enough."""
    page = play("world=spread&agents=8&tasks=8&select=0")
    found = []
    for _ in range(3):
        page.evaluate("live.frames.length = 0")
        wait_for(page, "live.frames.length >= 150")
        found.append(page.evaluate("[...live.frames].sort((a, b) => a - b)[Math.floor(0.95 * live.frames.length)]"))
        if found[-1] <= 16:
            break
    assert min(found) <= 16, found
    assert ask(page, "game.decisions") > 0


# --- When it cannot play --------------------------------------------------------------------------


def altered(name: str, change: Callable[[bytes], bytes | None]):
    """The page with one file changed, or gone."""

    def answers(address):
        answer = live_answers(address)
        if address != name:
            return answer
        changed = change(answer.data)
        if changed is None:
            raise OSError
        return answer._replace(data=changed)

    return answers


def with_format(number):
    return lambda data: json.dumps(json.loads(data) | {"format": number}).encode()


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("policies/xor-commitments/policy.json", with_format(3), "has format 3, and this page reads up to 2"),
        ("policies/xor-commitments/policy.json", lambda data: data[:50], "not JSON"),
        ("policies/xor-commitments/policy.safetensors", lambda data: data[:-9], "is damaged"),
        ("policies/xor-commitments/policy.safetensors", lambda data: None, "could not be loaded"),
    ],
)
def test_a_bundle_that_cannot_be_played_is_a_sentence_and_another_one_plays(served, opened, name, change, sentence):
    with served(altered(name, change)) as address:
        page = opened(address, "#trouble:not([hidden])")
        assert sentence in page.locator("#trouble").inner_text()
        assert page.locator("#main").is_visible()
        page.locator("#policies input[value=xor-rank]").check()
        until(page, "game.shown !== null")
        assert page.locator("#trouble").is_hidden()


def test_a_part_that_is_missing_is_a_sentence(served, opened):
    with served(altered("draw.js", lambda data: None)) as address:
        page = opened(address, "#trouble:not([hidden])")
        assert "could not be loaded" in page.locator("#trouble").inner_text()


@pytest.mark.parametrize("feature", ["BigInt", "ResizeObserver", "CanvasRenderingContext2D"])
def test_a_browser_that_lacks_something_is_told_what(live, browser, feature):
    context = browser.new_context()
    context.add_init_script(f"delete window.{feature}")
    page = context.new_page()
    page.goto(live)
    page.wait_for_selector("#trouble:not([hidden])")
    assert re.match(r"This browser lacks .+, which this page needs\.", page.locator("#trouble").inner_text())
    context.close()


def test_without_javascript_it_says_so(live, browser):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(live)
    assert "JavaScript is switched off" in page.locator("noscript").inner_text()
    context.close()


def test_a_page_opened_as_a_file_says_what_to_type(browser, tmp_path):
    from diamond_attention.web.live_page import LIVE

    page = browser.new_page()
    page.goto(f"file://{LIVE}/index.html")
    page.wait_for_selector("#trouble:not([hidden])")
    assert "diamond web" in page.locator("#trouble").inner_text()
    page.close()


def both_files(name):
    return [str(SHIPPED / name / f"policy.{end}") for end in ("json", "safetensors")]


def test_a_policy_of_ones_own_is_played_and_one_for_another_world_is_not(play):
    page = play("world=spread")
    page.locator("#own").set_input_files(
        [str(SHIPPED / "spread-floor" / f"policy.{end}") for end in ("json", "safetensors")]
    )
    until(page, "game.options.policy?.mask === 'floor' && game.shown !== null")
    assert page.locator("#trouble").is_hidden()
    page.locator("#own").set_input_files(
        [str(SHIPPED / "smaclite" / f"policy.{end}") for end in ("json", "safetensors")]
    )
    page.wait_for_selector("#trouble:not([hidden])")
    assert "was not trained for Simple Spread" in page.locator("#trouble").inner_text()
    page.locator("#own").set_input_files([str(SHIPPED / "spread" / "policy.json")])
    wait_for(page, "document.querySelector('#trouble').textContent.includes('both files')")
    assert ask(page, "game.options.policy.mask") == "floor"  # what played goes on
