"""Pool: multiprocessing's, in which a process that dies loses its own task, and its caller learns how."""

import collections
import itertools
import multiprocessing.pool
import os
import pickle
import threading
import traceback
import warnings
from multiprocessing import util as _util

from retinue.multiprocessing import _process, _queues, _shared, _sharedctypes, _spawn

_AHEAD = 16  # Tasks for each process that are in the queue, so that none need wait for its next one.
_BETWEEN_LOOKS = 1.0  # Seconds; only after a process died of which it is not known what it was at.


def _send(queue, header, value):
    """Puts a word for the pool and a value of the program's. Errors: what pickling the value raises."""
    pickled, blocks = _shared.dumps(value)
    queue._object.put(pickle.dumps((header, pickled)), blocks, None)


def _receive(queue, timeout=None):
    """Returns the word, and the value as `_shared.loads(*value)` makes it; None if none came in time."""
    message = queue._object.get(timeout)
    if message is None:
        return None
    header, pickled = pickle.loads(message[0])
    return header, (pickled, message[1])


def _described(error):
    return False, multiprocessing.pool.ExceptionWithTraceback(error, error.__traceback__)


def _work(worker, at, tasks, results, initializer, initargs, most):
    """What a process of a pool runs. `at`: a shared value, the number of the task that it is at."""
    try:
        if initializer is not None:
            initializer(*initargs)
    except Exception as error:
        return _send(results, (worker, "broken", 0), _described(error))
    _send(results, (worker, "ready", 0), None)
    while most != 0 and (message := _receive(tasks))[0] is not None:
        number, value = message
        at.value = number
        try:
            function, args, kwargs = _shared.loads(*value)
            end = True, function(*args, **kwargs)
        except Exception as error:
            end = _described(error)
        try:
            _send(results, (worker, "done", number), end)
        except Exception as error:
            _send(results, (worker, "done", number), (False, multiprocessing.pool.MaybeEncodingError(error, end[1])))
        at.value = 0
        most -= 1
        message = value = function = args = kwargs = end = None  # Not kept while it waits.


class _Worker:
    """A process of a pool."""

    def __init__(self, process, at):
        self.process = process
        self.at = at
        self.is_ready = False
        self.done = 0


def _name_of(task):
    """Returns the name of the program's own function."""
    function, args = task[2:4]
    if function in (multiprocessing.pool.mapstar, multiprocessing.pool.starmapstar):
        function = args[0][0]
    return getattr(function, "__qualname__", None) or repr(function)


def _loss_of(process, task):
    code = process.exitcode
    text = f"a process of the pool (pid {process.pid}) {_process.end_of(code)}" + (f" in {_name_of(task)}" if task else "")
    return _spawn.ProcessExitedException(text, 0, process.pid, code, _process.signal_of(code))


def _fail(result, error):
    """Ends what a caller waits for."""
    if isinstance(result, multiprocessing.pool.IMapIterator):
        with result._cond:
            result._items.append((False, error))
            result._unsorted.clear()
            result._length = result._index
            result._cond.notify_all()
        del result._cache[result._job]
        return
    if isinstance(result, multiprocessing.pool.MapResult):
        result._number_left = 1
    result._set(0, (False, error))


