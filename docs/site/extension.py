"""What the site does with the pages beyond Sphinx: nothing in a page is written for the site alone.

- The sidebar follows the lists of links in docs/index.md.
- In docs/tutorials, blocks of Python are cells of one session and blocks of sh are run beside it; each page is also a
  notebook with what its cells printed and drew.
- A link to a file of the repository that is no page leads to a page that shows the file.
- docs/web.md shows the page that it is about, whose files are copied into the site.
- In docs/api, a comment that names rooms, a module or names in a module is where their docstrings stand.
"""

import ast
import inspect
import re
import shutil
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import nbformat
from docutils import nodes
from myst_nb.core import render
from myst_nb.sphinx_ext import OUTPUT_FOLDER
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.ext.autodoc.mock import mock
from sphinx.pycode import ModuleAnalyzer
from sphinx.transforms import SphinxTransform
from sphinx.util.inspect import stringify_signature
from sphinx.util.osutil import relative_uri

from diamond_attention.web.live_page import live_files

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "diamond_attention"
HEAVY = ["benchmarl", "jaxmarl", "tensordict", "torchrl"]
"""Packages that the reference does without: their names stand in signatures, and nothing of them is run."""


def rewrite(app: Sphinx, page: str, source: list[str]) -> None:
    """The text of a page, as Sphinx is to read it."""
    if page == app.config.root_doc:
        source[0] += sidebar(source[0])
    elif page.startswith("docs/tutorials/"):
        source[0] = cells(source[0], page.rpartition("/")[2])
    elif page.startswith("docs/api/"):
        source[0] = docstrings(source[0])
    elif page == "docs/web":
        source[0] = source[0].replace("\n", FRAME, 1)


# --- The sidebar --------------------------------------------------------------------------------------


def sidebar(front_page: str) -> str:
    """A hidden table of contents for each heading with a list of links."""
    trees = []
    for part in front_page.split("\n## ")[1:]:
        links = re.findall(r"^- \[([^\]]+)\]\(([^)#:]+)\.md\)", part, re.MULTILINE)
        entries = "\n".join(f"{title} <{target}>" for title, target in links)
        trees.append(f"\n\n```{{toctree}}\n:hidden:\n:caption: {part.splitlines()[0]}\n\n{entries}\n```\n")
    return "".join(trees)


# --- Tutorials ----------------------------------------------------------------------------------------

NOTEBOOK = "---\nfile_format: mystnb\nkernelspec: {name: python3, display_name: Python 3}\n---\n"
# The folder in which a page is run is empty; commands find the rows of the tables as they do in the repository.
# A kernel says that it is a terminal with colours, whose codes a page would show.
BEFORE = f"""```{{code-cell}}
:tags: [remove-cell]
import os
os.symlink({str(ROOT / "results")!r}, "results")
os.environ.pop("FORCE_COLOR", None)
```
"""
DOWNLOAD = '<p class="download"><a href="{}.ipynb" download>This page as a notebook</a></p>'
IN_PLACE_OF_IT = "*Run this notebook in the repository's folder, where the package is installed.*"


def cells(tutorial: str, name: str) -> str:
    """A page whose blocks are run, and which shows what they print and draw."""
    shell = "```sh\n\\1```\n\n```{code-cell}\n:tags: [remove-input]\n%%sh -e\n\\1```"
    text = re.sub(r"^```sh\n(.*?)^```$", shell, tutorial, flags=re.MULTILINE | re.DOTALL)
    title, _, rest = re.sub(r"^```python$", "```{code-cell}", text, flags=re.MULTILINE).partition("\n")
    return f"{NOTEBOOK}{title}\n\n{BEFORE}\n{DOWNLOAD.format(name)}\n{rest}"


