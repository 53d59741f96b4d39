"""Prompts to videos: python3 pictures_test.py DIFFUSE [unittest's arguments]."""

import array
import json
import shutil
import signal
import zlib

import support
from support import DATA, PROJECT, CommandLineTest, journalled, read_safetensors, safetensors, send, wait_until

DEMO, WAN = PROJECT / "demo" / "wan", DATA / "refinement" / "wan"
SIZE = {"height": 32, "width": 32, "num_frames": 9, "max_sequence_length": 32, "guidance_scale": 3}


def floats(tensor):
    assert tensor[0] == "F32"
    return array.array("f", tensor[2]).tolist()


def pixels_of_png(path):
    """Red, green and blue, row by row, of 8 bits each."""
    raw = path.read_bytes()
    assert raw[:8] == b"\x89PNG\r\n\x1a\n"
    at, data, width, height = 8, b"", 0, 0
    while at < len(raw):
        size, kind = int.from_bytes(raw[at:at + 4], "big"), raw[at + 4:at + 8]
        body = raw[at + 8:at + 8 + size]
        if kind == b"IHDR":
            width, height = int.from_bytes(body[:4], "big"), int.from_bytes(body[4:8], "big")
            assert body[8:10] == b"\x08\x02", "8 bits, RGB"
        data += body if kind == b"IDAT" else b""
        at += 12 + size
    lines, raw, before = [], zlib.decompress(data), bytes(3 * width)
    for y in range(height):
        kind, line = raw[y * (3 * width + 1)], bytearray(raw[y * (3 * width + 1) + 1:(y + 1) * (3 * width + 1)])
        for i in range(len(line)):
            left = line[i - 3] if i >= 3 else 0
            up, corner = before[i], before[i - 3] if i >= 3 else 0
            guess = left + up - corner
            paeth = min((left, up, corner), key=lambda value: abs(guess - value))
            line[i] = (line[i] + (0, left, up, (left + up) // 2, paeth)[kind]) % 256
        lines.append(bytes(line))
        before = bytes(line)
    return b"".join(lines)


class PicturesTest(CommandLineTest):
    def golden_request(self, folder, golden):
        """The call of a run of diffusers, from its start latent."""
        call = json.loads((golden / "golden.json").read_text())["call"]
        start = read_safetensors(golden / "golden.safetensors")["start"]
        (self.folder / "start.safetensors").write_bytes(safetensors({"start": start}))
        request = {key: call.pop(key) for key in ("prompt", "negative_prompt") if key in call}
        return {**request, "latent": "start.safetensors", "generate": call}

    def test_frames_are_the_references_and_the_same_split(self):
        golden = DATA / "refinement" / "demo"
        request = self.golden_request(DEMO, golden)
        drawn = {"id": "drawn", "prompt": "a green square moving up on a white background",
                 "generate": {**SIZE, "num_inference_steps": 3, "seed": 5, "num_videos_per_prompt": 2}}
        self.pack("job.h5", [{"id": "golden", **request}, drawn], DEMO)
        self.diffuse("run", "job.h5", "-o", "one.h5", "--trace", ranks=1)
        self.diffuse("run", "job.h5", "-o", "three.h5", "--trace", ranks=3)
        self.assertIn("elements of media", self.assert_identical("one.h5", "three.h5"))
        self.assertIn("3 media files", self.diffuse("export", "three.h5", "files").out)
        frames = floats(read_safetensors(golden / "golden.safetensors")["frames"])
        exported = sorted((self.folder / "files" / "golden").glob("*.png"))
        found = b"".join(pixels_of_png(path) for path in exported)
        self.assertEqual((len(exported), len(found)), (9, len(frames)))
        # A byte is the nearest to 255 times its value: half a step off, and what the value itself may be off.
        self.assertLess(max(abs(a - 255 * b) for a, b in zip(found, frames)), 1.0)
        for name in ("golden.mp4", "golden.webp", "drawn-0.mp4", "drawn-1.webp"):
            self.assertGreater((self.folder / "files" / name).stat().st_size, 500)

    def test_latents_of_a_job_of_h5py(self):
        try:
            import h5py
        except ImportError:
            self.skipTest("python3-h5py is not installed")
        request = self.golden_request(WAN, WAN)
        self.pack("packed.h5", [request], WAN)
        start = floats(read_safetensors(self.folder / "start.safetensors")["start"])
        with h5py.File(self.folder / "plain.h5", "w") as f:
            f.attrs["generate"] = json.dumps(request["generate"])
            f["prompts"] = [request["prompt"]]
            f["negative_prompt"] = [request["negative_prompt"]]
            f["latent/data"] = start
        self.diffuse("run", "packed.h5", "-o", "packed-out.h5")
        self.diffuse("run", "plain.h5", "-o", "plain-out.h5", "--model", WAN)
        with h5py.File(self.folder / "packed-out.h5") as packed, h5py.File(self.folder / "plain-out.h5") as plain:
            self.assertEqual(packed["media/pixels"][:].tolist(), plain["media/pixels"][:].tolist())
            self.assertEqual(packed["media/pixels"].shape, (9 * 64 * 64 * 3,))

    def test_latents_in_the_result(self):
        generate = {**SIZE, "num_inference_steps": 2, "seed": 3}
        requests = [{"id": kind, "prompt": "a fox", "generate": {**generate, "output_type": kind}} for kind in ("np", "both", "latent")]
        self.pack("job.h5", requests, DEMO)
        self.diffuse("run", "job.h5", "-o", "out.h5", "--trace")
        self.diffuse("run", "job.h5", "-o", "two.h5", "--trace", ranks=2)
        self.assert_identical("out.h5", "two.h5")
        shown = self.shown("out.h5")
        has = {name: [key for key in ("media", "latent") if key in shown[name]["samples"][0]] for name in shown}
        self.assertEqual(has, {"np": ["media"], "both": ["media", "latent"], "latent": ["latent"]})
        size = shown["both"]["samples"][0]["latent"]
        self.diffuse("export", "out.h5", "files")
        both, alone = ((self.folder / "files" / f"{name}.latent.npy").read_bytes() for name in ("both", "latent"))
        self.assertEqual(both, alone)
        self.assertEqual(len(both) % 64, 4 * size["channels"] * size["frames"] * size["height"] * size["width"] % 64)
        self.assertEqual(sorted(path.name for path in (self.folder / "files").glob("latent*")), ["latent.latent.npy"])
        report = ["verify", "job.h5", "-o", "report", "--ranks", 1]
        self.assertIn("nothing is cut", self.diffuse(*report, "--patches", 2, "--whole-steps", "2,0", code=2).err)
        said = self.diffuse(*report, "--patches", 4000, "--whole-steps", "1,0", "--extrapolate", "off")
        self.assertIn("No split was asked for", said.out)
        found = json.loads((self.folder / "report.json").read_text())
        tokens = self.json("plan", DEMO, "--ranks", 1, "--height", SIZE["height"], "--width", SIZE["width"], "--num-frames",
                           SIZE["num_frames"], "--json")["pictures"]["tokens"]
        self.assertEqual((found["rows"], found["proven"], found["passed"]), ([], False, True))
        self.assertEqual([row["patches"] for row in found["patched"]], [tokens], "as many as can be cut, not as were asked for")
        self.assertIn(f"room for {tokens}", said.err)

    def pixels(self, result):
        """Of all frames of a job of one video."""
        self.diffuse("export", result, result + ".files", "--format", "png")
        frames = sorted((self.folder / (result + ".files")).glob("*/*.png"))
        self.assertEqual(len(frames), 9)
        return [pixels_of_png(frame) for frame in frames]

    @staticmethod
    def mean_difference(a, b):
        a, b = b"".join(a), b"".join(b)
        assert len(a) == len(b)
        return sum(abs(x - y) for x, y in zip(a, b)) / len(a)

    def test_previews(self):
        generate = {**SIZE, "num_inference_steps": 60, "seed": 3}
        self.pack("job.h5", [{"id": "a/b", "prompt": "a red circle moving right on a blue background", "generate": generate}], DEMO)
        self.diffuse("run", "job.h5", "-o", "plain.h5")
        self.diffuse("run", "job.h5", "-o", "out.h5", "--preview", 20, ranks=2)
        self.assert_identical("plain.h5", "out.h5")
        previews = sorted(path.name for path in (self.folder / "out.h5.previews").iterdir())
        self.assertLessEqual({"a_b.step-0020.png"}, set(previews))
        self.assertLessEqual(set(previews), {"a_b.step-0020.png", "a_b.step-0040.png"})
        first = self.pixels("out.h5")[:1]
        for name in previews:
            # Noise would be some 70 off.
            shown = [pixels_of_png(self.folder / "out.h5.previews" / name)]
            self.assertLess(self.mean_difference(first, shown), 30)
        # Those of an earlier run go when a picture begins anew.
        self.write("out.h5.previews/a_b.step-0050.png", "old")
        self.diffuse("run", "job.h5", "-o", "out.h5", "--preview", 20, "--no-resume")
        self.assertFalse((self.folder / "out.h5.previews" / "a_b.step-0050.png").exists())

    def test_formats_of_videos(self):
        self.pack("job.h5", [{"id": "v", "prompt": "a fox", "generate": {**SIZE, "num_inference_steps": 1}}], WAN)
        self.diffuse("run", "job.h5", "-o", "out.h5")
        self.diffuse("export", "out.h5", "usual")
        self.diffuse("export", "out.h5", "asked", "--format", "gif,mp4")
        names = lambda folder: sorted(path.name for path in (self.folder / folder).iterdir())
        self.assertEqual(names("usual"), ["results.csv", "results.jsonl", "v", "v.mp4", "v.webp"])
        self.assertEqual(names("asked"), ["results.csv", "results.jsonl", "v.gif", "v.mp4"])
        self.assertEqual((self.folder / "asked" / "v.gif").read_bytes()[:6], b"GIF89a")
        self.assertIn("v.gif", (self.folder / "asked" / "results.csv").read_text())
        self.assertIn("no list of mp4", self.diffuse("export", "out.h5", "x", "--format", "gif,avi", code=2).err)

    def test_tiles(self):
        generate = {**SIZE, "height": 64, "width": 64, "num_inference_steps": 3, "seed": 1}
        self.pack("job.h5", [{"prompt": "a green square moving up on a white background", "generate": generate}], DEMO)
        self.diffuse("run", "job.h5", "-o", "whole.h5")
        self.diffuse("run", "job.h5", "-o", "tiled.h5", "--tile", 32)
        self.diffuse("run", "job.h5", "-o", "one.h5", "--tile", 64)
        off = self.mean_difference(self.pixels("whole.h5"), self.pixels("tiled.h5"))
        self.assertTrue(0 < off < 8, off)
        # A picture that fits into one tile is decoded whole.
        self.assertEqual(self.pixels("whole.h5"), self.pixels("one.h5"))
        self.assertIn("holds the whole result", self.diffuse("run", "job.h5", "-o", "tiled.h5", "--tile", 32).err)
        self.assertNotIn("holds the whole result", self.diffuse("run", "job.h5", "-o", "tiled.h5").err)
        self.assertIn("32 would do", self.diffuse("run", "job.h5", "-o", "x.h5", "--tile", 33, code=2).err)
        self.assertIn("would do", self.diffuse("plan", DEMO, "--ranks", 2, "--tile", 1, code=2).err)
        # Without a size it is the family's, as far as the stack has room: this one is of 64 tokens a side.
        plain = self.json("plan", DEMO, "--ranks", 2, "--json")["pictures"]["decoding"]
        tiled = self.json("plan", DEMO, "--ranks", 2, "--tile", 128, "--json")["pictures"]["decoding"]
        self.assertEqual(plain["bytes"], tiled["bytes"])
        self.assertNotIn("tiled_bytes", plain)
        frames = 81 * 256 * 256 * 3
        self.assertTrue(5 * frames < tiled["tiled_bytes"] < tiled["bytes"] + 4 * frames)

    def test_an_error_budget_chooses_patches(self):
        generate = {**SIZE, "num_inference_steps": 20, "seed": 1}
        self.pack("job.h5", [{"prompt": "a red circle moving right on a blue background", "generate": generate}], DEMO)
        self.diffuse("run", "job.h5", "-o", "whole.h5")
        whole = self.pixels("whole.h5")
        loose = ["run", "job.h5", "-o", "loose.h5", "--max-error", 0.5]
        said = self.diffuse(*loose, ranks=4).err
        self.assertIn("takes --patches 3 --whole-steps", said)
        self.assertIn("over one rank by simulation", said)
        off = self.mean_difference(whole, self.pixels("loose.h5"))
        self.assertTrue(0 < off <= 0.5, off)
        flags = said[said.index("takes ") + 6:].split(", ", 1)[0].split()
        self.diffuse("run", "job.h5", "-o", "same.h5", *flags)
        self.assert_identical("loose.h5", "same.h5")
        # Nothing is measured again, whatever the ranks.
        said = self.diffuse(*loose, ranks=2).err
        self.assertIn("holds the whole result", said)
        self.assertNotIn("measuring", said)
        said = self.diffuse("run", "job.h5", "-o", "narrow.h5", "--max-error", 0.5, "--kv-memory", "3M", ranks=4).err
        self.assertIn("has no room; see --kv-memory; pictures stay whole", said)
        said = self.diffuse("run", "job.h5", "-o", "none.h5", "--max-error", 0, ranks=4).err
        self.assertIn("pictures stay whole", said)
        self.assert_identical("whole.h5", "none.h5")
        tight = self.diffuse("run", "job.h5", "-o", "tight.h5", "--max-error", 0.00001, ranks=4).err
        self.assertIn("nothing that was measured is within it", tight)
        self.assert_identical("whole.h5", "tight.h5")
        # Stopped while it measures: nothing is left behind, and the same command begins again.
        self.diffuse("run", "job.h5", "-o", "late.h5", "--max-error", 0.5, "--max-time", 0.001, ranks=4, code=75)
        self.assertEqual(list(self.folder.glob("late.h5*")), [])
        self.assertIn("no patches are needed", self.diffuse("run", "job.h5", "-o", "one.h5", "--max-error", 0.5).err)
        for wrong in (["--patches", 2], ["--whole-steps", "3,0"]):
            self.diffuse("run", "job.h5", "-o", "x.h5", "--max-error", 1, *wrong, code=2)

    def test_an_error_budget_on_a_quiet_model(self):
        quiet = DATA / "refinement" / "wan-quiet"
        request = self.golden_request(quiet, quiet)
        self.pack("job.h5", [request], quiet)
        self.diffuse("run", "job.h5", "-o", "whole.h5")
        said = self.diffuse("run", "job.h5", "-o", "out.h5", "--max-error", 0.05, ranks=2).err
        self.assertIn("takes --patches 2 --whole-steps 2,0", said)
        self.assertLessEqual(self.mean_difference(self.pixels("whole.h5"), self.pixels("out.h5")), 0.05)

    def test_a_choice_within_a_budget_is_kept(self):
        requests = [{"id": str(i), "prompt": "a blue triangle moving down on a black background",
                     "generate": {"seed": i, "num_inference_steps": 60 if i else 20}} for i in range(2)]
        self.pack("job.h5", requests, DEMO, **{**SIZE, "guidance_scale": 1})
        command = ["run", "job.h5", "-o", "out.h5", "--max-error", 2]
        self.diffuse("run", "job.h5", "-o", "straight.h5", "--max-error", 2, ranks=4)
        running = self.start(*command, ranks=4)
        wait_until(lambda: journalled(self.folder / "out.h5.journal") >= 1, "the short one is finished")
        send(running.process.pid, signal.SIGUSR1)
        self.assertEqual(running.wait().code, 75)
        said = self.diffuse(*command, ranks=2).err
        self.assertNotIn("measuring", said)
        self.assertIn("1 of 2 requests were finished before", said)
        self.assert_identical("straight.h5", "out.h5")

    def test_verify(self):
        self.pack("job.h5", [{"prompt": "a fox", "generate": {**SIZE, "num_inference_steps": 2}}], WAN)
        self.diffuse("verify", "job.h5", "-o", "report", ranks=3)
        rows = json.loads((self.folder / "report.json").read_text())["rows"]
        self.assertEqual([row["identical"] for row in rows], [True, True])
        flipped = self.diffuse("verify", "job.h5", "-o", "flipped", "--flip-bit", ranks=2, code=1)
        self.assertIn("layer", flipped.out)

    def test_patches_do_not_depend_on_the_ranks(self):
        generate = {**SIZE, "num_inference_steps": 12, "seed": 1}
        self.pack("job.h5", [{"prompt": "a red circle moving right on a blue background", "generate": generate}], DEMO)
        self.diffuse("run", "job.h5", "-o", "whole.h5")
        patched = ["--patches", 3, "--whole-steps", "4,1"]
        self.diffuse("run", "job.h5", "-o", "one.h5", *patched)
        self.diffuse("run", "job.h5", "-o", "three.h5", *patched, ranks=3)
        self.assert_identical("one.h5", "three.h5")
        self.assertIn("differ", self.diffuse("compare", "whole.h5", "one.h5", code=1).out)
        for flags, said in ((["--patches", 2, "--whole-steps", "3"], "8,0"), (["--whole-steps", "3,1"], "say --patches"),
                            (["--patches", 2, "--whole-steps", "0,1"], "first step must be whole"),
                            (["--patches", 2, "--whole-steps", "11,1"], "nothing is cut")):
            self.assertIn(said, self.diffuse("run", "job.h5", "-o", "x.h5", *flags, code=2).err)

    def test_a_stopped_run_goes_on_from_its_step(self):
        requests = [{"id": str(i), "prompt": "a blue triangle moving down on a black background",
                     "generate": {"seed": i, "num_inference_steps": 40 if i else 3}} for i in range(3)]
        self.pack("job.h5", requests, DEMO, **SIZE)
        self.diffuse("run", "job.h5", "-o", "whole.h5", ranks=1)
        kept = self.folder / "out.h5.kept"
        command = ["run", "job.h5", "-o", "out.h5"]
        running = self.start(*command, ranks=2)
        wait_until(lambda: journalled(self.folder / "out.h5.journal") >= 1, "the short one is finished")
        send(running.process.pid, signal.SIGUSR1)
        self.assertEqual(running.wait().code, 75)
        self.assertTrue(list(kept.iterdir()))
        done = self.diffuse(*command, ranks=3)
        self.assertIn("1 of 3 requests were finished before", done.err)
        self.assertIn("2 go on from the steps", done.err)
        self.assertFalse(kept.exists())
        self.assert_identical("whole.h5", "out.h5")

    def test_a_plan_simulates_what_would_run(self):
        def simulated(*flags):
            return self.json("plan", DEMO, "--ranks", 4, "--height", 64, "--width", 64, "--num-frames", 9, "--steps", 20,
                             "--simulate", "--requests", 1, "--json", *flags)["simulated"]

        # docs/refinement.md: R / (N + B - 1).
        guided, free = simulated("--guidance-scale", 5), simulated("--guidance-scale", 1)
        self.assertEqual((guided["branches"], free["branches"]), (2, 1))
        self.assertAlmostEqual(guided["utilisation"][0], 2 / 5, delta=0.01)
        self.assertAlmostEqual(free["utilisation"][0], 1 / 4, delta=0.01)
        # With three patches `run` makes the first five steps whole; the speed-up of docs/refinement.md's table.
        patched = simulated("--guidance-scale", 5, "--patches", 3)
        self.assertEqual((patched["whole_first"], patched["whole_last"]), (5, 0))
        self.assertAlmostEqual(patched["utilisation"][0], 2.86 / 4, delta=0.005)

    def test_what_cannot_be_asked_is_told_and_the_rest_runs(self):
        asked = {"height": ({"height": 33}, "32 or 36 would do"), "frames": ({"num_frames": 2}, "would do"),
                 "key": ({"temperature": 0.4}, "'temperature' has no meaning for a picture"),
                 "long": ({"max_sequence_length": 2}, "the stack reads 2 rows of text"), "fine": ({}, "")}
        requests = [{"id": name, "prompt": "a fox", "generate": generate} for name, (generate, _) in asked.items()]
        self.pack("job.h5", requests, DEMO, **SIZE, num_inference_steps=1)
        self.diffuse("run", "job.h5", "-o", "out.h5", code=65)
        shown = self.shown("out.h5")
        self.assertEqual([r["id"] for r in shown.values() if r["status"] == "done"], ["fine"])
        for name, (_, message) in asked.items():
            self.assertIn(message, shown[name].get("message", ""))

    def test_a_folder_that_lacks_a_part_is_refused_by_name(self):
        for part in ("vae", "text_encoder", "scheduler"):
            with self.subTest(part=part):
                shutil.copytree(WAN, self.folder / part)
                shutil.rmtree(self.folder / part / part)
                self.pack("job.h5", ["a fox"], self.folder / part)
                self.assertIn(part, self.diffuse("run", "job.h5", "-o", "out.h5", code=66).err)
                self.assertIn(part, self.diffuse("check", self.folder / part, code=69).out)

    def test_a_folder_without_a_tokenizer_runs_tokens(self):
        shutil.copytree(WAN, self.folder / "plain")
        shutil.rmtree(self.folder / "plain" / "tokenizer")
        self.pack("job.h5", [{"tokens": [5, 6, 1]}, "a fox"], self.folder / "plain", **{**SIZE, "guidance_scale": 1},
                  num_inference_steps=1)
        self.diffuse("run", "job.h5", "-o", "out.h5", code=65)
        shown = self.shown("out.h5")
        self.assertEqual((shown["0"]["status"], shown["1"]["status"]), ("done", "bad"))
        self.assertIn("give `tokens`", shown["1"]["message"])

    def test_pipelines_that_do_not_run_say_why(self):
        shutil.copytree(WAN, self.folder / "two")
        index = json.loads((self.folder / "two" / "model_index.json").read_text())
        index["transformer_2"], index["boundary_ratio"] = ["diffusers", "WanTransformer3DModel"], 0.875
        self.write("two/model_index.json", index)
        self.assertIn("transformer_2", self.diffuse("check", self.folder / "two", code=69).out)
        # diffusers makes what model_index.json names, and scheduler_config.json may say something else.
        for part, wrong in (("scheduler", "FlowMatchEulerDiscreteScheduler"), ("text_encoder", "T5EncoderModel"),
                            ("vae", "AutoencoderKL")):
            name = f"other-{part}"
            shutil.copytree(WAN, self.folder / name)
            index = json.loads((WAN / "model_index.json").read_text())
            index[part][1] = wrong
            self.write(f"{name}/model_index.json", index)
            self.assertIn(wrong, self.diffuse("check", self.folder / name, code=69).out)
        shutil.copytree(WAN, self.folder / "euler")
        for path, change in (("model_index.json", {"scheduler": ["diffusers", "EulerDiscreteScheduler"]}),
                             ("scheduler/scheduler_config.json", {"_class_name": "EulerDiscreteScheduler"})):
            self.write(f"euler/{path}", {**json.loads((WAN / path).read_text()), **change})
        self.diffuse("check", self.folder / "euler", code=69)
        self.pack("job.h5", ["a fox"], self.folder / "two")
        self.diffuse("run", "job.h5", "-o", "out.h5", code=69)

    def test_a_changed_tokenizer_is_another_model(self):
        shutil.copytree(WAN, self.folder / "model")
        self.pack("job.h5", ["a red fox"], self.folder / "model", **SIZE, num_inference_steps=1)
        self.diffuse("run", "job.h5", "-o", "out.h5")
        self.assertIn("whole result", self.diffuse("run", "job.h5", "-o", "out.h5").err)
        self.assertNotIn("whole result", self.diffuse("run", "job.h5", "-o", "out.h5", "--trace").err)
        text = (self.folder / "model" / "tokenizer" / "tokenizer_config.json").read_text()
        self.write("model/tokenizer/tokenizer_config.json", {**json.loads(text), "model_max_length": 63})
        self.assertNotIn("whole result", self.diffuse("run", "job.h5", "-o", "out.h5", "--trace").err)
        for name in ("sentencepiece.model", "source.spm"):  # that others read, and that a text is not made of in silence
            with self.subTest(name=name):
                self.write("model/tokenizer/" + name, b"another")
                self.assertNotIn("whole result", self.diffuse("run", "job.h5", "-o", "out.h5").err)
                self.assertIn("whole result", self.diffuse("run", "job.h5", "-o", "out.h5").err)

    def test_what_is_of_text_and_what_is_of_pictures(self):
        self.assertIn("makes pictures", self.diffuse("check", DEMO, "--probe", code=69).err)
        size = ["--height", 32, "--width", 32, "--num-frames", 9]
        figures = json.loads(self.diffuse("bench", DEMO, *size, "--json", ranks=2).out)["figures"]
        self.assertEqual([figure["what"] for figure in figures], ["refining, 1 request", "refining, 2 requests"])
        self.assertTrue(all(figure["steps_per_second"] > 0 for figure in figures))
        self.assertIn("32 or 36 would do", self.diffuse("bench", DEMO, "--height", 33, code=65).err)
        lm = PROJECT / "demo" / "lm"
        self.pack("job.h5", ["Once", {"prompt": "a", "negative_prompt": "b"}, {"prompt": "c", "generate": {"height": 64}}], lm,
                  max_new_tokens=2)
        self.diffuse("run", "job.h5", "-o", "out.h5", code=65)
        shown = self.shown("out.h5")
        self.assertEqual(shown["0"]["status"], "done")
        self.assertIn("are of pictures", shown["1"]["message"])
        self.assertIn("'height' is of pictures", shown["2"]["message"])
        self.pack("all.h5", ["Once"], lm, num_inference_steps=5)
        self.assertIn("'num_inference_steps' is of pictures", self.diffuse("run", "all.h5", "-o", "all-out.h5", code=65).err)

    def test_text_has_no_patches(self):
        self.pack("job.h5", ["Once"], PROJECT / "demo" / "lm", max_new_tokens=2)
        for flags in (["--patches", 2], ["--max-error", 1], ["--tile", 256], ["--preview", 5]):
            self.assertIn("token by token", self.diffuse("run", "job.h5", "-o", "out.h5", *flags, code=2).err)


if __name__ == "__main__":
    support.main()
