"""What a policy may answer with: each has sample, mode, log_probability and entropy."""

from diamond_attention.distributions.categorical import Categorical
from diamond_attention.distributions.gaussian import Gaussian
from diamond_attention.distributions.menu import Menu
from diamond_attention.distributions.squashed import Squashed

Distribution = Categorical | Gaussian | Menu | Squashed
