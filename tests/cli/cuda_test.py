"""The CUDA backend and NCCL from outside, over the stand-ins: python3 cuda_test.py DIFFUSE_STANDIN [unittest's arguments].

Which device is taken, what is refused, and how a job ends whose ranks die or stop. Whether results are right: cuda_golden_test."""

import os
import re
import signal

import support
from cuda_support import CudaTest
from support import DATA, send, stories, wait_until


class DeviceTest(CudaTest):
    def setUp(self):
        super().setUp()
        self.pack("job.h5", stories(2, 3, 6))

    def run_job(self, *flags, ranks=2, **env):
        return self.run_any("run", "job.h5", "-o", "out.h5", "--no-resume", *flags, ranks=ranks, env=self.env(**env))

    def run_mixed(self, variable, values, *flags):
        """A rank for each value of a variable of the environment."""
        rank = [support.DIFFUSE, "run", "job.h5", "-o", "out.h5", "--no-resume", *flags]
        command = [support.MPIEXEC, "--oversubscribe"]
        for number, value in enumerate(values):
            command += [":"] * (number > 0) + ["-n", "1", "-x", f"{variable}={value}", *rank]
        running = support.Running(command, self.folder, self.env())
        self.addCleanup(running.close)
        return running.wait()

    def provenance(self):
        return dict(re.findall(r"^  (\w+): (.*)$", self.diffuse("show", "out.h5", "--summary").out, re.M))

    def test_auto_takes_cuda_where_every_rank_has_a_card(self):
        done = self.run_job()
        self.assertEqual(done.code, 0, done)
        self.assertRegex(done.err, r"device: cuda, sm_90 .*; hidden rows go over nccl 2\.28\.9")
        said = self.provenance()
        self.assertEqual((said["backend"], said["transport"], said["compute"]), ("cuda", "nccl 2.28.9", "bf16"))

    def test_auto_takes_the_cpu_where_none_has(self):
        done = self.run_job(DIFFUSE_STANDIN_DRIVER="none")
        self.assertEqual(done.code, 0, done)
        self.assertRegex(done.err, r"device: cpu, \w+\n")
        said = self.provenance()
        self.assertEqual((said["backend"], said["transport"], said["compute"]), ("cpu", "mpi", "f32"))

    def test_auto_takes_the_cpu_where_one_lacks_a_card_and_says_which(self):
        done = self.run_mixed("DIFFUSE_STANDIN_DRIVER", ("here", "none"))
        self.assertEqual(done.code, 0, done)
        self.assertRegex(done.err, r"device: cpu, \w+; rank 1 \(host [^)]+\): ")

    def test_mixed_devices_are_refused(self):
        done = self.run_mixed("DIFFUSE_STANDIN_DRIVER", ("here", "none"), "--device", "cuda")
        self.assert_fails(done, 69, "rank 1/2", "--device cuda: ", "--device cpu")

    def test_cards_of_two_kinds_are_refused(self):
        for flags in ((), ("--device", "cuda")):
            done = self.run_mixed("DIFFUSE_STANDIN_NAME", ("Small", "Large"), *flags)
            self.assert_fails(done, 69, "rank 0 (host", "Small", "rank 1 (host", "Large", "round differently")

    def test_cuda_without_a_card_says_what_is_missing(self):
        for ranks in (0, 2):
            done = self.run_job("--device", "cuda", ranks=ranks, DIFFUSE_STANDIN_DRIVER="none")
            self.assert_fails(done, 69, "--device cuda: ", "driver")
            done = self.run_job("--device", "cuda", ranks=ranks, CUDA_VISIBLE_DEVICES="")
            self.assert_fails(done, 69, "--device cuda: ")

    def test_two_ranks_on_one_card(self):
        shared = {"DIFFUSE_STANDIN_DEVICES": 1}
        done = self.run_job("--device", "cuda", **shared)
        self.assert_fails(done, 69, "rank 0 (host", "and rank 1 share a card", "--transport mpi", "NCCL_MULTI_RANK_GPU_ENABLE",
                          "2.28.9")
        shared["NCCL_MULTI_RANK_GPU_ENABLE"] = 1
        self.assert_fails(self.run_job("--device", "cuda", **shared), 69, "share a card")
        done = self.run_job("--device", "cuda", DIFFUSE_STANDIN_NCCL_VERSION=23000, **shared)
        self.assertEqual(done.code, 0, done)
        self.assertIn("hidden rows go over nccl 2.30.0", done.err)
        self.assertEqual(self.run_job("--device", "cuda", "--transport", "mpi", DIFFUSE_STANDIN_DEVICES=1).code, 0)
        # Three ranks, two cards: the first and the third share one.
        self.assert_fails(self.run_job("--device", "cuda", ranks=3, DIFFUSE_STANDIN_DEVICES=2), 69, "rank 0 (host",
                          "and rank 2 share a card")

    def test_flags_that_do_not_fit(self):
        self.assert_fails(self.run_job("--device", "cpu", "--transport", "nccl"), 2, "--transport nccl")
        done = self.run_job("--device", "cuda", "--threads", "3")
        self.assertEqual(done.code, 0, done)
        self.assertIn("--threads", done.err)

    def test_a_card_that_is_too_small_says_so(self):
        for ranks in (0, 2):
            done = self.run_job("--device", "cuda", ranks=ranks, DIFFUSE_STANDIN_MEMORY=1 << 18)
            self.assert_fails(done, 74, "out of memory", "fewer layers")


