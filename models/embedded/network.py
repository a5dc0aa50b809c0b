"""The network: Moondream 2 in small, in plain PyTorch, with the published tensor names.

Shapes: B pictures, 400 patches, D width, L positions of packed prompts. Module names are the tensor names less the prefix `model.`.
"""

import json
import math
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

TENSOR_PREFIX = "model."
ROTARY_DIM = 32  # of each head of 64; the rest passes unrotated
ROPE_THETA = 10_000.0


def gelu(x):
    return F.gelu(x, approximate="tanh")


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def split(self, x):
        """[B, T, D] to q, k, v, each [B, heads, T, head]."""
        b, t, d = x.shape
        return self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)

    def join(self, x):
        """[B, heads, T, head] to the projected [B, T, D]."""
        return self.proj(x.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, dim, inner, out):
        super().__init__()
        self.fc1 = nn.Linear(dim, inner)
        self.fc2 = nn.Linear(inner, out)

    def forward(self, x):
        return self.fc2(gelu(self.fc1(x)))


class VisionBlock(nn.Module):
    def __init__(self, dim, heads, inner):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.mlp = Mlp(dim, inner, dim)

    def forward(self, x):
        q, k, v = self.attn.split(self.ln1(x))
        x = x + self.attn.join(F.scaled_dot_product_attention(q, k, v))
        return x + self.mlp(self.ln2(x))


