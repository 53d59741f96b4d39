"""diffuse run: the same answers over any number of ranks, and jobs with odd requests in them."""

import json
import unittest

import support
from support import DATA, DEMO, CommandLineTest, stories

try:
    import h5py
except ImportError:
    h5py = None


class SplitTest(CommandLineTest):
    def test_any_number_of_ranks_says_the_same(self):
        requests = stories(9)
        requests[2]["generate"].update(temperature=0.9, top_k=20, seed=5)
        requests[3]["generate"].update(temperature=0.7, top_p=0.9, n=2)
        requests[4]["generate"].update(logprobs=2)
        requests[5]["generate"].update(repetition_penalty=1.2, stop=["the"])
        self.pack("job.h5", requests)
        self.diffuse("run", "job.h5", "-o", "whole.h5", "--trace", "--threads", 1)
        for ranks, flags in [(1, []), (2, ["--threads", 2, "--chunk", 3]), (3, ["--slices", "0,1-4,5", "--load", "read"]),
                             (4, ["--group", 2, "--groups", 3])]:
            with self.subTest(ranks=ranks):
                self.diffuse("run", "job.h5", "-o", f"{ranks}.h5", "--trace", *flags, ranks=ranks)
                said = self.assert_identical("whole.h5", f"{ranks}.h5")
                self.assertRegex(said, r"9 requests \(9 answered\), 10 samples, \d+ tokens and \d{3,} digests")

    def test_another_compute_mode_is_another_answer(self):
        self.pack("job.h5", stories(2), ignore_eos=True)
        self.diffuse("run", "job.h5", "-o", "f32.h5", "--trace")
        self.diffuse("run", "job.h5", "-o", "bf16.h5", "--trace", "--compute", "bf16")
        done = self.diffuse("compare", "f32.h5", "bf16.h5", code=1)
        self.assertIn("compute", done.out)

    def test_every_golden_model_splits(self):
        for name in ["gpt2", "gemma2", "mixtral"]:
            with self.subTest(model=name):
                self.pack("job.h5", [{"tokens": [5, 6, 7, 8]}, {"tokens": [9]}], DATA / "golden" / name, max_new_tokens=4)
                self.diffuse("run", "job.h5", "-o", "whole.h5", "--trace", "--no-resume")
                self.diffuse("run", "job.h5", "-o", "split.h5", "--trace", "--no-resume", ranks=2)
                self.assert_identical("whole.h5", "split.h5")


