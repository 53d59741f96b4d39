"""diffuse plan: who holds what."""

import json
import math
import shutil
import unittest

import support
from support import DATA, DEMO, CommandLineTest, read_safetensors


class PlanTest(CommandLineTest):
    def plan(self, ranks, *flags):
        return self.json("plan", DEMO, "--ranks", ranks, "--json", *flags)["ranks"]

    def test_slices_cover_the_layers_and_weigh_what_their_tensors_weigh(self):
        weights = {name: len(data) for name, (_, _, data) in read_safetensors(DEMO / "model.safetensors").items()}

        def held(layers, ends):
            names = [f"model.layers.{layer}." for layer in range(layers[0], layers[1] + 1)] + ends
            return [name for name in weights if name.startswith(tuple(names))]

        for count in range(1, 7):
            with self.subTest(ranks=count):
                slices = self.plan(count)
                self.assertEqual([s["rank"] for s in slices], list(range(count)))
                self.assertEqual([layer for s in slices for layer in range(s["layers"][0], s["layers"][1] + 1)], list(range(6)))
                self.assertEqual([s["front"] for s in slices], [True] + [False] * (count - 1))
                self.assertEqual([s["back"] for s in slices], [False] * (count - 1) + [True])
                for s in slices:  # the tied table stands on both ends
                    ends = ["model.embed_tokens."] * (s["front"] or s["back"]) + ["model.norm."] * s["back"]
                    names = held(s["layers"], ends)
                    self.assertEqual(s["tensors"], len(names))
                    self.assertEqual(s["weight_bytes"], sum(weights[name] for name in names))

    def test_more_ranks_than_layers(self):
        slices = self.plan(9)
        self.assertEqual([s["idle"] for s in slices], [False] * 6 + [True] * 3)
        text = self.diffuse("plan", DEMO, "--ranks", 9).out
        self.assertEqual(text.count("idle"), 3)

    def test_given_slices(self):
        slices = self.plan(3, "--slices", "0,1-4,5")
        self.assertEqual([s["layers"] for s in slices], [[0, 0], [1, 4], [5, 5]])

    def test_a_music_model(self):
        model = support.DATA / "golden" / "musicgen"
        plan = self.json("plan", model, "--ranks", 6, "--json")
        self.assertEqual((plan["cut"], plan["slices"], plan["encoder_ranks"]), ("decoder", "0-0,1-1,2-2,3-3,4-4", [5]))
        weights = {name: len(data) for name, (_, _, data) in read_safetensors(model / "model.safetensors").items()}
        codec = sum(size for name, size in weights.items() if name.startswith("audio_encoder.decoder.")
                    or name.startswith("audio_encoder.quantizer.") and name.endswith(".embed") and int(name.split(".")[3]) < 4)
        self.assertEqual(plan["codec"], {"rank": 0, "rate": 16000, "channels": 1, "bytes": codec})
        self.assertEqual((plan["codebooks"], plan["memory_row_bytes"]), (4, 32 * 4))
        self.assertIn("the codes of 4 codebooks into sound, is on rank 0", self.diffuse("plan", model, "--ranks", 2).out)

    def test_guided_music_runs_two_rows(self):
        model = support.DATA / "golden" / "musicgen"

        def simulated(*flags):
            return self.json("plan", model, "--ranks", 2, "--json", "--simulate", "--requests", 1, *flags)["simulated"]

        guided, free = simulated("--guidance-scale", 3), simulated("--guidance-scale", 1)
        self.assertEqual((guided["branches"], free["branches"]), (2, 1))
        self.assertGreater(guided["duration"], free["duration"], "a row more takes its time")
        # Where none is said, the checkpoint's holds, as in a run.
        shutil.copytree(model, self.folder / "music")
        for scale, branches in ((3.0, 2), (1.0, 1), (None, 1)):
            config = json.loads((model / "generation_config.json").read_text())
            self.write("music/generation_config.json", json.dumps(config | {"guidance_scale": scale}))
            found = self.json("plan", "music", "--ranks", 2, "--json")
            self.assertEqual(found["branches"], branches)
        self.assertIn("2 rows", self.diffuse("plan", model, "--ranks", 2, "--guidance-scale", 3).out)
        self.fails(2, "--guidance-scale", "plan", DEMO, "--ranks", 2, "--guidance-scale", 3)
        self.fails(2, "--height", "plan", model, "--ranks", 2, "--height", 64)

    def test_wrong_slices(self):
        for slices, fragment in [
            ("0-4", "layers 0-5"),  # too short
            ("0-6", "layers 0-5"),  # too long
            ("0-9999999999999999999", "9999999999999999999"),
            ("1-5", "layer 0"),  # starts late
            ("0-1,3-5", "layer 2"),  # a gap
            ("0-3,2-5", "layer 4"),  # an overlap
            ("3-5,0-2", "layer 0"),  # out of order
            ("0-2,3-5,", "''"),
            ("0-a", "'a'"),
            ("0--5", "'0--5'"),
            ("5-0", "layer 0"),
            ("0 - 5", "'0 '"),
            ("0,1,2,3,4,5", "6 slices"),  # more than ranks
        ]:
            with self.subTest(slices=slices):
                self.fails(2, [f"--slices '{slices}'", fragment], "plan", DEMO, "--ranks", 3, "--slices", slices)

    def test_text(self):
        text = self.diffuse("plan", DEMO, "--ranks", 3).out
        self.assertRegex(text, r"(?m)^0 +0-1 +front ")
        self.assertRegex(text, r"(?m)^2 +4-5 +back ")
        self.assertIn("the first and the last slice both hold it", text)

    def test_simulation(self):
        found = self.json("plan", DEMO, "--ranks", 3, "--simulate", "--json", "--requests", 6)["simulated"]
        self.assertEqual(len(found["utilisation"]), 3)
        self.assertTrue(all(0.2 < busy <= 1 for busy in found["utilisation"]), found)
        lonely = self.json("plan", DEMO, "--ranks", 3, "--simulate", "--json", "--requests", 1)["simulated"]
        self.assertLess(sum(lonely["utilisation"]), sum(found["utilisation"]), "one request leaves stages idle")
        text = self.diffuse("plan", DEMO, "--ranks", 3, "--simulate").out
        self.assertRegex(text, r"stages( [\d.]+ %){3} busy\.")

    def test_bytes_in_memory_by_device_and_mode(self):
        tensors = read_safetensors(DEMO / "model.safetensors")
        matrices = {name for name, (_, shape, _) in tensors.items() if len(shape) == 2}
        elements = {name: len(data) // 2 for name, (dtype, _, data) in tensors.items()}
        self.assertEqual({dtype for dtype, _, _ in tensors.values()}, {"BF16"})
        vectors = 4 * sum(count for name, count in elements.items() if name not in matrices)
        weights = sum(elements[name] for name in matrices)
        for flags, mode, element in [((), ("cpu", "f32"), 2), (("--compute", "bf16"), ("cpu", "bf16"), 2),
                                     (("--device", "cuda"), ("cuda", "bf16"), 2),
                                     (("--device", "cuda", "--compute", "f32"), ("cuda", "f32"), 4)]:
            with self.subTest(flags=flags):
                plan = self.json("plan", DEMO, "--ranks", 1, "--json", *flags)
                self.assertEqual((plan["device"], plan["compute"]), mode)
                self.assertEqual(plan["ranks"][0]["device_bytes"], element * weights + vectors)
        narrow, wide = (self.plan(1, "--compute", mode)[0]["kv_bytes_per_token"] for mode in ("bf16", "f32"))
        self.assertEqual(2 * narrow, wide)
        self.assertIn("--device cuda --compute bf16", self.diffuse("plan", DEMO, "--ranks", 2, "--device", "cuda").out)
        self.fails(2, "--device", "plan", DEMO, "--ranks", 1, "--device", "tpu")

    def test_routers_and_tables_of_positions_stay_wide(self):
        for case, wide in (("mixtral-wide", "block_sparse_moe.gate."), ("t5", "relative_attention_bias")):
            with self.subTest(case=case):
                model = DATA / "golden" / case
                headers = read_safetensors(model / "model.safetensors")
                bytes_of = lambda name: (4 if wide in name or len(headers[name][1]) == 1 else 2) * math.prod(headers[name][1])
                self.assertTrue(any(wide in name for name in headers))
                plan = self.json("plan", model, "--ranks", 1, "--json", "--device", "cuda")
                self.assertEqual(plan["ranks"][0]["tensors"], len(headers), "of all of them")
                self.assertEqual(plan["ranks"][0]["device_bytes"], sum(map(bytes_of, headers)))

    def test_a_model_that_cannot_run_has_no_plan(self):
        self.copy_model()
        config = (DEMO / "config.json").read_text().replace('"hidden_act": "silu"', '"hidden_act": "wobble"')
        self.write("model/config.json", config)
        self.fails(69, ["'model'", "wobble"], "plan", "model", "--ranks", 2)


if __name__ == "__main__":
    support.main()
