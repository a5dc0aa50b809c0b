"""Check an exported model with a second implementation: plain numpy in float64, written from the tensor names and formulas alone.

    python3 check_export.py DIR        the directory that train.py wrote

It looks at one made-up picture and compares the token logits and both region heads with those of `network.py`, and checks that every usual
camera size gives one tile, which is all this model was trained for.
"""

import math
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

import network

TOLERANCE = 2e-3  # of the root mean square; float32 against float64


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class Plain:
    """Forward pass over a dictionary of float64 arrays; one picture, one prompt."""

    def __init__(self, weights, config):
        self.w, self.c = weights, config

    def linear(self, name, x):
        return x @ self.w[f"model.{name}.weight"].T + self.w[f"model.{name}.bias"]

    def norm(self, name, x):
        mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) / np.sqrt(var + 1e-5) * self.w[f"model.{name}.weight"] + self.w[f"model.{name}.bias"]

    def mlp(self, name, x):
        return self.linear(f"{name}.fc2", gelu(self.linear(f"{name}.fc1", x)))

    def attention(self, name, x, heads, allowed, rotary):
        dim = x.shape[1]
        size = dim // heads
        rows = self.linear(f"{name}.qkv", x)
        out = np.zeros_like(x)
        for h in range(heads):
            q, k, v = (rows[:, part * dim + h * size : part * dim + (h + 1) * size] for part in range(3))
            if rotary:
                q, k = rotated(q), rotated(k)
            scores = np.where(allowed, q @ k.T / math.sqrt(size), -np.inf)
            out[:, h * size : (h + 1) * size] = softmax(scores) @ v
        return self.linear(f"{name}.proj", out)

    def picture(self, pixels):
        """[3, S, S] to image embeddings [patches, D]."""
        c = self.c["vision"]
        p, side = c["enc_patch_size"], c["crop_size"] // c["enc_patch_size"]
        patches = [
            np.concatenate([pixels[ch, y * p : y * p + p, x * p : x * p + p].ravel() for ch in range(3)])
            for y in range(side)
            for x in range(side)
        ]
        x = self.linear("vision.patch_emb", np.array(patches)) + self.w["model.vision.pos_emb"][0]
        everything = np.ones((len(x), len(x)), bool)
        for i in range(c["enc_n_layers"]):
            b = f"vision.blocks.{i}"
            x = x + self.attention(f"{b}.attn", self.norm(f"{b}.ln1", x), c["enc_n_heads"], everything, rotary=False)
            x = x + self.mlp(f"{b}.mlp", self.norm(f"{b}.ln2", x))
        x = self.norm("vision.post_ln", x)
        return self.mlp("vision.proj_mlp", np.concatenate([x, x], 1))

    def encoded(self, kind, values):
        f = 2 * math.pi * np.atleast_2d(values) @ self.w[f"model.region.{kind}_features"]
        return self.linear(f"region.{kind}_encoder", np.concatenate([np.cos(f), np.sin(f)], 1))

    def text(self, image, prompt):
        """The hidden states of all positions: BOS, picture, prompt embeddings."""
        c = self.c["text"]
        x = np.concatenate([self.w["model.text.wte"][:1], image, prompt])
        prefix = 1 + len(image)
        allowed = np.tril(np.ones((len(x), len(x)), bool))
        allowed[:prefix, :prefix] = True
        for i in range(c["n_layers"]):
            b = f"text.blocks.{i}"
            n = self.norm(f"{b}.ln", x)
            x = x + self.attention(f"{b}.attn", n, c["n_heads"], allowed, rotary=True) + self.mlp(f"{b}.mlp", n)
        return x


def rotated(x):
    out = x.copy()
    for j in range(16):
        angle = np.arange(len(x)) * 10_000.0 ** (-2 * j / 32)
        a, b = x[:, j], x[:, j + 16]
        out[:, j], out[:, j + 16] = a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)
    return out


