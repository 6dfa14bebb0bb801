"""torch.utils.data's DataLoader, with workers of retinue.multiprocessing."""

import queue
import time

import torch
import torch.utils.data
from torch.utils.data import _utils
from torch.utils.data.dataloader import _DatasetKind, _MultiProcessingDataLoaderIter

from retinue.multiprocessing import Process, _process, _shared, _start, _tensors

__all__ = ["DataLoader", "default_collate"]

_BETWEEN_LOOKS = 0.2  # Seconds, for workers that died.
_PINNING = 1.0  # Seconds within which the thread that pins memory passes on what it has.


def _can_stack(batch):
    first = batch[0]
    return all(type(each) is torch.Tensor and each.dtype == first.dtype and each.size() == first.size()
               and each.device.type == "cpu" and each.layout is torch.strided and not each.is_nested
               and not each.requires_grad for each in batch)


def _collate_tensors(batch, *, collate_fn_map=None):
    if not _can_stack(batch):
        return _utils.collate.default_collate_fn_map[torch.Tensor](batch, collate_fn_map=collate_fn_map)
    if len(batch) * batch[0].numel() * batch[0].element_size() < _shared.LEAST_BLOCK:
        return torch.stack(batch)  # PyTorch's would allocate shared memory of its own.
    return torch.stack(batch, out=_tensors.empty_shared((len(batch), *batch[0].size()), batch[0].dtype))


def default_collate(batch):
    """Is torch.utils.data.default_collate, and puts large tensors into memory that processes share."""
    functions = {**_utils.collate.default_collate_fn_map, torch.Tensor: _collate_tensors}
    return _utils.collate.collate(batch, collate_fn_map=functions)


class DataLoaderWorker(Process):
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

    def how_it_ended(self, place):
        return f"DataLoader worker {place} (pid {self.pid}) {_process.end_of(self.exitcode)}"


class ExecutedDataLoaderWorker(DataLoaderWorker):
    _Popen = staticmethod(_process._ExecutedProcess._Popen)


class _Context(_process.Context):
    Process = DataLoaderWorker


class _ExecutedContext(_process._ExecutedContext):
    Process = ExecutedDataLoaderWorker


class _Iterator(_MultiProcessingDataLoaderIter):
    """PyTorch's iterator, which replaces a worker that died, and has its batch made again."""

    def _reset(self, loader, first_iter=False):
        self._indices = {}  # By number of the batch: what the worker was told to get.
        self._lost = {}  # Batches that were lost with a worker, and how that one ended.
        self._idle_deaths = set()  # Places of workers that died without having begun one.
        self._is_beginning = True
        for place, worker in enumerate(() if first_iter else self._workers):
            if not worker.is_alive():
                self._drained(place)
                self._workers[place] = worker.again()
        super()._reset(loader, first_iter)
        self._is_beginning = False

    def _next_index(self):
        index = super()._next_index()
        self._indices[self._send_idx] = index
        return index

    def _try_get_data(self, timeout=_utils.MP_STATUS_CHECK_INTERVAL):
        end = time.monotonic() + timeout
        while True:
            left = end - time.monotonic()
            try:
                message = self._data_queue.get(timeout=max(0, min(left, _BETWEEN_LOOKS)))
            except queue.Empty:
                message = self._replace_the_dead()
            if message is not None and self._is_awaited(message):
                return True, message
            if message is None and left <= 0:
                return False, None

    def _is_awaited(self, message):
        """Returns whether it is no batch that came twice, from a worker that died and from the one in its place."""
        number = message[0] if isinstance(message, tuple) else None
        if not isinstance(number, int):
            return True
        info = self._task_info.get(number, ())
        if len(info) != 1:
            return False
        self._indices.pop(number, None)
        self._lost.pop(number, None)
        self._idle_deaths.discard(info[0])
        return True

    def _replace_the_dead(self):
        """Returns None, or a message of a worker that is dead now."""
        dead = [place for place, worker in enumerate(self._workers) if self._workers_status[place] and not worker.is_alive()]
        if not dead:
            return None
        try:
            return self._data_queue.get(timeout=_PINNING if self._pin_memory else 0)
        except queue.Empty:
            for place in dead:
                self._replace(place, self._workers[place])
            return None

    def _drained(self, place):
        """Returns what the worker of that place was to get, and did not."""
        messages = []
        try:
            while True:
                messages.append(self._index_queues[place].get_nowait())
        except queue.Empty:
            return messages

    def _give_up(self, place, why):
        self._workers_status[place] = False
        raise RuntimeError(why)

    def _replace(self, place, worker):
        how = worker.how_it_ended(place)
        if self._dataset_kind != _DatasetKind.Map:
            self._give_up(place, f"{how}. A worker of an IterableDataset can't be replaced: how far it came is lost with it")
        if self._is_beginning:
            self._give_up(place, f"{how} when an epoch began")
        waiting = {message[0] for message in self._drained(place) if isinstance(message, tuple)}
        sent = [number for number, info in sorted(self._task_info.items()) if info == (place,)]
        lost = [number for number in sent if number not in waiting]
        if not lost:
            if place in self._idle_deaths:
                self._give_up(place, f"{how}, and so did the one before it, without having begun a batch")
            self._idle_deaths.add(place)
        for number in lost:
            if number in self._lost:
                self._give_up(place, f"{self._lost[number]}. {how}. Both had to get the items "
                                     f"{_shortened(self._indices[number])}, so it isn't tried again")
            self._lost[number] = how
        self._workers[place] = worker.again()
        for number in sent:
            self._index_queues[place].put((number, self._indices[number]))


def _shortened(index, most=10):
    if isinstance(index, list) and len(index) > most:
        return f"[{', '.join(map(str, index[:most]))}, ...]"
    return index


_POSITIONAL = ("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn", "pin_memory",
               "drop_last", "timeout", "worker_init_fn", "multiprocessing_context", "generator")


class DataLoader(torch.utils.data.DataLoader):
    """torch.utils.data.DataLoader, whose batches are as PyTorch's, in the same order and with the same random numbers.

    Workers are forks of retinue.multiprocessing's guardian, and so start in milliseconds. They make batches in memory that
    the program shares, so none is copied. A worker that dies is replaced, and its batch is made once more; its random
    numbers begin anew.

    `multiprocessing_context`: None, "forkserver" or "spawn", as retinue.multiprocessing's start methods; or an object, for
    workers of PyTorch's own that are not replaced.
    Errors: as PyTorch's. RuntimeError if two workers die of the same batch, or one of an IterableDataset.
    """

    def __init__(self, *args, **kwargs):
        if len(args) > len(_POSITIONAL):
            raise TypeError(f"DataLoader takes at most {len(_POSITIONAL)} arguments without names, and got {len(args)}")
        options = dict(zip(_POSITIONAL, args))
        for name in options.keys() & kwargs.keys():
            raise TypeError(f"DataLoader got two values for {name!r}")
        options.update(kwargs)
        method = options.get("multiprocessing_context")
        if options.get("num_workers", 0) > 0 and (method is None or isinstance(method, str)):
            options["multiprocessing_context"] = _ExecutedContext() if _start.is_executed(method) else _Context()
        super().__init__(**options)
        if self.num_workers > 0 and self.collate_fn is torch.utils.data.default_collate:
            self.collate_fn = default_collate

    def _get_iterator(self):
        if self.num_workers == 0 or not isinstance(self.multiprocessing_context, (_Context, _ExecutedContext)):
            return super()._get_iterator()
        self.check_worker_number_rationality()
        return _Iterator(self)
