"""What the training minimises."""

import torch
import torch.nn.functional as F

from prompts import BINS, CAPTION, NOTHING, POINT

SIGMA_FIRST, SIGMA_LAST, SIGMA_SHARE = 40.0, 2.5, 0.1
COORDS_PER_PICTURE, SIZES_PER_PICTURE = 72, 32  # positions that fit; more are left out at random places
WEIGHTS = {"decision": 1.0, "answer": 0.6, "caption": 0.3, "coord": 0.5, "size": 0.5, "dense": 0.6}


def sigma_bins(share):
    """Width of the soft targets: from wide to narrow in the first tenth of the run, geometrically."""
    t = min(1.0, share / SIGMA_SHARE)
    return SIGMA_FIRST ** (1 - t) * SIGMA_LAST**t


def mean_where(loss, where):
    return (loss * where).sum() / where.sum().clamp(min=1)


def token_losses(logits, packed):
    loss = F.cross_entropy(logits.float().flatten(0, 1), packed.token.flatten(), ignore_index=NOTHING, reduction="none")
    asked = (packed.token != NOTHING).flatten()
    task = packed.task.flatten()
    groups = {"decision": task <= POINT, "answer": (task > POINT) & (task < CAPTION), "caption": task == CAPTION}
    return {name: mean_where(loss, where & asked) for name, where in groups.items()}


def take(flags, capacity):
    """Indices of up to `capacity` set flags, and which of them are set: a fixed shape without a wait for the device."""
    chosen = flags.float().topk(min(capacity, len(flags)), sorted=False)
    return chosen.indices, chosen.values > 0


def bin_loss(logits, target, sigma):
    """Cross entropy with a Gaussian over the bins around the float bin `target` [N]; logits [N, 1024]."""
    bins = torch.arange(BINS, device=logits.device, dtype=torch.float32)
    soft = (-0.5 * ((bins - target.unsqueeze(1)) / sigma) ** 2).softmax(1)
    return -(soft * logits.float().log_softmax(1)).sum(1)


def region_losses(region, hidden, packed, sigma):
    hidden, b = hidden.flatten(0, 1), len(hidden)
    coord, size = packed.coord.flatten(), packed.size.flatten(0, 1)
    at, real = take(coord >= 0, b * COORDS_PER_PICTURE)
    coord_loss = mean_where(bin_loss(region.coord_decoder(hidden[at]), coord[at], sigma), real)
    at, real = take(size[:, 0] >= 0, b * SIZES_PER_PICTURE)
    logits = region.size_decoder(hidden[at]).unflatten(1, (2, BINS)).flatten(0, 1)
    size_loss = bin_loss(logits, size[at].flatten(), sigma).view(-1, 2).mean(1)
    return {"coord": coord_loss, "size": mean_where(size_loss, real)}


def dense_loss(outputs, labels, grid):
    """Each patch says what covers its middle (the smallest box that does), what has its centre there, the colour, and where the sides are."""
    of_class, of_centre, of_colour, of_sides = (o.float() for o in outputs)
    device = of_class.device
    ticks = (torch.arange(grid, device=device) + 0.5) / grid
    middle = torch.stack([ticks.repeat(grid), ticks.repeat_interleave(grid)], -1)
    box, seen = labels.box, labels.present | labels.ignored
    centre = (box[..., :2] + box[..., 2:]) / 2
    covers = ((middle[:, None] >= box[:, None, :, :2]) & (middle[:, None] <= box[:, None, :, 2:])).all(-1)
    cell = (centre * grid).floor().clamp(0, grid - 1).long()
    holds = (cell[..., 1] * grid + cell[..., 0]).unsqueeze(1) == torch.arange(grid * grid, device=device).view(1, -1, 1)
    area = (box[..., 2:] - box[..., :2]).prod(-1).unsqueeze(1)
    none = of_class.shape[-1] - 1

    def owner(where):
        cost = torch.where(where & seen.unsqueeze(1), area, 9.0)
        return cost.argmin(-1), cost.amin(-1) < 9.0

    pick = lambda t, at: t.gather(1, at)  # noqa: E731
    over, covered = owner(covers | holds)
    certain = ~(covered & pick(labels.ignored, over))
    cls = torch.where(covered, pick(labels.cls, over), none)
    colour = torch.where(covered & certain, pick(labels.colour, over), -1)
    sides = box.gather(1, over.unsqueeze(-1).expand(-1, -1, 4)) - middle.repeat(1, 2)
    centred_at, centred = owner(holds)
    centre_cls = torch.where(centred, pick(labels.cls, centred_at), none)
    centre_certain = ~(centred & pick(labels.ignored, centred_at))
    flat = lambda logits, target: F.cross_entropy(logits.transpose(1, 2), target, reduction="none", ignore_index=-1)  # noqa: E731
    return (
        mean_where(flat(of_class, cls) * torch.where(covered, 3.0, 1.0), certain)
        + mean_where(flat(of_centre, centre_cls) * torch.where(centred, 5.0, 1.0), centre_certain)
        + 0.5 * mean_where(flat(of_colour, colour), colour >= 0)
        + 4.0 * mean_where((of_sides - sides).abs().mean(-1), covered & certain)
    )


def losses(net, head, features, hidden, logits, packed, labels, share):
    """All losses by name, and their weighted sum."""
    parts = {
        **token_losses(logits, packed),
        **region_losses(net.region, hidden, packed, sigma_bins(share)),
        "dense": dense_loss(head(features), labels, net.vision.grid),
    }
    # The dense task is a ladder for the start; later it should not hold the features back.
    weights = {**WEIGHTS, "dense": WEIGHTS["dense"] * (1 - 0.8 * share)}
    return parts, sum(weights[name] * loss for name, loss in parts.items())
