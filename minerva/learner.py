"""One step of gradient descent: gradient, clipping, optimiser; plain, or compiled into one function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from minerva.compiled import Compiled, compile_function, swapped
from minerva.types import State

OPTIMIZERS: dict[str, Any] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
BETAS = (0.9, 0.999)

Loss = Callable[..., tuple[Tensor, dict[str, Tensor]]]


@dataclass(frozen=True)
class Group:
    """Parameters that are updated alike.

    Attributes:
        parameters: some of the module's.
        learning_rate: > 0; an algorithm may change it between steps, in ``Learner.rates``.
        optimizer: a key of ``OPTIMIZERS``.
        eps: of Adam and AdamW.
        weight_decay: of AdamW and SGD; Adam's is an L2 penalty.
        minimum: they are kept above this; None for no bound.
    """

    parameters: Sequence[nn.Parameter]
    learning_rate: float
    optimizer: str = "adam"
    eps: float = 1e-8
    weight_decay: float = 0.0
    minimum: float | None = None


class Learner:
    """Minimises a loss, a step at a time.

    Compiled and plain, a step does the same: the two differ by float32's rounding.

    Args:
        module: holds every parameter, and every buffer that the loss reads.
        loss: of some samples of a batch; the loss to minimise, and its terms, to be looked at.
        groups: all of the module's parameters.
        clip: places in ``groups`` whose gradients' common norm is bounded, and the bound; None for none.
        compile: whether to.

    Attributes:
        rates: the learning rate of each group; an algorithm may change them between steps.
        terms: names of the loss's terms, once there was a step.
    """

    def __init__(
        self,
        *,
        module: nn.Module,
        loss: Loss,
        groups: Sequence[Group],
        clip: Sequence[tuple[Sequence[int], float | None]],
        compile: bool,
    ) -> None:
        self.module, self.loss, self.groups = module, loss, groups
        self.clip = [(places, bound) for places, bound in clip if bound is not None]
        self.rates = [group.learning_rate for group in groups]
        self.terms: tuple[str, ...] = ()
        self.compile = compile
        self.optimizers = [
            OPTIMIZERS[group.optimizer](
                [*group.parameters],
                lr=group.learning_rate,
                weight_decay=group.weight_decay,
                fused=True,
                **({} if group.optimizer == "sgd" else {"eps": group.eps}),
            )
            for group in groups
        ]
        self._compiled: dict[tuple[torch.Size, ...], Compiled] = {}

    def __call__(self, index: Tensor, *batch: Tensor) -> Tensor:
        """A step on the samples ``index`` [B] of ``batch``, each of whose tensors has them first.

        Returns:
            The terms of the loss before the step, in the order of ``terms``.
        """
        if self.compile:
            return self._step_compiled(index, *batch)
        loss, terms = self.loss(*(data[index] for data in batch))
        self.module.zero_grad()
        loss.backward()
        for places, bound in self.clip:
            nn.utils.clip_grad_norm_([p for i in places for p in self.groups[i].parameters], bound)
        for group, optimizer, rate in zip(self.groups, self.optimizers, self.rates, strict=True):
            optimizer.param_groups[0]["lr"] = rate
            optimizer.step()
            if group.minimum is not None:
                for parameter in group.parameters:
                    parameter.data.clamp_(min=group.minimum)
        self.terms = tuple(terms)
        return torch.stack([term.detach() for term in terms.values()])

    def _step_compiled(self, index: Tensor, *batch: Tensor) -> Tensor:
        shapes = tuple(tensor.shape for tensor in (index, *batch))
        if shapes not in self._compiled:
            if not self._compiled:
                self._flatten()
            self._compiled[shapes] = self._compile(index, *batch)
        for numbers, step, rate in zip(self._numbers, self._steps, self.rates, strict=True):
            step += 1  # in place, in what the optimiser keeps
            t = float(step)
            # LaTeX: \alpha_t = \alpha / (1 - \beta_1^t), \qquad c_t = \sqrt{1 - \beta_2^t}
            numbers[:] = rate, rate / (1 - BETAS[0] ** t), (1 - BETAS[1] ** t) ** 0.5
        return self._compiled[shapes]([*self._tensors, index, *batch])[0]

    def _flatten(self) -> None:
        """Make each group's parameters views of one tensor, and what the optimiser keeps of them too: one update does for all."""
        # For each group the parameters and, unless SGD has none, mean and square.
        self._flat: list[list[Tensor]] = []
        steps: list[Tensor] = []
        for group, optimizer in zip(self.groups, self.optimizers, strict=True):
            parameters, state = list(group.parameters), optimizer.state
            kept = ["exp_avg", "exp_avg_sq"] if group.optimizer != "sgd" else []
            old = {key: [state[p].get(key, torch.zeros_like(p)).flatten() for p in parameters] for key in kept}
            flat = [torch.cat([p.detach().flatten() for p in parameters]), *(torch.cat(old[key]) for key in kept)]
            steps.append(state[parameters[0]].get("step", torch.zeros(())).clone())
            ends = torch.tensor([p.numel() for p in parameters]).cumsum(0).tolist()
            for parameter, end in zip(parameters, ends, strict=True):
                views = [tensor[end - parameter.numel() : end].view_as(parameter) for tensor in flat]
                parameter.data = views[0]
                if kept:
                    state[parameter] = {"step": steps[-1], **dict(zip(kept, views[1:], strict=True))}
            self._flat.append(flat)
        self._steps = [step.numpy() for step in steps]
        numbers = torch.zeros(len(self.groups), 3)  # of a step: the learning rate, and as Adam corrects it
        self._numbers = numbers.numpy()
        self._tensors = [*(tensor for flat in self._flat for tensor in flat), *self.module.buffers(), numbers]

    def _compile(self, index: Tensor, *batch: Tensor) -> Compiled:
        names = {id(parameter): name for name, parameter in self.module.named_parameters()}
        buffers = [name for name, _ in self.module.named_buffers()]

        def step(*tensors: Tensor) -> tuple[Tensor, ...]:
            left = iter(tensors)
            flat = [[next(left) for _ in kept] for kept in self._flat]
            held = {name: next(left) for name in buffers}
            numbers, index, *batch = left

            def loss(thetas: list[Tensor]) -> tuple[Tensor, Tensor]:
                for group, theta in zip(self.groups, thetas, strict=True):
                    parts = theta.split([p.numel() for p in group.parameters])
                    held.update(
                        {names[id(p)]: part.view_as(p) for p, part in zip(group.parameters, parts, strict=True)}
                    )
                with swapped(self.module, held):
                    value, terms = self.loss(*(data[index] for data in batch))
                self.terms = tuple(terms)
                return value, torch.stack([term.detach() for term in terms.values()])

            gradients, terms = torch.func.grad(loss, has_aux=True)([theta for theta, *_ in flat])
            for places, bound in self.clip:
                # LaTeX: g \leftarrow g \, \min(1,\ c / (\lVert g \rVert + 10^{-6}))
                norm = torch.stack([gradients[i].square().sum() for i in places]).sum().sqrt()
                for i in places:
                    gradients[i] = gradients[i] * (bound / (norm + 1e-6)).clamp(max=1.0)
            for (theta, *state), gradient, row, group in zip(flat, gradients, numbers, self.groups, strict=True):
                self._update(theta, gradient, state, row, group)
            return (terms,)

        return compile_function(step, [*self._tensors, index, *batch], "the update")

    def _update(self, theta: Tensor, gradient: Tensor, state: list[Tensor], numbers: Tensor, group: Group) -> None:
        """What torch.optim does to the parameters of a group, in place."""
        rate, corrected_rate, correction = numbers
        if group.optimizer == "adamw":
            # LaTeX: \theta \leftarrow (1 - \alpha \lambda) \, \theta
            theta.mul_(1 - rate * group.weight_decay)
        elif group.weight_decay:
            gradient = gradient + group.weight_decay * theta
        if group.optimizer == "sgd":
            # LaTeX: \theta \leftarrow \theta - \alpha g
            theta.sub_(rate * gradient)
        else:
            mean, square = state
            # LaTeX: m \leftarrow \beta_1 m + (1 - \beta_1) g, \qquad v \leftarrow \beta_2 v + (1 - \beta_2) g^2
            mean.lerp_(gradient, 1 - BETAS[0])
            square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
            # LaTeX: \theta \leftarrow \theta - \alpha_t \, \frac{m}{\sqrt v / c_t + \epsilon}
            theta.sub_(corrected_rate * mean / (square.sqrt() / correction + group.eps))
        if group.minimum is not None:
            theta.clamp_(min=group.minimum)

    def state_dict(self) -> State:
        """What the optimisers keep, and the learning rates."""
        return {"optimizers": [optimizer.state_dict() for optimizer in self.optimizers], "rates": list(self.rates)}

    def load_state_dict(self, state: State) -> None:
        """Go on where ``state`` was taken."""
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
            for kept in optimizer.state.values():
                if "step" in kept:
                    kept["step"] = kept["step"].clone()  # compiled steps count once for all
        self.rates = list(state["rates"])
        self._compiled.clear()  # it knows the tensors of before