class Vision(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.patch = cfg["enc_patch_size"]
        self.grid = cfg["crop_size"] // self.patch
        dim = cfg["enc_dim"]
        self.patch_emb = nn.Linear(cfg["in_channels"] * self.patch**2, dim)
        self.pos_emb = nn.Parameter(torch.zeros(1, self.grid**2, dim))
        self.blocks = nn.ModuleList(VisionBlock(dim, cfg["enc_n_heads"], cfg["enc_ff_dim"]) for _ in range(cfg["enc_n_layers"]))
        self.post_ln = nn.LayerNorm(dim)
        self.proj_mlp = Mlp(2 * dim, cfg["proj_inner_dim"], cfg["proj_out_dim"])

    def forward(self, pixels):
        """Normalised pixels [B, 3, S, S] to (features [B, patches, E], image embeddings [B, patches, D])."""
        b, c = pixels.shape[:2]
        tiles = pixels.view(b, c, self.grid, self.patch, self.grid, self.patch)
        x = self.patch_emb(tiles.permute(0, 2, 4, 1, 3, 5).reshape(b, self.grid**2, -1)) + self.pos_emb
        for block in self.blocks:
            x = block(x)
        features = self.post_ln(x)
        # With one tile the global and the local crop are the same picture, so both halves of the projection's input are equal.
        return features, self.proj_mlp(torch.cat([features, features], dim=-1))


def rope_tables(positions):
    """cos and sin, each [..., 16], float32, for integer positions [...]."""
    j = torch.arange(ROTARY_DIM // 2, device=positions.device, dtype=torch.float32)
    angle = positions.float().unsqueeze(-1) * ROPE_THETA ** (-2.0 * j / ROTARY_DIM)
    return angle.cos(), angle.sin()


def rotate(x, rope):
    """Rotate the first 32 dimensions of x [B, heads, T, head] in split-half pairs; the tables are [B or 1, T, 16]."""
    cos, sin = (table.unsqueeze(1) for table in rope)
    a, b, rest = x.float().split([ROTARY_DIM // 2, ROTARY_DIM // 2, x.shape[-1] - ROTARY_DIM], dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], dim=-1).to(x.dtype)


class TextBlock(nn.Module):
    def __init__(self, dim, heads, inner):
        super().__init__()
        self.ln = nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.mlp = Mlp(dim, inner, dim)

    def prefix(self, x, rope, last):
        """The picture's positions, which all see each other. Returns (x, k, v); the last block needs only k and v."""
        normed = self.ln(x)
        q, k, v = self.attn.split(normed)
        q, k = rotate(q, rope), rotate(k, rope)
        if not last:
            x = x + self.attn.join(F.scaled_dot_product_attention(q, k, v)) + self.mlp(normed)
        return x, k, v

    def suffix(self, x, rope, k_prefix, v_prefix, mask):
        normed = self.ln(x)
        q, k, v = self.attn.split(normed)
        q, k = rotate(q, rope), rotate(k, rope)
        k, v = torch.cat([k_prefix, k], dim=2), torch.cat([v_prefix, v], dim=2)
        return x + self.attn.join(F.scaled_dot_product_attention(q, k, v, attn_mask=mask)) + self.mlp(normed)


class Text(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        dim = cfg["dim"]
        self.wte = nn.Parameter(torch.zeros(cfg["vocab_size"], dim))
        self.blocks = nn.ModuleList(TextBlock(dim, cfg["n_heads"], cfg["ff_dim"]) for _ in range(cfg["n_layers"]))
        self.post_ln = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, cfg["vocab_size"])

    def prefill(self, image):
        """Keys and values of BOS and the image embeddings [B, patches, D], one (k, v) per block."""
        bos = self.wte[0].expand(image.shape[0], 1, -1)
        x = torch.cat([bos, image.to(bos.dtype)], dim=1)  # the residual stream stays in float32 under autocast
        rope = rope_tables(torch.arange(x.shape[1], device=x.device).unsqueeze(0))
        cache = []
        for i, block in enumerate(self.blocks):
            x, k, v = block.prefix(x, rope, last=i + 1 == len(self.blocks))
            cache.append((k, v))
        return cache

    def forward(self, x, positions, cache, mask):
        """Embedded prompts [B, L, D] at positions [B, L] to the hidden states before `post_ln`."""
        rope = rope_tables(positions)
        for block, (k, v) in zip(self.blocks, cache):
            x = block.suffix(x, rope, k, v, mask)
        return x

    def logits(self, hidden):
        return self.lm_head(self.post_ln(hidden))


class Region(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        dim, inner = cfg["dim"], cfg["inner_dim"]
        self.coord_features = nn.Parameter(torch.zeros(1, cfg["coord_feat_dim"] // 2))
        self.size_features = nn.Parameter(torch.zeros(2, cfg["size_feat_dim"] // 2))
        self.coord_encoder = nn.Linear(cfg["coord_feat_dim"], dim)
        self.size_encoder = nn.Linear(cfg["size_feat_dim"], dim)
        self.coord_decoder = Mlp(dim, inner, cfg["coord_out_dim"])
        self.size_decoder = Mlp(dim, inner, cfg["size_out_dim"])

    @staticmethod
    def fourier(values, weight):
        with torch.autocast(values.device.type, enabled=False):
            f = 2 * math.pi * (values.float().unsqueeze(-2) @ weight.float()).squeeze(-2)
            return torch.cat([f.cos(), f.sin()], dim=-1)

    def encode_coord(self, values):
        """Coordinates [..., 1] to embeddings [..., D]."""
        return self.coord_encoder(self.fourier(values, self.coord_features))

    def encode_size(self, values):
        """Widths and heights [..., 2] to embeddings [..., D]."""
        return self.size_encoder(self.fourier(values, self.size_features))


class Network(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.vision, self.text, self.region = Vision(cfg["vision"]), Text(cfg["text"]), Region(cfg["region"])
        self.reset()

    @torch.no_grad()
    def reset(self):
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=module.in_features**-0.5 * 0.7)
                nn.init.zeros_(module.bias)
        for blocks in (self.vision.blocks, self.text.blocks):
            for block in blocks:
                block.attn.proj.weight.mul_((2 * len(blocks)) ** -0.5)
                block.mlp.fc2.weight.mul_((2 * len(blocks)) ** -0.5)
        nn.init.normal_(self.vision.pos_emb, std=0.1)
        nn.init.normal_(self.text.wte, std=0.5)
        nn.init.zeros_(self.text.lm_head.weight)
        nn.init.normal_(self.region.coord_features, std=2.0)
        nn.init.normal_(self.region.size_features, std=2.0)

    def embed(self, kinds, ids, values):
        """Prompt positions [B, L]: a token (kind 0), a coordinate (1) or a size (2); values [B, L, 2]."""
        tokens = F.embedding(ids, self.text.wte)
        coords = self.region.encode_coord(values[..., :1]).to(tokens.dtype)
        sizes = self.region.encode_size(values).to(tokens.dtype)
        kinds = kinds.unsqueeze(-1)
        return torch.where(kinds == 1, coords, torch.where(kinds == 2, sizes, tokens))

    def forward(self, pixels, kinds, ids, values, positions, mask):
        """Training pass: (vision features, hidden states before post_ln [B, L, D], token logits [B, L, V])."""
        features, image = self.vision(pixels)
        hidden = self.text(self.embed(kinds, ids, values), positions, self.text.prefill(image), mask)
        return features, hidden, self.text.logits(hidden)


class DenseHead(nn.Module):
    """Training only: what stands at each patch. It teaches the vision blocks long before the text blocks can."""

    def __init__(self, dim, classes, colours):
        super().__init__()
        self.sizes = [classes + 1, classes + 1, colours, 4]
        self.out = nn.Linear(dim, sum(self.sizes))

    def forward(self, features):
        """(class or background, class whose centre lies here or none, colour, distances to the box's four sides)."""
        return self.out(features).split(self.sizes, dim=-1)


def visible(seg, prefix):
    """Attention mask [B, 1, L, prefix + L]: the picture, and the earlier positions of the same prompt."""
    b, length = seg.shape
    causal = torch.ones(length, length, dtype=torch.bool, device=seg.device).tril()
    own = (seg.unsqueeze(2) == seg.unsqueeze(1)) & causal
    picture = torch.ones(b, length, prefix, dtype=torch.bool, device=seg.device)
    return torch.cat([picture, own], dim=2).unsqueeze(1)


@torch.no_grad()
def rounded_state(net):
    """The weights as they will be stored: bfloat16, published names, on the CPU."""
    return {TENSOR_PREFIX + name: value.detach().to("cpu", torch.bfloat16).contiguous() for name, value in net.state_dict().items()}


def export(net, out, config_dir):
    """Write model.safetensors, config.json and tokenizer.json into `out`; each appears whole or not at all."""
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    temporary = out / "model.safetensors.part"
    save_file(rounded_state(net), str(temporary), metadata={"format": "pt"})
    temporary.chmod(0o644)
    temporary.replace(out / "model.safetensors")
    for name in ("config.json", "tokenizer.json"):
        temporary = out / f"{name}.part"
        temporary.write_bytes((Path(config_dir) / name).read_bytes())
        temporary.replace(out / name)


def load(net, path):
    """Load a safetensors file with the published names into the network, in float32."""
    state = {name.removeprefix(TENSOR_PREFIX): value.float() for name, value in load_file(str(path)).items()}
    net.load_state_dict(state)


def read_config(directory):
    return json.loads((Path(directory) / "config.json").read_text())
