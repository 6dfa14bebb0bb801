"""Tensors in retinue.multiprocessing's queues and arguments, and retinue.empty_shared."""

import unittest
import warnings

warnings.filterwarnings("ignore", message="Failed to initialize NumPy")

import torch

import retinue
import retinue.multiprocessing as mp

from multiprocessing_queues_test import Echoes

LARGE = 100_000


def add_to(index, tensor):
    tensor[index] += 1 + index


def fill_what_comes(index, inputs, outputs):
    tensor = inputs.get()
    tensor.fill_(7)
    outputs.put("done")


class Tensors(Echoes, unittest.TestCase):
    def assert_same(self, back, value):
        self.assertIs(type(back), type(value))
        self.assertEqual((back.dtype, back.shape, back.requires_grad), (value.dtype, value.shape, value.requires_grad))
        self.assertTrue(torch.equal(back, value))

    def test_come_back_as_they_were(self):
        dtypes = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.uint8,
                  torch.bool, torch.complex64)
        values = []
        for dtype in dtypes:
            for size in ((), (0, 3), (5,), (LARGE,), (300, 2, 400)):
                tensor = torch.arange(torch.Size(size).numel()).reshape(size).to(dtype)
                values += [tensor, tensor.T if tensor.dim() == 2 else tensor[..., ::2] if size else tensor]
        values.append(torch.ones(LARGE)[10:20])
        values.append(torch.ones(LARGE, requires_grad=True))
        values.append(torch.nn.Parameter(torch.ones(5), requires_grad=False))
        values.append(torch.nn.Parameter(torch.ones(LARGE)))
        values.append(torch.ones(3).expand(LARGE, 3))
        for back, value in zip(self.echoes(*values), values, strict=True):
            self.assert_same(back, value)

    def test_of_a_part_of_a_large_one_come_back(self):
        values = [torch.arange(float(LARGE)).view(100, -1)[:, 0], torch.arange(float(LARGE)).view(100, -1).T[5]] * 20
        for back, value in zip(self.echoes(*values), values, strict=True):
            self.assert_same(back, value)
            back.detach_()  # It is no view.

    def test_of_other_kinds_go_pytorchs_way(self):
        sparse = torch.eye(3).to_sparse()
        conjugate = torch.ones(3, dtype=torch.complex64).conj()
        for back, value in zip(self.echoes(sparse, conjugate), (sparse, conjugate), strict=True):
            self.assertTrue(torch.equal(back.to_dense(), value.to_dense()))
        with self.assertRaisesRegex(RuntimeError, "non-leaf tensor"):
            mp.Queue().put(torch.ones(3, requires_grad=True) * 2)

    def test_in_a_module_arrive_with_it(self):
        module = torch.nn.Linear(300, 400)
        tied = [module.weight, module.weight, module.weight.detach()[5:]]
        [back, shared] = self.echoes(module, tied)
        for name, value in module.state_dict().items():
            self.assert_same(back.state_dict()[name], value)
        self.assertIs(shared[0], shared[1])
        shared[2].fill_(3)
        self.assertTrue(shared[0][5:].eq(3).all())

    def test_of_one_memory_still_share_it(self):
        for size in (10, LARGE):
            whole = torch.zeros(size)
            [(back, part, again)] = self.echoes((whole, whole[2:5], whole.view(2, -1)))
            part.fill_(1)
            self.assertEqual(back[:6].tolist(), [0, 0, 1, 1, 1, 0])
            self.assertEqual(again[0, 2], 1)

    def test_belong_to_who_got_them(self):
        queue = mp.Queue()
        tensor = torch.zeros(LARGE)
        queue.put(tensor)
        tensor[0] = 1
        got = queue.get()
        self.assertEqual(got[0], 0)
        part = got[5:10]
        del got
        queue.put(torch.ones(LARGE))
        self.assertEqual(part.tolist(), [0.0] * 5)

    def test_in_job_memory_are_sent_where_they_are(self):
        inputs, outputs = mp.Queue(), mp.Queue()
        context = mp.spawn(fill_what_comes, (inputs, outputs), join=False)
        tensor = retinue.empty_shared(4, 5, dtype=torch.int16)
        self.assertEqual((tensor.dtype, tensor.shape), (torch.int16, (4, 5)))
        tensor.zero_()
        inputs.put(tensor[1:3, ::2])
        outputs.get()
        context.join()
        self.assertEqual(tensor.tolist(), [[0] * 5, [7, 0, 7, 0, 7], [7, 0, 7, 0, 7], [0] * 5])

    def test_in_job_memory_are_shared_by_processes_that_have_them_as_an_argument(self):
        for method in (None, "spawn"):
            tensor = retinue.empty_shared(3).zero_()
            mp.start_processes(add_to, (tensor,), 3, start_method=method)
            self.assertEqual(tensor.tolist(), [1, 2, 3])

    def test_in_job_memory_are_tensors_of_pytorch(self):
        self.assertEqual(retinue.empty_shared(0, 3).shape, (0, 3))
        self.assertEqual(retinue.empty_shared([2, 3]).shape, (2, 3))
        self.assertEqual(retinue.empty_shared(()).shape, ())
        with self.assertRaisesRegex(ValueError, "sizes are .*-1"):
            retinue.empty_shared(-1)
        self.assertRaises(TypeError, retinue.empty_shared, 3.0)
        with torch.device("meta"):
            self.assertEqual([retinue.empty_shared(size).device.type for size in (0, 3)], ["cpu", "cpu"])
            [back] = self.echoes(torch.ones(LARGE, device="cpu"))
        self.assertTrue(back.eq(1).all())
        layer = torch.nn.Linear(20, 30)
        layer.weight = torch.nn.Parameter(retinue.empty_shared(30, 20).fill_(0.5))
        layer(torch.ones(2, 20)).sum().backward()
        torch.optim.SGD(layer.parameters(), 0.1).step()
        self.assertTrue(layer.weight.lt(0.5).all())


if __name__ == "__main__":
    unittest.main()
