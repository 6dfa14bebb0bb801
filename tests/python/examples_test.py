"""The examples of the Python package, run as a user runs them."""

import pathlib
import re
import subprocess
import sys
import unittest
import warnings

warnings.filterwarnings("ignore", message="Failed to initialize NumPy")

import torch  # noqa: F401: tests with this line are run by a Python that has PyTorch.

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples/python"
DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")


def output_of(*command):
    done = subprocess.run([sys.executable, "-W", "ignore", *map(str, command)], capture_output=True, text=True, timeout=200)
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Examples(unittest.TestCase):
    def test_queue_of_tensors(self):
        self.assertEqual(output_of(EXAMPLES / "queue_of_tensors.py"), f"{[2.0 * i for i in range(10)]}\n")

    def test_pool(self):
        self.assertEqual(output_of(EXAMPLES / "pool.py"), "pi is about 3.141\n")

    @unittest.skipUnless(DATA.is_dir(), "the Debian package dataset-fashion-mnist is not installed")
    def test_train_fashion_mnist_has_the_loss_of_gloo(self):
        torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2)
        lines = [output_of(*torchrun, EXAMPLES / "train_fashion_mnist.py", "--epochs", 1, "--steps", 100, "--backend", name)
                 for name in ("retinue", "gloo")]
        ours, theirs = (re.fullmatch(r"epoch 0: loss ([0-9.]+), accuracy ([0-9.]+)\n", line) for line in lines)
        self.assertTrue(ours and theirs, lines)
        self.assertAlmostEqual(float(ours[1]), float(theirs[1]), delta=0.002)
        self.assertAlmostEqual(float(ours[2]), float(theirs[2]), delta=0.002)
        self.assertGreater(float(ours[2]), 0.65)


if __name__ == "__main__":
    unittest.main()
