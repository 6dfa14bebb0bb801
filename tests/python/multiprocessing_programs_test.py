"""Whole programs that use retinue.multiprocessing: what they print, how they end, and what they leave. Needs no PyTorch."""

import contextlib
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest

LINES = {**os.environ, "PYTHONUNBUFFERED": ""}  # Unbuffered output is written in pieces.


@contextlib.contextmanager
def program_file(text):
    """The path of a program in a folder of its own, for a with block."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "program.py")
        path.write_text(textwrap.dedent(text))
        yield path


def run_program(text, *, timeout=60):
    """Runs a program in a file of its own, and returns what it printed, after its last process has ended."""
    with program_file(text) as path:
        ended = subprocess.run([sys.executable, str(path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               timeout=timeout, env=LINES)
        return ended.returncode, ended.stdout


def interrupted(text):
    """Runs a program whose processes print "here", sends it SIGINT then, and returns how it ended, and what they said."""
    with program_file(text) as path:
        with subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env=LINES) as program:
            for line in program.stdout:
                if line == "here\n":
                    break
            program.send_signal(signal.SIGINT)
            said, _ = program.communicate(timeout=20)  # Less than processes have to end by themselves.
            return program.returncode, said


class Interrupts(unittest.TestCase):
    def test_let_processes_end_their_work(self):
        for start in ("process = mp.Process(target=work); process.start(); process.join()", "mp.spawn(work)"):
            code, said = interrupted(f"""
                import time
                import retinue.multiprocessing as mp
                def work(index=0):
                    try:
                        print("here", flush=True)
                        time.sleep(100)
                    except KeyboardInterrupt:
                        end = time.monotonic() + 0.5
                        while time.monotonic() < end:
                            pass
                        print("saved", flush=True)
                if __name__ == "__main__":
                    {start}
                """)
            self.assertEqual((code, said.count("saved")), (-signal.SIGINT, 1), said)

    def test_end_a_program_that_waits_for_what_it_spawned(self):
        code, said = interrupted("""
            import time
            import retinue.multiprocessing as mp
            def sleep(index):
                print("here", flush=True)
                time.sleep(100)
            if __name__ == "__main__":
                mp.spawn(sleep)
            """)
        self.assertEqual(code, -signal.SIGINT, said)

    def test_end_a_program_that_joins_a_process(self):
        code, said = interrupted("""
            import time
            import retinue.multiprocessing as mp
            def sleep():
                print("here", flush=True)
                time.sleep(100)
            if __name__ == "__main__":
                process = mp.Process(target=sleep)
                process.start()
                process.join()
            """)
        self.assertEqual(code, -signal.SIGINT, said)

    def test_end_a_program_that_waits_for_something_else(self):
        code, said = interrupted("""
            import time
            import retinue.multiprocessing as mp
            def sleep(index=0):
                print("here", flush=True)
                time.sleep(100)
            if __name__ == "__main__":
                mp.Process(target=sleep).start()
                mp.spawn(sleep, join=False)
                time.sleep(100)
            """)
        self.assertEqual(code, -signal.SIGINT, said)


class Programs(unittest.TestCase):
    def test_end_with_a_thread_that_waits(self):
        code, said = run_program("""
            import threading, time
            import retinue.multiprocessing as mp
            def sleep(index):
                time.sleep(100)
            def look():
                while not context.join(0.001):
                    pass
            if __name__ == "__main__":
                context = mp.spawn(sleep, daemon=True, join=False)
                threading.Thread(target=look, daemon=True).start()
                time.sleep(0.2)
            """)
        self.assertEqual((code, said), (0, ""))

    def test_call_their_exit_handlers_before_they_wait_for_processes(self):
        code, said = run_program("""
            import atexit
            import retinue.multiprocessing as mp
            def wait(begun, event):
                begun.set()
                event.wait()
            if __name__ == "__main__":
                begun, event = mp.Event(), mp.Event()
                atexit.register(event.set)
                mp.Process(target=wait, args=(begun, event)).start()
                begun.wait()
            """)
        self.assertEqual((code, said), (0, ""))

    def test_wait_for_what_they_spawned(self):
        code, said = run_program("""
            import time
            import retinue.multiprocessing as mp
            def say_late(index):
                time.sleep(0.3)
                print("late")
            if __name__ == "__main__":
                mp.spawn(say_late, join=False)
            """)
        self.assertEqual((code, said), (0, "late\n"))

    def test_may_be_typed_in(self):
        text = "import os, retinue.multiprocessing as mp; mp.spawn(os.getpgid, nprocs=2); mp.spawn(lambda index: print('no'))"
        ended = subprocess.run([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if importlib.util.find_spec("cloudpickle") is None:
            self.assertIn("need the package cloudpickle", ended.stdout.replace("\n", " "))
        else:
            self.assertEqual(ended.stdout, "no\n")

    def test_have_handlers_and_output_of_their_own_where_a_module_has_some(self):
        code, said = run_program("""
            import os, pathlib, sys, tempfile
            pathlib.Path(__file__).with_name("early.py").write_text(
                "import atexit, tempfile\\n"
                "import retinue.multiprocessing as mp\\n"
                "mp.warm()\\n"
                "folder = tempfile.TemporaryDirectory()\\n"
                "atexit.register(print, 'handler of the guardian')\\n"
                "print('banner')\\n")
            import retinue.multiprocessing as mp
            def work(index):
                global folder
                folder = tempfile.TemporaryDirectory()
                print(folder.name)
            if __name__ == "__main__":
                mp.warm("early")
                mp.spawn(work, nprocs=2)
                mp.spawn(work)
            """)
        self.assertEqual(code, 0, said)
        lines = said.splitlines()
        self.assertEqual((lines.count("banner"), len(lines)), (1, 4), said)
        self.assertEqual([line for line in lines if os.path.exists(line)], [])

    def test_may_name_a_module_that_cant_be_imported(self):
        code, said = run_program("""
            import pathlib
            pathlib.Path(__file__).with_name("bad.py").write_text("import retinue.multiprocessing as mp\\nmp.spawn(print)\\n")
            import retinue.multiprocessing as mp
            if __name__ == "__main__":
                mp.warm("bad")
                mp.spawn(print)
            """)
        self.assertEqual(code, 0, said)
        self.assertIn("the guardian can't import bad, so each process will: RuntimeError", said)
        self.assertIn("a module that the guardian imports starts a process while it is imported", said)
        self.assertTrue(said.endswith("0\n"), said)

    def test_print_whole_lines_of_their_processes(self):
        code, said = run_program("""
            import retinue.multiprocessing as mp
            def say(index, word):
                print(word, index)
            if __name__ == "__main__":
                print("before")
                mp.spawn(say, ("hello",), 2)
                print("after")
            """)
        lines = said.splitlines()
        self.assertEqual((code, lines[0], sorted(lines[1:3]), lines[3:]), (0, "before", ["hello 0", "hello 1"], ["after"]))

    def test_warm_a_module_once_for_all_processes(self):
        code, said = run_program("""
            import os, pathlib, sys
            pathlib.Path(__file__).with_name("slow.py").write_text("import os\\npid = os.getpid()\\n")
            import retinue.multiprocessing as mp
            def look(index):
                import slow
                assert slow.pid == os.getppid() != os.getpid(), (slow.pid, os.getppid())
            if __name__ == "__main__":
                mp.warm("slow", "no_such_module")
                mp.spawn(look, nprocs=2)
            """)
        self.assertEqual(code, 0, said)
        self.assertIn("the guardian can't import no_such_module, so each process will", said)

    def test_are_told_of_a_start_by_the_import_of_their_main_module(self):
        code, said = run_program("""
            import retinue.multiprocessing as mp
            def work(index):
                pass
            mp.spawn(work)
            """)
        self.assertNotEqual(code, 0)
        self.assertIn("if __name__ == '__main__':", said)

    def test_end_daemonic_processes_and_wait_for_others(self):
        code, said = run_program("""
            import time
            import retinue.multiprocessing as mp
            def say_late():
                time.sleep(0.3)
                print("late", flush=True)
            def sleep():
                time.sleep(100)
            if __name__ == "__main__":
                mp.Process(target=sleep, daemon=True).start()
                mp.Process(target=say_late).start()
            """)
        self.assertEqual((code, said), (0, "late\n"))

    def test_end_well_where_a_process_failed_as_with_multiprocessing(self):
        code, said = run_program("""
            import retinue.multiprocessing as mp
            def fail():
                raise ValueError("bad")
            if __name__ == "__main__":
                process = mp.Process(target=fail)
                process.start()
                process.join()
                print("code", process.exitcode)
            """)
        self.assertEqual(code, 0, said)
        self.assertIn("Process-1", said)
        self.assertIn("raised ValueError: bad", said)
        self.assertTrue(said.endswith("code 1\n"), said)

    def test_leave_nothing_behind_when_they_are_killed(self):
        with program_file("""
                import os, time
                import retinue.multiprocessing as mp
                def hold(index, end):
                    print("here", flush=True)
                    time.sleep(100)
                if __name__ == "__main__":
                    mp.spawn(hold, (0,), 2)
                """) as path:
            with subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, text=True, env=LINES) as program:
                for _ in range(2):
                    self.assertEqual(program.stdout.readline(), "here\n")
                program.kill()
                self.assertEqual(program.stdout.read(), "")  # The last process that could write has ended.


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Shells ignore it for what runs in the background.
    unittest.main()
