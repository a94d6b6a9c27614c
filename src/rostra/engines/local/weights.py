"""The weights of one model, and who may use which.

Sampler and trainer share one set of weights in place: a new policy costs no copy. A sampler must
never see newer weights, so whoever changes them first asks whether a sampler of the old ones is
still in somebody's hands. If so, and only then, the old trained weights are set aside for it.
"""

import itertools
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from rostra.engines.local.attention import Plan
from rostra.engines.local.linear import FastLinear, can_pack, make_fast
from rostra.engines.local.trunk import LlamaTrunk, make_trunk

_serials = itertools.count(1)


class Policy:
    """One state of the weights."""

    def __init__(self, adapter: bool = True) -> None:
        self.serial = next(_serials)
        self.adapter = adapter
        """Whether the adapter takes part."""
        self.aside: list[Tensor] | None = None
        """Its trained weights, once the ones in place have moved on."""


class Weights:
    """A module and the state it is in."""

    def __init__(self, module: nn.Module, *, fast: bool) -> None:
        self.module = module
        self.trained: Sequence[nn.Parameter] = ()
        self.has_adapter = False
        self.adapter_on = False
        self.gone: deque[int] = deque()
        """Policies that nobody holds any more."""
        self._pack = fast and can_pack(module)
        self._fast: list[FastLinear] = make_fast(module) if self._pack else []
        self.trunk = make_trunk(module, pack=self._pack)
        self._current: weakref.ref[Policy] | None = None
        self._base: weakref.ref[Policy] | None = None

    def rebuild(self) -> None:
        """To be called when layers of the module were replaced."""
        self.trunk = make_trunk(self.module, pack=self._pack)

    def logits(self, tokens: Tensor, places: Tensor, wanted: Tensor, plan: Plan) -> Tensor:
        """The model's logits in some rows of a packed batch."""
        module: Any = self.module
        if isinstance(self.trunk, LlamaTrunk):
            hidden = self.trunk(tokens, places, plan)
            found: Tensor = module.get_output_embeddings()(hidden.index_select(0, wanted))
            return found
        found = module(
            input_ids=tokens[None],
            position_ids=places[None],
            use_cache=False,
            logits_to_keep=wanted,
            packed=plan,
        ).logits[0]
        return found

    def policy(self) -> Policy:
        """Today's weights."""
        policy = self._current() if self._current is not None else None
        if policy is None:
            policy = self._watched(Policy())
            self._current = weakref.ref(policy)
        return policy

    def base(self) -> Policy:
        """The weights without the adapter; today's where there is none."""
        if not self.has_adapter:
            return self.policy()
        policy = self._base() if self._base is not None else None
        if policy is None:
            policy = self._watched(Policy(adapter=False))
            self._base = weakref.ref(policy)
        return policy

    def _watched(self, policy: Policy) -> Policy:
        weakref.finalize(policy, self.gone.append, policy.serial).atexit = False
        return policy

    @contextmanager
    def using(self, policy: Policy | None) -> Iterator[None]:
        """Runs with the weights of a policy, or with today's."""
        self.adapter_on = self.has_adapter and (policy is None or policy.adapter)
        if policy is None or policy.aside is None:
            yield
            return
        today = [parameter.data for parameter in self.trained]
        self._put(policy.aside)
        try:
            yield
        finally:
            self._put(today)

    def before_change(self) -> None:
        """To be called before the trained weights change."""
        policy = self._current() if self._current is not None else None
        if policy is not None:
            with torch.no_grad():
                policy.aside = [parameter.detach().clone() for parameter in self.trained]
        self._current = None

    def changed(self) -> None:
        """To be called after the trained weights have changed."""
        if not self.has_adapter:
            self.trunk.forget()
            for fast in self._fast:
                fast.forget()

    def _put(self, tensors: Sequence[Tensor]) -> None:
        for parameter, tensor in zip(self.trained, tensors, strict=True):
            parameter.data = tensor
        self.changed()
