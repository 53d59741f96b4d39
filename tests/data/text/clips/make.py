"""Recordings by openai-whisper's transcribe() with a model that answers from a script -> runs.json.

Run with openai-whisper, torch and numba: python3 make.py. The vocabulary is ../whisper.json's; what is transcribed are clips of a
recording, silence around improbable words is skipped, and the initial prompt is carried on."""

import importlib
import json
import pathlib
import random

import numpy as np
import torch
from whisper.decoding import DecodingResult
from whisper.model import ModelDimensions
from whisper.tokenizer import Tokenizer
from whisper.utils import compression_ratio

original = importlib.import_module("whisper.transcribe")
HERE = pathlib.Path(__file__).parent
PIECES = [bytes.fromhex(p) for p in json.loads((HERE.parent / "whisper.json").read_text())["pieces"]]
SPECIAL = {"<|endoftext|>": 20, "<|startoftranscript|>": 21, "<|en|>": 22, "<|de|>": 23, "<|translate|>": 24, "<|transcribe|>": 25,
           "<|startoflm|>": 26, "<|startofprev|>": 27, "<|nospeech|>": 28, "<|notimestamps|>": 29, "<|0.00|>": 30}
HEADS, COLUMNS, FIRST = 1, 1500, 30
INITIAL = [14, 1, 7, 17, 2, 0]


class TooLong(Exception):
    pass


class Pieces:
    special_tokens_set = set(SPECIAL)
    eot_token = 20

    def encode_single_token(self, text):
        return SPECIAL[text]

    def encode(self, text, **_):
        return INITIAL[:int(text.strip())]

    def decode(self, ids, **_):
        parts = [b"<|endoftext|>" if i == 20 else f"<|{i}|>".encode() if i > 20 else PIECES[i] for i in ids]
        return b"".join(parts).decode("utf-8", "replace")


def weights_of(places):
    """As attention_of() of the tests has it."""
    rows = []
    for i, first in enumerate(places):
        floor = np.array([(i * i * 7 + j * 13 + i * j * 3) % 101 for j in range(COLUMNS)]) / 101
        row = (0.0005 * (1 + floor)).astype(np.float32)
        row[first:first + 12] += np.float32(0.05)
        rows.append(row)
    return torch.tensor(np.stack(rows))


class Attention(torch.nn.Module):
    def forward(self, weights):
        return None, weights.log()[None, None]  # [batch, heads, rows, columns]


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cross_attn = Attention()


