#pragma once
// What a checkpoint's generation_config.json asks of generate() and a run here does not take from it. Said
// before a run, for transformers' answers would differ. Pure.

#include <cstdint>
#include <string>
#include <vector>

#include "core/json.hpp"

namespace diffuse {

// What the answers are: text, transcripts of recordings, or codes of sound.
enum class Answering : std::uint8_t { text, transcripts, sound };

// One sentence for what a job may state itself, one for what this build does not do; none where there is
// nothing of the kind. Keys whose value changes nothing in transformers either are not named. `object` is
// generation_config.json, or config.json of a folder without one, and `name` is what it is called.
std::vector<std::string> generation_notes(const Json& object, const std::string& name, Answering answering);

}  // namespace diffuse
