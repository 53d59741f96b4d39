"""Recordings for the tests of speech, and the small model that hears them."""

import json
import struct
import wave

from support import DATA

SPEECH = DATA / "golden" / "speech"
TRANSCRIPTS = json.loads((SPEECH / "transcripts.json").read_text())
# As transformers transcribes by default.
GREEDY = {"beam_size": 1, "temperature": 0, "condition_on_previous_text": False, "no_speech_threshold": None}


def write_sound(path, seconds, seed, rate=16000, channels=1):
    """The formula of tests/data/golden/speech/make.py, as 16-bit PCM."""
    frames = bytearray()
    for n in range(int(seconds * 16000)):
        value = ((n * n % 4001 * (seed + 3) + n * 7 * seed) % 1601 - 800) * (n // 4000 * (seed + 5) % 17) * 2
        frames += struct.pack("<h", value) * channels
    with wave.open(str(path), "wb") as out:
        out.setnchannels(channels)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(bytes(frames))
