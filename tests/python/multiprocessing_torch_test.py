"""retinue.multiprocessing with PyTorch: what ranks have of it, tensors, groups, and PyTorch's own classes."""

import os
import tempfile
import unittest
import warnings

warnings.filterwarnings("ignore", message="Failed to initialize NumPy")

import torch
import torch.distributed as dist
import torch.utils.data

import retinue.multiprocessing as mp


def put_what_it_has(index, queue):
    queue.put((torch.get_num_threads(), torch.initial_seed()))


def double(index, tensor):
    tensor[index] *= 2


def reduce(index, store, size, queue):
    dist.init_process_group("retinue", init_method=f"file://{store}", rank=index, world_size=size)
    value = torch.tensor([index + 1.0])
    dist.all_reduce(value)
    if index == 0:
        queue.put(value.item())
    dist.destroy_process_group()


def differ(index, store, size):
    dist.init_process_group("retinue", init_method=f"file://{store}", rank=index, world_size=size)
    dist.all_reduce(torch.ones(3 + index))


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return torch.tensor(index * index)


class Torch(unittest.TestCase):
    def setUp(self):
        self.queue = mp.SimpleQueue()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.store = os.path.join(folder.name, "store")

    def test_shares_the_cpus_and_has_random_numbers_of_its_own(self):
        mp.spawn(put_what_it_has, (self.queue,), 2)
        mp.spawn(put_what_it_has, (self.queue,), 2)
        threads, seeds = zip(*(self.queue.get() for _ in range(4)))
        self.assertEqual(set(threads), {max(1, len(os.sched_getaffinity(0)) // 2)})
        self.assertEqual(len(set(seeds)), 4)

    def test_takes_the_number_of_threads_from_the_program(self):
        os.environ["OMP_NUM_THREADS"] = "3"
        self.addCleanup(os.environ.pop, "OMP_NUM_THREADS")
        mp.spawn(put_what_it_has, (self.queue,))
        self.assertEqual(self.queue.get()[0], 3)

    def test_has_tensors_as_arguments_that_all_processes_share(self):
        for method in (None, "spawn"):
            tensor = torch.arange(1.0, 5.0)
            mp.start_processes(double, (tensor,), 2, start_method=method)
            self.assertEqual(tensor.tolist(), [2.0, 4.0, 3.0, 4.0])

    def test_has_groups_of_the_processes(self):
        mp.spawn(reduce, (self.store, 3, self.queue), 3)
        self.assertEqual(self.queue.get(), 6.0)

    def test_shows_the_error_of_a_group(self):
        with self.assertRaises(mp.ProcessRaisedException) as caught:
            mp.spawn(differ, (self.store, 2), 2)
        for text in ("raised RuntimeError: ", "the ranks made different calls", "in differ"):
            self.assertIn(text, str(caught.exception))

    def test_loads_data_with_workers_of_this_context(self):
        loader = torch.utils.data.DataLoader(Squares(), 4, num_workers=2, multiprocessing_context=mp.get_context())
        batches = [batch.tolist() for batch in loader]
        self.assertEqual(batches, [[0, 1, 4, 9], [16, 25, 36, 49], [64, 81, 100, 121]])


if __name__ == "__main__":
    unittest.main()
