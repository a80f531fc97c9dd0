#!/usr/bin/env python3
"""Writes fixtures/tiny_gpt.json: a small GPT in PyTorch, tied and untied: all its logits, all its
gradients, and the losses and norms of ten steps.

The test pytorch_test.cc trains the same model with weft and compares. Needs PyTorch (pip install
torch); the test does not. Written in plain PyTorch operators, in fp64.

Weights follow from a formula that both sides know: sin(i + 1 + n) / 10 for element i of a tensor
whose place in the list below is n; 1 is added to gains. Logits and gradients are whole numbers of
UNIT, so that the file stays small and can be read.
"""
import json
import math
import pathlib

import torch
import torch.nn.functional as F

V, T, H, HEADS, LAYERS, B = 72, 8, 16, 2, 2, 3
UNIT = 1e-12
torch.set_default_dtype(torch.float64)


def tensors(tied):
    yield "wte", (V, H)
    yield "wpe", (T, H)
    for layer in range(LAYERS):
        for name, shape in (("norm1.gain", (H,)), ("norm1.bias", (H,)),
                            ("qkv.weight", (3 * H, H)), ("qkv.bias", (3 * H,)),
                            ("proj.weight", (H, H)), ("proj.bias", (H,)),
                            ("norm2.gain", (H,)), ("norm2.bias", (H,)),
                            ("grow.weight", (4 * H, H)), ("grow.bias", (4 * H,)),
                            ("shrink.weight", (H, 4 * H)), ("shrink.bias", (H,))):
            yield f"h{layer}.{name}", shape
    yield "norm.gain", (H,)
    yield "norm.bias", (H,)
    if not tied:
        yield "head", (V, H)


def make_weights(tied):
    weights = {}
    for n, (name, shape) in enumerate(tensors(tied)):
        i = torch.arange(math.prod(shape))
        value = torch.sin((i + 1 + n).double()) / 10 + (1 if name.endswith("gain") else 0)
        weights[name] = value.reshape(shape).requires_grad_()
    return weights


def forward(w, tokens):
    x = F.embedding(tokens, w["wte"]) + w["wpe"]
    for layer in range(LAYERS):
        p = {k.split(".", 1)[1]: v for k, v in w.items() if k.startswith(f"h{layer}.")}
        n = F.layer_norm(x, (H,), p["norm1.gain"], p["norm1.bias"])
        q, k, v = (F.linear(n, p["qkv.weight"], p["qkv.bias"])
                   .reshape(-1, T, 3, HEADS, H // HEADS).permute(2, 0, 3, 1, 4))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.linear(a.transpose(1, 2).reshape(-1, T, H), p["proj.weight"], p["proj.bias"])
        n = F.layer_norm(x, (H,), p["norm2.gain"], p["norm2.bias"])
        g = F.gelu(F.linear(n, p["grow.weight"], p["grow.bias"]), approximate="tanh")
        x = x + F.linear(g, p["shrink.weight"], p["shrink.bias"])
    x = F.layer_norm(x, (H,), w["norm.gain"], w["norm.bias"])
    return F.linear(x, w.get("head", w["wte"]))


def batch(step):
    i = torch.arange(B * T)
    return ((i * 7 + step * 13) % V).reshape(B, T), ((i * 11 + step * 5 + 3) % V).reshape(B, T)


def units(tensor):
    return [round(x / UNIT) for x in tensor.flatten().tolist()]


def train(tied):
    w = make_weights(tied)
    matrices = [v for v in w.values() if v.dim() > 1]
    vectors = [v for v in w.values() if v.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1},
                                   {"params": vectors, "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    out = {"losses": [], "norms": []}
    for step in range(10):
        tokens, targets = batch(step)
        logits = forward(w, tokens)
        loss = F.cross_entropy(logits.reshape(-1, V), targets.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            out["logits"] = units(logits)  # sample by sample, position by position
            out["gradients"] = {name: units(v.grad) for name, v in w.items()}
        out["losses"].append(loss.item())
        out["norms"].append(torch.nn.utils.clip_grad_norm_(w.values(), 1.0).item())
        optimizer.step()
    return out


def main():
    out = {"torch": torch.__version__, "unit": UNIT, "tied": train(True), "untied": train(False)}
    path = pathlib.Path(__file__).parent / "fixtures" / "tiny_gpt.json"
    # A line per list.
    text = json.dumps(out, separators=(",", ":")).replace('],"', '],\n"').replace('":{', '":{\n')
    path.write_text(text + "\n")


if __name__ == "__main__":
    main()
