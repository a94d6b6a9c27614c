"""How far the trainer has moved from the sampler, over response tokens only."""

from collections.abc import Sequence

import numpy as np

from rostra.engines.arrays import FloatArray
from rostra.engines.training import Datum


def optim_metrics(data: Sequence[Datum], logprobs: Sequence[FloatArray]) -> dict[str, float]:
    """`logprobs` are log p of each datum's targets under the trainer; log q is in the data.

    kl_sample_train_v1 = mean(log q - log p); _v2 = mean((log q - log p)^2) / 2;
    entropy = -mean(log q). Not a number where there are no response tokens.
    """
    masks = [datum.mask > 0 for datum in data]
    q = np.concatenate([np.zeros(0), *(d.logprobs[m] for d, m in zip(data, masks, strict=True))])
    p = np.concatenate([np.zeros(0), *(x[m] for x, m in zip(logprobs, masks, strict=True))])
    if not len(q):
        nan = float("nan")
        return dict.fromkeys(_NAMES, nan)
    gap = q - p
    values = (gap.mean(), (gap**2).mean() / 2, -q.mean())
    return {name: float(value) for name, value in zip(_NAMES, values, strict=True)}


_NAMES = ("optim/kl_sample_train_v1", "optim/kl_sample_train_v2", "optim/entropy")
