"""Loads two checkpoints that Retinue wrote one optimizer step apart, with torch.load()'s defaults.

Arguments: both files, the optimizer's class; standard input: the names of its parameters. Prints a line for each tensor of the first file's model and optimizer. Makes
the step itself, with gradients of 0.25, and compares it with the second file.
"""

import sys
import zipfile
import zlib

import torch

first_path, second_path, optimizer_class = sys.argv[1:]
first = torch.load(first_path)
second = torch.load(second_path, mmap=True)
for path in (first_path, second_path):
    assert zipfile.ZipFile(path).testzip() is None, path


def show(name, tensor):
    numbers = tensor.detach().contiguous().flatten()
    data = bytes(numbers.view(torch.uint8).tolist()) if numbers.numel() else b""
    print(name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape), zlib.crc32(data))


def expect_close(name, tensor, expected):
    """Python's optimizers compute in another order."""
    tolerance = 0.02 if tensor.dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(tensor, expected, rtol=tolerance, atol=tolerance / 10, msg=name)


print("step", first["step"], "of", first["world_size"], "ranks")
for name, tensor in first["model"].items():
    show(name, tensor)
for parameter, state in first["optimizer"]["state"].items():
    for field, tensor in state.items():
        show(f"{parameter}.{field}", tensor)
print("sampler", first["sampler"])

#A rank's random numbers go on.
for rank, generators in enumerate(first["random_generators"]):
    torch.set_rng_state(generators["cpu"])
    print("rank", rank, f"{torch.rand(1).item():.9f}")

#Tensors of two names are one.
assert first["model"]["tied"].data_ptr() == first["model"]["head.weight"].data_ptr()

#Parameters in the order of the optimizer, of which standard input has the names.
names = sys.stdin.read().split()
parameters = [torch.nn.Parameter(first["model"][name]) for name in names]
optimizer = getattr(torch.optim, optimizer_class)(parameters, lr=100.0)
optimizer.load_state_dict(first["optimizer"])
for parameter in parameters:
    parameter.grad = torch.full_like(parameter, 0.25)
optimizer.step()
for name, parameter in zip(names, parameters):
    expect_close(name, parameter.detach(), second["model"][name])
for parameter, state in second["optimizer"]["state"].items():
    for field, tensor in state.items():
        expect_close(f"{parameter}.{field}", optimizer.state[parameters[parameter]][field], tensor)
print("the same step")
