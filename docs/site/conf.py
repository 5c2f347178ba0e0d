"""How Sphinx makes the site of the pages as they stand: `make site`. What is our own in it is in extension.py.

Sphinx, since it makes the reference from docstrings and is maintained; MkDocs had its last release in August 2024 and
its theme Material gets no more features.
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

# Tutorials run the `diamond` of this environment, on the CPU, and share compiled programs with the tests.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".jax_cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false")

project = "Diamond Attention"
copyright = "Apache-2.0"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.linkcode", "extension"]

# The source folder is the repository itself, so that links lead where they lead on a code host.
root_doc = "docs/index"
include_patterns = ["docs/**.md", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "results/README.md"]
exclude_patterns = ["docs/live"]  # the live page itself, which the site has in a folder of its own

myst_heading_anchors = 4
myst_links_external_new_tab = False
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_merge_streams = True

# Docstrings are plain text in which `this` is code.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_inherit_docstrings = False  # those of other packages are in other markup
autodoc_preserve_defaults = True
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "Diamond Attention"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = ["root"]
html_copy_source = False
html_show_copyright = False
html_theme_options = {"top_of_page_buttons": []}
