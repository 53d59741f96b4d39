"""CPU against CUDA within the table of tolerances: python3 cuda_across_test.py DIFFUSE_STANDIN [unittest's arguments]."""

import json

import support
from cuda_support import CudaTest
from support import DATA, PROJECT, stories


class AcrossTest(CudaTest):
    def against(self, *flags, ranks=2, code=0, **env):
        if ranks == 1:
            flags += ("--ranks", 1)
        done = self.cuda("verify", "job.h5", "-o", "report", "--device", "cuda", "--against", "cpu", *flags, ranks=ranks,
                         code=code, **env)
        return done, json.loads((self.folder / "report.json").read_text())

    def test_verify_holds_the_card_against_the_cpu(self):
        self.pack("job.h5", stories(4, 6, 24), ignore_eos=True)
        for compute in ("f32", "bf16"):
            with self.subTest(compute=compute):
                done, report = self.against("--compute", compute)
                self.assertTrue(report["proven"])
                self.assertTrue(report["rows"][0]["identical"], "split against whole stays bits")
                across = report["across"]
                self.assertTrue(across["agrees"], across)
                found = across["across"]
                self.assertRegex(found["whole"], r"^cpu, \w+")
                self.assertRegex(found["split"], r"^cuda, sm_90 .*cuBLASLt")
                self.assertEqual(found["compute"], compute)
                rows = {(row["operation"], row["compute"]): row for row in across["tolerances"]}
                self.assertEqual(found["allowed"], rows["logprob", compute]["allowed"])
                self.assertTrue(all(row["reason"] for row in rows.values()))
                self.assertGreater(found["logprobs"], 100)
                self.assertLess(found["largest"], found["allowed"])
                print(f"{compute}: largest difference {found['largest']:.2g}, {found['close']} close calls", flush=True)
                self.assertIn("### Across devices", done.out)
                self.assertIn("| product | 1e-06 |", done.out)

    def test_a_library_that_multiplies_wrongly_is_found(self):
        """Split and whole have the same wrong bits: only the other device shows it."""
        self.pack("job.h5", stories(2, 3, 6))
        done, report = self.against("--compute", "f32", code=1, DIFFUSE_STANDIN_CUBLASLT="wrong")
        self.assertTrue(report["rows"][0]["identical"])
        self.assertFalse(report["proven"])
        self.assertFalse(report["across"]["agrees"])
        self.assertEqual(report["across"]["first_difference"]["what"], "logprobs")
        self.assertIn("The devices do not agree", done.out)

    def test_pictures_are_held_by_their_pixels(self):
        prompts = ["a red circle moving left on a blue background"]
        self.pack("job.h5", prompts, model=PROJECT / "demo" / "wan", num_inference_steps=2, guidance_scale=1, height=32, width=32,
                  num_frames=5, max_sequence_length=32, output_type="both")
        for compute in ("f32", "bf16"):
            with self.subTest(compute=compute):
                done, report = self.against("--compute", compute, ranks=1)
                self.assertEqual((report["rows"], report["proven"], report["passed"]), ([], False, True), "one rank is no split")
                found = report["across"]["across"]
                self.assertEqual(found["colours"], 5 * 32 * 32 * 3)
                self.assertLess(found["mean_colour"], found["allowed_frame"])
                self.assertGreater(found["latents"], 0)
                self.assertLess(found["largest_latent"], found["allowed_latent"])
                print(f"{compute}: frames {found['mean_colour']:.2g}, latents {found['largest_latent']:.2g}", flush=True)
                self.assertIn("| frame | ", done.out)
        done, report = self.against("--compute", "f32", ranks=1, code=1, DIFFUSE_STANDIN_CUBLASLT="wrong")
        self.assertFalse(report["passed"])
        self.assertEqual(report["across"]["first_difference"]["what"], "media")
        self.assertEqual(report["across"]["differences"], 2, "its latent too")

    def test_results_of_two_devices_are_compared_alike(self):
        self.pack("job.h5", stories(2, 3, 6), logprobs=3)
        for name, flags, env in [("cpu", ("--device", "cpu", "--compute", "bf16"), {}), ("card", ("--device", "cuda"), {}),
                                 ("wrong", ("--device", "cuda"), {"DIFFUSE_STANDIN_CUBLASLT": "wrong"}),
                                 ("f32", ("--device", "cuda", "--compute", "f32"), {})]:
            self.cuda("run", "job.h5", "-o", f"{name}.h5", *flags, **env)
        done = self.diffuse("compare", "cpu.h5", "card.h5")
        self.assertRegex(done.out, r"^they agree: cpu, \w+ against cuda, sm_90 .* in bf16: \d+ tokens are the same")
        self.assertFalse(self.json("compare", "cpu.h5", "card.h5", "--json")["identical"])
        done = self.diffuse("compare", "cpu.h5", "wrong.h5", code=1)
        self.assertRegex(done.out, r"^different: ")
        # One kind of device, or two modes: bits.
        self.diffuse("compare", "card.h5", "wrong.h5", code=1)
        done = self.diffuse("compare", "cpu.h5", "f32.h5", code=1)
        self.assertIn("compute differs", done.out)

    def test_an_encoder_and_experts(self):
        for case in ("t5", "mixtral-wide"):
            model = DATA / "golden" / case
            with self.subTest(case=case):
                self.pack("job.h5", [{"tokens": [5, 9, 3, 7, 2]}], model=model, max_new_tokens=8, ignore_eos=True)
                _, report = self.against()
                self.assertTrue(report["across"]["agrees"])

    def test_the_cpu_against_itself_is_refused(self):
        self.pack("job.h5", stories(1, 3, 4))
        done = self.run_any("verify", "job.h5", "-o", "report", "--device", "cpu", "--against", "cpu", ranks=2, env=self.env())
        self.assert_fails(done, 2, "--against cpu")


if __name__ == "__main__":
    support.main()
