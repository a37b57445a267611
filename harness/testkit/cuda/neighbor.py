"""A process that is no part of a run and computes on its device: it says `ready`, and ends with its standard input."""

import sys

import torch

place = torch.ones(1 << 20, device="cuda")
torch.cuda.synchronize()
print("ready", flush=True)
sys.stdin.read()
