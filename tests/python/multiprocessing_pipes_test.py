"""retinue.multiprocessing's pipes: what they carry, and how they end."""

import multiprocessing.connection
import os
import pickle
import signal
import threading
import unittest

try:
    import numpy
except ImportError:
    numpy = None

import retinue.multiprocessing as mp


def echo(index, end):
    try:
        while True:
            end.send(end.recv())
    except EOFError:
        pass


def echo_bytes(index, end):
    for _ in range(3):
        end.send_bytes(end.recv_bytes())


def end_at_once(index, end):
    end.send("before the end")


def be_killed(index, end):
    end.send(os.getpid())
    end.recv()


def send_many(index, end, count):
    for i in range(count):
        end.send(i)


class Pipes(unittest.TestCase):
    def test_carry_objects_both_ways(self):
        here, there = mp.Pipe()
        context = mp.spawn(echo, (there,), join=False)
        there.close()
        for value in (1, "text", {"a": [1.5, None]}, b"x" * 10**7, list(range(10**5))):
            here.send(value)
            self.assertEqual(here.recv(), value)
        here.close()
        context.join()

    @unittest.skipIf(numpy is None, "NumPy is not installed")
    def test_carry_arrays(self):
        here, there = mp.Pipe()
        context = mp.spawn(echo, (there,), join=False)
        array = numpy.arange(10**6).reshape(1000, 1000)
        here.send(array.T)
        numpy.testing.assert_array_equal(here.recv(), array.T)
        here.close()
        context.join()

    def test_carry_bytes(self):
        here, there = mp.Pipe()
        context = mp.spawn(echo_bytes, (there,), join=False)
        for data in (b"", b"\xff" * 5, bytearray(range(256)) * 10**4):
            here.send_bytes(data)
            self.assertTrue(here.poll(30))
            self.assertEqual(here.recv_bytes(), data)
        context.join()
        here.send_bytes(b"abcdef", 1, 3)
        self.assertEqual(there.recv_bytes(), b"bcd")
        buffer = bytearray(8)
        here.send_bytes(b"xyz")
        self.assertEqual(there.recv_bytes_into(buffer, 2), 3)
        self.assertEqual(buffer, b"\0\0xyz\0\0\0")
        here.send_bytes(b"x" * 9)
        self.assertRaises(mp.BufferTooShort, there.recv_bytes_into, buffer)
        self.assertRaises(ValueError, here.send_bytes, b"abc", 4)

    def test_an_object_is_bytes_and_bytes_are_an_object(self):
        here, there = mp.Pipe()
        for value in ({"an": "object"}, list(range(10**5)), *([] if numpy is None else [numpy.arange(10**5)])):
            here.send(value)
            pickled = there.recv_bytes()
            self.assertEqual(str(pickle.loads(pickled)), str(value))
            there.send_bytes(pickled)
            self.assertEqual(str(here.recv()), str(value))

    def test_one_way(self):
        reader, writer = mp.Pipe(duplex=False)
        self.assertEqual((reader.readable, reader.writable, writer.readable, writer.writable), (True, False, False, True))
        writer.send(1)
        self.assertEqual(reader.recv(), 1)
        self.assertRaises(OSError, reader.send, 1)
        self.assertRaises(OSError, writer.recv)
        self.assertFalse(reader.poll())

    def test_are_full_and_go_on(self):
        here, there = mp.Pipe()
        context = mp.spawn(send_many, (there, 1000), join=False)
        self.assertEqual([here.recv() for _ in range(1000)], list(range(1000)))
        context.join()

    def test_end(self):
        here, there = mp.Pipe()
        process = mp.Process(target=end_at_once, args=(0, there))
        process.start()
        there.close()
        self.assertEqual(here.recv(), "before the end")
        self.assertRaises(EOFError, here.recv)
        self.assertRaises(BrokenPipeError, here.send, 1)
        process.join()
        here.close()
        self.assertTrue(here.closed)
        for function in (here.recv, here.poll, here.fileno, lambda: here.send(1)):
            self.assertRaisesRegex(OSError, "closed", function)

    def test_end_where_the_other_process_is_killed(self):
        here, there = mp.Pipe()
        context = mp.spawn(be_killed, (there,), join=False)
        there.close()
        os.kill(here.recv(), signal.SIGKILL)
        self.assertRaises(EOFError, here.recv)
        self.assertRaises(mp.ProcessExitedException, context.join)

    def test_are_waited_for_together(self):
        pairs = [mp.Pipe() for _ in range(3)]
        readers = [here for here, _ in pairs]
        wait = multiprocessing.connection.wait
        self.assertEqual(wait(readers, 0), [])
        pairs[1][1].send("one")
        self.assertEqual(wait(readers, 30), [readers[1]])
        self.assertEqual(readers[1].recv(), "one")
        self.assertEqual(wait(readers, 0.05), [])
        threading.Timer(0.1, pairs[2][1].send, ("two",)).start()
        self.assertEqual(wait(readers), [readers[2]])
        self.assertEqual(readers[2].recv(), "two")
        process = mp.Process(target=echo, args=(0, pairs[0][1]))
        process.start()
        pairs[0] = (readers[0], None)
        readers[0].send("three")
        self.assertEqual(wait([readers[0], process.sentinel], 30), [readers[0]])
        self.assertEqual(readers[0].recv(), "three")
        readers[0].close()
        self.assertEqual(wait([process.sentinel], 30), [process.sentinel])
        process.join()

    def test_with(self):
        with mp.Pipe()[0] as end:
            self.assertFalse(end.closed)
        self.assertTrue(end.closed)


if __name__ == "__main__":
    unittest.main()
