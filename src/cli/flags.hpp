#pragma once
// Flags that several commands share, and what they mean when they are not given.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "checkpoint/checkpoint.hpp"
#include "pipeline/picture_request.hpp"
#include "slice/plan.hpp"

namespace diffuse {

// How a model is run: run, verify and bench.
struct ComputeFlags {
  std::string model;    // --model, or the job's
  int threads = 0;      // 0: this rank's share of the cores that it may use
  std::string compute;  // f32, bf16; empty: the device's default
  std::string device = "auto";
  std::string transport =
      "auto";        // of hidden rows: nccl where ranks compute on cards and it is built, else mpi
  std::string simd;  // empty: the best that all ranks have
  std::string load = "mmap";
  std::string slices;
  std::string encoders = "auto";
  std::string kv_memory;  // with a unit: 512M, 4G; empty: a share of the host's or the card's memory
  std::int64_t chunk = 256;
  std::int32_t group = 64;
  std::int32_t groups = 0;
  double timeout = 300;
  std::vector<std::string> accept;

  void add_to(CLI::App& command);
  LoadMode load_mode() const;
  EncoderCopies copies() const;
  Compute compute_mode(Compute otherwise) const;  // `otherwise` unless said
};

// How pictures are cut: run and verify.
struct PictureFlags {
  std::int32_t patches = 1;
  std::string whole_steps;  // "FIRST,LAST"; empty: see PatchFlags::whole_share
  std::string extrapolate = "balanced";

  void add_to(CLI::App& command);
  void add_steps_to(CLI::App& command);  // all but --patches
  PatchFlags patch_flags() const;        // throws usage
};
// --encoders, of commands that make a plan.
void add_encoders(CLI::App& command, std::string& encoders);
EncoderCopies encoder_copies(const std::string& encoders);

// "1536", "512M", "4G" (powers of 1024) -> bytes. Throws usage.
std::uint64_t parse_bytes(const std::string& text);

// "2,3,4" -> numbers of at least `least`. Throws usage, naming the flag.
std::vector<std::int64_t> parse_list(const std::string& text, std::int64_t least, const std::string& flag);

}  // namespace diffuse
