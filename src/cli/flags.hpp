#pragma once
// Flags that several commands share, and what they mean when they are not given.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "checkpoint/checkpoint.hpp"
#include "pipeline/picture_request.hpp"
#include "pipeline/split_run.hpp"
#include "recipe/recipe.hpp"
#include "slice/plan.hpp"

namespace diffuse {

constexpr std::int64_t kMostPatches = 4096;
constexpr double kMostSeconds = 1e8;  // of a flag; three years

// A number within bounds; unlike CLI::Range it takes no NaN.
CLI::Validator between(double least, double most);

// How a model is run: run, verify and bench.
struct ComputeFlags {
  std::string model;    // --model, or the job's
  int threads = 0;      // 0: this rank's share of the cores that it may use
  std::string compute;  // f32, bf16; empty: the device's default
  std::string device = "auto";
  std::string transport =
      "auto";                   // of hidden rows: nccl where ranks compute on cards and it is built, else mpi
  std::string graphs = "auto";  // of CUDA: auto, off
  std::string simd;             // empty: the best that all ranks have
  std::string load = "mmap";
  std::string slices;
  std::string encoders = "auto";
  std::string kv_memory;  // with a unit: 512M, 4G; empty: a share of the host's or the card's memory
  std::optional<std::int64_t> chunk;   // 256
  std::optional<std::int32_t> group;   // 64
  std::optional<std::int32_t> groups;  // chosen
  double timeout = 300;
  std::vector<std::string> accept;

  void add_to(CLI::App& command);
  LoadMode load_mode() const;
  EncoderCopies copies() const;
  Compute compute_mode(Compute otherwise) const;  // `otherwise` unless said
  RunOptions run_options() const;                 // but for the pages of keys and values

  // Throws usage where a flag was given that changes nothing for this model.
  void check_for(const Recipe& recipe) const;
};

// Throws usage where `given`: "FLAG is for models that answer token by token, and this one makes pictures".
void refuse_for_pictures(bool given, const std::string& flag);
// "FLAG is for pictures, and this model answers token by token".
void refuse_for_tokens(bool given, const std::string& flag);

// How pictures are cut: run and verify.
struct PictureFlags {
  std::int32_t patches = 1;
  std::string whole_steps;          // "FIRST,LAST"; empty: see PatchFlags::whole_share
  std::string extrapolate;          // empty: balanced
  std::optional<double> max_error;  // that --patches may make, in 1/255
  std::int64_t tile = 0;            // pixels; 0: decoded whole

  void add_to(CLI::App& command);
  void add_steps_to(CLI::App& command);  // all but --patches and --max-error
  PatchFlags patch_flags() const;        // throws usage
  std::string carried_on() const { return extrapolate.empty() ? "balanced" : extrapolate; }
  void check_for(const Recipe& recipe) const;  // throws usage: patches of a model that makes no pictures
};
void add_tile(CLI::App& command, std::int64_t& tile);

// --encoders, of commands that make a plan.
void add_encoders(CLI::App& command, std::string& encoders);
EncoderCopies encoder_copies(const std::string& encoders);
// Throws usage where they ask for copies of what this model does not have, or has once.
void check_encoders(const std::string& encoders, const Recipe& recipe);

// "1536", "512M", "4G" (powers of 1024) -> bytes. Throws usage.
std::uint64_t parse_bytes(const std::string& text);

// "2,3,4" -> numbers of at least `least`. Throws usage, naming the flag.
std::vector<std::int64_t> parse_list(const std::string& text, std::int64_t least, const std::string& flag);

}  // namespace diffuse
