"""A fleet on one machine: a world that moves the bodies, and a process for each robot. docs/fleet.md shows it."""
