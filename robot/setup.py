"""The part of the package one folder up that needs no JAX; its version is the project's."""

import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

PACKAGE = "../diamond_attention"
ONLY = {
    "diamond_attention": {"__init__", "__main__", "errors", "plain_file", "ranges", "terminal"},
    "diamond_attention.runs": {"__init__", "array_file", "bundle_format", "files"},
    "diamond_attention.deploy": None,  # all of it
    "diamond_attention.robot": None,
}


class OnlyWhatDecides(build_py):
    def run(self) -> None:
        super().run()
        self.copy_file("../LICENSE", str(Path(self.build_lib) / "diamond_attention"))

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        wanted = ONLY[package]
        return [
            each for each in super().find_package_modules(package, package_dir) if not wanted or each[1] in wanted
        ]


project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
setup(
    version=project["version"],
    packages=list(ONLY),
    package_dir={name: PACKAGE + name.removeprefix("diamond_attention").replace(".", "/") for name in ONLY},
    package_data={"diamond_attention": ["shipped/*/policy.*", "py.typed"]},
    cmdclass={"build_py": OnlyWhatDecides},
)
