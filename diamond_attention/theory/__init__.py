"""The paper's theory as programs: players, what makes them homogeneous, and what they can and cannot do."""
