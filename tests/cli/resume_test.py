"""A run that is stopped or killed goes on by the same command, and says what an uninterrupted one says."""

import json
import random
import re
import signal
import time
import unittest

import support
from support import DEMO, CommandLineTest, journalled, read_safetensors, safetensors, send, stories, wait_until

OUT = "out.h5"


class ResumeTest(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.pack("job.h5", stories(40, 4, 160), ignore_eos=True)
        self.journal = self.folder / (OUT + ".journal")
        self.command = ["run", "job.h5", "-o", OUT, "--trace"]

    def stop_early(self, *flags, ranks=0):
        """Leaves a journal of some finished requests behind."""
        running = self.start(*self.command, *flags, ranks=ranks)
        wait_until(lambda: journalled(self.journal) >= 2, "two requests are finished")
        send(running.process.pid, signal.SIGUSR1)
        done = running.wait()
        self.assertEqual(done.code, 75, done)
        return done

    def finish(self, *flags, ranks=0, kept=0):
        """The same command to its end: what was finished is kept, the result is the uninterrupted run's."""
        done = self.diffuse(*self.command, *flags, ranks=ranks)
        if kept:
            said = re.search(r"(\d+) of 40 requests were finished before", done.err)
            self.assertTrue(said, done)
            self.assertGreaterEqual(int(said[1]), kept)
            timing = self.json("show", OUT, "--json")["timing"]
            answered = sum(len(s["tokens"]) for r in self.shown(OUT).values() for s in r["samples"])
            self.assertLess(timing["sampled_tokens"], answered, "nothing that was finished runs again")
        self.assertFalse(self.journal.exists())
        self.diffuse("run", "job.h5", "-o", "whole.h5", "--trace")
        self.assert_identical("whole.h5", OUT)

    def test_usr1_to_mpirun(self):
        done = self.stop_early(ranks=3)
        self.assertIn("the same command goes on", done.err)
        states = [r["status"] for r in self.shown(OUT).values()]
        self.assertGreaterEqual(states.count("done"), 2)
        self.assertGreater(states.count("unfinished"), 0)
        self.finish(ranks=2, kept=states.count("done"))

    def test_term_without_ranks(self):
        running = self.start(*self.command)
        wait_until(lambda: journalled(self.journal) >= 1, "a request is finished")
        send(running.process.pid, signal.SIGTERM)
        self.assertEqual(running.wait().code, 75)
        self.finish(kept=1)

    def test_max_time(self):
        done = self.diffuse(*self.command, "--max-time", 0.01, code=75, ranks=2)
        self.assertIn("the same command goes on", done.err)
        self.finish(ranks=2)

    def test_killed_at_any_moment(self):
        self.pack("job.h5", stories(40, 4, 300), ignore_eos=True)
        chance = random.Random(20260101)
        finished = kills = 0
        for moment in range(4):
            running = self.start(*self.command, ranks=2)
            if moment == 0:  # while it starts
                time.sleep(chance.uniform(0, 0.5))
            else:
                wanted = finished + chance.randrange(1, 6)
                wait_until(lambda: running.process.poll() is not None or journalled(self.journal) >= wanted, "it got on")
            if running.process.poll() is not None:  # it was faster than this test
                self.assertEqual(running.wait().code, 0)
                finished = 0
                break
            kills += 1
            running.kill()
            self.assertGreaterEqual(journalled(self.journal), finished)
            finished = journalled(self.journal)
        self.assertGreater(kills, 0)
        self.finish(ranks=2, kept=finished)

    def test_a_torn_journal(self):
        self.stop_early()
        whole = self.journal.read_bytes()
        count = journalled(self.journal)
        self.journal.write_bytes(whole[:-7])
        self.finish(kept=count - 1)

    def test_a_damaged_journal(self):
        self.stop_early()
        bytes_ = bytearray(self.journal.read_bytes())
        bytes_[len(bytes_) // 3] ^= 0x10
        self.journal.write_bytes(bytes_)
        self.fails(65, ["damaged", "--no-resume"], *self.command)
        self.journal.write_bytes(b"a letter to my mother")
        self.fails(65, "no journal", *self.command)
        self.assertEqual(self.journal.read_bytes(), b"a letter to my mother")

    def test_what_changed_is_named(self):
        self.copy_model()
        tensors = read_safetensors(DEMO / "model.safetensors")
        flags = ["--model", "model", "--compute", "f32"]
        self.stop_early(*flags)
        before = self.journal.read_bytes()
        other = next(t for t in self.targets() if t != self.json("show", OUT, "--json")["provenance"]["simd"])
        for what, changed in [('compute: was "f32", is "bf16"', ["--compute", "bf16"]), ("simd: was ", ["--simd", other])]:
            with self.subTest(what=what):
                done = self.fails(65, "another run", *self.command, *flags[:2], *changed)
                self.assertIn(what, done.err)
        with self.subTest(what="tensors"):
            dtype, shape, data = tensors["model.norm.weight"]
            changed = tensors | {"model.norm.weight": (dtype, shape, bytes([data[0] ^ 1]) + data[1:])}
            self.write("model/model.safetensors", safetensors(changed))
            self.assertIn("tensors_sha256: was ", self.fails(65, "another run", *self.command, *flags).err)
            self.write("model/model.safetensors", (DEMO / "model.safetensors").read_bytes())
        with self.subTest(what="config"):
            config = json.loads((DEMO / "config.json").read_text())
            self.write("model/config.json", config | {"rope_parameters": config["rope_parameters"] | {"rope_theta": 20000.0}})
            self.assertIn("config_sha256: was ", self.fails(65, "another run", *self.command, *flags).err)
            self.write("model/config.json", (DEMO / "config.json").read_text())
        with self.subTest(what="job"):
            self.pack("other.h5", stories(40, 4, 159), ignore_eos=True)
            done = self.fails(65, "another run", "run", "other.h5", *self.command[2:], *flags, ranks=3)
            self.assertIn("job_sha256: was ", done.err)
        self.assertEqual(self.journal.read_bytes(), before, "a refusal changes nothing")
        self.finish(*flags, "--threads", 1, ranks=2, kept=2)

    def targets(self):
        said = self.run_any(*self.command[:-1], "--simd", "mmx").problems[0]
        return said.split("this one has ")[1].split(",")


class AgainTest(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.pack("job.h5", stories(3))
        self.command = ["run", "job.h5", "-o", OUT]

    def state(self):
        return {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in self.folder.iterdir() if p.is_file()}

    def test_a_whole_result_is_left_alone(self):
        self.diffuse(*self.command, ranks=2)
        before = self.state()
        for ranks in (0, 2):
            done = self.diffuse(*self.command, ranks=ranks)
            self.assertIn("whole result of this job already", done.err)
        self.assertEqual(self.state(), before)
        self.diffuse(*self.command, "--trace")  # digests that it has not
        self.assert_identical(OUT, OUT)
        self.assertIn(OUT + "_prev", self.state())

    def test_no_resume_keeps_what_was_there(self):
        self.assertNotIn("is kept as", self.diffuse(*self.command).err)
        first = (self.folder / OUT).read_bytes()
        done = self.diffuse(*self.command, "--max-time", 0.0001, "--no-resume", code=75)
        self.assertIn(f"'{OUT}' was there before; it is kept as '{OUT}_prev'", done.err)
        self.assertEqual((self.folder / (OUT + "_prev")).read_bytes(), first)
        journal = (self.folder / (OUT + ".journal")).read_bytes()
        done = self.diffuse(*self.command, "--no-resume")
        self.assertIn(f"it is kept as '{OUT}_prev'", done.err)
        self.assertEqual((self.folder / (OUT + ".journal_prev")).read_bytes(), journal)
        self.assertEqual({r["status"] for r in self.shown(OUT).values()}, {"done"})

    def test_other_weights_answer_again(self):
        self.copy_model()
        flags = ["--model", "model"]
        self.diffuse(*self.command, *flags)
        tensors = read_safetensors(DEMO / "model.safetensors")
        dtype, shape, data = tensors["model.norm.weight"]
        self.write("model/model.safetensors", safetensors(tensors | {"model.norm.weight": (dtype, shape, data[::-1])}))
        done = self.diffuse(*self.command, *flags)
        self.assertNotIn("whole result", done.err)
        self.assertIn(OUT + "_prev", self.state())


if __name__ == "__main__":
    support.main()
