"""The backend "retinue" of torch.distributed, compared with what each rank can compute itself, and with gloo."""

import io
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings

warnings.filterwarnings("ignore", message="Failed to initialize NumPy")

import torch
import torch.distributed as dist

from ranks import run_group


def value_of(rank, count, dtype=torch.float32):
    """What a rank contributes: small whole numbers, whose sums are exact in each type."""
    return ((torch.arange(count) * 7 + rank * 3) % 5 + 1).to(dtype)


class Registration(unittest.TestCase):
    def test_needs_no_import(self):
        self.assertIn("retinue", dist.Backend.backend_list)
        self.assertEqual(dist.Backend.backend_capability["retinue"], ["cpu"])

    def test_names_the_versions_of_pytorch_that_it_is_for(self):
        import retinue._c10d

        before = torch.__version__
        try:
            torch.__version__ = "1.13.1+cpu"
            with self.assertRaisesRegex(ImportError, r"no backend for PyTorch 1\.13\.1\+cpu; it has one for 2\.\d+"):
                retinue._c10d._library()
        finally:
            torch.__version__ = before


class Collectives(unittest.TestCase):
    def test_all_reduce(self):
        def body(rank):
            for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8):
                for count in (1, 1000, 300_000):
                    tensor = value_of(rank, count, dtype)
                    dist.all_reduce(tensor)
                    expected = sum(value_of(other, count, dtype) for other in range(3))
                    self.assertTrue(torch.equal(tensor, expected), (dtype, count))
            for op, function in ((dist.ReduceOp.MAX, max), (dist.ReduceOp.MIN, min)):
                tensor = torch.tensor([float(rank), -float(rank)])
                dist.all_reduce(tensor, op=op)
                self.assertEqual(tensor.tolist(), [function(0, 2), function(0, -2)])
            average = torch.tensor([float(rank)])
            dist.all_reduce(average, op=dist.ReduceOp.AVG)
            self.assertEqual(average.item(), 1.0)

        run_group(3, body)

    def test_the_others(self):
        def body(rank):
            tensor = value_of(rank, 10)
            dist.broadcast(tensor, src=1)
            self.assertTrue(torch.equal(tensor, value_of(1, 10)))
            tensor = value_of(rank, 10)
            dist.reduce(tensor, dst=2)
            if rank == 2:
                self.assertTrue(torch.equal(tensor, sum(value_of(other, 10) for other in range(3))))
            parts = [torch.empty(10) for _ in range(3)]
            dist.all_gather(parts, value_of(rank, 10))
            for other, part in enumerate(parts):
                self.assertTrue(torch.equal(part, value_of(other, 10)))
            whole = torch.empty(30)
            dist.all_gather_into_tensor(whole, value_of(rank, 10))
            self.assertTrue(torch.equal(whole, torch.cat(parts)))
            dist.gather(value_of(rank, 10), parts if rank == 0 else None, dst=0)
            output = torch.empty(10)
            dist.scatter(output, [value_of(other + 5, 10) for other in range(3)] if rank == 1 else None, src=1)
            self.assertTrue(torch.equal(output, value_of(rank + 5, 10)))
            dist.reduce_scatter_tensor(output, value_of(rank, 30))
            expected = sum(value_of(other, 30) for other in range(3))[rank * 10:rank * 10 + 10]
            self.assertTrue(torch.equal(output, expected))
            dist.reduce_scatter(output, list(value_of(rank, 30).split(10)))
            self.assertTrue(torch.equal(output, expected))
            received = torch.empty(30)
            dist.all_to_all_single(received, value_of(rank, 30))
            expected = torch.cat([value_of(other, 30)[rank * 10:rank * 10 + 10] for other in range(3)])
            self.assertTrue(torch.equal(received, expected))
            parts = [torch.empty(10) for _ in range(3)]
            dist.all_to_all(parts, list(value_of(rank, 30).split(10)))
            self.assertTrue(torch.equal(torch.cat(parts), expected))
            dist.barrier()
            dist.monitored_barrier()

        run_group(3, body)

    def test_messages(self):
        def body(rank):
            following, before = (rank + 1) % 3, (rank + 2) % 3
            works = [dist.isend(value_of(rank, 5), following, tag=4), dist.irecv(tensor := torch.empty(5), before, tag=4)]
            for work in works:
                work.wait()
            self.assertTrue(torch.equal(tensor, value_of(before, 5)))
            if rank == 0:  # By a tag of their own: rank 2 may already send what comes below.
                self.assertEqual({dist.recv(torch.empty(5), tag=9), dist.recv(torch.empty(5), tag=9)}, {1, 2})
            else:
                dist.send(value_of(rank, 5), 0, tag=9)
            operations = [dist.P2POp(dist.isend, value_of(rank, 5), following), dist.P2POp(dist.irecv, tensor, before)]
            for work in dist.batch_isend_irecv(operations):
                work.wait()
            self.assertTrue(torch.equal(tensor, value_of(before, 5)))

        run_group(3, body)

    def test_works_and_coalescing(self):
        def body(rank):
            tensor = value_of(rank, 1000)
            work = dist.all_reduce(tensor, async_op=True)
            work.wait()
            self.assertTrue(work.is_completed())
            self.assertTrue(torch.equal(tensor, value_of(0, 1000) + value_of(1, 1000)))
            self.assertTrue(torch.equal(work.get_future().wait()[0], tensor))
            pair = [value_of(rank, 10), value_of(rank + 1, 20)]
            dist.all_reduce_coalesced(pair)
            self.assertTrue(torch.equal(pair[1], value_of(1, 20) + value_of(2, 20)))

        run_group(2, body)

    def test_parts_of_the_group(self):
        def body(rank):
            pair = dist.new_group([0, 2])
            if rank != 1:
                tensor = value_of(rank, 10)
                dist.all_reduce(tensor, group=pair)
                self.assertTrue(torch.equal(tensor, value_of(0, 10) + value_of(2, 10)))
            for _ in range(3):
                again = dist.new_group([0, 1, 2])
                dist.barrier(again)
                dist.destroy_process_group(again)

        run_group(3, body)

    def test_parts_that_c10d_splits_off(self):
        def body(rank):
            for _ in range(2):
                half = dist.group.WORLD.split_group([0, 1] if rank < 2 else [2, 3], None, None, None, None)
                tensor = value_of(rank, 10)
                half.allreduce([tensor]).wait()
                first = rank // 2 * 2
                self.assertTrue(torch.equal(tensor, value_of(first, 10) + value_of(first + 1, 10)))
                self.assertEqual((half.rank(), half.size()), (rank % 2, 2))
            odd = dist.group.WORLD.split_group([1, 3], None, None, None, None)
            self.assertEqual(odd is None, rank % 2 == 0)

        run_group(4, body)

    def test_meshes_and_functional_collectives(self):
        def body(rank):
            import torch.distributed._functional_collectives as functional
            from torch.distributed.device_mesh import init_device_mesh

            mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
            tensor = value_of(rank, 10)
            dist.all_reduce(tensor, group=mesh.get_group("replicate"))
            self.assertTrue(torch.equal(tensor, value_of(rank % 2, 10) + value_of(rank % 2 + 2, 10)))
            reduced = functional.reduce_scatter_tensor(value_of(rank, 40), "sum", 0, dist.group.WORLD)
            expected = sum(value_of(other, 40) for other in range(4))
            self.assertTrue(torch.equal(reduced, expected[rank * 10:rank * 10 + 10]))
            whole = functional.all_gather_tensor(reduced, 0, dist.group.WORLD)
            self.assertTrue(torch.equal(whole, expected))

        run_group(4, body)

    def test_fully_shard_trains_as_one_process_does(self):
        def body(rank):
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard

            def make():
                torch.manual_seed(0)
                return torch.nn.Sequential(torch.nn.Linear(20, 33), torch.nn.ReLU(), torch.nn.Linear(33, 7))

            sharded, whole = make(), make()
            mesh = init_device_mesh("cpu", (2,))
            for layer in (sharded[0], sharded[2], sharded):
                fully_shard(layer, mesh=mesh)
            optimizers = [torch.optim.AdamW(model.parameters(), 1e-2) for model in (sharded, whole)]
            for step in range(3):
                torch.manual_seed(step)
                inputs = torch.randn(16, 20)
                sharded(inputs[rank * 8:rank * 8 + 8]).square().mean().backward()
                whole(inputs).square().mean().backward()
                for optimizer in optimizers:
                    optimizer.step()
                    optimizer.zero_grad()
            for ours, expected in zip(sharded.parameters(), whole.parameters()):
                self.assertTrue(torch.allclose(ours.full_tensor(), expected, atol=1e-5))

        run_group(2, body)

    def test_the_profiler_shows_the_backend(self):
        def body(rank):
            with torch.profiler.profile() as profile:
                dist.all_reduce(torch.ones(3))
                dist.send(torch.ones(2), 1) if rank == 0 else dist.recv(torch.ones(2), 0)
            return {event.key for event in profile.key_averages() if event.key.startswith(("retinue:", "shm:"))}

        self.assertEqual(run_group(2, body), [{"retinue:all_reduce", "retinue:send"}, {"retinue:all_reduce", "retinue:recv"}])

    def test_ddp_has_the_gradients_of_gloo(self):
        def body(rank):
            torch.manual_seed(0)
            model = torch.nn.Sequential(torch.nn.Linear(20, 300), torch.nn.ReLU(), torch.nn.Linear(300, 5))
            ddp = torch.nn.parallel.DistributedDataParallel(model)
            torch.manual_seed(rank + 1)
            for _ in range(3):
                ddp.zero_grad()
                ddp(torch.randn(8, 20)).square().mean().backward()
            stream = io.BytesIO()
            torch.save([parameter.grad for parameter in model.parameters()], stream)
            return stream.getvalue()

        gradients = {backend: [torch.load(io.BytesIO(bytes_)) for bytes_ in run_group(2, body, backend=backend)]
                     for backend in ("retinue", "gloo")}
        for ours, theirs in zip(gradients["retinue"], gradients["gloo"]):
            for one, other in zip(ours, theirs):
                self.assertTrue(torch.equal(one, other))


class Launchers(unittest.TestCase):
    def test_torchrun_with_a_flag_of_the_script(self):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "train.py")
            script.write_text(
                "import argparse, os, torch, torch.distributed as dist\n"
                "parser = argparse.ArgumentParser()\n"
                "parser.add_argument('--backend')\n"
                "dist.init_process_group(parser.parse_args().backend)\n"
                "tensor = torch.full((3,), dist.get_rank() + 1.0)\n"
                "dist.all_reduce(tensor)\n"
                "os.write(1, f'{dist.get_rank()} {tensor.tolist()} {dist.get_backend()}\\n'.encode())\n"
                "dist.destroy_process_group()\n")
            command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone",
                       "--nproc-per-node", "2", str(script), "--backend", "retinue"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=200)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()),
                         ["0 [3.0, 3.0, 3.0] retinue", "1 [3.0, 3.0, 3.0] retinue"])


if __name__ == "__main__":
    unittest.main()
