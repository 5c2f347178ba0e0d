"""The noise that everybody derives from a number that was broadcast, bit for bit as JAX derives it in training.

    key   = threefry((0, 0), (0, the 32 bits of the number))
    bits  = the two halves of threefry(key, (0, i)), exclusive or, for option i
    u     = the upper 23 bits as a float32 in [0, 1)
    noise = −log(−log u), with the smallest float32 in place of 0

Threefry is the block cipher of Salmon et al. (2011), two words of 32 bits, twenty rounds. A fleet in another language
must do the same: agents replay each other's choices, and a peer's noise is part of its choice.
"""

import numpy as np

from diamond_attention.deploy.answers import gumbel

ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
PARITY = 0x1BD11BDA
WORD = 0xFFFFFFFF


def threefry(key: tuple, counter: tuple) -> tuple[np.ndarray, np.ndarray]:
    """The cipher, of arrays of uint32 that are broadcast against each other."""
    keys = [*key, key[0] ^ key[1] ^ np.uint32(PARITY)]
    first, second = counter[0] + keys[0], counter[1] + keys[1]
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:
            first = first + second
            second = (second << np.uint32(rotation)) | (second >> np.uint32(32 - rotation))
            second = second ^ first
        first = first + keys[(group + 1) % 3]
        second = second + keys[(group + 2) % 3] + np.uint32(group + 1)
    return first, second


def noise_of_ranks(ranks: np.ndarray, options: int) -> np.ndarray:
    """[agent, option]: for every number that was heard, the noise of the one who sent it."""
    zero = np.zeros(1, np.uint32)
    bits = np.ascontiguousarray(ranks, np.float32).view(np.uint32)
    first, second = threefry((zero, zero), (zero, bits))
    counters = np.arange(options, dtype=np.uint32)
    left, right = threefry((first[:, None], second[:, None]), (zero, counters))
    mantissas = ((left ^ right) >> np.uint32(9)) | np.uint32(0x3F800000)
    return gumbel(mantissas.view(np.float32) - np.float32(1))
