"""A peer: tasks in Python's multiprocessing.Pool, on command.

retinue-bench writes lines "map|single|apply WORKERS TASKS" to standard input and reads one JSON object per line from standard
output: {"us": microseconds of the call}, or {"error": text}. The pool stays from line to line.
"""
import json
import multiprocessing
import sys
import time

pool = None


def nothing(number):
    pass


def run(how, tasks):
    if how == "apply":
        for number in range(tasks):
            pool.apply(nothing, (number,))
    else:
        pool.map(nothing, range(tasks), 1 if how == "single" else None)


def measure(how, workers, tasks):
    global pool
    if pool is None:
        pool = multiprocessing.Pool(workers)
        pool.map(nothing, range(1000))
    begin = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    run(how, tasks)
    return {"us": (time.clock_gettime_ns(time.CLOCK_MONOTONIC) - begin) / 1000}


def main():
    for line in sys.stdin:
        how, workers, tasks = line.split()
        try:
            answer = measure(how, int(workers), int(tasks))
        except Exception as error:  # whatever it is, the bench must know it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    if pool is not None:
        pool.terminate()


if __name__ == "__main__":
    main()
