#!/usr/bin/env python3
"""Frames 0 and 5 of wan/ decoded in tiles of 32 pixels every 24: wan/tiled.safetensors.

    python make_tiled.py        (torch, diffusers, safetensors)
"""
from pathlib import Path
import torch, diffusers
from safetensors.torch import load_file, save_file

here = Path(__file__).parent / "wan"
vae = diffusers.AutoencoderKLWan.from_pretrained(here / "vae").eval()
vae.enable_tiling(32, 32, 24, 24)
latents = load_file(here / "golden.safetensors")["latents.6"]
mean, deviation = (torch.tensor(x).view(1, -1, 1, 1, 1) for x in (vae.config.latents_mean, vae.config.latents_std))
with torch.no_grad():
    video = vae.decode(latents / (1.0 / deviation) + mean, return_dict=False)[0]
frames = (video / 2 + 0.5).clamp(0, 1)[0].permute(1, 2, 3, 0)
save_file({"frames": frames[[0, 5]].contiguous()}, here / "tiled.safetensors")
