"""The shape of the code base: imports run in one direction, and what the README says is true."""

import ast
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import pytest

from diamond_attention import DiamondSettings, PpoSettings, Settings, Spread, Xor
from diamond_attention.runs.assemble import begin_learning, build_learner, method_of

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "diamond_attention"

# One straight line of rooms. A module may import from its own room and from rooms before it.
ROOMS = [
    "errors",
    "plain_file",
    "ranges",
    "actions",
    "view",
    "ranks",
    "initialise",
    "attention",
    "distributions",
    "colours",
    "policies",
    "worlds",
    "build",
    "broadcast",
    "play",
    "learning",
    "runs",
    "adapters",
    "deploy",
    "torch",
    "evaluation",
    "public",
    "reports",
    "demo",
    "extensions",
    "bench",
    "command_options",
    "refusals",
    "command_words",
    "terminal",
    "process_group",
    "robot",
    "fleet",
    "theory",
    "jobs",
    "sweep",
    "reproduce",
    "web",
    "command_line",
    "__main__",
]
PLACE = {name: place for place, name in enumerate(ROOMS)}


def modules() -> dict[str, Path]:
    """Every module by its dotted name; a package goes by the name of its folder."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        dotted = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
        found[dotted] = path
    del found["diamond_attention"]  # the public names, from everywhere
    return found


MODULES = modules()


def imported_by(source: str) -> set[str]:
    """The modules of the package that a source imports, in whichever form it says so."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in MODULES}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute, so that they can be followed"
            for alias in node.names:
                # `from package import module` names a module, `from module import name` does not.
                whole = f"{node.module}.{alias.name}"
                found |= {whole} if whole in MODULES else {node.module} & set(MODULES)
    return found


def test_every_form_of_import_is_seen():
    assert imported_by("import diamond_attention.worlds.xor") == {"diamond_attention.worlds.xor"}
    assert imported_by("import diamond_attention.worlds.xor as game") == {"diamond_attention.worlds.xor"}
    assert imported_by("from diamond_attention.worlds import xor, spread") == {
        "diamond_attention.worlds.xor",
        "diamond_attention.worlds.spread",
    }
    assert imported_by("from diamond_attention.worlds.xor import Xor") == {"diamond_attention.worlds.xor"}
    assert imported_by("def late():\n    from diamond_attention import worlds") == {"diamond_attention.worlds"}
    assert imported_by("import jax\nfrom numpy import array") == set()


@pytest.mark.parametrize("name", MODULES)
def test_imports_run_in_one_direction(name):
    own = name.split(".")[1]
    for other in imported_by(MODULES[name].read_text()):
        room = other.split(".")[1]
        assert PLACE[room] < PLACE[own] or room == own, f"{name} imports {other}, which comes after it"


def test_there_are_no_import_cycles_within_a_room():
    """Python would tolerate some; a reader would not."""
    wants = {name: imported_by(path.read_text()) for name, path in MODULES.items()}
    # Imports inside a function run late: a world may name the module that draws it, which draws that world.
    for name, path in MODULES.items():
        late = {
            other
            for function in ast.walk(ast.parse(path.read_text()))
            if isinstance(function, ast.FunctionDef)
            for other in imported_by(ast.unparse(function))
        }
        wants[name] -= late
    while wants:
        free = [name for name, needs in wants.items() if not needs & set(wants)]
        assert free, f"these import each other: {sorted(wants)}"
        for name in free:
            del wants[name]


def test_evaluation_and_reports_do_not_know_how_training_works():
    """They read a policy bundle and rows; only who trains or resumes needs the methods' states."""
    for name, path in MODULES.items():
        if name.split(".")[1] in ("evaluation", "reports"):
            for other in imported_by(path.read_text()):
                assert not other.startswith("diamond_attention.learning"), f"{name} imports {other}"
                assert other.split(".")[-1] not in ("train", "restore", "checkpoint", "assemble"), f"{name}: {other}"


