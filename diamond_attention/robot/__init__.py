"""One robot of a fleet: what it tells its peers, what it believes of them, and the process that decides for it.

Needs numpy and nothing else, as `deploy` does; docs/fleet.md describes it.
"""
