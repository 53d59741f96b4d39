#include "text/generation_notes.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "checkpoint/shown.hpp"

namespace diffuse {
namespace {

// When a key changes what transformers answers.
enum class Says : std::uint8_t {
  not_one,    // a number that is not 1
  not_zero,   // a number that is not 0
  over_one,   // a number over 1
  true_only,  // true
  not_transcribe,
  forces,    // see forces()
  anything,  // what is neither null, false nor empty
};

struct Known {
  std::string_view key;
  Says says = Says::anything;
  bool of_sampling = false;  // changes something beside do_sample alone
  bool by_job = false;       // a job's `generate` has it or its like
  bool by_text = false;      // taken for answers of text …
  bool by_transcripts = false;
  bool by_sound = false;
  bool of_transcripts = false;  // read by Whisper's generate() alone
};

// transformers 5.24, GenerationConfig: what its processors, samplers, searches and ends of answers read. How
// many tokens at most is not here: an answer that ends by its length says so.
constexpr std::array kKnown = {
    Known{.key = "do_sample", .says = Says::true_only, .by_job = true},
    Known{.key = "temperature", .says = Says::not_one, .of_sampling = true, .by_job = true},
    Known{.key = "top_k", .says = Says::not_zero, .of_sampling = true, .by_job = true},
    Known{.key = "top_p", .says = Says::not_one, .of_sampling = true, .by_job = true},
    Known{.key = "min_p", .says = Says::not_zero, .of_sampling = true, .by_job = true},
    Known{.key = "typical_p", .says = Says::not_one, .of_sampling = true},
    Known{.key = "epsilon_cutoff", .says = Says::not_zero, .of_sampling = true},
    Known{.key = "eta_cutoff", .says = Says::not_zero, .of_sampling = true},
    Known{.key = "top_h", .of_sampling = true},
    Known{.key = "num_beams", .says = Says::over_one, .by_job = true},
    Known{.key = "num_return_sequences", .says = Says::over_one, .by_job = true},
    Known{.key = "repetition_penalty", .says = Says::not_one, .by_job = true},
    Known{.key = "stop_strings", .by_job = true},
    Known{.key = "min_length", .says = Says::not_zero, .by_text = true},
    Known{.key = "min_new_tokens", .says = Says::not_zero, .by_text = true},
    Known{.key = "no_repeat_ngram_size", .says = Says::not_zero, .by_job = true, .by_text = true},
    Known{.key = "encoder_no_repeat_ngram_size", .says = Says::not_zero, .by_text = true},
    Known{.key = "encoder_repetition_penalty", .says = Says::not_one, .by_text = true},
    Known{.key = "bad_words_ids", .by_text = true},
    Known{.key = "sequence_bias", .by_text = true},
    Known{.key = "forced_bos_token_id", .by_text = true},
    Known{.key = "forced_eos_token_id", .by_text = true},
    Known{.key = "exponential_decay_length_penalty", .by_text = true},
    Known{.key = "suppress_tokens", .by_text = true, .by_transcripts = true},
    Known{.key = "begin_suppress_tokens", .by_text = true, .by_transcripts = true},
    Known{.key = "guidance_scale", .says = Says::not_one, .by_sound = true},
    Known{.key = "renormalize_logits", .says = Says::true_only},
    Known{.key = "token_healing", .says = Says::true_only},
    Known{.key = "watermarking_config"},
    Known{.key = "num_beam_groups", .says = Says::over_one},
    Known{.key = "diversity_penalty", .says = Says::not_zero},
    Known{.key = "penalty_alpha", .says = Says::not_zero},
    Known{.key = "dola_layers"},
    Known{.key = "constraints"},
    Known{.key = "force_words_ids"},
    Known{.key = "max_time"},
    Known{.key = "language", .by_job = true, .of_transcripts = true},
    Known{.key = "task", .says = Says::not_transcribe, .by_job = true, .of_transcripts = true},
    Known{.key = "forced_decoder_ids", .says = Says::forces, .by_job = true, .of_transcripts = true},
    Known{.key = "compression_ratio_threshold", .by_job = true, .of_transcripts = true},
    Known{.key = "logprob_threshold", .by_job = true, .of_transcripts = true},
    Known{.key = "no_speech_threshold", .by_job = true, .of_transcripts = true},
    Known{.key = "condition_on_prev_tokens", .says = Says::true_only, .by_job = true, .of_transcripts = true},
};

// A language, or another task than to transcribe: [[1, id or null], [2, id], …].
bool forces(const Json& pairs, const Json& object) {
  for (const auto* const key : {"language", "task"}) {
    if (const auto other = object.find(key); other != object.end() && !other->is_null()) return false;
  }
  const auto tasks = object.find("task_to_id");
  const auto plain = object.find("no_timestamps_token_id");
  const auto is_usual = [&](const Json& id) {
    const bool transcribes = tasks != object.end() && tasks->is_object() && tasks->contains("transcribe") &&
                             id == (*tasks)["transcribe"];
    return id.is_null() || transcribes || (plain != object.end() && id == *plain);
  };
  if (!pairs.is_array()) return !pairs.is_null();
  return !std::all_of(pairs.begin(), pairs.end(), [&](const Json& pair) {
    return pair.is_array() && pair.size() == 2 && is_usual(pair[1]);
  });
}

bool says_something(const Json& value, Says says, const Json& object) {
  if (value.is_null()) return false;
  switch (says) {
    case Says::not_one:
      return !value.is_number() || value.get<double>() != 1;
    case Says::not_zero:
      return !value.is_number() || value.get<double>() != 0;
    case Says::over_one:
      return !value.is_number() || value.get<double>() > 1;
    case Says::true_only:
      return value != false;
    case Says::not_transcribe:
      return value != "transcribe";
    case Says::forces:
      return forces(value, object);
    case Says::anything:
      return value != false && !(value.is_string() && value.get_ref<const std::string&>().empty()) &&
             !(value.is_structured() && value.empty());
  }
  return true;
}

bool is_taken(const Known& known, Answering answering) {
  switch (answering) {
    case Answering::text:
      return known.by_text;
    case Answering::transcripts:
      return known.by_transcripts;
    case Answering::sound:
      return known.by_sound;
  }
  return false;
}

}  // namespace

std::vector<std::string> generation_notes(const Json& object, const std::string& name, Answering answering) {
  if (!object.is_object()) return {};
  const auto sample = object.find("do_sample");
  const bool samples = sample != object.end() && says_something(*sample, Says::true_only, object);
  std::string by_job;
  std::string by_nobody;
  for (const auto& known : kKnown) {
    const auto found = object.find(known.key);
    if (found == object.end() || !says_something(*found, known.says, object)) continue;
    if ((known.of_sampling && !samples) || is_taken(known, answering)) continue;
    if (known.of_transcripts && answering != Answering::transcripts) continue;
    auto& list = known.by_job ? by_job : by_nobody;
    list += (list.empty() ? "" : ", ") + std::string(known.key) + " = " + shown(*found);
  }
  std::vector<std::string> notes;
  if (!by_job.empty())
    notes.push_back(name + " says " + by_job +
                    ", which is not taken from there; state in the job what is to hold");
  if (!by_nobody.empty())
    notes.push_back(name + " says " + by_nobody +
                    ", which this build does not do: transformers' answers may differ");
  return notes;
}

}  // namespace diffuse