def test_public_names_are_loaded_when_they_are_asked_for():
    script = """
import sys
import diamond_attention
assert not any(name.startswith(("jax", "diamond_attention.")) for name in sys.modules)
from diamond_attention import errors
assert "jax" not in sys.modules
assert diamond_attention.Spread.name == "spread"
assert diamond_attention.worlds.xor.Xor is diamond_attention.Xor
names = {}
exec("from diamond_attention import *", names)
from diamond_attention import public
assert set(public.__all__) <= set(names) & set(dir(diamond_attention))
try:
    diamond_attention.spraed
except AttributeError:
    print("refused")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
    assert done.stdout.strip() == "refused", done.stderr


# --- One training step ----------------------------------------------------------------------------


def files_named_on_the_page() -> list[str]:
    """The files of one training step, in the order in which docs/how_it_works.md names them."""
    page = (ROOT / "docs" / "how_it_works.md").read_text()
    part = page.split("## One training step")[1].split("\n## ")[0]
    return re.findall(r"\(\.\./diamond_attention/([\w/]+\.py)\)", part.split("<!-- end of the list -->")[0])


STEPS = {
    "xor": (Xor(), DiamondSettings(width=8), {}),
    "spread": (Spread(), DiamondSettings(width=8, mask="floor"), {"normalise_values": True, "ratio": "agent"}),
}
ONLY_IN = {
    "xor": ["policies/heads/choose_task.py", "distributions/categorical.py"],
    "spread": ["policies/heads/continuous.py", "distributions/gaussian.py", "learning/value_scale.py"],
}


@pytest.mark.parametrize("name", STEPS)
def test_the_page_names_every_file_that_runs_in_one_update_and_they_are_few(name):
    world, policy, changes = STEPS[name]
    method = PpoSettings(envs=4, steps=2, batch=8, **changes)
    settings = Settings(world=world, agents="2", policy=policy, method=method)
    learner, state = build_learner(settings), begin_learning(settings, 0)
    called = set()  # code objects, since this is asked a million times

    def note(frame, event, _):
        if event == "call":
            called.add(frame.f_code)

    update = partial(method_of(settings).update, learner)
    sys.setprofile(note)
    try:
        jax.eval_shape(update, state)
    finally:
        sys.setprofile(None)
    # The body of a module runs when it is first imported, not in an update.
    files = {Path(code.co_filename) for code in called if code.co_name != "<module>"}
    ran = {file.relative_to(PACKAGE).as_posix() for file in files if file.is_relative_to(PACKAGE)}
    ran = {file for file in ran if not file.startswith("worlds/")}
    elsewhere = {file for other, files in ONLY_IN.items() if other != name for file in files}
    named = files_named_on_the_page()
    assert ran == set(named) - elsewhere
    lengths = {file: len((PACKAGE / file).read_text().splitlines()) for file in ran}
    assert sum(lengths.values()) <= 950
    assert max(lengths.values()) <= 300


def test_the_readme_example_runs():
    """The ten lines are executed as they stand."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        assert (
            len([line for line in block.splitlines() if line.strip() and not line.startswith(("from", "import"))])
            <= 10
        )
        exec(compile(block, "README.md", "exec"), {})