def tiling(width, height, c):
    """Rows and columns of local crops, by Moondream's rule."""
    margin = 2 * c["overlap_margin"] * c["enc_patch_size"]
    tile, limit = c["crop_size"] - margin, c["max_crops"]
    h, w = max(1, height - margin), max(1, width - margin)
    if h <= tile or w <= tile:
        return 1, 1
    rows, columns = math.ceil(h / tile), math.ceil(w / tile)
    if rows * columns > limit:
        ratio = math.sqrt(limit / (rows * columns))
        return max(1, math.floor(rows * ratio)), max(1, math.floor(columns * ratio))
    return rows, columns


def check_tiling(config):
    sizes = "320x180 320x240 352x288 480x270 640x360 640x480 704x576 720x480 800x600 854x480 960x540 1024x576 1024x768 1152x648 1280x720 1280x960 "
    sizes += "1600x900 1600x1200 1920x1080 1920x1200 2304x1296 2560x1440 2592x1944 2688x1520 3072x2048 3440x1440 3840x1080 3840x2160"
    for size in sizes.split():
        width, height = map(int, size.split("x"))
        for w, h in ((width, height), (height, width)):
            assert tiling(w, h, config["vision"]) == (1, 1), f"{w}x{h} gives tiling {tiling(w, h, config['vision'])}"
    odd = [(w, h) for h in range(160, 2200, 40) for w in range(h, 4000, 40) if tiling(w, h, config["vision"]) != (1, 1)]
    print(f"tiling: one tile for {len(sizes.split())} sizes and their portraits; narrowest that is not: {min(odd, key=lambda s: s[0] / s[1], default=None)}")


def check_forward(directory, config):
    weights = load_file(str(Path(directory) / "model.safetensors"))
    plain = Plain({name: t.double().numpy() for name, t in weights.items()}, config)
    net = network.Network(config).eval()
    network.load(net, Path(directory) / "model.safetensors")
    rng = np.random.default_rng(1)
    pixels = rng.uniform(-1, 1, (3, 320, 320))
    ids = [*config["tokenizer"]["templates"]["detect"]["prefix"], 300, 301, 3]
    coords, size = [0.25, 0.75], [0.1, 0.3]
    prompt = np.concatenate([plain.w["model.text.wte"][ids], *(plain.encoded("coord", [v]) for v in coords), plain.encoded("size", size)])
    hidden = plain.text(plain.picture(pixels), prompt)[-len(prompt) :]
    expected = [
        plain.linear("text.lm_head", plain.norm("text.post_ln", hidden)),
        plain.mlp("region.coord_decoder", hidden),
        plain.mlp("region.size_decoder", hidden),
    ]
    kinds = torch.tensor([[0] * len(ids) + [1, 1, 2]])
    values = torch.zeros(1, len(prompt), 2)
    values[0, len(ids) :] = torch.tensor([[0.25, 0.25], [0.75, 0.75], size])
    positions = 401 + torch.arange(len(prompt)).unsqueeze(0)
    mask = network.visible(torch.zeros(1, len(prompt)), 401)
    with torch.no_grad():
        tokens = torch.tensor([[*ids, 0, 0, 0]])
        _, h, logits = net(torch.tensor(pixels[None]).float(), kinds, tokens, values, positions, mask)
        found = [logits, net.region.coord_decoder(h), net.region.size_decoder(h)]
    for name, want, got in zip(("logits", "coord", "size"), expected, found):
        error = np.abs(got[0].numpy() - want).max() / np.sqrt((want**2).mean())
        print(f"{name}: largest difference {error:.1e} of the root mean square {np.sqrt((want**2).mean()):.3f}")
        assert error < TOLERANCE, name


def main():
    directory = sys.argv[1]
    config = network.read_config(directory)
    check_tiling(config)
    check_forward(directory, config)
    size = (Path(directory) / "model.safetensors").stat().st_size
    print(f"model.safetensors: {size} bytes")
    assert size <= 15_900_000


if __name__ == "__main__":
    main()