class Scripted(torch.nn.Module):
    def __init__(self, chance, context):
        super().__init__()
        self.chance, self.calls = chance, []
        self.decoder = torch.nn.Module()
        self.decoder.blocks = torch.nn.ModuleList([Block()])
        self.dims = ModelDimensions(80, 1500, 1, 1, 1, 60, context, 1, 1, 1)
        self.alignment_heads = torch.tensor([[True]]).to_sparse()
        self.is_multilingual, self.num_languages, self.device = True, 2, torch.device("cpu")

    def decode(self, segment, options):
        chance = self.chance
        if len(self.calls) > 24:
            raise TooLong
        first = segment[0]
        seek, frames = int(first[0]) - 1, int((first > 0).sum())
        chosen, at, most = [], chance.randrange(0, max(1, min(frames // 2, 500))), frames // 2
        for _ in range(chance.randrange(0, 4)):
            end = min(most, at + chance.randrange(1, 400))
            if end <= at:
                break
            chosen += [FIRST + at, *chance.choices(range(20), k=chance.randrange(1, 6)), FIRST + end]
            at = end if chance.random() < 0.4 else min(most, end + chance.randrange(0, 300))
        if chosen and chance.random() < 0.5:
            chosen += [FIRST + at, *chance.choices(range(20), k=2)]
        logprob = round(-chance.random() * 1.3 * (len(chosen) + 1), 3)
        silence = round(chance.random() * 0.75, 3)
        most_prompt = self.dims.n_text_ctx // 2 - 1
        prompt = [27, *options.prompt[-most_prompt:]] if options.prompt else []
        self.calls.append({"kind": "decode", "seek": seek, "frames": frames, "temperature": options.temperature,
                           "prompt": prompt + [21, 22, 25], "chosen": chosen, "logprob": logprob, "no_speech": silence})
        text = Pieces().decode([t for t in chosen if t < 20]).strip()
        return DecodingResult(audio_features=None, language="en", tokens=chosen, text=text, avg_logprob=logprob / (len(chosen) + 1),
                              no_speech_prob=silence, temperature=options.temperature,
                              compression_ratio=compression_ratio(text) if text else 0)

    def forward(self, mel, tokens):
        chance, ids = self.chance, tokens[0].tolist()
        text = ids[4:-1]
        frames = int((mel[0, 0] > 0).sum())
        last = max(20, frames // 2 - 14)
        # Some windows are spoken evenly, in others words are far too long, too short or apart from the rest.
        strange = chance.random() < 0.6
        at, places = (chance.randrange(0, max(1, last // 2)) if strange else 5), [0] * 3
        for _ in range(len(ids) - 3):
            places.append(at)
            at += chance.choice([3, 5, 120, 250]) if strange else chance.randrange(8, 40)
        # Apart from each other: where two rows are alike, rounding says when each was said.
        for i in reversed(range(3, len(places))):
            places[i] = max(0, min(places[i], last))
            last = places[i] - 3
        low = chance.choice([0.05, 0.1, 0.5]) if strange else 0.6
        likely = [round(min(0.99, low + chance.random() * 0.3), 3) for _ in text]
        self.decoder.blocks[0].cross_attn(weights_of(places))
        logits = torch.zeros(1, len(ids), 60)
        for i, (token, p) in enumerate(zip(text, likely)):
            logits[0, 3 + i, :20] = np.log((1 - p) / 19)
            logits[0, 3 + i, token] = np.log(p)
        said = logits[0, 3:3 + len(text), :20].softmax(dim=-1)[np.arange(len(text)), text].tolist()
        self.calls.append({"kind": "align", "text": text, "places": places, "probabilities": said})
        return logits


def run(seed):
    chance = random.Random(seed)
    frames, context = chance.randrange(300, 15000), chance.choice([24, 60, 448])
    words = chance.random() < 0.75
    options = {"temperature": [0.0, 0.4] if chance.random() < 0.5 else 0.0}
    if chance.random() < 0.6:
        points = sorted(round(chance.uniform(0, frames / 95), 2) for _ in range(chance.randrange(1, 6)))
        options["clip_timestamps"] = points if chance.random() < 0.5 else ",".join(map(str, points))
    if words and chance.random() < 0.8:
        options["hallucination_silence_threshold"] = chance.choice([0.1, 0.5, 2.0, 4.0])
    if chance.random() < 0.6:
        options["initial_prompt"] = str(chance.randrange(1, 7))
        options["carry_initial_prompt"] = chance.random() < 0.7
    if chance.random() < 0.2:
        options["condition_on_previous_text"] = False
    model = Scripted(chance, context)
    mel = torch.zeros(80, frames + 3000)
    mel[:, :frames] = torch.arange(1, frames + 1, dtype=torch.float32)
    original.log_mel_spectrogram = lambda *_, **__: mel
    original.get_tokenizer = lambda *_, language, task, **__: Tokenizer(Pieces(), 2, language=language, task=task)
    said = original.transcribe(model, None, language="en", word_timestamps=words, fp16=False, **options)
    for segment in said["segments"]:
        del segment["id"]
    return {"frames": frames, "context": context, "words": words, "options": options, "calls": model.calls, "result": said}


runs, seed = [], 0
while len(runs) < 60:
    try:
        runs.append(run(seed))
    except TooLong:
        pass
    seed += 1
(HERE / "runs.json").write_text(json.dumps(runs, separators=(",", ":"), default=float) + "\n")
print(len(runs), "runs,", sum(len(r["calls"]) for r in runs), "calls")
