"""diffuse check: verdicts, what this build can run, and folders that lie."""

import json
import shutil
import struct
import unittest

import support
from support import DATA, DEMO, CommandLineTest, read_safetensors, safetensors

KINDS = {"encoder alone": "encoder-alone", "remote code": "remote-code", "recurrent": "recurrent",
         "U-Net: skips cross resolutions": "u-net", "long skips": "long-skips"}


class VerdictTest(CommandLineTest):
    def test_every_verdict_case(self):
        cases = sorted((DATA / "verdicts").glob("*.json"))
        self.assertGreater(len(cases), 100)
        for path in cases:
            with self.subTest(case=path.stem):
                case = json.loads(path.read_text())
                self.write("config.json", case["config"])
                refused = case["verdict"] == "refused"
                done = self.run_any("check", "config.json", "--json")
                found = json.loads(done.out)
                if case["verdict"] is not None:  # null: only the depth is judged
                    self.assertEqual(done.code, 69 if refused else 0, done)
                    self.assertEqual(found["verdict"], case["verdict"])
                    self.assertEqual(found["refusal"], KINDS[case["because"]] if refused else None)
                if case.get("shape") and not refused:
                    self.assertEqual(found["shape"], case["shape"])
                if "depth" in case:
                    self.assertEqual(found["depth"], case["depth"])
                    self.assertTrue(found["depth_at"])
                self.assertRegex(found["reason"], r"^\S.*\.$")
                self.assertNotIn("can_run", found)

    def test_a_person_reads_the_same(self):
        text = self.diffuse("check", DEMO).out
        self.assertRegex(text, r"verdict +runs\n")
        self.assertRegex(text, r"depth +6  \(num_hidden_layers\)\n")
        self.assertRegex(text, r"this build +can run it\n")


class FolderTest(CommandLineTest):
    def test_this_build_runs_the_golden_models(self):
        for path in sorted((DATA / "golden").iterdir()):
            with self.subTest(model=path.name):
                found = self.json("check", path, "--json")
                self.assertEqual((found["verdict"], found["can_run"], found["missing"]), ("runs", True, None))

    def test_music(self):
        model = DATA / "golden" / "musicgen-stereo"
        text = self.diffuse("check", model).out
        self.assertRegex(text, r"depth +5  \(decoder.num_hidden_layers\)\n")
        self.assertRegex(text, r"is cut +the decoder, 5 layers\n")
        self.assertRegex(text, r"makes +sound, 8000 Hz, stereo, of the codes of 4 codebooks")
        config = json.loads((model / "config.json").read_text())
        config["model_type"] = "musicgen_melody"
        config["architectures"] = ["MusicgenMelodyForConditionalGeneration"]
        self.write("melody/config.json", json.dumps(config))
        (self.folder / "melody" / "model.safetensors").symlink_to(model / "model.safetensors")
        found = self.json("check", "melody", "--json", code=69)
        self.assertFalse(found["can_run"])
        self.assertIn("a melody's chroma features", found["missing"])

    def test_the_probe_reads_plain_english(self):
        found = self.json("check", DEMO, "--probe", "--json")["probe"]
        self.assertEqual((found["tokens"], found["uniform"]), (255, 640))
        # Computed in float64 from the same weights and text; the demo knows only its own little stories.
        self.assertAlmostEqual(found["perplexity"] / 483944.695, 1, delta=1e-4)
        self.fails(66, "tokenizer.json", "check", DATA / "golden" / "qwen2", "--probe")
        self.write("only/config.json", (DEMO / "config.json").read_text())
        self.fails(66, "no weights", "check", "only", "--probe")

    def test_a_key_that_nobody_knows_stands_in_the_way_until_it_is_accepted(self):
        model = self.copy_model()
        config = json.loads((DEMO / "config.json").read_text())
        self.write("model/config.json", config | {"attention_wobble": 0.5})
        found = self.json("check", model, "--json", code=69)
        self.assertEqual((found["verdict"], found["can_run"]), ("runs", False))
        self.assertIn("attention_wobble", found["missing"])
        accepted = self.json("check", model, "--json", "--accept", "attention_wobble")
        self.assertTrue(accepted["can_run"])
        self.assertIn("perplexity", accepted["probe"])
        self.write("model/config.json", config | {"attention_wobble": None, "wobbles": []})
        self.assertTrue(self.json("check", model, "--json")["can_run"])


    def test_heads_that_a_speech_model_does_not_have(self):
        shutil.copytree(DATA / "golden" / "speech", self.folder / "ears")
        path = self.folder / "ears" / "generation_config.json"
        config = json.loads(path.read_text())
        self.diffuse("check", "ears")
        for change, fragments in [({"alignment_heads": [[2, 1], [3, 0]]}, ("`alignment_heads`", "entry 1", "layer 3")),
                                  ({"alignment_heads": [[0, 2]]}, ("entry 0", "head 2")),
                                  ({"eos_token_id": 99999}, ("`eos_token_id`", "99999"))]:
            with self.subTest(change=change):
                path.write_text(json.dumps(config | change))
                found = self.json("check", "ears", "--json", code=69)
                self.assertFalse(found["can_run"])
                for fragment in ("generation_config.json", *fragments):
                    self.assertIn(fragment, found["missing"])


