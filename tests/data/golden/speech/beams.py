"""What openai-whisper's transcribe() says by beams over this folder's model -> beams.json. Not run by the tests.

Needs openai-whisper, torch and safetensors. The weights get openai-whisper's names; the vocabulary is this folder's."""

import importlib
import json

import tokenizers
import torch
from safetensors.torch import load_file
from sound import samples
from whisper.model import ModelDimensions, Whisper
from whisper.tokenizer import Tokenizer

NAMES = [("model.", ""), ("encoder_attn_layer_norm", "cross_attn_ln"), ("self_attn_layer_norm", "attn_ln"), ("encoder_attn", "cross_attn"),
         ("self_attn", "attn"), (".layers.", ".blocks."), ("q_proj", "query"), ("k_proj", "key"), ("v_proj", "value"), ("out_proj", "out"),
         ("fc1", "mlp.0"), ("fc2", "mlp.2"), ("final_layer_norm", "mlp_ln"), ("embed_positions.weight", "positional_embedding"),
         ("embed_tokens", "token_embedding"), ("encoder.layer_norm", "encoder.ln_post"), ("decoder.layer_norm", "decoder.ln")]
SPECIAL = {token["content"]: token["id"] for token in json.load(open("tokenizer.json"))["added_tokens"]}
letters = tokenizers.Tokenizer.from_file("tokenizer.json")


class Letters:
    special_tokens_set = {name for name, id in SPECIAL.items() if id <= SPECIAL["<|0.00|>"]}
    eot_token = SPECIAL["<|endoftext|>"]

    def encode_single_token(self, text):
        return SPECIAL[text]

    def encode(self, text, **_):
        return letters.encode(text, add_special_tokens=False).ids

    def decode(self, ids, **_):
        return letters.decode(ids, skip_special_tokens=False)


def model():
    config = json.load(open("config.json"))
    weights = {}
    for name, value in load_file("model.safetensors").items():
        for theirs, ours in NAMES:
            name = name.replace(theirs, ours)
        if name != "proj_out.weight":
            weights[name] = value.float()
    loaded = Whisper(ModelDimensions(80, 1500, config["d_model"], config["encoder_attention_heads"], config["encoder_layers"],
                                     config["vocab_size"], config["max_target_positions"], config["d_model"],
                                     config["decoder_attention_heads"], config["decoder_layers"]))
    # openai-whisper's inner layer is four times as wide; what is missing here is filled up with zeros, which change nothing.
    for name, own in loaded.state_dict().items():
        if ".mlp." in name and own.shape != weights[name].shape:
            wide = torch.zeros_like(own)
            wide[tuple(slice(0, size) for size in weights[name].shape)] = weights[name]
            weights[name] = wide
    loaded.load_state_dict(weights)
    loaded.__class__ = type("Small", (Whisper,), {"is_multilingual": True, "num_languages": 3})
    return loaded.eval()


def main():
    tokenizer = lambda *_, language, task, **__: Tokenizer(Letters(), 3, language=language, task=task)  # noqa: E731
    original = importlib.import_module("whisper.transcribe")
    original.get_tokenizer = importlib.import_module("whisper.decoding").get_tokenizer = tokenizer
    small, cases = model(), []
    # Longer than a window, and clips that end before the recording does: what its end is filled up with differs, as
    # docs/speech.md says. Where a window has no room, openai-whisper says one token more: it is kept from that.
    for number, (seconds, seed, clips) in enumerate([(31, 6, "0,30.5"), (40.3, 1, "0,40"), (33, 4, "0,12"), (45, 7, "20,29.5,31,42")]):
        for beams, patience, penalty in [(5, 1.0, None), (2, 2.0, None), (3, 0.4, 0.6), (8, 1.0, 1.0), (5, 2.0, 0.0), (4, 1.3, 0.3)]:
            timestamps = (number + beams) % 3 != 0
            said = original.transcribe(small, samples(seconds, seed), language="en", temperature=0.0, fp16=False, beam_size=beams,
                                       patience=patience, length_penalty=penalty, suppress_tokens=[1, 2, 3, 258, 259, 260], clip_timestamps=clips,
                                       without_timestamps=not timestamps, no_speech_threshold=None,
                                       condition_on_previous_text=timestamps,
                                       compression_ratio_threshold=None)
            generate = {"beam_size": beams, "patience": patience, "length_penalty": penalty, "without_timestamps": not timestamps,
                        "condition_on_previous_text": timestamps, "clip_timestamps": clips}
            segments = [{key: s[key] for key in ("seek", "start", "end", "tokens", "avg_logprob", "no_speech_prob")} for s in said["segments"]]
            cases.append({"seconds": seconds, "seed": seed, "generate": generate, "segments": segments})
            print(seconds, generate, len(segments), [len(s["tokens"]) for s in segments][:12], flush=True)
    with open("beams.json", "w") as file:
        json.dump(cases, file, separators=(",", ":"))
        file.write("\n")


main()
