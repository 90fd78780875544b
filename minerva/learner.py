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
        eps: of Adam and AdamW.
        minimum: they are kept above this; None for no bound.
    """

    parameters: Sequence[nn.Parameter]
    learning_rate: float
    eps: float = 1e-8
    minimum: float | None = None


class Learner:
    """Minimises a loss, a step at a time.

    Compiled and plain, a step does the same: its gradients are equal to float32's rounding.

    Args:
        module: holds every parameter, and every buffer that the loss reads.
        loss: of some samples of a batch; the loss to minimise, and its terms, to be looked at.
        groups: which parameters have which learning rate.
        clip: bounds of norms of gradients, each of these parameters together; None for none.
        optimizer: a key of ``OPTIMIZERS``.
        weight_decay: of AdamW and SGD; Adam's is an L2 penalty.
        compile: whether to.

    Attributes:
        rates: the learning rate of each group.
        terms: names of the loss's terms, once there was a step.
    """

    def __init__(
        self,
        *,
        module: nn.Module,
        loss: Loss,
        groups: Sequence[Group],
        clip: Sequence[tuple[Sequence[nn.Parameter], float | None]],
        optimizer: str,
        weight_decay: float = 0.0,
        compile: bool,
    ) -> None:
        self.module, self.loss, self.groups, self.clip = module, loss, groups, clip
        self.rates = [group.learning_rate for group in groups]
        self.terms: tuple[str, ...] = ()
        self.kind, self.weight_decay, self.compile = optimizer, weight_decay, compile
        eps = [{} if optimizer == "sgd" else {"eps": group.eps} for group in groups]
        self.optimizer = OPTIMIZERS[optimizer](
            [{"params": [*group.parameters], "lr": group.learning_rate, **e} for group, e in zip(groups, eps, strict=True)],
            weight_decay=weight_decay,
            fused=True,
        )
        self._compiled: dict[tuple[torch.Size, ...], Compiled] = {}

    def __call__(self, index: Tensor, *batch: Tensor) -> Tensor:
        """A step on the samples ``index`` [B] of ``batch``, each of whose tensors has them first.

        Returns:
            The terms of the loss before the step, in the order of ``terms``.
        """
        if self.compile:
            return self._step_compiled(index, *batch)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate
        loss, terms = self.loss(*(data[index] for data in batch))
        self.optimizer.zero_grad()
        loss.backward()
        for parameters, bound in self.clip:
            if bound is not None:
                nn.utils.clip_grad_norm_(parameters, bound, foreach=True)
        self.optimizer.step()
        with torch.no_grad():
            for group in self.groups:
                if group.minimum is not None:
                    for parameter in group.parameters:
                        parameter.clamp_(min=group.minimum)
        self.terms = tuple(terms)
        return torch.stack([term.detach() for term in terms.values()])

    def _step_compiled(self, index: Tensor, *batch: Tensor) -> Tensor:
        shapes = tuple(tensor.shape for tensor in (index, *batch))
        if shapes not in self._compiled:
            self._compiled[shapes] = self._compile(index, *batch)
        for rate, value in zip(self._rates, self.rates, strict=True):
            rate.fill_(value)
        return self._compiled[shapes]([*self._tensors, index, *batch])[0]

    def _compile(self, index: Tensor, *batch: Tensor) -> Compiled:
        names = [name for name, _ in self.module.named_parameters()]
        parameters = dict(self.module.named_parameters())
        buffers = dict(self.module.named_buffers())
        group_of = {id(p): (i, group) for i, group in enumerate(self.groups) for p in group.parameters}
        place = {id(parameter): i for i, parameter in enumerate(parameters.values())}
        trained = [group_of[id(parameter)] for parameter in parameters.values()]
        clips = [([place[id(p)] for p in some], bound) for some, bound in self.clip if bound is not None]
        slots = self._slots()
        count, buffer_count, slot_count = len(names), len(buffers), len(slots)

        def step(*tensors: Tensor) -> tuple[Tensor, ...]:
            theta, tensors = tensors[:count], tensors[count:]
            held, tensors = tensors[:buffer_count], tensors[buffer_count:]
            state, tensors = tensors[:slot_count], tensors[slot_count:]
            rates, (index, *batch) = tensors[: len(self.groups)], tensors[len(self.groups) :]
            samples = [data[index] for data in batch]

            def loss(theta: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
                with swapped(self.module, [*names, *buffers], [*theta, *held]):
                    value, terms = self.loss(*samples)
                self.terms = tuple(terms)
                return value, torch.stack([term.detach() for term in terms.values()])

            gradient, terms = torch.func.grad(loss, has_aux=True)(theta)
            gradient = [*gradient]
            for places, bound in clips:
                # LaTeX: g \leftarrow g \, \min(1,\ c / (\lVert g \rVert + 10^{-6}))
                norm = torch.stack([gradient[i].square().sum() for i in places]).sum().sqrt()
                for i in places:
                    gradient[i] = gradient[i] * (bound / (norm + 1e-6)).clamp(max=1.0)
            for i, (number, group) in enumerate(trained):
                self._update(theta[i], gradient[i], state[3 * i : 3 * i + 3], rates[number], group)
            return (terms,)

        self._rates = [torch.tensor(rate) for rate in self.rates]
        self._tensors = [*(p.detach() for p in parameters.values()), *buffers.values(), *slots, *self._rates]
        return compile_function(step, [*self._tensors, index, *batch], "the update")

    def _update(self, theta: Tensor, gradient: Tensor, state: Sequence[Tensor], rate: Tensor, group: Group) -> None:
        """What the optimiser does to one parameter, in place (as torch.optim has it)."""
        if self.kind == "sgd":
            # LaTeX: \theta \leftarrow \theta - \alpha \, (g + \lambda \theta)
            theta.sub_(rate * (gradient + self.weight_decay * theta))
        else:
            step, mean, square = state
            if self.kind == "adam" and self.weight_decay:
                gradient = gradient + self.weight_decay * theta
            elif self.weight_decay:
                # LaTeX: \theta \leftarrow (1 - \alpha \lambda) \, \theta
                theta.mul_(1 - rate * self.weight_decay)
            # LaTeX: m \leftarrow \beta_1 m + (1 - \beta_1) g, \qquad v \leftarrow \beta_2 v + (1 - \beta_2) g^2
            step.add_(1)
            mean.lerp_(gradient, 1 - BETAS[0])
            square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
            # LaTeX: \theta \leftarrow \theta - \alpha \, \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon}
            denominator = square.sqrt() / (1 - BETAS[1] ** step).sqrt() + group.eps
            theta.sub_(rate / (1 - BETAS[0] ** step) * mean / denominator)
        if group.minimum is not None:
            theta.clamp_(min=group.minimum)

    def _slots(self) -> list[Tensor]:
        """The optimiser's tensors for each parameter, made where there are none yet."""
        if self.kind == "sgd":
            return []
        for parameter in self.module.parameters():
            if not self.optimizer.state[parameter]:
                zeros = torch.zeros_like(parameter, memory_format=torch.preserve_format)
                self.optimizer.state[parameter] = {
                    "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                    "exp_avg": zeros,
                    "exp_avg_sq": zeros.clone(),
                }
        keys = ("step", "exp_avg", "exp_avg_sq")
        return [self.optimizer.state[p][key] for p in self.module.parameters() for key in keys]

    def state_dict(self) -> State:
        """The optimiser's state, and the learning rates."""
        return {"optimizer": self.optimizer.state_dict(), "rates": list(self.rates)}

    def load_state_dict(self, state: State) -> None:
        """Go on where ``state`` was taken."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.rates = list(state["rates"])
        self._compiled.clear()  # it knows the tensors of before
