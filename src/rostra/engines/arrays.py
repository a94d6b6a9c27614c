"""The two array types that cross every border of the engines."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.integer[Any]]
"""Token ids, offsets, counts. The engine chooses the width."""
FloatArray = NDArray[np.floating[Any]]
"""Log-probabilities, weights, rewards."""