class HostileTest(CommandLineTest):
    """Weights, configs and indices are a stranger's until they are checked."""

    def spoiled(self, fragments, code=65):
        for command in [["check", "model"], ["plan", "model", "--ranks", "2"]]:
            self.fails(code, fragments, *command)

    def test_configs(self):
        self.copy_model()
        for text, fragment in [("{", "config.json"), ("[1, 2]", "config.json"), ("", "config.json"),
                               ("[" * 100 + "]" * 100, "config.json"), ('{"a": 1, "a": }', "config.json")]:
            with self.subTest(text=text[:20]):
                self.write("model/config.json", text)
                self.spoiled(fragment)

    def test_numbers_that_no_model_has(self):
        self.copy_model()
        config = json.loads((DEMO / "config.json").read_text())
        for change in [{"num_hidden_layers": -1}, {"num_hidden_layers": 7}, {"num_hidden_layers": 10**18},
                       {"hidden_size": 0}, {"num_attention_heads": 3}, {"vocab_size": 2**40}, {"head_dim": -32},
                       {"hidden_size": "128"}, {"rms_norm_eps": "small"}, {"num_key_value_heads": 0}]:
            with self.subTest(change=change):
                self.write("model/config.json", config | change)
                done = self.run_any("check", "model")
                self.assertIn(done.code, (65, 69), done)
                done = self.run_any("plan", "model", "--ranks", 2)
                self.assertIn(done.code, (65, 69), done)
                self.assertEqual(len(done.problems), 1, done)

    def test_weights(self):
        self.copy_model()
        whole = (DEMO / "model.safetensors").read_bytes()
        (size,) = struct.unpack("<Q", whole[:8])
        header = json.loads(whole[8:8 + size])
        name = "model.layers.0.self_attn.q_proj.weight"

        def with_header(change):
            changed = {k: dict(v) for k, v in header.items()}
            change(changed)
            text = json.dumps(changed).encode()
            return struct.pack("<Q", len(text)) + text + whole[8 + size:]

        for what, content in [
            ("truncated", whole[:-1000]),
            ("cut within the header", whole[:100]),
            ("longer than its tensors", whole + b"more"),
            ("empty", b""),
            ("a header of 2^63 bytes", struct.pack("<Q", 1 << 63) + whole[8:]),
            ("no JSON", struct.pack("<Q", 8) + b"{{{{{{{{"),
            ("backward offsets", with_header(lambda h: h[name].update(data_offsets=h[name]["data_offsets"][::-1]))),
            ("a shape of another size", with_header(lambda h: h[name].update(shape=[128, 127]))),
            ("an overflowing shape", with_header(lambda h: h[name].update(shape=[2**40, 2**40]))),
            ("another type", with_header(lambda h: h[name].update(dtype="F32"))),
        ]:
            with self.subTest(what=what):
                self.write("model/model.safetensors", content)
                self.spoiled("model.safetensors")

    def cannot_run(self, fragment):
        self.assertIn(fragment, self.json("check", "model", "--json", code=69)["missing"])
        self.fails(69, fragment, "plan", "model", "--ranks", 2)

    def test_a_tensor_too_many_or_too_few(self):
        self.copy_model()
        tensors = read_safetensors(DEMO / "model.safetensors")
        self.write("model/model.safetensors", safetensors(tensors | {"model.layers.0.extra.weight": ("F32", [1], bytes(4))}))
        self.cannot_run("model.layers.0.extra.weight")
        less = {k: v for k, v in tensors.items() if k != "model.layers.3.mlp.up_proj.weight"}
        self.write("model/model.safetensors", safetensors(less))
        self.cannot_run("layers.3")

    def test_shards(self):
        model = self.copy_model()
        tensors = read_safetensors(DEMO / "model.safetensors")
        (self.folder / "model" / "model.safetensors").unlink()
        names = sorted(tensors)
        shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
        for shard, its in shards.items():
            self.write(f"model/{shard}", safetensors({n: tensors[n] for n in its}))
        index = {"metadata": {}, "weight_map": {n: shard for shard, its in shards.items() for n in its}}
        self.write("model/model.safetensors.index.json", index)
        self.assertTrue(self.json("check", model, "--json")["can_run"])

        (self.folder / "model" / "b.safetensors").rename(self.folder / "b")
        self.spoiled("b.safetensors", code=66)
        (self.folder / "b").rename(self.folder / "model" / "b.safetensors")
        for bad in ["../a.safetensors", "/etc/passwd", "sub/a.safetensors", "", ".."]:
            with self.subTest(name=bad):
                wrong = dict(index["weight_map"]) | {names[0]: bad}
                self.write("model/model.safetensors.index.json", {"weight_map": wrong})
                self.spoiled("model.safetensors.index.json")


if __name__ == "__main__":
    support.main()
