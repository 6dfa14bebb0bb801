"""Whole programs that use retinue.multiprocessing: what they print, how they end, and what they leave. Needs no PyTorch."""

import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

LINES = {**os.environ, "PYTHONUNBUFFERED": ""}  # Unbuffered output is written in pieces.


def run_program(text, *, timeout=60):
    """Runs a program in a file of its own, and returns what it printed, after its last process has ended."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "program.py")
        path.write_text(textwrap.dedent(text))
        ended = subprocess.run([sys.executable, str(path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               timeout=timeout, env=LINES)
        return ended.returncode, ended.stdout


class Programs(unittest.TestCase):
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
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "program.py")
            path.write_text(textwrap.dedent("""
                import os, time
                import retinue.multiprocessing as mp
                def hold(index, end):
                    print("here", flush=True)
                    time.sleep(100)
                if __name__ == "__main__":
                    mp.spawn(hold, (0,), 2)
                """))
            with subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, text=True, env=LINES) as program:
                for _ in range(2):
                    self.assertEqual(program.stdout.readline(), "here\n")
                program.kill()
                self.assertEqual(program.stdout.read(), "")  # The last process that could write has ended.


if __name__ == "__main__":
    unittest.main()
