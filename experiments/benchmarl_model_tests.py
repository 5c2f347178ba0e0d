"""BenchMARL's own tests of models, of a clone of its repository, with Diamond Attention as one more model.

    git clone --branch 1.5.0 https://github.com/facebookresearch/BenchMARL
    pip install torch-geometric
    python experiments/benchmarl_model_tests.py BenchMARL --to results/benchmarl_model_tests.json

The tests take every model that is registered by name, and hydra's settings of it; both are made known here. Their
observations hold no ranks, so nobody has one. torch-geometric is what the tests import, for a model of BenchMARL's.
"""

import argparse
import hashlib
import json
import linecache
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from benchmarl.models import model_config_registry
from hydra.core.config_store import ConfigStore

from diamond_attention.torch.benchmarl import DiamondConfig

NAME = "diamond"
PACKAGES = ("benchmarl", "torch", "torchrl", "tensordict")


@dataclass
class WithoutRanks(DiamondConfig):
    rank_key: str | None = None


class Outcomes:
    """What came of each test: passed, skipped or failed; a test that fails to begin has failed."""

    def __init__(self) -> None:
        self.of: dict[str, str] = {}
        self.why: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.rpartition("::")[2]
        if report.when == "call" or report.outcome != "passed":
            self.of[name] = report.outcome
        if report.outcome == "skipped":
            # Where a test gives no reason to pytest, what stands in that line is all there is.
            file, line, _ = report.longrepr
            self.why[name] = linecache.getline(file, line).strip()

    def summary(self) -> dict[str, Any]:
        counts = Counter(self.of.values())
        names = {outcome: sorted(n for n, own in self.of.items() if own == outcome) for outcome in counts}
        return {
            **{outcome: counts[outcome] for outcome in ("passed", "skipped", "failed")},
            "why_skipped": dict(Counter(self.why.values())),
            "names_of_skipped": names.get("skipped", []),
            "names_of_failed": names.get("failed", []),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("clone", type=Path, help="of BenchMARL's repository")
    parser.add_argument("--to", type=Path, required=True, metavar="FILE.json")
    asked = parser.parse_args()
    tests = asked.clone / "test" / "test_models.py"
    if not tests.is_file():
        parser.error(f"{tests} is missing; name a clone of BenchMARL's repository")
    model_config_registry[NAME] = WithoutRanks
    ConfigStore.instance().store(group="model/layers", name=NAME, node={"name": NAME, **asdict(WithoutRanks())})
    outcomes = Outcomes()
    status = pytest.main([str(tests), "-k", NAME, "-q", "-p", "no:cacheprovider"], plugins=[outcomes])
    if not outcomes.of:
        sys.exit(f"no test ran; pytest's status is {int(status)}")
    about = {
        "tests": "BenchMARL, test/test_models.py",
        "sha256": hashlib.sha256(tests.read_bytes()).hexdigest(),
        "versions": {package: version(package) for package in PACKAGES},
    }
    asked.to.write_text(json.dumps(about | outcomes.summary(), indent=2) + "\n")
    print(asked.to.read_text())
    sys.exit(int(status))


if __name__ == "__main__":
    main()
