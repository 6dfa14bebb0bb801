"""What processes share goes on where random ones of them are killed at random moments."""

import os
import random
import time
import unittest

import retinue.multiprocessing as mp

SEED = int(os.environ.get("KILLS_SEED", random.randrange(2**32)))


def work(place, lock, pair, steps, numbers, stop):
    while not stop.is_set():
        with lock:
            if lock.owner_died():
                pair[1] = pair[0]
            if pair[0] != pair[1]:
                raise AssertionError(f"two processes had the lock: {pair[0]} and {pair[1]}")
            pair[0] += 1
            pair[1] += 1
        numbers.put(bytes(place * 10**5))
        numbers.get()  # Mine, or another one's.
        here, there = mp.Pipe()
        here.send(lock)
        there.recv()
        steps[place] += 1


class Kills(unittest.TestCase):
    def wait_for_steps(self, steps, places):
        before = steps[:]
        end = time.monotonic() + 60
        while any(steps[place] < before[place] + 3 for place in places):
            self.assertLess(time.monotonic(), end, f"{steps[:]} after {before}, with KILLS_SEED={SEED}")
            time.sleep(0.001)

    def test_stop_no_other_process(self):
        chance = random.Random(SEED)
        lock, numbers, stop = mp.Lock(), mp.Queue(64), mp.Event()
        pair, steps = mp.RawArray("q", 2), mp.RawArray("q", 3)

        def start(place):
            process = mp.Process(target=work, args=(place, lock, pair, steps, numbers, stop))
            process.start()
            return process

        processes = [start(place) for place in range(3)]
        for _ in range(30):
            self.wait_for_steps(steps, range(3))
            time.sleep(chance.random() / 100)
            victim = chance.randrange(3)
            processes[victim].kill()
            self.wait_for_steps(steps, set(range(3)) - {victim})
            processes[victim].join()
            processes[victim] = start(victim)
        stop.set()
        for process in processes:
            process.join()
            self.assertEqual(process.exitcode, 0, f"KILLS_SEED={SEED}")
        self.assertEqual(pair[0], pair[1])


if __name__ == "__main__":
    unittest.main()
