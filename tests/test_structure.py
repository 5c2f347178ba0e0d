"""The shape of the code base: imports run in one direction, and what the README says is true."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "diamond_attention"

# One straight line of rooms. A module may import from its own room and from rooms before it.
ROOMS = [
    ["errors"],
    ["view"],
    ["ranks"],
    ["attention"],
    ["actions"],
    ["policies", "critics"],
    ["worlds"],
    ["learning"],
    ["runs"],
    ["evaluation"],
    ["reports"],
    ["demo", "speed"],
    ["bench"],
    ["command_line"],
]
PLACE = {name: place for place, names in enumerate(ROOMS) for name in names}


def modules():
    return [path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py"]


def room_of(dotted: str) -> str:
    return dotted.split(".")[1]


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_run_in_one_direction(path):
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("diamond_attention."):
            other = room_of(node.module)
            assert PLACE[other] < PLACE[own] or other == own, f"{own} imports {node.module}, which comes after it"


def test_there_are_no_import_cycles_within_a_room():
    """Python would tolerate some; a reader would not."""
    names = {p.relative_to(ROOT).with_suffix("").as_posix().replace("/", "."): p for p in modules()}
    wants = {
        name: {
            node.module
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom) and node.module in names
        }
        for name, path in names.items()
    }
    while wants:
        free = [name for name, needs in wants.items() if not needs & set(wants)]
        assert free, f"these import each other: {sorted(wants)}"
        for name in free:
            del wants[name]


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


def test_the_world_in_the_docs_runs(tmp_path):
    """Every Python block of docs/your_own_world.md, in order, in one process."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "your_own_world.md").read_text(), re.DOTALL)
    script = tmp_path / "own_world.py"
    script.write_text("\n".join(blocks))
    answer = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert answer.returncode == 0, answer.stderr
    assert "success" in answer.stdout


def test_the_examples_of_smaclite_run(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "smaclite.md").read_text(), re.DOTALL)
    assert len(blocks) == 3
    script = tmp_path / "smaclite_examples.py"
    script.write_text("\n".join(blocks))
    answer = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert answer.returncode == 0, answer.stderr


def commands_in(text: str) -> list[list[str]]:
    lines = re.findall(r"^(?:\$ )?diamond ([a-z].*)$", text, re.MULTILINE)
    return [line.split("#")[0].split() for line in lines]


@pytest.mark.parametrize(
    "page",
    ["README.md", "docs/how_it_works.md", "docs/your_own_world.md", "docs/smaclite.md", "CONTRIBUTING.md"],
)
def test_commands_in_the_docs_parse(page, capsys):
    """Options that do not exist would be refused; nothing is trained here."""
    from diamond_attention import command_line

    for words in commands_in((ROOT / page).read_text()):
        assert words[0] in command_line.COMMANDS, words
        if words[0] in ("train", "show"):
            command_line._parse_train(words[1], words[2:])
        elif words[0] != "list":
            options = "".join(part.capitalize() for part in words[0].split("-")) + "Options"
            command_line._parse(getattr(command_line, options), words[1:], words[0])


def test_links_between_pages_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_make_has_the_targets_the_readme_names():
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
        assert f"make {target}" in (ROOT / "README.md").read_text()


def test_the_tables_in_the_readme_are_those_of_the_rows(monkeypatch):
    """No number without its rows: these tables are made from results/, and stay so."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import particle_results
    import smaclite_results
    import smaclite_statistics
    import speed_results
    import xor_results

    text = (ROOT / "README.md").read_text()
    assert xor_results.with_tables(text) == text
    assert particle_results.with_tables(text) == text
    assert smaclite_results.with_tables(text) == text
    assert speed_results.with_tables(text) == text
    page = (ROOT / "docs" / "smaclite.md").read_text()
    assert smaclite_statistics.with_table(page) == page