class MemoryTest(CudaTest):
    """Nothing is allocated on a card once a run has started, for the largest step is known before the first."""

    def allocations(self, name):
        counts = self.folder / "counts"
        self.cuda("run", name, "-o", "out.h5", "--device", "cuda", "--no-resume", "--chunk", 48, "--group", 8,
                  DIFFUSE_STANDIN_COUNTS=counts)
        return dict(line.split() for line in counts.read_text().splitlines())

    def test_many_requests_that_grow_take_no_more_allocations_than_one(self):
        for case, longest in (("mixtral-wide", 240), ("gemma2", 240), ("t5", 240)):
            with self.subTest(case=case):
                model = DATA / "golden" / case
                prompt = [5 + i % 40 for i in range(longest)]
                # Contexts of both are cut into parts, and so both have memory for those.
                self.pack("one.h5", [{"tokens": prompt}], model=model, max_new_tokens=2, ignore_eos=True)
                self.pack("many.h5", [{"tokens": prompt[:n]} for n in (3, 20, longest, 7, 47, longest // 2)], model=model,
                          max_new_tokens=8, ignore_eos=True)
                one, many = self.allocations("one.h5"), self.allocations("many.h5")
                self.assertGreater(int(many["kernel"]), 2 * int(one["kernel"]), "it does more")
                self.assertEqual(many["cudaMalloc"], one["cudaMalloc"])


class GraphsTest(CudaTest):
    """Decode steps that are recorded and launched as CUDA graphs."""

    def setUp(self):
        super().setUp()
        # Five places for eight requests, of contexts that cross a page.
        self.pack("job.h5", stories(8, 6, 40), ignore_eos=True, logprobs=2)
        self.counted("plain.h5", "--graphs", "off")

    def counted(self, name, *flags, ranks=0, code=0, **env):
        counts = self.folder / "counts"
        self.done = self.cuda("run", "job.h5", "-o", name, "--device", "cuda", "--no-resume", "--group", 5, *flags, ranks=ranks, code=code,
                              DIFFUSE_STANDIN_COUNTS=counts, **env)
        path = self.folder / ("counts.1" if ranks else "counts")
        return {name: int(count) for name, count in (line.split() for line in path.read_text().splitlines())}

    def test_they_are_used_and_change_no_bit(self):
        self.assertNotIn("cudaGraphLaunch", self.counted("off.h5", "--graphs", "off"))
        for ranks, flags in ((0, ()), (2, ()), (2, ("--transport", "mpi"))):
            with self.subTest(ranks=ranks, flags=flags):
                counts = self.counted("out.h5", *flags, ranks=ranks)
                self.assert_identical("plain.h5", "out.h5")
                self.assertGreater(counts["cudaGraphLaunch"], 20, counts)
                self.assertEqual(counts["cudaGraphExecDestroy"], counts["cudaGraphInstantiate"], counts)
                self.assertNotIn("warning", self.done.err)

    def test_what_cannot_be_recorded_is_launched_plainly_and_said_once(self):
        for function in ("cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate"):
            with self.subTest(function=function):
                fault = ",".join(f"{function}:{call}" for call in range(1, 50))
                counts = self.counted("out.h5", DIFFUSE_STANDIN_FAIL=fault)
                self.assert_identical("plain.h5", "out.h5")
                self.assertNotIn("cudaGraphLaunch", counts)
                warnings = [line for line in self.done.err.splitlines() if "warning" in line]
                self.assertEqual(len(warnings), 1, self.done)
                self.assertIn("could not be recorded", warnings[0])
                self.assertIn(function, warnings[0])

    def test_a_launch_that_fails_ends_the_job(self):
        for function in ("cudaGraphLaunch:1", "cudaGraphLaunch:9", "cudaGraphExecDestroy:1", "cudaGraphDestroy:1"):
            with self.subTest(function=function):
                done = self.run_any("run", "job.h5", "-o", "out.h5", "--device", "cuda", "--no-resume", "--group", 5,
                                    env=self.env(DIFFUSE_STANDIN_FAIL=function))
                self.assertEqual(done.code, 74, done)
                self.assertEqual(len(done.problems), 1, done)
                self.assertIn(function.split(":")[0], done.problems[0])


class EndTest(CudaTest):
    """Ranks that die or stop while rows go over NCCL."""

    def setUp(self):
        super().setUp()
        self.pack("job.h5", stories(12, 60, 200), ignore_eos=True)

    def started(self, *flags):
        journal = self.folder / "out.h5.journal"
        journal.unlink(missing_ok=True)
        running = self.start("run", "job.h5", "-o", "out.h5", "--device", "cuda", "--group", "2", "--no-resume", *flags,
                             ranks=3, env=self.env())
        wait_until(lambda: support.journalled(journal) > 0, "a request is finished")
        ranks = running.ranks()
        self.assertEqual(len(ranks), 3, running.text(running.err))
        return running, ranks

    def ended(self, ranks):
        wait_until(lambda: not any(support.alive(p) for p in ranks), "all ranks have ended", 30)

    def test_a_rank_that_is_killed(self):
        running, ranks = self.started()
        send(ranks[1], signal.SIGKILL)
        self.assertNotEqual(running.wait(60).code, 0)
        self.ended(ranks)

    def test_a_rank_that_is_stopped(self):
        running, ranks = self.started("--timeout", 3)
        os.kill(ranks[1], signal.SIGSTOP)
        done = running.wait(60)
        self.assertEqual(done.code, 74, done)
        # Both of the others wait, directly or not; each that notices before it is ended says the same of rank 1.
        self.assertGreaterEqual(len(done.problems), 1, done)
        for problem in done.problems:
            for text in ("rank 1 (host", "request", "layer", "no sign of life"):
                self.assertIn(text, problem, done)
        self.ended(ranks)


if __name__ == "__main__":
    support.main()
