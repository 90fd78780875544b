"""One step of gradient descent: gradient, clipping, optimiser; plain, or compiled into one function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from minerva.compiled import Compiled, capture_function, compile_function, swapped
from minerva.types import State

OPTIMIZERS = ("adam", "adamw", "sgd")
BETAS = (0.9, 0.999)
# Gradients of float16 are those of the loss times a factor, lest they vanish: the first factor, what it is multiplied with after so many
# steps in a row without an infinity, and after a step with one (Micikevicius et al. 2018, arXiv 1710.03740, as in torch.amp.GradScaler).
SCALE, GROWTH, PATIENCE, BACKOFF = 2.0**16, 2.0, 2000, 0.5

Loss = Callable[..., tuple[Tensor, dict[str, Tensor]]]


@dataclass(frozen=True)
class Group:
    """Parameters that are updated alike.

    Attributes:
        parameters: some of the module's.
        learning_rate: > 0; an algorithm may change it between steps, in ``Learner.rates``.
        optimizer: one of ``OPTIMIZERS``.
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

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(f"optimizer={self.optimizer}: allowed are {', '.join(OPTIMIZERS)}")


class Learner:
    """Minimises a loss, a step at a time.

    The parameters of a group are views of one vector, and the optimiser is ours: one update does for all of them, the same plain and
    compiled (which differ by float32's rounding), and torch.optim, which takes a second to import, is not needed.

    Args:
        module: holds every parameter, and every buffer that the loss reads.
        loss: of some samples of a batch, and of the coefficients by name; the loss to minimise, and its terms, to be looked at.
        groups: all of the module's parameters.
        clip: places in ``groups`` whose gradients' common norm is bounded, and the bound; None for none.
        compile: whether to; on a GPU, whether to capture a step as a CUDA graph.
        coefficients: numbers that the loss reads and that may change between steps.

    Attributes:
        coefficients: as given; an algorithm may change them between steps.
        rates: the learning rate of each group; an algorithm may change them between steps.
        steps: done so far.
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
        coefficients: Mapping[str, float] | None = None,
    ) -> None:
        self.coefficients = dict(coefficients or {})
        self.module, self.loss, self.groups, self.compile = module, loss, groups, compile
        self.clip = [(places, bound) for places, bound in clip if bound is not None]
        self.rates = [group.learning_rate for group in groups]
        self._dropout = [layer for layer in module.modules() if isinstance(layer, nn.Dropout)]
        self.steps = 0
        self.terms: tuple[str, ...] = ()
        # Of each group the parameters, and the running means of their gradient and its square (of no use to SGD).
        self._theta = [self._flatten(group.parameters) for group in groups]
        self._mean, self._square = ([torch.zeros_like(theta) for theta in self._theta] for _ in range(2))
        # Of each group the learning rate and what Adam makes of it in this step, for the compiled function to read.
        self._numbers = torch.zeros(len(groups), 3)
        self._compiled: dict[tuple[torch.Size, ...], Compiled] = {}
        # The factor, and the steps since it has changed.
        half = any(getattr(layer, "amp", None) == torch.float16 for layer in module.modules())
        self._scale = torch.tensor([SCALE, 0.0], device=self._theta[0].device) if half else None

    def __call__(self, index: Tensor, *batch: Tensor) -> Tensor:
        """A step on the samples ``index`` [B] of ``batch``, each of whose tensors has them first.

        Returns:
            The terms of the loss before the step, in the order of ``terms``.
        """
        if any(g.parameters[0].data_ptr() != t.data_ptr() for g, t in zip(self.groups, self._theta, strict=True)):
            self._theta = [self._flatten(group.parameters) for group in self.groups]  # they were copied, or moved
        self.steps += 1
        # LaTeX: \alpha_t = \alpha / (1 - \beta_1^t), \qquad c_t = \sqrt{1 - \beta_2^t}
        first, second = (1 - beta**self.steps for beta in BETAS)
        for row, rate in zip(self._numbers.numpy(), self.rates, strict=True):
            row[:] = rate, rate / first, second**0.5
        numbers = self._numbers.to(self._theta[0].device)
        coefficients = torch.tensor([*self.coefficients.values()], device=numbers.device)
        if self.compile:
            scale = [] if self._scale is None else [self._scale]
            own = [*self._theta, *self._mean, *self._square, *self.module.buffers(), *scale]
            tensors = [*own, numbers, coefficients, index, *batch]
            shapes = tuple(tensor.shape for tensor in (index, *batch))
            if shapes not in self._compiled:
                self._compiled[shapes] = (
                    capture_function(self._pure_step, tensors, fixed=len(own))
                    if numbers.is_cuda
                    else compile_function(self._pure_step, tensors, "the update")
                )
            return self._compiled[shapes](tensors)[0]

        loss, terms = self._loss(coefficients, index, batch)
        parameters = [parameter for group in self.groups for parameter in group.parameters]
        if self._scale is not None:
            loss = loss * self._scale[0]
        gradient = iter(torch.autograd.grad(loss, parameters, materialize_grads=True))
        gradients = [torch.cat([next(gradient).flatten() for _ in group.parameters]) for group in self.groups]
        with torch.no_grad():
            self._update(self._theta, self._mean, self._square, gradients, numbers, self._scale)
        return terms

    def _loss(self, coefficients: Tensor, index: Tensor, batch: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        named = dict(zip(self.coefficients, coefficients.unbind(), strict=True))
        for layer in self._dropout:
            layer.train()
        loss, terms = self.loss(*(data[index] for data in batch), **named)
        for layer in self._dropout:
            layer.eval()
        self.terms = tuple(terms)
        return loss, torch.stack([term.detach() for term in terms.values()])

    def _pure_step(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """A step as a function of tensors alone."""
        left = iter(tensors)
        theta, mean, square = ([next(left) for _ in self.groups] for _ in range(3))
        held = {name: next(left) for name, _ in self.module.named_buffers()}
        scale = None if self._scale is None else next(left)
        numbers, coefficients, index, *batch = left
        names = {id(parameter): name for name, parameter in self.module.named_parameters()}

        def loss(theta: list[Tensor]) -> tuple[Tensor, Tensor]:
            for group, vector in zip(self.groups, theta, strict=True):
                parts = vector.split([parameter.numel() for parameter in group.parameters])
                held.update({names[id(p)]: part.view_as(p) for p, part in zip(group.parameters, parts, strict=True)})
            with swapped(self.module, held):
                value, terms = self._loss(coefficients, index, batch)
            return value if scale is None else value * scale[0], terms

        gradients, terms = torch.func.grad(loss, has_aux=True)(theta)
        self._update(theta, mean, square, gradients, numbers, scale)
        return (terms,)

    def _update(
        self,
        theta: list[Tensor],
        mean: list[Tensor],
        square: list[Tensor],
        gradients: list[Tensor],
        numbers: Tensor,
        scale: Tensor | None,
    ) -> None:
        """Clip the gradients and step along them, in place; if the loss was scaled and they are not finite, leave all as it was."""
        if scale is not None:
            own = [*theta, *mean, *square]
            before = [tensor.clone() for tensor in own]
            gradients = [gradient / scale[0] for gradient in gradients]
            self._update(theta, mean, square, gradients, numbers, None)
            finite = torch.stack([gradient.isfinite().all() for gradient in gradients]).all()
            finite = finite | (scale[0] < 1)  # it is not for want of range: a step that shows what is wrong
            for tensor, old in zip(own, before, strict=True):
                tensor.copy_(torch.where(finite, tensor, old))
            adapt(scale, finite)
            return
        for places, bound in self.clip:
            # LaTeX: g \leftarrow g \, \min(1,\ c / (\lVert g \rVert + 10^{-6}))
            norm = torch.stack([gradients[i].square().sum() for i in places]).sum().sqrt()
            for i in places:
                gradients[i] = gradients[i] * (bound / (norm + 1e-6)).clamp(max=1.0)
        for group, *vectors in zip(self.groups, theta, mean, square, gradients, numbers, strict=True):
            optimize(group, *vectors)

    @staticmethod
    def _flatten(parameters: Sequence[nn.Parameter]) -> Tensor:
        """One vector that the parameters are views of, from now on."""
        vector = torch.cat([parameter.detach().flatten() for parameter in parameters])
        for parameter, part in zip(parameters, vector.split([p.numel() for p in parameters]), strict=True):
            parameter.data = part.view_as(parameter)
        return vector

    def state_dict(self) -> State:
        """The running means of the gradients, the learning rates, the number of steps, and the loss's factor if it has one."""
        scale = {} if self._scale is None else {"scale": self._scale}
        return {"mean": self._mean, "square": self._square, "rates": list(self.rates), "steps": self.steps, **scale}

    def load_state_dict(self, state: State) -> None:
        """Go on where ``state`` was taken."""
        for kept, name in ((self._mean, "mean"), (self._square, "square")):
            for tensor, saved in zip(kept, state[name], strict=True):
                tensor.copy_(saved)
        self.rates, self.steps = list(state["rates"]), state["steps"]
        if self._scale is not None:
            self._scale.copy_(state["scale"])


