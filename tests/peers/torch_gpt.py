"""The GPT of `weft train` in PyTorch, for comparisons: the same shapes, fp32, AdamW, norm clipped."""
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.grow, self.shrink = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, s, h = x.shape
        q, k, v = (self.qkv(self.norm1(x)).reshape(b, s, 3, self.heads, h // self.heads)
                   .permute(2, 0, 3, 1, 4))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, s, h))
        return x + self.shrink(F.gelu(self.grow(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, vocabulary, positions, width, heads, layers):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.wte.weight)


class Trainer:
    """One step after another on random bytes; wrap: what DDP does to the model."""

    def __init__(self, vocabulary, positions, width, heads, layers, samples, wrap=lambda m: m):
        self.model = wrap(Gpt(vocabulary, positions, width, heads, layers))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4, betas=(0.9, 0.95))
        self.tokens = torch.randint(0, 256, (samples, positions))

    def step(self):
        """Seconds of a step."""
        start = time.monotonic()
        logits = self.model(self.tokens)
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), self.tokens.reshape(-1))
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return time.monotonic() - start
