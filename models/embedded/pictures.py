"""From stored I420 frames to what the network sees, on the device; and the damage that training does to them on the way.

The clean path is the product's: I420 to RGB as a decoder does, the whole picture resized to the crop (Lanczos, a = 3, antialiased, aspect ratio
not kept), then (x / 255 - 0.5) / 0.5. Cut, shift, zoom and mirror are folded into the two resizing matrices.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from feed import NO_COLOUR, Scenes

LANCZOS_A = 3.0
ZOOM_RANGE = (0.85, 1.06)  # side of the window that is looked at, in picture sides
SHIFT_MAX = 0.06
KEPT_MIN = 0.7  # an object of which less stays in the window is neither asked for nor forbidden
KEPT_GONE = 0.03


@dataclass
class Labels:
    """Objects of each picture in the order the network lists them: by x centre, then y centre. Empty places come last."""

    cls: torch.Tensor  # int64 [B, 32]
    colour: torch.Tensor  # int64 [B, 32], -1 without colour
    box: torch.Tensor  # float32 [B, 32, 4]
    present: torch.Tensor  # bool [B, 32]: must be found
    ignored: torch.Tensor  # bool [B, 32]: may be found or not, so nothing is asked about it
    whole: torch.Tensor  # bool [B]: the window lost no object, so the caption still holds
    caption: torch.Tensor  # int64 [B, 3, T]
    caption_len: torch.Tensor  # int64 [B, 3]


@dataclass
class Window:
    """What part of each picture is looked at: x0, y0 and the sides in shares of the picture [B]; mirrored or not."""

    x0: torch.Tensor
    y0: torch.Tensor
    w: torch.Tensor
    h: torch.Tensor
    flip: torch.Tensor


def whole_window(batch, device):
    zero, one = torch.zeros(batch, device=device), torch.ones(batch, device=device)
    return Window(zero, zero, one, one, zero.bool())


class Dice:
    """Random numbers per picture, shaped [B, 1, ...] to broadcast."""

    def __init__(self, batch, device, generator):
        self.batch, self.device, self.generator = batch, device, generator

    def uniform(self, low, high, dims=0):
        u = torch.rand(self.batch, device=self.device, generator=self.generator)
        return (low + (high - low) * u).view(-1, *[1] * dims)

    def chance(self, p, dims=0):
        return self.uniform(0, 1, dims) < p


def random_window(dice):
    still = dice.chance(0.25)
    w = torch.where(still, 1.0, dice.uniform(*ZOOM_RANGE))
    h = torch.where(still, 1.0, w * dice.uniform(0.95, 1.05))
    # A window smaller than the picture may lie anywhere in it; one that is larger shows the border stretched.
    x0 = torch.where(still, 0.0, (1 - w) / 2 + dice.uniform(-1, 1) * ((1 - w).abs() / 2).clamp(max=SHIFT_MAX))
    y0 = torch.where(still, 0.0, (1 - h) / 2 + dice.uniform(-1, 1) * ((1 - h).abs() / 2).clamp(max=SHIFT_MAX))
    return Window(x0, y0, w, h, dice.chance(0.5))


def lanczos(out_size, in_size, start, side, flip, dtype):
    """Resizing matrices [B, out, in] for windows [start, start + side] (shares) of an axis; rows sum to one, as in Pillow."""
    device = start.device
    i = torch.arange(out_size, device=device, dtype=torch.float32)
    i = torch.where(flip.unsqueeze(1), out_size - 1 - i, i)
    scale = (side * in_size / out_size).view(-1, 1, 1)
    stretch = scale.clamp(min=1.0)
    centre = (start * in_size).view(-1, 1, 1) + (i.unsqueeze(2) + 0.5) * scale
    centre = centre.clamp(0.5, in_size - 0.5)
    t = (torch.arange(in_size, device=device, dtype=torch.float32) + 0.5 - centre) / stretch
    weight = torch.where(t.abs() < LANCZOS_A, torch.sinc(t) * torch.sinc(t / LANCZOS_A), 0.0)
    return (weight / weight.sum(2, keepdim=True)).to(dtype)


def planes_from_i420(frame, width, height, dtype):
    y, u, v = frame.split([width * height, width * height // 4, width * height // 4], dim=1)
    half = (-1, height // 2, width // 2)
    return y.view(-1, height, width).to(dtype), u.reshape(half).to(dtype), v.reshape(half).to(dtype)


def rgb_from_planes(y, u, v):
    """BT.601, limited range, to RGB 0..255 [B, 3, H, W], clipped as a decoder clips."""
    u, v = (p.repeat_interleave(2, 1).repeat_interleave(2, 2) - 128 for p in (u, v))
    y = (y - 16) * (255 / 219)
    rgb = torch.stack([y + 1.596027 * v, y - 0.391762 * u - 0.812968 * v, y + 2.017232 * u], dim=1)
    return rgb.clamp_(0, 255)


def dct_matrix(n, device, dtype):
    k, i = torch.arange(n, device=device).float().unsqueeze(1), torch.arange(n, device=device).float()
    matrix = torch.cos(math.pi * (2 * i + 1) * k / (2 * n)) * math.sqrt(2 / n)
    matrix[0] /= math.sqrt(2)
    return matrix.to(dtype)


def quantise(plane, step, n):
    """Round the n x n block cosine coefficients of a plane [B, H, W] to `step` [B], most small ones to zero, as a video encoder does."""
    b, h, w = plane.shape
    if h % n or w % n:
        return plane
    dct = dct_matrix(n, plane.device, plane.dtype)
    blocks = (plane - 128).view(b, h // n, n, w // n, n).transpose(2, 3)
    coefficients = dct @ blocks @ dct.T
    # The mean of a block is predicted well by its neighbours and so kept finer; high frequencies are kept coarser.
    k = torch.arange(n, device=plane.device, dtype=torch.float32)
    table = (0.5 + (k.unsqueeze(1) + k) / n).to(plane.dtype)
    q = step.view(-1, 1, 1, 1, 1).to(plane.dtype) * table
    scaled = coefficients / q
    kept = torch.sign(scaled) * torch.floor(scaled.abs() + 0.35)
    return (dct.T @ (kept * q) @ dct).transpose(2, 3).reshape(b, h, w) + 128


def smooth(x, strength):
    """Mix [B, C, H, W] with its 3 x 3 mean by `strength` [B, 1, 1, 1]."""
    return torch.lerp(x, F.avg_pool2d(x, 3, 1, 1, count_include_pad=False), strength.to(x.dtype))


def compress(planes, dice):
    """Artefacts like those of H.264 at about 1 Mbit/s and below, on seven pictures of ten."""
    y, u, v = planes
    hit = dice.chance(0.7)
    step = torch.where(hit, torch.exp(dice.uniform(math.log(4), math.log(56))), 0.25)
    half = len(y) // 2
    y = torch.cat([quantise(y[:half], step[:half], 8), quantise(y[half:], step[half:], 4)])
    chroma = step * dice.uniform(0.6, 1.4)
    u, v = quantise(u, chroma, 4), quantise(v, chroma, 4)
    deblock = torch.where(hit, dice.uniform(0, 0.6), 0.0).view(-1, 1, 1, 1)
    return smooth(y.unsqueeze(1), deblock).squeeze(1), u, v


def relight(x, dice, generator):
    """Gamma, contrast, brightness, colour cast, blur and noise on RGB 0..1; mild enough that a colour keeps its name."""
    x = smooth(x, torch.where(dice.chance(0.3, 3), dice.uniform(0, 0.8, 3), 0.0))
    x = x.clamp(0.001, 1) ** torch.exp(dice.uniform(-0.25, 0.25, 3))
    x = (x - 0.5) * dice.uniform(0.85, 1.15, 3) + 0.5 + dice.uniform(-0.06, 0.06, 3)
    cast = torch.rand(len(x), 3, 1, 1, device=x.device, generator=generator)
    x = x * (0.96 + 0.08 * cast)
    noise = torch.randn(x.shape, device=x.device, generator=generator)
    x = x + noise * torch.where(dice.chance(0.5, 3), dice.uniform(0, 0.03, 3), 0.0)
    return x.clamp(0, 1)


class Eye:
    """Turns scenes into normalised pixels and labels, for one size of frames and one crop size."""

    def __init__(self, header, crop, device):
        self.width, self.height, self.crop, self.device = header["width"], header["height"], crop, device
        self.visible_min = header["visible_min"]
        self.ignore_below = header["ignore_below"]
        self.side_min = (header["min_width"], header["min_height"])
        self.dtype = torch.float16 if device.type == "cuda" else torch.float32

    def look(self, scenes: Scenes, generator=None, artefacts=False, damage=False):
        """(pixels [B, 3, S, S] in -1..1, labels). `damage` is the whole of training's, `artefacts` the compression alone."""
        dice = Dice(len(scenes), self.device, generator)
        window = random_window(dice) if damage else whole_window(len(scenes), self.device)
        planes = planes_from_i420(scenes.frame, self.width, self.height, self.dtype)
        if artefacts or damage:
            planes = compress(planes, dice)
        rows = lanczos(self.crop, self.height, window.y0, window.h, torch.zeros_like(window.flip), self.dtype)
        columns = lanczos(self.crop, self.width, window.x0, window.w, window.flip, self.dtype)
        rgb = rgb_from_planes(*planes)
        small = rows.unsqueeze(1) @ rgb @ columns.transpose(1, 2).unsqueeze(1)
        x = (small.float() / 255).clamp(0, 1)
        if damage:
            x = relight(x, dice, generator)
        return (x - 0.5) / 0.5, self.label(scenes, window)

    def label(self, scenes, window):
        start = torch.stack([window.x0, window.y0, window.x0, window.y0], 1).unsqueeze(1)
        side = torch.stack([window.w, window.h, window.w, window.h], 1).unsqueeze(1)
        moved = (scenes.box - start) / side
        mirrored = torch.stack([1 - moved[..., 2], moved[..., 1], 1 - moved[..., 0], moved[..., 3]], -1)
        moved = torch.where(window.flip.view(-1, 1, 1), mirrored, moved)
        box = moved.clamp(0, 1)
        area = (box[..., 2:] - box[..., :2]).prod(-1)
        kept = area / (moved[..., 2:] - moved[..., :2]).prod(-1).clamp(min=1e-9)
        sides = scenes.box[..., 2:] - scenes.box[..., :2]
        big = (sides[..., 0] >= self.side_min[0]) & (sides[..., 1] >= self.side_min[1])
        seen = (scenes.visible >= self.ignore_below) & (kept > KEPT_GONE)
        present = seen & (scenes.visible >= self.visible_min) & big & (kept >= KEPT_MIN)
        captioned = (scenes.visible >= self.visible_min) & big
        whole = (present | ~captioned).all(1)
        return self._ordered(scenes, box, present, seen & ~present, whole)

    @staticmethod
    def _ordered(scenes, box, present, ignored, whole):
        centre = (box[..., :2] + box[..., 2:]) * 512
        key = centre[..., 0].round() * 2048 + centre[..., 1].round()
        order = torch.where(present | ignored, key, 1e9).argsort(dim=1, stable=True)
        colour = scenes.colour.long()
        return Labels(
            cls=scenes.cls.long().gather(1, order),
            colour=torch.where(colour == NO_COLOUR, -1, colour).gather(1, order),
            box=box.gather(1, order.unsqueeze(-1).expand(-1, -1, 4)),
            present=present.gather(1, order),
            ignored=ignored.gather(1, order),
            whole=whole,
            caption=scenes.caption.long(),
            caption_len=scenes.caption_len.long(),
        )
