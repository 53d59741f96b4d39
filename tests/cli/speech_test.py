"""Recordings from file to subtitles: python3 speech_test.py DIFFUSE [unittest's arguments]."""

import json
import signal

import support
from speech_support import GREEDY, SPEECH, TRANSCRIPTS, write_sound
from support import CommandLineTest, journalled, send, wait_until


def cue_times(text, mark):
    return [line for line in text.splitlines() if mark in line]


class SpeechTest(CommandLineTest):
    def job(self, name, requests, **generate):
        for number, request in enumerate(requests):
            seconds, seed = request.pop("sound")
            request["audio"] = f"{number}.wav"
            write_sound(self.folder / request["audio"], seconds, seed, channels=1 + number % 2)
        return self.pack(name, requests, model=SPEECH, **generate)

    def test_transcripts_are_the_references_and_come_as_every_kind_of_file(self):
        requests = [{"id": str(i), "sound": (c["seconds"], c["seed"]), "language": c["language"]} for i, c in enumerate(TRANSCRIPTS)]
        self.job("job.h5", requests, **GREEDY)
        self.diffuse("run", "job.h5", "-o", "out.h5", "--trace")
        self.diffuse("run", "job.h5", "-o", "split.h5", "--trace", ranks=3)
        self.assert_identical("out.h5", "split.h5")
        self.diffuse("export", "out.h5", "texts")
        for number, case in enumerate(TRANSCRIPTS):
            said = json.loads((self.folder / f"texts/{number}.json").read_text())
            self.assertEqual(said["language"], case["language"])
            self.assertEqual([s["tokens"] for s in said["segments"]], [s["tokens"] for s in case["segments"]])
            for segment, expected in zip(said["segments"], case["segments"]):
                self.assertAlmostEqual(segment["start"], expected["start"], places=6)
                self.assertAlmostEqual(segment["end"], expected["end"], places=6)
            spoken = [s for s in said["segments"] if s["text"].strip()]
            for kind, mark in (("srt", " --> "), ("vtt", " --> ")):
                text = (self.folder / f"texts/{number}.{kind}").read_text()
                self.assertEqual(len(cue_times(text, mark)), len(spoken), text)
            self.assertTrue((self.folder / f"texts/{number}.vtt").read_text().startswith("WEBVTT"))
            tsv = (self.folder / f"texts/{number}.tsv").read_text().splitlines()
            self.assertEqual(tsv[0].split("\t"), ["start", "end", "text"])

    def test_features_that_this_build_does_not_compute_are_refused_by_name(self):
        model = self.copy_model(SPEECH)
        write_sound(self.folder / "a.wav", 2, 3)
        self.pack("job.h5", [{"audio": "a.wav"}], model=model, **GREEDY)
        self.write("model/preprocessor_config.json", {"feature_size": 80, "hop_length": 160, "n_fft": 400})
        self.assertTrue(self.json("check", model, "--json")["can_run"])
        self.diffuse("run", "job.h5", "-o", "out.h5")
        for name, content in [("preprocessor_config.json", {"hop_length": 128}),
                              ("processor_config.json", {"feature_extractor": {"hop_length": 128}})]:
            with self.subTest(file=name):
                self.write(f"model/{name}", content)
                found = self.json("check", model, "--json", code=69)
                self.assertIn("'hop_length' is 128 in ", found["missing"])
                self.assertIn(name, found["missing"])
                self.fails(69, ["'hop_length' is 128", name], "run", "job.h5", "-o", "out2.h5", ranks=2)
                (self.folder / "model" / name).unlink()

    def test_rules_that_leave_no_token_end_a_window(self):
        self.job("job.h5", [{"sound": (5, 3), "generate": {"suppress_tokens": [267], "max_initial_timestamp": 0}}, {"sound": (4, 5)}])
        self.diffuse("run", "job.h5", "-o", "out.h5", ranks=2)
        self.assertEqual([r["status"] for r in self.shown("out.h5").values()], ["done", "done"])

    def test_subtitles_are_laid_out(self):
        self.job("job.h5", [{"id": "r", "sound": (31, 6), "language": "japanese"}], word_timestamps=True, **GREEDY)
        self.diffuse("run", "job.h5", "-o", "out.h5")
        for name, flags in [("plain", []), ("words", ["--max-words-per-line", "1"]), ("marked", ["--highlight-words"]),
                            ("narrow", ["--max-line-width", "1", "--max-line-count", "1"])]:
            self.diffuse("export", "out.h5", name, *flags)
        texts = {name: (self.folder / name / "r.srt").read_text() for name in ("plain", "words", "marked", "narrow")}
        count = {name: len(cue_times(text, " --> ")) for name, text in texts.items()}
        self.assertGreater(count["words"], count["plain"])
        self.assertGreater(count["narrow"], count["plain"])
        self.assertIn("<u>", texts["marked"])
        self.fails(2, "--max-line-width", "export", "out.h5", "x", "--max-words-per-line", "1", "--max-line-width", "8")

    def test_beams_words_and_hotter_attempts_are_the_same_split(self):
        self.job("job.h5", [{"sound": (9, 3)}, {"sound": (31, 4), "language": "japanese", "task": "translate"}],
                 word_timestamps=True, best_of=2)
        self.diffuse("verify", "job.h5", "-o", "report", ranks=3)
        report = json.loads((self.folder / "report.json").read_text())
        self.assertEqual([row["identical"] for row in report["rows"]], [True, True])

    def test_a_stopped_run_goes_on(self):
        requests = [{"id": f"r{i}", "sound": (4 + i, i)} for i in range(6)]
        self.job("job.h5", requests, beam_size=2, temperature=0)
        self.diffuse("run", "job.h5", "-o", "whole.h5")
        stopped = self.run_any("run", "job.h5", "-o", "out.h5", "--max-time", "0.001", "--group", "2", ranks=2)
        self.assertEqual(stopped.code, 75, stopped)
        self.diffuse("run", "job.h5", "-o", "out.h5", ranks=2)
        self.assert_identical("whole.h5", "out.h5")

    def test_a_long_recording_goes_on_from_its_last_window(self):
        # Three recordings, one of them cut into pieces; hotter and hotter attempts draw random numbers.
        requests = [{"id": "long", "sound": (200, 2), "language": "english"},
                    {"id": "pieces", "sound": (90, 3), "generate": {"batched": True}},
                    {"id": "short", "sound": (5, 4)}]
        self.job("job.h5", requests, beam_size=2, best_of=2, temperature=[0, 0.7], word_timestamps=True, max_new_tokens=40)
        self.diffuse("run", "job.h5", "-o", "whole.h5")
        journal = self.folder / "out.h5.journal"
        command = ["run", "job.h5", "-o", "out.h5"]
        windows = 0
        for ranks, threads, how in [(1, 1, "usr1"), (2, 1, "kill"), (3, 1, "torn"), (1, 2, "kill")]:
            running = self.start(*command, "--threads", str(threads), ranks=ranks)
            wait_until(lambda: running.process.poll() is not None or journalled(journal, 4) >= windows + 2, "two windows more")
            self.assertIsNone(running.process.poll(), "the job is too short for this test")
            if how == "usr1":
                send(running.process.pid, signal.SIGUSR1)
                done = running.wait()
                self.assertEqual(done.code, 75, done)
                self.assertIn("unfinished", [r["status"] for r in self.shown("out.h5").values()])
            else:
                running.kill()
            if how == "torn":
                journal.write_bytes(journal.read_bytes()[:-5])
            self.assertGreater(journalled(journal, 4), windows)
            windows = journalled(journal, 4)
        done = self.diffuse(*command, ranks=2)
        self.assertRegex(done.err, "recordings? goe?s? on from the windows that were kept")
        self.assert_identical("whole.h5", "out.h5")
        for name in ("whole", "out"):
            self.diffuse("export", name + ".h5", name)
        for file in (self.folder / "whole").iterdir():
            if file.name.split(".")[0] in ("long", "pieces", "short"):
                self.assertEqual(file.read_bytes(), (self.folder / "out" / file.name).read_bytes(), file.name)
        self.assertFalse(journal.exists())

    def test_a_traced_recording_begins_anew(self):
        self.job("job.h5", [{"id": "long", "sound": (130, 2), "language": "english"}], **GREEDY)
        journal = self.folder / "out.h5.journal"
        running = self.start("run", "job.h5", "-o", "out.h5")
        wait_until(lambda: journalled(journal, 4) >= 1, "a window is finished")
        running.kill()
        done = self.diffuse("run", "job.h5", "-o", "out.h5", "--trace")
        self.assertNotIn("windows that were kept", done.err)
        self.diffuse("run", "job.h5", "-o", "whole.h5", "--trace", ranks=2)
        self.assert_identical("whole.h5", "out.h5")

    def test_given_tokens_are_gone_on_from(self):
        write_sound(self.folder / "a.wav", 3, 2)
        self.pack("job.h5", [{"id": "r", "audio": "a.wav", "tokens": [257, 258, 262, 266]}], model=SPEECH, max_new_tokens=6,
                  ignore_eos=True)
        self.diffuse("run", "job.h5", "-o", "out.h5")
        self.assertEqual(len(self.shown("out.h5")["r"]["samples"][0]["tokens"]), 6)

    def test_what_cannot_be_heard_is_told_and_the_rest_runs(self):
        write_sound(self.folder / "a.wav", 2, 1)
        self.pack("job.h5", [{"id": "good", "audio": "a.wav"}, {"id": "mute", "tokens": [257]},
                             {"id": "foreign", "audio": "a.wav", "language": "french"}], model=SPEECH, **GREEDY)
        self.diffuse("run", "job.h5", "-o", "out.h5", code=65)
        shown = self.shown("out.h5")
        self.assertEqual([shown[i]["status"] for i in ("good", "mute", "foreign")], ["done", "bad", "bad"])
        self.assertIn("audio", shown["mute"]["message"])
        self.assertIn("'fr'", shown["foreign"]["message"])

    def test_a_model_of_text_hears_nothing(self):
        write_sound(self.folder / "a.wav", 1, 1)
        self.pack("job.h5", [{"audio": "a.wav"}])
        done = self.diffuse("run", "job.h5", "-o", "out.h5", code=65)
        self.assertIn("reads none", done.err)


if __name__ == "__main__":
    support.main()