class JobTest(CommandLineTest):
    def test_the_demo_answers(self):
        self.pack("job.h5", [{"id": "sum", "messages": [{"role": "user", "content": "What is 7 plus 9?"}]}])
        self.diffuse("run", "job.h5", "-o", "out.h5", ranks=2)
        self.assertEqual(self.shown("out.h5")["sum"]["samples"][0]["text"].strip(), "7 plus 9 is 16.")

    @unittest.skipIf(h5py is None, "needs python3-h5py")
    def test_three_lines_of_h5py(self):
        with h5py.File(self.folder / "job.h5", "w") as f:
            f["prompts"] = ["Once upon a time", "What is 7 plus 9?"]
        self.diffuse("run", "job.h5", "--model", DEMO, "-o", "out.h5", ranks=2)
        f = h5py.File(self.folder / "out.h5")
        o, d = f["text/offsets"][:], f["text/data"][:].tobytes()
        texts = [d[a:b].decode() for a, b in zip(o, o[1:])]
        self.assertEqual(len(texts), 2)
        self.assertTrue(any(texts), texts)
        self.assertEqual(texts, [r["samples"][0]["text"] for r in self.shown("out.h5").values()])

    def test_bad_requests_do_not_spoil_the_others(self):
        few = {"max_new_tokens": 3}
        requests = [
            {"id": "good", "prompt": "Once", "generate": few},
            {"id": "empty", "prompt": "", "generate": few},
            {"id": "unknown", "tokens": [1, 640], "generate": few},
            {"id": "long", "tokens": [5] * 1024, "generate": few},
            {"id": "last", "prompt": "The robot", "generate": few},
        ]
        self.pack("job.h5", requests)
        for ranks in (0, 3):
            with self.subTest(ranks=ranks):
                out = f"{ranks}.h5"
                done = self.diffuse("run", "job.h5", "-o", out, ranks=ranks, code=65)
                shown = self.shown(out)
                self.assertEqual({i: r["status"] for i, r in shown.items()},
                                 {"good": "done", "empty": "bad", "unknown": "bad", "long": "bad", "last": "done"})
                self.assertIn("640", shown["unknown"]["message"])
                self.assertIn("1024", shown["long"]["message"])
                self.assertIn("empty", shown["empty"]["message"])
                for name in ("empty", "unknown", "long"):
                    said = [line for line in done.err.splitlines() if f"'{name}'" in line]
                    self.assertEqual(len(said), 1, done)
                again = self.diffuse("run", "job.h5", "-o", out, ranks=ranks, code=65)
                self.assertIn("whole result", again.err)
        self.assert_identical("0.h5", "3.h5")

    def test_too_little_key_value_memory(self):
        self.pack("job.h5", [{"id": "small", "prompt": "a"}, {"id": "large", "tokens": [5] * 500}], max_new_tokens=3)
        self.diffuse("run", "job.h5", "-o", "out.h5", "--kv-memory", "1M", code=65)
        shown = self.shown("out.h5")
        self.assertEqual(shown["small"]["status"], "done")
        self.assertIn("--kv-memory", shown["large"]["message"])
        # What was bad is tried again, and the others are kept.
        said = self.diffuse("run", "job.h5", "-o", "out.h5", "--kv-memory", "1M", code=65).err
        self.assertIn("whole result", said)
        said = self.diffuse("run", "job.h5", "-o", "out.h5").err
        self.assertIn("1 of 2 requests were finished before", said)
        self.diffuse("run", "job.h5", "-o", "fresh.h5")
        self.assert_identical("fresh.h5", "out.h5")

    def test_a_folder_without_a_tokenizer(self):
        model = DATA / "golden" / "qwen2"
        self.pack("job.h5", [{"id": "ids", "tokens": [5, 6]}, {"id": "text", "prompt": "Once"}], model, max_new_tokens=2)
        self.diffuse("run", "job.h5", "-o", "out.h5", code=65)
        shown = self.shown("out.h5")
        self.assertEqual(len(shown["ids"]["samples"][0]["tokens"]), 2)
        self.assertIn("tokenizer.json", shown["text"]["message"])

    def test_what_a_folder_asks_of_generating_and_a_run_does_not_do(self):
        model = self.copy_model()
        path = self.folder / model / "generation_config.json"
        asked = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(asked | {"do_sample": True, "temperature": 0.6, "watermarking_config": {"bias": 2.5}}))
        self.pack("job.h5", stories(1), model, max_new_tokens=2)
        done = self.diffuse("run", "job.h5", "-o", "out.h5", ranks=2)
        self.assertEqual(done.err.count("generation_config.json says do_sample = true, temperature = 0.6, which is not taken"), 1)
        self.assertEqual(done.err.count("generation_config.json says watermarking_config = "), 1)

    def test_no_request_one_request_and_more_ranks_than_layers(self):
        self.pack("none.h5", [])
        self.diffuse("run", "none.h5", "-o", "none-out.h5", ranks=2)
        self.assertEqual(self.shown("none-out.h5"), {})
        self.pack("one.h5", stories(1))
        self.diffuse("run", "one.h5", "-o", "1.h5", "--trace")
        done = self.diffuse("run", "one.h5", "-o", "8.h5", "--trace", ranks=8)
        self.assertIn("idles", done.err)
        self.assert_identical("1.h5", "8.h5")

    def test_what_a_result_says_of_itself(self):
        self.pack("job.h5", stories(3))
        planned = self.json("plan", DEMO, "--ranks", 3, "--json")["ranks"]
        for load in ("mmap", "read"):
            self.diffuse("run", "job.h5", "-o", load + ".h5", "--load", load, ranks=3)
            result = self.json("show", load + ".h5", "--json")
            provenance, timing = result["provenance"], result["timing"]
            self.assertEqual((provenance["ranks"], provenance["slices"], provenance["compute"]), (3, "0-1,2-3,4-5", "f32"))
            for key in ("job_sha256", "config_sha256", "tensors_sha256"):
                self.assertRegex(provenance[key], "^[0-9a-f]{64}$")
            self.assertEqual([r["bytes_read"] for r in timing["ranks"]], [r["weight_bytes"] for r in planned])


if __name__ == "__main__":
    support.main()