class _Feed:
    """The tasks that callers gave. A thread asks their iterators, which may wait for what they like."""

    _MOST = 1000  # That were asked for before a process can have them.

    def __init__(self, wake, give_up):
        self._wake = wake
        self._give_up = give_up
        self._changed = threading.Condition()
        self._series = collections.deque()  # Iterators, with what is told their length.
        self._tasks = collections.deque()
        self._is_asked = False  # For a task, when there was none.
        self._is_stopped = False
        threading.Thread(target=self._run, daemon=True, name="pool tasks").start()

    def put(self, series):
        with self._changed:
            if isinstance(series[0], list):  # Of one task, which need not wait for what iterators do.
                self._tasks.extend(series[0])
            else:
                self._series.append(series)
                self._changed.notify_all()
        self._wake_if_asked()

    def take(self):
        """Returns a task, or None; then it wakes the manager when there is one."""
        if not self._tasks:
            self._is_asked = True
            if not self._tasks:  # Still: one that came meanwhile may have been put unnoticed.
                return None
        task = self._tasks.popleft()
        if len(self._tasks) == self._MOST // 2:
            with self._changed:
                self._changed.notify_all()
        return task

    def is_empty(self):
        with self._changed:
            return not self._series and not self._tasks

    def stop(self):
        with self._changed:
            self._is_stopped = True
            self._series.clear()
            self._tasks.clear()
            self._changed.notify_all()

    def _run(self):
        try:
            self._feed()
        except BaseException:  # Of an iterator, or of what a length is told to.
            traceback.print_exc()
            self._give_up(RuntimeError("an iterator of tasks ended the pool: standard error shows how"))

    def _feed(self):
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._series or self._is_stopped)
                if self._is_stopped:
                    return
                tasks, set_length = self._series[0]
            last = -1
            for task in tasks:
                last = task[1]
                if len(self._tasks) >= self._MOST:
                    with self._changed:
                        self._changed.wait_for(lambda: len(self._tasks) <= self._MOST // 2 or self._is_stopped)
                if self._is_stopped:
                    return
                self._tasks.append(task)
                self._wake_if_asked()
            tasks = task = None  # Not kept while it waits.
            with self._changed:
                if self._is_stopped:
                    return
                if set_length is not None:
                    set_length(last + 1)
                self._series.popleft()
                self._is_asked = True  # Whether all is done is asked now.
            self._wake_if_asked()

    def _wake_if_asked(self):
        if self._is_asked:
            self._is_asked = False
            self._wake()


class _Manager:
    """The thread that gives tasks to processes, and the results to those that wait for them."""

    def __init__(self, context, processes, initializer, initargs, maxtasksperchild):
        self.state = multiprocessing.pool.RUN
        self.error = None  # That ends each task.
        self.cache = {}  # What callers wait for, by number of the job.
        self._context = context
        self._initial = initializer, initargs
        self._most = -1 if maxtasksperchild is None else maxtasksperchild
        self._tasks, self._results = _queues.SimpleQueue(), _queues.SimpleQueue()
        self._feed = _Feed(self._wake, self._give_up)
        self._sent = {}  # Tasks that processes have, or may have, by number.
        self._numbers = itertools.count(1)
        self._has_unknown_loss = False
        self._workers = {}
        self._places = itertools.count(1)
        self._is_finished = False
        self._failing = threading.RLock()
        self._owner = os.getpid()
        try:
            for _ in range(processes):
                self._start_worker()
        except BaseException:
            self._stop()
            raise
        self._thread = threading.Thread(target=self._run, daemon=True, name="pool")
        self._thread.start()

    def put(self, series):
        """Takes tasks, as the _taskqueue of multiprocessing.pool.Pool does."""
        self._feed.put(series)
        if self._is_finished:
            self._fail_all()

    def set_state(self, state):
        self.state = state
        self._wake()

    def join(self):
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def terminate(self):
        if os.getpid() == self._owner and self._thread.is_alive():
            self.set_state(multiprocessing.pool.TERMINATE)
            self.join()

    def _wake(self):
        _send(self._results, (0, "wake", 0), None)

    def _give_up(self, error):
        self.error = self.error or error
        self._wake()

    def _start_worker(self):
        place, at = next(self._places), _sharedctypes.RawValue("Q")
        process = self._context.Process(target=_work, args=(place, at, self._tasks, self._results, *self._initial, self._most),
                                        daemon=True, name=f"PoolWorker-{place}")
        process.start()
        self._workers[place] = _Worker(process, at)

        def watch():
            process.join()
            _send(self._results, (place, "ended", 0), None)

        threading.Thread(target=watch, daemon=True, name="pool watcher").start()

    def _run(self):
        try:
            while self._workers:
                message = _receive(self._results, _BETWEEN_LOOKS if self._has_unknown_loss else None)
                if message is None:
                    self._find_unknown_loss()
                else:
                    self._take(*message[0], message[1])
                message = None  # Not kept while it waits.
                if self.state == multiprocessing.pool.TERMINATE or self.error is not None:
                    self._stop()
                else:
                    self._give()
        except BaseException as error:  # As where the guardian was killed.
            self.error = self.error or error
        self._is_finished = True
        self._stop()

    def _take(self, place, kind, number, value):
        if kind == "ready":
            self._workers[place].is_ready = True
        elif kind == "broken":
            self.error = self._loaded(value)[1]
        elif kind == "done":
            self._workers[place].done += 1
            self._end(number, self._loaded(value))
        elif kind == "ended":
            self._replace(self._workers.pop(place))

    @staticmethod
    def _loaded(value):
        try:
            return _shared.loads(*value)
        except Exception as error:  # Of the program's own class.
            return False, error

    def _end(self, number, end):
        """Gives a task's end to its caller."""
        task = self._sent.pop(number, None)
        if task is not None:
            self._set_result(task, end)

    def _set_result(self, task, end):
        result = self.cache.get(task[0])
        if result is not None:
            try:
                result._set(task[1], end)
            except Exception:  # Of a callback.
                traceback.print_exc()

    def _replace(self, worker):
        number = worker.at.value
        code = worker.process.exitcode
        if self.state == multiprocessing.pool.TERMINATE or code == 0 and self._is_over():
            return
        if number in self._sent:
            self._end(number, (False, _loss_of(worker.process, self._sent[number])))
        elif not worker.is_ready:  # So would the next one.
            self.error = self.error or _loss_of(worker.process, None)
        elif code != 0 or worker.done != self._most:
            self._has_unknown_loss = bool(self._sent)
        if self.error is None:
            self._start_worker()

    def _find_unknown_loss(self):
        """Where all processes wait for tasks, none of those that were sent is with one of them."""
        if self._tasks.empty() and all(worker.is_ready and worker.at.value == 0 for worker in self._workers.values()):
            self._has_unknown_loss = False
            for number in list(self._sent):
                self._end(number, (False, _spawn.ProcessExitedException(
                    f"a process of the pool died with a task, {_name_of(self._sent[number])}", 0, 0, -1)))

    def _fail_all(self):
        self.state = multiprocessing.pool.TERMINATE
        error = self.error or RuntimeError("the pool was terminated before this task was done")
        with self._failing:
            for result in list(self.cache.values()):
                try:
                    _fail(result, error)
                except Exception:  # Of a callback.
                    traceback.print_exc()

    def _stop(self):
        for worker in self._workers.values():
            worker.process.terminate()
        self._feed.stop()
        self._sent.clear()
        self._fail_all()

    def _is_over(self):
        return self.state == multiprocessing.pool.CLOSE and self._feed.is_empty() and not self._sent

    def _give(self):
        while len(self._sent) < _AHEAD * len(self._workers) and (task := self._feed.take()) is not None:
            number = next(self._numbers)
            self._sent[number] = task
            try:
                _send(self._tasks, number, task[2:])
            except Exception as error:
                self._end(number, (False, error))
            task = None
        if self._is_over():
            for _ in self._workers:
                _send(self._tasks, None, None)


class Pool(multiprocessing.pool.Pool):
    """multiprocessing.Pool. A process that dies is replaced; the task that it was at is lost, and no other one.

    The caller of a lost task gets a ProcessExitedException, which names the process, its end and the function. A process that
    can't start, or whose initializer raises, ends the pool, and all callers get the error.
    """

    def __init__(self, processes=None, initializer=None, initargs=(), maxtasksperchild=None, context=None):
        self._state = multiprocessing.pool.INIT  # For __del__, where this raises.
        processes = len(os.sched_getaffinity(0)) if processes is None else processes
        if processes < 1:
            raise ValueError(f"the number of processes is {processes}: it must be at least 1")
        if maxtasksperchild is not None and (not isinstance(maxtasksperchild, int) or maxtasksperchild < 1):
            raise ValueError(f"maxtasksperchild is {maxtasksperchild!r}: it must be a positive int or None")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be callable")
        self._processes = processes
        self._manager = _Manager(context or _process.get_context(), processes, initializer, tuple(initargs), maxtasksperchild)
        self._pool = [None] * processes  # Its length is the number of processes.
        self._cache = self._manager.cache
        self._taskqueue = self._manager
        self._terminate = _util.Finalize(self, self._manager.terminate, exitpriority=15)
        self._state = multiprocessing.pool.RUN

    def __del__(self, _warn=warnings.warn, _run=multiprocessing.pool.RUN):
        if self._state == _run:
            _warn(f"unclosed running multiprocessing pool {self!r}", ResourceWarning, source=self)

    def _check_running(self):
        if self._state != multiprocessing.pool.RUN or self._manager.state != multiprocessing.pool.RUN:
            raise self._manager.error or ValueError("Pool not running")

    def close(self):
        """No more tasks come. The processes end when all tasks are done."""
        if self._state == multiprocessing.pool.RUN:
            self._state = multiprocessing.pool.CLOSE
            if self._manager.state == multiprocessing.pool.RUN:
                self._manager.set_state(multiprocessing.pool.CLOSE)

    def terminate(self):
        """Ends the processes at once. Callers that wait get a RuntimeError."""
        self._state = multiprocessing.pool.TERMINATE
        self._terminate()

    def join(self):
        """Waits until the processes have ended. Errors: ValueError before close() and terminate()."""
        if self._state == multiprocessing.pool.RUN:
            raise ValueError("Pool is still running")
        self._manager.join()
