"""A peer: messages of 8 bytes through a queue of torch.multiprocessing or of faster-fifo, on command.

    queue_words.py SimpleQueue|Queue|faster-fifo|faster-fifo in batches

retinue-bench writes lines to standard input and reads one JSON object per line from standard output: {"ranks": [{"enter":
[ns...], "exit": [ns...]}, ...]} on CLOCK_MONOTONIC, one pair per timed iteration, or {"error": text}.

    flow PAIRS MESSAGES WARMUPS ITERATIONS         producers, as many consumers, messages of each in an iteration
    round_trip 1 1 WARMUPS ITERATIONS
"""
import sys

from queue_ranks import now, serve, start_ranks

KIND = sys.argv[1]
BATCH = 64
CAPACITY = 1024
PRODUCER_SHIFT = 48
WAIT_S = 60


def make_queue():
    if KIND.startswith("faster-fifo"):
        import faster_fifo

        return faster_fifo.Queue(max_size_bytes=CAPACITY * 32)
    import torch.multiprocessing as mp

    context = mp.get_context("fork")
    return context.SimpleQueue() if KIND == "SimpleQueue" else context.Queue(CAPACITY)


def produce(queue, words):
    if KIND == "faster-fifo in batches":
        for first in range(0, len(words), BATCH):
            queue.put_many(words[first : first + BATCH], timeout=WAIT_S)
    else:
        for word in words:
            queue.put(word)


def consume(queue, count):
    if KIND != "faster-fifo in batches":
        return [queue.get() for _ in range(count)]
    words = []
    while len(words) < count:
        words += queue.get_many(timeout=WAIT_S, max_messages_to_get=min(BATCH, count - len(words)))
    return words


def check(words):
    last = {}
    for word in words:
        if word <= last.get(word >> PRODUCER_SHIFT, -1):
            raise RuntimeError("a message came twice or out of order")
        last[word >> PRODUCER_SHIFT] = word


def run_flow(pairs, messages, warmups, iterations):
    queue = make_queue()

    def words_of(producer, i):
        first = (i + warmups) * messages
        return [producer << PRODUCER_SHIFT | number for number in range(first, first + messages)]

    def run(rank, barrier, record, sums):
        for i in range(-warmups, iterations):
            words = words_of(rank, i) if rank < pairs else None
            barrier.wait()
            enter = now()
            if rank < pairs:
                produce(queue, words)
            else:
                words = consume(queue, messages)
            record(i, enter, now())
            check(words)
            sums[rank] += sum(words)

    spans, sums = start_ranks(2 * pairs, iterations, run)
    if sum(sums[:pairs]) != sum(sums[pairs:]):
        raise RuntimeError("a message was lost or changed")
    return spans


def run_round_trip(_, __, warmups, iterations):
    there, back = make_queue(), make_queue()

    def run(rank, barrier, record, _):
        barrier.wait()
        for i in range(-warmups, iterations):
            enter = now()
            if rank == 0:
                there.put(i)
                answer = back.get()
            else:
                answer = there.get() + 1
                back.put(answer)
            record(i, enter, now())
            if answer != i + 1:
                raise RuntimeError("a wrong answer came back")

    return start_ranks(2, iterations, run)[0]


if __name__ == "__main__":
    serve({"flow": run_flow, "round_trip": run_round_trip})
