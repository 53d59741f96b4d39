"""run, verify, compare, resume: what a user of mpirun meets."""

import json
import os
import signal
import unittest

import support
from support import DEMO, CommandLineTest, send, stories, wait_until

try:
    import h5py
except ImportError:
    h5py = None


class RunTest(CommandLineTest):
    def test_any_number_of_ranks_says_the_same(self):
        self.pack("job.h5", stories(8))
        self.diffuse("run", "job.h5", "-o", "whole.h5", "--trace")
        for ranks in (1, 2, 4):
            self.diffuse("run", "job.h5", "-o", f"{ranks}.h5", "--trace", "--threads", 1, ranks=ranks)
            self.assertIn("digests", self.assert_identical("whole.h5", f"{ranks}.h5"))

    def test_the_demo_answers(self):
        self.pack("job.h5", [{"id": "sum", "messages": [{"role": "user", "content": "What is 7 plus 9?"}]}])
        self.diffuse("run", "job.h5", "-o", "out.h5", ranks=2)
        self.assertEqual(self.shown("out.h5")["sum"]["samples"][0]["text"].strip(), "7 plus 9 is 16.")
        self.diffuse("export", "out.h5", "texts")
        self.assertIn("16", (self.folder / "texts" / "sum.txt").read_text())

    def test_results_of_other_jobs_do_not_compare(self):
        for name, prompt in (("a", "Once"), ("b", "Twice")):
            self.pack(name + ".job.h5", [prompt], max_new_tokens=2)
            self.diffuse("run", name + ".job.h5", "-o", name + ".h5")
        self.fails(65, "different jobs", "compare", "a.h5", "b.h5")

    def test_bad_requests_do_not_disturb_the_others(self):
        self.pack("job.h5", [{"id": "good", "prompt": "Once"}, {"id": "empty", "prompt": ""},
                             {"id": "long", "tokens": [5] * 2000}, {"id": "foreign", "tokens": [5, 640]}],
                  max_new_tokens=4)
        done = self.diffuse("run", "job.h5", "-o", "out.h5", ranks=2, code=65)
        for fragment in ("'empty': the prompt is empty", "'long': the prompt has 2000 tokens", "'foreign'", "640"):
            self.assertIn(fragment, done.err)
        shown = self.shown("out.h5")
        self.assertEqual({k: v["status"] for k, v in shown.items()},
                         {"good": "done", "empty": "bad", "long": "bad", "foreign": "bad"})

    def test_no_requests(self):
        self.pack("job.h5", [])
        self.diffuse("run", "job.h5", "-o", "out.h5", ranks=2)
        self.assertEqual(self.shown("out.h5"), {})

    @unittest.skipIf(h5py is None, "needs h5py (python3-h5py)")
    def test_three_lines_of_h5py_make_a_job_and_read_a_result(self):
        with h5py.File(self.folder / "job.h5", "w") as f:
            f["prompts"] = ["Once upon a time", "The robot"]
        self.diffuse("run", "job.h5", "-o", "out.h5", "--model", DEMO, ranks=2)
        with h5py.File(self.folder / "out.h5") as f:
            offsets, data = f["text/offsets"][:], bytes(f["text/data"][:])
        self.assertEqual(len(offsets), 3)
        self.assertIn("named", data[offsets[0]:offsets[1]].decode())

    def test_what_was_read_is_what_was_planned(self):
        self.pack("job.h5", ["Once"], max_new_tokens=1)
        for load in ("mmap", "read"):
            self.diffuse("run", "job.h5", "-o", load + ".h5", "--load", load, ranks=3)
            read = [r["bytes_read"] for r in self.json("show", load + ".h5", "--json")["timing"]["ranks"]]
            self.assertEqual(read, [r["weight_bytes"] for r in self.json("plan", DEMO, "--ranks", 3, "--json")["ranks"]])


class VerifyTest(CommandLineTest):
    def test_splits_are_proven(self):
        self.pack("job.h5", stories(5, longest=12))
        done = self.diffuse("verify", "job.h5", "-o", "report", "--ranks", "2,3", ranks=3)
        self.assertIn("Splitting changed nothing", done.out)
        report = json.loads((self.folder / "report.json").read_text())
        self.assertEqual([row["identical"] for row in report["rows"]], [True, True])
        self.assertTrue((self.folder / "report.md").exists())
        self.assertEqual(self.json("show", "report.h5", "--json")["verification"], report)

    def test_a_flipped_bit_is_found_and_named(self):
        self.pack("job.h5", stories(3, longest=6))
        done = self.diffuse("verify", "job.h5", "-o", "report", "--flip-bit", ranks=2, code=1)
        self.assertNotIn("Splitting changed nothing", done.out)
        first = json.loads((self.folder / "report.json").read_text())["rows"][0]["first_difference"]
        # Row 0 of step 1 is position 0 of the shortest prompt, and the first cut of six layers is after three.
        self.assertEqual((first["what"], first["position"], first["layer"]), ("digest", 0, 4))
        self.assertTrue(first["request"].startswith("r"))


