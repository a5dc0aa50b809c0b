"""Muon for the matrices of the blocks, AdamW for everything else, under one schedule."""

import torch

MUON_RATE = 0.02
ADAM_RATE = 2e-3
WEIGHT_DECAY = 0.02
MOMENTUM = 0.95
WARM_UP_STEPS = 200
CONSTANT_SHARE = 0.3


def rate(step, share):
    """Learning rate factor: a linear start, constant until 30 % of the time, then a straight line to zero at the end."""
    return min(1.0, (step + 1) / WARM_UP_STEPS) * min(1.0, max(0.0, (1 - share) / (1 - CONSTANT_SHARE)))


def orthogonal(g):
    """Nearest semi-orthogonal matrices of a stack [N, R, C], roughly: five quintic Newton-Schulz steps (Keller Jordan's coefficients)."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.bfloat16()
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        s = x @ x.mT
        x = a * x + (b * s + c * s @ s) @ x
    return (x.mT if tall else x).to(g.dtype)


class Muon:
    """Orthogonalised momentum. Equal shapes are stacked; a fused qkv counts as its three square matrices."""

    def __init__(self, parameters):
        self.groups = {}
        for parameter in parameters:
            rows, columns = parameter.shape
            parts = 3 if rows == 3 * columns else 1
            self.groups.setdefault((parts, rows, columns), []).append(parameter)
        self.momentum = {key: torch.zeros_like(torch.stack(list(group))) for key, group in self.groups.items()}

    @torch.no_grad()
    def step(self, factor):
        for (parts, rows, columns), group in self.groups.items():
            gradient = torch.stack([p.grad for p in group])
            momentum = self.momentum[parts, rows, columns]
            momentum.lerp_(gradient, 1 - MOMENTUM)
            update = gradient.lerp(momentum, MOMENTUM).view(-1, rows // parts, columns)
            update = orthogonal(update).view(-1, rows, columns) * max(1, rows / parts / columns) ** 0.5
            torch._foreach_mul_(group, 1 - WEIGHT_DECAY * MUON_RATE * factor)
            torch._foreach_add_(group, list(update.unbind()), alpha=-MUON_RATE * factor)

    @torch.no_grad()
    def forget(self):
        for momentum in self.momentum.values():
            momentum.zero_()


class Optimiser:
    def __init__(self, net, head):
        self.parameters = [*net.parameters(), *head.parameters()]
        matrices = [p for name, p in net.named_parameters() if ".blocks." in name and p.ndim == 2]
        chosen = set(map(id, matrices))
        rest = [p for p in self.parameters if id(p) not in chosen]
        fixed = {id(net.region.coord_features), id(net.region.size_features)}  # frequencies: shrinking them would lose detail
        decayed = [p for p in rest if p.ndim == 2 and id(p) not in fixed]
        plain = [p for p in rest if p.ndim != 2 or id(p) in fixed]
        groups = [{"params": decayed, "weight_decay": WEIGHT_DECAY}, {"params": plain, "weight_decay": 0.0}]
        self.muon, self.adam = Muon(matrices), torch.optim.AdamW(groups, lr=ADAM_RATE, betas=(0.9, 0.98))

    def step(self, factor):
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        for group in self.adam.param_groups:
            group["lr"] = ADAM_RATE * factor
        self.muon.step(factor)
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)

    def forget(self):
        """Drop all momentum, after the weights were put back."""
        self.muon.forget()
        self.adam.state.clear()
        self.adam.zero_grad(set_to_none=True)
