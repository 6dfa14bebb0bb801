"""retinue.data.DataLoader against PyTorch's: the same batches, and workers that die."""

import itertools
import os
import signal
import tempfile
import time
import unittest
import warnings

warnings.filterwarnings("ignore", message="Failed to initialize NumPy")

import torch
import torch.utils.data

from retinue.data import DataLoader, default_collate
from retinue.multiprocessing import _shared


class Noisy(torch.utils.data.Dataset):
    """Items that differ with the random numbers of the worker."""

    def __len__(self):
        return 50

    def __getitem__(self, index):
        return {"image": torch.full((1, 30, 40), float(index)) + torch.rand(30, 40), "label": index, "name": f"item {index}"}


class Counting(torch.utils.data.IterableDataset):
    def __init__(self, dies_at=None):
        self.dies_at = dies_at

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        for i in range(info.id, 20, info.num_workers):
            if i == self.dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
            yield i


class Deadly(torch.utils.data.Dataset):
    """Kills its process at items of a list, `times` times each, and counts that in a file."""

    def __init__(self, folder, items, times):
        self.folder, self.items, self.times = folder, items, times

    def __len__(self):
        return 40

    def __getitem__(self, index):
        path = os.path.join(self.folder, str(index))
        if index in self.items and (not os.path.exists(path) or os.path.getsize(path) < self.times):
            with open(path, "a") as file:
                file.write("x")
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.full((100, 100), float(index))


def end_with_3(_):
    os._exit(3)


class Failing(Noisy):
    def __getitem__(self, index):
        raise ValueError(f"no item {index}")


def tensors_of(batches):
    return [(batch["image"], batch["label"], batch["name"]) for batch in batches]


class Loader(unittest.TestCase):
    def assert_same(self, ours, theirs):
        self.assertEqual(len(ours), len(theirs))
        for our, their in zip(tensors_of(ours), tensors_of(theirs)):
            self.assertTrue(torch.equal(our[0], their[0]))
            self.assertEqual((our[1].tolist(), our[2]), (their[1].tolist(), their[2]))

    def batches(self, kind, epochs=2, **options):
        torch.manual_seed(1)
        generator = torch.Generator().manual_seed(5)
        loader = kind(Noisy(), batch_size=8, shuffle=True, generator=generator, **options)
        return list(itertools.chain.from_iterable(loader for _ in range(epochs)))

    def test_has_the_batches_of_pytorch(self):
        for workers, persistent in ((0, False), (1, False), (2, False), (2, True)):
            options = {"num_workers": workers, "persistent_workers": persistent}
            self.assert_same(self.batches(DataLoader, **options), self.batches(torch.utils.data.DataLoader, **options))
        options = {"num_workers": 2, "drop_last": True}
        theirs = self.batches(torch.utils.data.DataLoader, **options)
        self.assert_same(self.batches(DataLoader, multiprocessing_context="spawn", **options), theirs)

    def test_has_iterators_that_are_independent(self):
        loader = DataLoader(Noisy(), batch_size=25, num_workers=1)
        self.assertEqual([(a["label"].tolist(), b["label"].tolist()) for a, b in zip(loader, loader)],
                         [(list(range(25)), list(range(25))), (list(range(25, 50)), list(range(25, 50)))])

    def test_takes_arguments_by_position(self):
        loader = DataLoader(Noisy(), 8, False, None, None, 1, list)
        self.assertEqual([len(batch) for batch in loader], [8] * 6 + [2])

    def test_has_batches_in_job_memory(self):
        for batch in DataLoader(Noisy(), batch_size=25, num_workers=1):
            storage = batch["image"].untyped_storage()
            self.assertIsNotNone(_shared.block_at(storage.data_ptr(), storage.nbytes()))

    def test_collates_as_pytorch(self):
        for value in ([torch.ones(200, 200), torch.zeros(200, 200)], [1, 2], ["a", "b"], [(torch.ones(2), 1.5)] * 3,
                      [torch.ones(200, 200, dtype=torch.int32), torch.zeros(200, 200)]):
            ours, theirs = default_collate(value), torch.utils.data.default_collate(value)
            if isinstance(ours, torch.Tensor):
                self.assertTrue(torch.equal(ours, theirs) and ours.dtype == theirs.dtype)
            else:
                self.assertEqual(str(ours), str(theirs))
        self.assertRaises(RuntimeError, default_collate, [torch.ones(200, 200), torch.ones(200, 201)])

    def test_takes_iterable_datasets(self):
        values = [value for batch in DataLoader(Counting(), batch_size=4, num_workers=2) for value in batch.tolist()]
        self.assertEqual(sorted(values), list(range(20)))
        with self.assertRaisesRegex(RuntimeError, r"DataLoader worker 1 \(pid \d+\) was killed by SIGKILL\. A worker of an"):
            list(DataLoader(Counting(dies_at=7), batch_size=4, num_workers=2))

    def test_replaces_a_worker_that_dies(self):
        for workers in (1, 2):
            with tempfile.TemporaryDirectory() as folder:
                loader = DataLoader(Deadly(folder, (0, 13, 25, 39), 1), batch_size=4, num_workers=workers)
                for _ in range(2):
                    firsts = [batch[:, 0, 0].tolist() for batch in loader]
                    self.assertEqual(firsts, [[4.0 * i + j for j in range(4)] for i in range(10)])
                self.assertEqual(len(os.listdir(folder)), 4)

    def test_replaces_a_worker_that_dies_between_epochs(self):
        loader = DataLoader(Noisy(), batch_size=5, num_workers=2, persistent_workers=True)
        for _ in range(3):
            self.assertEqual([batch["label"][0].item() for batch in loader], list(range(0, 50, 5)))
            worker = loader._iterator._workers[1]
            worker.kill()
            worker.join()

    def test_keeps_the_small_batch_of_a_worker_that_died(self):
        loader = iter(DataLoader(Noisy(), batch_size=1, num_workers=1, prefetch_factor=4))
        next(loader)
        time.sleep(0.5)  # Others are there.
        worker = loader._workers[0]
        worker.kill()
        worker.join()
        self.assertEqual([batch["label"].item() for batch in loader], list(range(1, 50)))

    def test_gives_up_where_workers_die_before_they_begin(self):
        with self.assertRaisesRegex(RuntimeError, "exited with code 3, and so did the one before it"):
            list(DataLoader(Noisy(), num_workers=1, worker_init_fn=end_with_3))

    def test_names_the_items_of_which_two_workers_died(self):
        with tempfile.TemporaryDirectory() as folder:
            batches = iter(DataLoader(Deadly(folder, (13,), 2), batch_size=4, num_workers=2))
            for _ in range(3):
                next(batches)
            with self.assertRaisesRegex(RuntimeError, r"worker 1 \(pid \d+\) was killed by SIGKILL\. DataLoader worker 1 \(pid "
                                                      r"\d+\) was killed by SIGKILL\. Both had to get the items "
                                                      r"\[12, 13, 14, 15\]"):
                next(batches)

    def test_raises_what_a_worker_raised(self):
        with self.assertRaisesRegex(ValueError, "no item 0"):
            next(iter(DataLoader(Failing(), num_workers=1)))
        with self.assertRaisesRegex(ValueError, "start_method is 'fork'"):
            DataLoader(Noisy(), num_workers=1, multiprocessing_context="fork")
        self.assertRaisesRegex(TypeError, "two values for 'batch_size'", DataLoader, Noisy(), 4, batch_size=5)
        with self.assertRaisesRegex(ValueError, "persistent_workers"):
            DataLoader(Noisy(), persistent_workers=True)


if __name__ == "__main__":
    unittest.main()