class ResumeTest(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.pack("job.h5", stories(24, shortest=20, longest=400), ignore_eos=True)
        self.diffuse("run", "job.h5", "-o", "whole.h5", "--trace", "--threads", 1)

    COMMAND = ("run", "job.h5", "-o", "out.h5", "--trace", "--threads", 1, "--group", 2)

    def finished(self):
        journal = self.folder / "out.h5.journal"
        return journal.exists() and journal.stat().st_size > 30000

    def test_a_killed_run_goes_on(self):
        running = self.start(*self.COMMAND, ranks=3)
        wait_until(self.finished, "some requests are finished")
        running.kill()
        done = self.diffuse(*self.COMMAND, ranks=2)
        self.assertIn("were finished before", done.err)
        self.assert_identical("whole.h5", "out.h5")
        self.assertFalse((self.folder / "out.h5.journal").exists())

    def test_usr1_stops_and_the_same_command_goes_on(self):
        running = self.start(*self.COMMAND, ranks=2)
        wait_until(self.finished, "some requests are finished")
        send(running.process.pid, signal.SIGUSR1)
        stopped = running.wait()
        self.assertEqual(stopped.code, 75, stopped)
        self.assertIn("unfinished", {r["status"] for r in self.shown("out.h5").values()})
        self.assertIn("were finished before", self.diffuse(*self.COMMAND, ranks=3).err)
        self.assert_identical("whole.h5", "out.h5")
        self.assertIn("already", self.diffuse(*self.COMMAND, ranks=3).err)

    def test_max_time_stops(self):
        self.diffuse(*self.COMMAND, "--max-time", "0.05", code=75)
        self.diffuse(*self.COMMAND)
        self.assert_identical("whole.h5", "out.h5")

    def test_going_on_with_something_else_is_refused(self):
        self.diffuse(*self.COMMAND, "--max-time", "0.05", code=75)
        self.fails(65, "compute", *self.COMMAND, "--compute", "bf16")
        self.pack("job.h5", ["another"], max_new_tokens=1)
        self.fails(65, "job", *self.COMMAND)
        self.diffuse(*self.COMMAND, "--no-resume")
        self.assertTrue(list(self.folder.glob("*_prev*")))

    def test_one_rank_that_dies_ends_all(self):
        running = self.start(*self.COMMAND, ranks=3)
        wait_until(self.finished, "some requests are finished")
        send(running.ranks()[1], signal.SIGKILL)
        self.assertNotEqual(running.wait(60).code, 0)
        self.diffuse(*self.COMMAND, ranks=3)
        self.assert_identical("whole.h5", "out.h5")

    def test_one_rank_that_is_silent_is_named(self):
        running = self.start(*self.COMMAND, "--timeout", 3, ranks=3)
        wait_until(self.finished, "some requests are finished")
        stopped = running.ranks()[1]
        send(stopped, signal.SIGSTOP)
        try:
            done = running.wait(60)
        finally:
            send(stopped, signal.SIGCONT)
        self.assertEqual(done.code, 74, done)
        for fragment in ("rank 1", "request", "layer"):
            self.assertIn(fragment, done.problems[0], done)


class OutputTest(CommandLineTest):
    def test_where_nothing_can_be_written(self):
        self.pack("job.h5", ["Once"], max_new_tokens=1)
        os.mkdir(self.folder / "folder.h5")
        for output in ("folder.h5", "missing/out.h5"):
            done = self.run_any("run", "job.h5", "-o", output)
            self.assertIn(done.code, (66, 74), done)
            self.assertEqual(len(done.problems), 1, done)

    def test_parts_of_an_array_merge(self):
        for i in (0, 1):
            self.pack(f"job{i}.h5", [{"id": f"p{i}", "prompt": "Once"}], max_new_tokens=3)
            self.diffuse("run", f"job{i}.h5", "-o", f"out{i}.h5")
        self.diffuse("merge", "all.h5", "out0.h5", "out1.h5")
        self.assertEqual(sorted(self.shown("all.h5")), ["p0", "p1"])


if __name__ == "__main__":
    support.main()
