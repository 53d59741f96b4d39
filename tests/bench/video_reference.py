#!/usr/bin/env python3
"""Seconds that diffusers' AutoencoderKLWan takes: video_reference.py FOLDER_OF_VAE LATENT_FRAMES HEIGHT WIDTH THREADS [TIMES]

Without the folder, it is made first, with random weights of Wan 2.1's sizes. OMP_WAIT_POLICY=passive, so that waiting
threads take no processor.
"""
import os, sys, time
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
import torch, diffusers

folder, frames, height, width, threads = sys.argv[1], *map(int, sys.argv[2:6])
torch.set_num_threads(threads)
if not os.path.exists(folder):
    torch.manual_seed(0)
    diffusers.AutoencoderKLWan().save_pretrained(folder)
vae = diffusers.AutoencoderKLWan.from_pretrained(folder).eval()
latent = torch.randn(1, vae.config.z_dim, frames, height, width, generator=torch.Generator().manual_seed(1))
with torch.no_grad():
    for _ in range(int(sys.argv[6]) if len(sys.argv) > 6 else 2):
        start, used = time.time(), time.process_time()
        vae.decode(latent)
        print(f"{time.time() - start:.3f} s, {time.process_time() - used:.3f} s of processors", flush=True)
