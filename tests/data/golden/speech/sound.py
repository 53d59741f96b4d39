"""The recordings of make.py and beams.py."""

import numpy as np


def samples(seconds, seed):
    """16 kHz: steps of a quadratic sequence, louder and softer; exact in float32."""
    n = np.arange(int(seconds * 16000), dtype=np.int64)
    wave = (n * n % 4001 * (seed + 3) + n * 7 * seed) % 1601 - 800
    loud = n // 4000 * (seed + 5) % 17
    return (wave * loud).astype(np.float32) / np.float32(16384)