def adapt(scale: Tensor, finite: Tensor) -> None:
    """Change what the loss is multiplied with, in place.

    Args:
        scale: [2], the factor, and the steps since it has changed.
        finite: [] bool, whether this step's gradients were.
    """
    grows = finite & (scale[1] + 1 >= PATIENCE)
    factor = torch.where(finite, torch.where(grows, GROWTH, 1.0), BACKOFF)
    scale.copy_(torch.stack([scale[0] * factor, torch.where(finite & ~grows, scale[1] + 1, 0.0)]))


def optimize(group: Group, theta: Tensor, mean: Tensor, square: Tensor, gradient: Tensor, numbers: Tensor) -> None:
    """A step of Adam (Kingma and Ba 2015, arXiv 1412.6980, alg. 1), AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101) or SGD, in place.

    Args:
        group: says which, and how.
        theta: the parameters [P].
        mean, square: running means [P] of the gradient and of its square.
        gradient: [P].
        numbers: [3], the learning rate; the same, and the root of the mean square, as Adam corrects them in this step.
    """
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
        # LaTeX: m \leftarrow \beta_1 m + (1 - \beta_1) g, \qquad v \leftarrow \beta_2 v + (1 - \beta_2) g^2
        mean.lerp_(gradient, 1 - BETAS[0])
        square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        # LaTeX: \theta \leftarrow \theta - \alpha_t \, \frac{m}{\sqrt v / c_t + \epsilon}
        theta.sub_(corrected_rate * mean / (square.sqrt() / correction + group.eps))
    if group.minimum is not None:
        theta.clamp_(min=group.minimum)
