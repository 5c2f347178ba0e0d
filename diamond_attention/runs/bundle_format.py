"""Facts of every policy bundle, and where those are that ship with the package. Needs nothing but Python."""

from pathlib import Path

SHIPPED = Path(__file__).resolve().parents[1] / "shipped"
BUNDLE_FORMAT = 2
"""Of policy.json; 2 is 1 with a checksum."""
SEALED_BUNDLES = range(2, BUNDLE_FORMAT + 1)
MOST = 1 << 16
"""Agents or tasks that a file can ask for; a damaged one must not allocate a billion."""


def shipped_policies() -> list[str]:
    """The trained policies inside the package, by name."""
    return sorted(path.parent.name for path in SHIPPED.glob("*/policy.json"))
