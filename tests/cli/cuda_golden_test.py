"""CUDA and NCCL over the stand-ins: python3 cuda_golden_test.py DIFFUSE_STANDIN [unittest's arguments].

All golden cases and the demo, whole and split over up to four ranks: right, and the same bits."""

import json
import os
import unittest

import support
from cuda_support import CudaTest
from speech_support import SPEECH, write_sound
from support import DATA, commit, read_safetensors, stories


def text_to_text(arrays):
    """Whether ids go in and ids come out; with an encoder in front, the ids are what that reads."""
    return {"input_ids", "tokens"} <= arrays.keys() and "mel" not in arrays


ALL = sorted(p.parent for p in (DATA / "golden").glob("*/golden.json") if text_to_text(json.loads(p.read_text())["arrays"]))
EVERY = int(os.environ.get("DIFFUSE_TEST_EVERY", 1))
GOLDEN = ALL[commit() % EVERY::EVERY]  # commits between them take all
# What a slower build leaves to the others.
full = unittest.skipIf(EVERY > 1, "a part of the file is asked for")


def int64s(tensor):
    raw = tensor[2]
    return [int.from_bytes(raw[i:i + 8], "little", signed=True) for i in range(0, len(raw), 8)]


class GoldenTest(CudaTest):
    def test_every_case_is_right_and_split_as_whole(self):
        self.assertGreaterEqual(len(ALL), 17)
        for case in GOLDEN:
            with self.subTest(case=case.name):
                golden = read_safetensors(case / "golden.safetensors")
                prompt, tokens = int64s(golden["input_ids"]), int64s(golden["tokens"])
                # Prompts of other lengths beside the golden one, so that several groups are in flight.
                requests = [{"id": "golden", "tokens": prompt}] + [
                    {"id": f"part{n}", "tokens": prompt[:n]} for n in (1, len(prompt) // 2, len(prompt) - 1)]
                job = self.pack("job.h5", requests, model=case, max_new_tokens=len(tokens), ignore_eos=True)
                done, report = self.verify(job, "--compute", "f32", "--chunk", "16", ranks=4)
                self.assertEqual([row["run"]["ranks"] for row in report["rows"]], [2, 3, 4], report)
                self.assertIn("hidden rows go over nccl", done.err)
                self.assertEqual(self.shown("report.h5")["golden"]["samples"][0]["tokens"], tokens)

    def test_bf16(self):
        for case in [c for c in ALL if c.name in ("qwen2", "gemma2", "mixtral-wide")]:
            with self.subTest(case=case.name):
                prompt = int64s(read_safetensors(case / "golden.safetensors")["input_ids"])
                job = self.pack("job.h5", [{"tokens": prompt}, {"tokens": prompt[:5]}], model=case, max_new_tokens=16,
                                ignore_eos=True)
                _, report = self.verify(job, ranks=4)
                self.assertEqual(report["compute_mode"], "bf16", "the default on CUDA")


@full
class SpeechTest(CudaTest):
    def test_recordings_with_beams_and_words(self):
        for number in range(2):
            write_sound(self.folder / f"{number}.wav", 4 + number, number)
        job = self.pack("job.h5", [{"audio": f"{number}.wav", "language": "en"} for number in range(2)], model=SPEECH,
                        word_timestamps=True, temperature=0, beam_size=3)
        self.verify(job, "--compute", "f32", ranks=3)


@full
class MusicTest(CudaTest):
    def test_guided_and_not_mono_and_stereo(self):
        for name in ("musicgen", "musicgen-stereo"):
            with self.subTest(case=name):
                case = DATA / "golden" / name
                golden = read_safetensors(case / "golden.safetensors")
                ids = int64s(golden["input_ids"])
                requests = [{"id": f"guidance{scale}", "tokens": ids, "generate": {"guidance_scale": scale}} for scale in (1, 3)]
                requests += [{"id": f"drawn{n}", "tokens": ids[:n], "generate": {"temperature": 1, "guidance_scale": n}}
                             for n in (1, 2, 3)]
                job = self.pack("job.h5", requests, model=case, max_new_tokens=30)
                self.verify(job, "--compute", "f32", "--group", "2", ranks=4)
                shown = self.shown("report.h5")
                for scale in (1, 3):
                    codes = shown[f"guidance{scale}"]["samples"][0]["tokens"]
                    self.assertEqual(codes, int64s(golden[f"codes.guidance{scale}"]))
                self.verify(job, ranks=2)  # in bf16, the default there


class PicturesTest(CudaTest):
    def test_guided_and_not_whole_and_in_patches(self):
        case = DATA / "refinement" / "wan"
        size = {"height": 64, "width": 64, "num_frames": 9, "num_inference_steps": 4, "max_sequence_length": 32}
        requests = [{"prompt": "a red fox", "generate": {"guidance_scale": 4, "seed": 1}},
                    {"prompt": "a blue sofa", "generate": {"guidance_scale": 1, "seed": 2}}]
        job = self.pack("job.h5", requests, model=case, **size)
        done, _ = self.verify(job, "--compute", "f32", ranks=3)
        self.assertIn("hidden rows go over nccl", done.err)
        self.verify(job, ranks=2)  # in bf16, the default there
        patched = ["--device", "cuda", "--compute", "f32", "--trace", "--patches", "3", "--whole-steps", "2,0"]
        self.cuda("run", "job.h5", "-o", "one.h5", *patched)
        self.cuda("run", "job.h5", "-o", "three.h5", *patched, ranks=3)
        self.assert_identical("one.h5", "three.h5")


@full
class DemoTest(CudaTest):
    def test_whole_and_split(self):
        self.pack("job.h5", stories(7, 3, 20))
        self.verify("job.h5", "--group", "2", ranks=4)

    def test_streams_that_run_in_another_order(self):
        self.pack("job.h5", stories(4, 3, 10))
        self.cuda("run", "job.h5", "-o", "lazy.h5", "--device", "cuda", "--trace")
        for order in ("eager", "random:1", "random:2"):
            name = f"{order.replace(':', '')}.h5"
            self.cuda("run", "job.h5", "-o", name, "--device", "cuda", "--trace", ranks=3, DIFFUSE_STANDIN_ORDER=order)
            self.assert_identical("lazy.h5", name)

    def test_a_flipped_bit_is_found_between_two_cards(self):
        self.pack("job.h5", stories(2, 3, 5))
        self.cuda("verify", "job.h5", "-o", "report", "--device", "cuda", "--ranks", "2", "--flip-bit", ranks=2, code=1)
        row = json.loads((self.folder / "report.json").read_text())["rows"][0]
        self.assertEqual((row["first_difference"]["what"], row["first_difference"]["position"]), ("digest", 0))

    def test_over_mpi_on_one_card(self):
        self.pack("job.h5", stories(4, 3, 12))
        done, _ = self.verify("job.h5", "--transport", "mpi", ranks=3, DIFFUSE_STANDIN_DEVICES=1)
        self.assertIn("hidden rows go over mpi", done.err)

    def test_more_ranks_than_layers(self):
        self.pack("job.h5", [{"tokens": [5, 6, 7]}], model=DATA / "golden" / "qwen2", max_new_tokens=4, ignore_eos=True)
        self.cuda("run", "job.h5", "-o", "one.h5", "--device", "cuda", "--trace")
        self.cuda("run", "job.h5", "-o", "six.h5", "--device", "cuda", "--trace", ranks=6, DIFFUSE_STANDIN_DEVICES=6)
        self.assert_identical("one.h5", "six.h5")


if __name__ == "__main__":
    support.main()
