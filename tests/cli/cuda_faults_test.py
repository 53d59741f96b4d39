"""Every call of CUDA, cuBLASLt and NCCL fails once: python3 cuda_faults_test.py DIFFUSE_STANDIN [unittest's arguments].

A small run over two ranks is counted first: which functions of the three libraries each rank calls, and how often. Then, for
each function and rank, its first call fails in a run of its own, and one in the middle of the run in another. Each of these runs
must end soon, with an exit code that is not 0, with one line that says what was being done, and must leave nothing behind.

Releases are the exception: a handle or memory that cannot be freed spoils no result, all of which was waited for and checked
before. Such a run may also end well, and then its result must be the right one.

By default a sample of about KEPT runs, chosen evenly from the list of all; DIFFUSE_ALL_FAULTS=1 does all of them."""

import os
import time

import support
from support import CommandLineTest, environment, wait_until

KEPT = 24
RELEASES = ("cudaFree", "cudaFreeHost", "cudaEventDestroy", "cudaStreamDestroy", "cublasLtDestroy", "cublasLtMatmulDescDestroy",
            "cublasLtMatrixLayoutDestroy", "cublasLtMatmulPreferenceDestroy")
# Called while something is waited for: how often depends on the moment.
POLLED = ("cudaEventQuery", "ncclCommGetAsyncError", "ncclAsyncError")
RANKS = 2


def evenly(cases, count):
    if len(cases) <= count:
        return cases
    return [cases[i * len(cases) // count] for i in range(count)]


class CudaFaultTest(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.pack("job.h5", [{"id": "a", "prompt": "Once upon a time"}, {"id": "b", "prompt": "The robot"}], max_new_tokens=4)
        self.diffuse("run", "job.h5", "-o", "whole.h5", "--device", "cuda", "--trace")

    def run_job(self, **more):
        env = environment()
        env.update(DIFFUSE_STANDIN_DEVICES=str(RANKS), **more)
        running = self.start("run", "job.h5", "-o", "out.h5", "--device", "cuda", "--trace", "--no-resume", "--group", 1,
                             ranks=RANKS, env=env)
        begin = time.monotonic()
        done = running.wait(60)
        self.assertLess(time.monotonic() - begin, 40, done)
        wait_until(lambda: not running.pids(), "nothing is left running", 20)
        return done

    def cases(self):
        done = self.run_job(DIFFUSE_STANDIN_COUNTS=str(self.folder / "counts"))
        self.assertEqual(done.code, 0, done)
        self.assert_identical("whole.h5", "out.h5")
        cases = []
        for rank in range(RANKS):
            for line in (self.folder / f"counts.{rank}").read_text().splitlines():
                function, count = line.split()
                later = 2 if function in POLLED else int(count) // 2 + 1
                cases += [(function, call, rank) for call in sorted({1, min(later, int(count))})]
        return sorted(cases)

    def test_each_ends_the_job_with_one_line(self):
        cases = self.cases()
        functions = {function for function, _, _ in cases}
        for name in ("cudaMalloc", "cudaLaunchKernel", "kernel", "cublasLtMatmul", "ncclSend", "ncclRecv", "ncclAsyncError",
                     "ncclCommInitRankConfig", "ncclCommDestroy"):
            self.assertIn(name, functions, "the run that is counted makes such a call")
        chosen = cases if os.environ.get("DIFFUSE_ALL_FAULTS") == "1" else evenly(cases, KEPT)
        print(f"{len(chosen)} of {len(cases)} faults in {len(functions)} functions", flush=True)
        for function, call, rank in chosen:
            with self.subTest(function=function, call=call, rank=rank):
                done = self.run_job(DIFFUSE_STANDIN_FAIL=f"{function}:{call}@{rank}")
                if function in RELEASES and done.code == 0:
                    self.assert_identical("whole.h5", "out.h5")
                    continue
                self.assertNotEqual(done.code, 0, done)
                self.assertIn(done.code, (69, 70, 74), f"a code of the program's own, not of a crash\n{done}")
                self.assertEqual(len(done.problems), 1, f"one line says why\n{done}")
                self.assertIn(f"[rank {rank}/{RANKS} ", done.problems[0], f"the rank that failed speaks\n{done}")


if __name__ == "__main__":
    support.main()