def test_the_examples_of_smaclite_run(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "smaclite.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    script = tmp_path / "smaclite_examples.py"
    script.write_text("\n".join(blocks))
    answer = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert answer.returncode == 0, answer.stderr


def commands_in(text: str) -> list[list[str]]:
    lines = re.findall(r"^(?:\$ )?diamond ([a-z].*)$", text, re.MULTILINE)
    return [re.split("[#>]", line)[0].split() for line in lines]


PAGES = [page.relative_to(ROOT).as_posix() for page in sorted((ROOT / "docs").rglob("*.md"))]
# Commands of the pages about your own worlds, policies and methods need those; tests/test_your_own.py runs them.
OWN = ("docs/your_own_world.md", "docs/your_own_policy.md", "docs/your_own_method.md")


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", *[page for page in PAGES if page not in OWN]])
def test_commands_in_the_docs_parse(page, capsys):
    """Options that do not exist would be refused; nothing is trained here."""
    from diamond_attention import command_line
    from diamond_attention.robot.command import parse_agent
    from diamond_attention.sweep.combinations import combinations_of, parse_sweep

    for words in commands_in((ROOT / page).read_text()):
        assert words[0] in command_line.COMMANDS, words
        if words[0] in ("train", "show"):
            command_line.parse_train(words[1], words[2:])
        elif words[0] == "agent":
            parse_agent(words[1:])
        elif words[0] == "sweep":
            assert combinations_of(*parse_sweep(words[1:]))
        elif words[0] != "list":
            options = "".join(part.capitalize() for part in words[0].split("-")) + "Options"
            command_line.parse_with_variations(getattr(command_line, options), words[1:], words[0])


def test_the_front_page_of_the_site_lists_every_page():
    """The sidebar is made of its lists; `make test-site` looks at the site itself."""
    docs = ROOT / "docs"
    listed = re.findall(r"^- \[[^\]]+\]\(([^)]+)\)", (docs / "index.md").read_text(), re.MULTILINE)
    pages = {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")}
    assert pages - {"index.md"} <= set(listed)


def test_links_between_pages_lead_somewhere():
    for page in ["README.md", "CONTRIBUTING.md", *PAGES]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", (ROOT / page).read_text()):
            if not target.startswith("http"):
                assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"


def test_make_has_the_targets_the_readme_names():
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
        assert f"make {target}" in (ROOT / "README.md").read_text()


def test_contributing_names_what_ci_runs():
    stages = re.findall(r"^make ([\w-]+)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    told = (ROOT / "CONTRIBUTING.md").read_text().split("`.ci/run` runs ")[1].split(".")[0]
    assert re.findall(r"`([\w-]+)`", told) == stages
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{stage}:", makefile, re.MULTILINE) for stage in stages)


def test_the_tables_in_the_readme_are_those_of_the_rows(monkeypatch):
    """No number without its rows: tables in README.md and docs/ are made from results/, and stay so."""
    monkeypatch.syspath_prepend(ROOT / "experiments")
    import result_rows
    import tables

    pages = {page.name: page.read_text() for page in result_rows.PAGES}
    for name, text in pages.items():
        assert result_rows.with_tables(text, tables.TABLES) == text, f"{name}: run python experiments/tables.py"
    used = [marker for text in pages.values() for marker in result_rows.markers_of(text)]
    assert sorted(used) == sorted(tables.TABLES)  # each table stands somewhere, and once
    for name in ("README.md", "results.md", "speed.md"):
        by_hand = re.sub(r"<!-- ([\w-]+):begin -->.*?<!-- \1:end -->", "", pages[name], flags=re.DOTALL)
        assert not re.search(r"^\|", by_hand, re.MULTILINE), f"{name} has a table that is not made from rows"


def outside_code(page: str) -> str:
    return re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)


def test_the_readme_is_short_enough_to_be_read():
    text = outside_code((ROOT / "README.md").read_text())
    assert len(text.split()) <= 1500
    assert len([line for line in text.splitlines() if line.strip()]) <= 120


def test_the_readme_s_first_paragraph_says_what_it_is_in_three_sentences():
    _, paragraph, then, *_ = (ROOT / "README.md").read_text().split("\n\n")
    assert len(re.findall(r"[.?!](?=\s|$)", paragraph)) == 3
    assert then.startswith("![")  # and then a film


# --- One door to the disk -------------------------------------------------------------------------

WRITING = re.compile(
    r"\.write_(text|bytes)\(|\.(mkdir|rmdir|unlink|touch|rename|symlink_to)\(|\bshutil\.(rmtree|copy|move)"
    r"|\bos\.(open|write|rename|replace|unlink|remove|mkdir|makedirs|rmdir|link|symlink|truncate)\("
    r"|\bopen\([^)]*[\"'][rwax]?b?[wax+]"
)
DOORS = {
    "runs/files.py": "the door",
    "runs/locks.py": "a lock is a file that must not be renamed",
    "terminal.py": "standard output, once nobody reads it",
    "process_group.py": "a pipe between a process and the one that watches it",
    "robot/body.py": "a pipe between a robot and its body",
    "plain_file.py": "opens only to read, and without waiting for somebody who writes",
    "reproduce/packed.py": "an archive in memory, which goes through the door",
}


def test_only_one_module_changes_files():
    """What is written elsewhere would not appear whole, and the tests that cut it off everywhere would not see it."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        found = [line.strip() for line in path.read_text().splitlines() if WRITING.search(line)]
        assert bool(found) == (name in DOORS), f"{name}: {found}"
    for line in ("to.write_text('x')", "with open(path, 'w') as f:", "os.replace(a, b)", "shutil.rmtree(path)"):
        assert WRITING.search(line)
    assert not WRITING.search("with open(FILE, newline='') as file:")