def joined(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """What a cell said, in one piece. It comes in several, cut anywhere, and MyST-NB would end a line at each."""
    said: dict[str, nbformat.NotebookNode] = {}
    kept = []
    for output in outputs:
        if output.output_type == "stream" and output.name in said:
            said[output.name].text += output.text
            continue
        if output.output_type == "stream":
            said[output.name] = output
        kept.append(output)
    outputs[:] = kept  # in the notebook too
    return outputs


def write_notebooks(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        executed = Path(app.outdir).parent / OUTPUT_FOLDER / "docs" / "tutorials"
        for page in sorted((ROOT / "docs" / "tutorials").glob("*.md")):
            notebook = nbformat.read(executed / f"{page.stem}.ipynb", as_version=4)
            nbformat.write(
                for_readers(notebook, page.stem), Path(app.outdir, "docs", "tutorials", f"{page.stem}.ipynb")
            )


def for_readers(notebook: nbformat.NotebookNode, name: str) -> nbformat.NotebookNode:
    """Without what only makes the page: our own cell, the words of commands twice, links from page to page."""
    kept: list[nbformat.NotebookNode] = []
    for cell in notebook.cells:
        if "remove-cell" in cell.metadata.get("tags", ()):
            continue
        if cell.source.startswith("%%sh"):  # what it runs stands at the end of the words before it
            kept[-1].source = re.sub(r"```sh\n(?:(?!```).)*```\s*\Z", "", kept[-1].source, flags=re.DOTALL).rstrip()
        if cell.cell_type == "markdown":
            words = cell.source.replace(DOWNLOAD.format(name), IN_PLACE_OF_IT)
            cell.source = re.sub(r"(?<!!)\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", words)
        cell.metadata = {}
        kept.append(cell)
    notebook.cells = [cell for cell in kept if cell.source]
    return notebook


# --- Files of the repository --------------------------------------------------------------------------


@cache
def shown_files() -> frozenset[str]:
    """Those with a page of their own; other files, rows and numbers, are handed out as they are."""
    found = [*PACKAGE.rglob("*.py"), *(ROOT / "experiments").iterdir(), ROOT / "LICENSE", ROOT / "CITATION.cff"]
    return frozenset(path.relative_to(ROOT).as_posix() for path in found if path.is_file())


class LinksToFiles(SphinxTransform):
    """Before Sphinx makes a download of each."""

    default_priority = 400

    def apply(self, **_: Any) -> None:
        here = self.app.builder.get_target_uri(self.env.docname)
        for link in list(self.document.findall(addnodes.download_reference)):
            file, _path = self.env.relfn2path(link["reftarget"], self.env.docname)
            if file in shown_files():
                uri = relative_uri(here, f"source/{file}.html")
                link.replace_self(nodes.reference("", "", *link.children, refuri=uri, internal=True))


class CellsOfNumbers(SphinxTransform):
    """Several numbers in a cell, such as `1.00 / 1.00 (1.00 / 1.00)`, keep room beside the words of other columns."""

    default_priority = 400

    def apply(self, **_: Any) -> None:
        for cell in self.document.findall(nodes.entry):
            if re.match(r"[-−]?\d.* ", cell.astext()):
                cell["classes"].append("numbers")


class ShortTypes(SphinxTransform):
    """`jax.Array` is what jaxtyping's types show as `jaxlib._jax.Array`."""

    default_priority = 400

    def apply(self, **_: Any) -> None:
        for signature in self.document.findall(addnodes.desc_signature):
            for text in list(signature.findall(nodes.Text)):
                text.parent.replace(text, nodes.Text(text.astext().replace("jaxlib._jax.", "")))


def source_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    formatter = HtmlFormatter(linenos="inline", anchorlinenos=True, lineanchors="line", wrapcode=True)
    for file in sorted(shown_files()):
        text = (ROOT / file).read_text(encoding="utf-8")
        try:
            lexer = get_lexer_for_filename(file)
        except ClassNotFound:
            lexer = TextLexer()
        body = f"<h1>{file}</h1>\n{highlight(text, lexer, formatter)}"
        yield f"source/{file}", {"title": file, "body": body}, "page.html"


def linkcode_resolve(domain: str, info: dict[str, str]) -> str | None:
    """Where "[source]" beside a name leads: pages of docs/api lie two folders deep."""
    if not info["module"]:  # a value that stands there by its name alone
        return None
    found = loaded(info["module"])
    for name in info["fullname"].split("."):
        # Of a class as it is written there, a property say; the package's own names come when asked for.
        found = inspect.getattr_static(found, name, None) if inspect.isclass(found) else getattr(found, name, None)
    found = inspect.unwrap(getattr(found, "fget", None) or getattr(found, "__func__", found))
    try:
        file, line = inspect.getsourcefile(found), inspect.getsourcelines(found)[1]
    except TypeError:  # a constant or a field
        return None
    if file is None or not Path(file).is_relative_to(PACKAGE):
        return None
    return f"../../source/{Path(file).relative_to(ROOT).as_posix()}.html#line-{line}"


# --- The live page ------------------------------------------------------------------------------------

FRAME = """

Play here, or <a href="../live/index.html">in a window of its own</a>. Browsers run it from a web server only, such as
`python -m http.server` in the site's folder.

<iframe class="live" src="../live/index.html" title="Diamond Attention, live" loading="lazy"></iframe>

"""


def copy_live_page(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        for name, file in live_files():
            to = Path(app.outdir, "live", name)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, to)


# --- Docstrings ---------------------------------------------------------------------------------------


def docstrings(page: str) -> str:
    page = re.sub(r"^<!-- names of: (.*) -->$", lambda m: names_of(set(m[1].split())), page, flags=re.MULTILINE)
    return re.sub(r"^<!-- module: ([\w.]+)(?:: (.*))? -->$", lambda m: module(m[1], m[2]), page, flags=re.MULTILINE)


def loaded(name: str) -> Any:
    """A module, whose heavy packages need not be there."""
    with mock(HEAVY):
        return import_module(name)


@cache
def defined_in() -> dict[str, str]:
    """The module that each public name comes from."""
    lines = ast.parse((PACKAGE / "public.py").read_text()).body
    imports = [line for line in lines if isinstance(line, ast.ImportFrom)]
    return {alias.name: str(line.module) for line in imports for alias in line.names}


def names_of(rooms: set[str]) -> str:
    """The public names that these rooms of the package define, as a user imports them."""
    own = [name for name, where in defined_in().items() if where.split(".")[1] in rooms]
    return "\n".join(documented("diamond_attention", name, defined_in()[name]) for name in own)


def module(name: str, named: str | None) -> str:
    """These names, or what a module names itself, or else all that is defined there and is no public name."""
    found = loaded(name)
    own = [each for each, value in vars(found).items() if getattr(value, "__module__", "").startswith(name)]
    names = getattr(found, "__all__", [each for each in own if each[0] != "_" and each not in defined_in()])
    listed = named.split() if named else [each for each in names if each in own]
    return "\n".join(documented(name, each, name) for each in listed)


def documented(where: str, name: str, defined: str) -> str:
    found = getattr(loaded(where), name)
    if inspect.isclass(found):
        lines = [f".. autoclass:: {where}.{name}", "   :members:", "   :undoc-members:"]
    elif inspect.isroutine(found):
        lines = [f".. autofunction:: {where}.{name}"]
    else:  # its docstring stands below it where it is defined, which nobody can ask the value for
        below = ModuleAnalyzer.for_module(defined).find_attr_docs().get(("", name))
        said = below or inspect.getdoc(import_module(defined)).splitlines()
        lines = [f".. py:data:: {where}.{name}", "", *(f"   {line}" for line in said)]
    return "\n".join(["```{eval-rst}", *lines, "```", ""])


TAKES_ANYTHING = "(*args: Any, **kwargs: Any)"


def without_aliases(app: Sphinx, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    """What Python says of a NamedTuple's field that has no docstring says nothing."""
    if lines and lines[0].startswith("Alias for field number"):
        lines.clear()


def own_arguments(
    app: Sphinx, what: str, name: str, found: Any, options: Any, arguments: str, returned: str
) -> tuple[str, str] | None:
    """Those of a class whose base is one of the heavy packages', since what stands for a base takes anything."""
    if what != "class" or arguments != TAKES_ANYTHING or "__init__" not in vars(found):
        return None
    signature = inspect.signature(found.__init__)
    _, *given = signature.parameters.values()  # without self
    own = signature.replace(parameters=given, return_annotation=inspect.Signature.empty)
    return stringify_signature(own, unqualified_typehints=True), returned


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", rewrite)
    app.connect("autodoc-process-docstring", without_aliases)
    app.connect("autodoc-process-signature", own_arguments)
    app.connect("build-finished", copy_live_page)
    app.connect("build-finished", write_notebooks)
    app.connect("html-collect-pages", source_pages)
    app.add_transform(LinksToFiles)
    app.add_transform(CellsOfNumbers)
    app.add_transform(ShortTypes)
    app.config.linkcode_resolve = linkcode_resolve
    app.config.autodoc_mock_imports = HEAVY
    render.coalesce_streams = joined
    return {"parallel_read_safe": True, "parallel_write_safe": True}
