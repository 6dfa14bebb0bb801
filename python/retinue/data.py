"""torch.utils.data's DataLoader, with workers of retinue.multiprocessing."""

import queue
import time

import torch
import torch.utils.data
from torch.utils.data import _utils
from torch.utils.data.dataloader import _DatasetKind, _MultiProcessingDataLoaderIter

from retinue import multiprocessing as _mp
from retinue.multiprocessing import _process, _shared, _start, _tensors

__all__ = ["DataLoader", "default_collate"]

_BETWEEN_LOOKS = 0.2  # Seconds, for workers that died.
_collate_fn_map = dict(_utils.collate.default_collate_fn_map)


def _can_stack(batch):
    first = batch[0]
    return all(type(each) is torch.Tensor and each.dtype == first.dtype and each.size() == first.size()
               and each.device.type == "cpu" and each.layout is torch.strided and not each.requires_grad for each in batch)


def _collate_tensors(batch, *, collate_fn_map=None):
    size = len(batch) * batch[0].numel() * batch[0].element_size()
    if size < _shared.LEAST_BLOCK or not _can_stack(batch):
        return _utils.collate.default_collate_fn_map[torch.Tensor](batch, collate_fn_map=collate_fn_map)
    return torch.stack(batch, out=_tensors.empty_shared((len(batch), *batch[0].size()), batch[0].dtype))


_collate_fn_map[torch.Tensor] = _collate_tensors


def default_collate(batch):
    """Is torch.utils.data.default_collate, and puts large tensors into memory that processes share."""
    return _utils.collate.collate(batch, collate_fn_map=_collate_fn_map)


class DataLoaderWorker(_mp.Process):
    """A process that can be started again."""

    def __init__(self, *, target, args):
        super().__init__(target=target, args=args, daemon=True)
        self._work = {"target": target, "args": args}

    def __getstate__(self):
        return {name: value for name, value in self.__dict__.items() if name != "_work"}

    def again(self):
        worker = type(self)(**self._work)
        worker.start()
        return worker


class _ExecutedDataLoaderWorker(DataLoaderWorker):
    _Popen = staticmethod(_process._ExecutedProcess._Popen)


class _Flag:
    """multiprocessing.Event without its lock, which a worker that is killed could leave locked."""

    def __init__(self, buffer=None):
        self._buffer = _shared.allocate(1) if buffer is None else buffer
        if buffer is None:
            self._buffer[0] = 0

    def is_set(self):
        return self._buffer[0] != 0

    def set(self):
        self._buffer[0] = 1


@_shared.reducer(_Flag)
def _reduce_flag(blocks, flag):
    return _restored_flag, (blocks.add(flag._buffer.block),)


def _restored_flag(index):
    return _Flag(_shared.buffer_of(_shared.block(index)))


class _Context(_process.Context):
    Process = DataLoaderWorker
    Event = staticmethod(_Flag)


class _ExecutedContext(_process._ExecutedContext):
    Event = staticmethod(_Flag)
    Process = _ExecutedDataLoaderWorker


class _Iterator(_MultiProcessingDataLoaderIter):
    """PyTorch's iterator, which replaces a worker that died, and has its batch made again."""

    def __init__(self, loader):
        self._indices = {}  # By number of the batch: what the worker was told to get.
        self._again = {}  # Batches that were lost with a worker, and how that one ended.
        super().__init__(loader)

    def _next_index(self):
        index = super()._next_index()
        self._indices[self._send_idx] = index
        return index

    def _is_lost(self, number):
        return number in self._task_info and len(self._task_info[number]) == 1

    def _try_get_data(self, timeout=_utils.MP_STATUS_CHECK_INTERVAL):
        end = time.monotonic() + timeout
        while True:
            left = end - time.monotonic()
            try:
                message = self._data_queue.get(timeout=max(0, min(left, _BETWEEN_LOOKS)))
            except queue.Empty:
                # What a dead worker had put has come by now.
                self._replace_the_dead()
                if left <= 0:
                    return False, None
                continue
            number = message[0] if isinstance(message, tuple) else None
            if isinstance(number, int):
                self._indices.pop(number, None)
                self._again.pop(number, None)
            return True, message

    def _replace_the_dead(self):
        for place, worker in enumerate(self._workers):
            if self._workers_status[place] and not worker.is_alive():
                self._replace(place, worker)

    def _replace(self, place, worker):
        how = _how(place, worker)
        if self._dataset_kind != _DatasetKind.Map:
            self._workers_status[place] = False
            raise RuntimeError(f"{how}. A worker of an IterableDataset can't be replaced: how far it came is lost with it")
        waiting = set()
        try:
            while True:
                waiting.add(self._index_queues[place].get_nowait()[0])
        except queue.Empty:
            pass
        sent = [number for number, info in sorted(self._task_info.items()) if info == (place,)]
        for number in sent:
            if number not in waiting:
                if number in self._again:
                    self._workers_status[place] = False
                    raise RuntimeError(f"{self._again[number]}. {how}. Both had to get the items "
                                       f"{_shortened(self._indices[number])}, so it isn't tried again")
                self._again[number] = how
        self._workers[place] = worker.again()
        for number in sent:
            self._index_queues[place].put((number, self._indices[number]))


def _how(place, worker):
    code = worker.exitcode
    how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
    return f"DataLoader worker {place} (pid {worker.pid}) {how}"


def _shortened(index, most=10):
    if isinstance(index, list) and len(index) > most:
        return f"[{', '.join(map(str, index[:most]))}, ...]"
    return index


class DataLoader(torch.utils.data.DataLoader):
    """torch.utils.data.DataLoader, whose batches are as PyTorch's, in the same order and with the same random numbers.

    Workers are forks of retinue.multiprocessing's guardian, and so start in milliseconds. They are kept for the next epoch
    unless `persistent_workers` is False. They make batches in memory that the program shares, so none is copied, and no
    file in /dev/shm is used. A worker that dies is replaced, and its batch is made once more.

    `multiprocessing_context`: None, "forkserver" or "spawn", as retinue.multiprocessing's start methods; or an object, for
    workers of PyTorch's own that are not replaced.
    Errors: as PyTorch's. RuntimeError if two workers die of the same batch, or one of an IterableDataset.
    """

    def __init__(self, dataset, *args, **kwargs):
        names = ("batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn", "pin_memory", "drop_last",
                 "timeout", "worker_init_fn", "multiprocessing_context", "generator")
        options = {**dict(zip(names, args)), **kwargs}
        if options.get("num_workers", 0) > 0:
            method = options.get("multiprocessing_context")
            if method is None or isinstance(method, str):
                options["multiprocessing_context"] = _ExecutedContext() if _start.is_executed(method) else _Context()
                options.setdefault("persistent_workers", True)
        super().__init__(dataset, **options)
        if self.num_workers > 0 and self.collate_fn is torch.utils.data.default_collate:
            self.collate_fn = default_collate

    def _get_iterator(self):
        if self.num_workers == 0 or not isinstance(self.multiprocessing_context, (_Context, _ExecutedContext)):
            return super()._get_iterator()
        self.check_worker_number_rationality()
        return _Iterator(self)
