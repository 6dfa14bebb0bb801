"""Loads the newest checkpoint of examples/checkpoints.cpp. Argument: the folder."""

import glob
import sys

import torch

net = torch.nn.Sequential(torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
optimizer = torch.optim.AdamW(net.parameters())
folder = sys.argv[1]

# [load]
checkpoint = torch.load(max(glob.glob(f"{folder}/step-*.pt")))
net.load_state_dict(checkpoint["model"])
optimizer.load_state_dict(checkpoint["optimizer"])
# [/load]

x = torch.linspace(0, 1, 100).unsqueeze(1)
print("step", checkpoint["step"], "with error below 0.1:", bool(((net(x) - torch.sin(6 * x)) ** 2).mean() < 0.1))
