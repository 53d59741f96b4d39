#include "cli/flags.hpp"

#include <charconv>

#include "core/error.hpp"
#include "core/format.hpp"

namespace diffuse {

CLI::Validator between(double least, double most) {
  const auto range = short_number(least) + " to " + short_number(most);
  return {[=](const std::string& given) {
            double value = 0;
            const auto* const end = given.data() + given.size();
            const auto [rest, failed] = std::from_chars(given.data(), end, value);
            // Not a number is in no range, whichever way it is asked.
            if (failed == std::errc() && rest == end && value >= least && value <= most) return std::string();
            return "'" + given + "' is not a number from " + range;
          },
          "FLOAT in [" + range + "]"};
}

void refuse_for_pictures(bool given, const std::string& flag) {
  if (given)
    throw_usage(flag +
                " is for models that answer token by token, and this one makes pictures: leave it out");
}

void refuse_for_tokens(bool given, const std::string& flag) {
  if (given) throw_usage(flag + " is for pictures, and this model answers token by token: leave it out");
}

void ComputeFlags::add_to(CLI::App& command) {
  command.add_option("--model", model, "Model folder; instead of the job's");
  command.add_option("--threads", threads, "Threads a rank (default: its share of the cores)")
      ->check(CLI::Range(1, 1024));
  command
      .add_option(
          "--compute", compute,
          "f32 (default on the CPU): activations in f32; bf16 (default on CUDA): matmul inputs and the "
          "cache in bf16")
      ->check(CLI::IsMember({"f32", "bf16"}));
  command.add_option("--device", device, "cpu, cuda, or auto: cuda where every rank has a card that answers")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  command
      .add_option("--transport", transport,
                  "How hidden rows travel between cards: nccl, mpi, or auto: nccl where it is built")
      ->check(CLI::IsMember({"auto", "nccl", "mpi"}));
  command
      .add_option("--graphs", graphs,
                  "auto: decode steps that recur are recorded and launched as CUDA graphs; off: they are not")
      ->check(CLI::IsMember({"auto", "off"}));
  command.add_option("--simd", simd, "SIMD target, e.g. avx2 (default: the best that all ranks have)");
  command.add_option("--load", load, "mmap, or read for file systems where maps are slow")
      ->check(CLI::IsMember({"mmap", "read"}));
  command.add_option("--slices", slices, "Layers of each rank, e.g. 0-7,8-23 (default: balanced by cost)");
  add_encoders(command, encoders);
  command
      .add_option(
          "--kv-memory", kv_memory,
          "Key-value memory a rank, e.g. 4G (default: a quarter of the host's, or three quarters of what "
          "weights leave of the card's)")
      ->check([](const std::string& text) -> std::string {
        try {
          parse_bytes(text);
          return {};
        } catch (const Error& problem) {
          return problem.what();
        }
      });
  command.add_option("--chunk", chunk, "Most prompt tokens of a step (default: 256); not of pictures")
      ->check(CLI::Range(1, 1 << 16));
  command.add_option("--group", group, "Most requests of a decode step (default: 64); not of pictures")
      ->check(CLI::Range(1, 128));
  command.add_option("--groups", groups, "Groups of requests in flight (default: chosen); not of pictures")
      ->check(CLI::Range(1, 128));
  command.add_option("--timeout", timeout, "Seconds to wait for a silent rank")
      ->check(between(1e-9, kMostSeconds));
  command.add_option("--accept", accept, "Accept a config key that this build does not know");
}

void add_encoders(CLI::App& command, std::string& encoders) {
  command
      .add_option(
          "--encoders", encoders,
          "Ranks that hold the encoder and encode: one, all, or auto (all where one would hold the others "
          "up)")
      ->check(CLI::IsMember({"auto", "one", "all"}));
}

EncoderCopies encoder_copies(const std::string& encoders) {
  if (encoders == "one") return EncoderCopies::one;
  return encoders == "all" ? EncoderCopies::all : EncoderCopies::automatic;
}

EncoderCopies ComputeFlags::copies() const {
  return encoder_copies(encoders);
}

LoadMode ComputeFlags::load_mode() const {
  return load == "read" ? LoadMode::read : LoadMode::mmap;
}

Compute ComputeFlags::compute_mode(Compute otherwise) const {
  if (compute.empty()) return otherwise;
  return compute == "bf16" ? Compute::bf16 : Compute::f32;
}

void PictureFlags::add_to(CLI::App& command) {
  auto* count =
      command
          .add_option(
              "--patches", patches,
              "Patches that a picture is cut into, to fill the stages: not exact where it is more than one")
          ->check(CLI::Range(1, 4096));
  auto* budget =
      command
          .add_option("--max-error", max_error,
                      "Choose patches, whole steps and how keys and values are carried on by a "
                      "short calibration: a mean difference of so many 1/255 of a pixel's range is "
                      "allowed; pictures stay whole where nothing is within it")
          ->check(between(0, 255));
  budget->excludes(count);
  add_steps_to(command);
}

void PictureFlags::add_steps_to(CLI::App& command) {
  command.add_option(
      "--whole-steps", whole_steps,
      "FIRST,LAST: so many steps are run whole all the same (default with patches: a fifth of "
      "them and one more; from forty steps on a fifth of these are at the end, and one more of "
      "more than five patches)");
  command
      .add_option(
          "--extrapolate", extrapolate,
          "Keys and values that a step has not reached yet: off (those of the step before), or carried on "
          "from the steps before: linear, or balanced (default), where a part of what was off until then is "
          "taken back")
      ->check(CLI::IsMember({"off", "linear", "balanced"}));
  add_tile(command, tile);
}

void add_tile(CLI::App& command, std::int64_t& tile) {
  command
      .add_option(
          "--tile", tile,
          "Decode pictures in tiles of so many pixels a side, as diffusers' enable_tiling does with 256: "
          "less memory, and pixels that are others by a little (default: whole)")
      ->check(CLI::Range(1, 65536));
}

RunOptions ComputeFlags::run_options() const {
  RunOptions options;
  if (chunk) options.chunk = *chunk;
  if (group) options.max_group = *group;
  if (groups) options.groups = *groups;
  return options;
}

void check_encoders(const std::string& encoders, const Recipe& recipe) {
  if (encoders == "all" && (!recipe.encoder || recipe.refinement))
    throw_usage(
        std::string("--encoders all: ") +
        (recipe.refinement ? "the texts of pictures are read by one rank" : "this model has no encoder") +
        "; leave it out");
}

void ComputeFlags::check_for(const Recipe& recipe) const {
  check_encoders(encoders, recipe);
  if (!recipe.refinement) return;
  refuse_for_pictures(chunk.has_value(), "--chunk");
  refuse_for_pictures(group.has_value(), "--group");
  refuse_for_pictures(groups.has_value(), "--groups");
}

void PictureFlags::check_for(const Recipe& recipe) const {
  if (recipe.refinement) return;
  refuse_for_tokens(patches > 1, "--patches " + std::to_string(patches));
  refuse_for_tokens(max_error.has_value(), "--max-error");
  refuse_for_tokens(!whole_steps.empty(), "--whole-steps");
  refuse_for_tokens(!extrapolate.empty(), "--extrapolate");
  refuse_for_tokens(tile > 0, "--tile");
}

PatchFlags PictureFlags::patch_flags() const {
  if (max_error && !whole_steps.empty())
    throw_usage("--max-error chooses the whole steps itself; leave --whole-steps out, or say --patches");
  if (patches == 1 && !whole_steps.empty())
    throw_usage("--whole-steps says which steps are not cut into patches; say --patches too");
  if (patches == 1 && !extrapolate.empty())
    throw_usage(
        "--extrapolate says what stands for what a step in patches has not reached; say --patches 2 or more");
  PatchFlags flags;
  flags.settings.patches = patches;
  if (patches == 1) return flags;
  flags.carry_on = carry_on_of(carried_on());
  flags.whole_share = whole_steps.empty();
  if (flags.whole_share) return flags;
  const auto given = parse_list(whole_steps, 0, "--whole-steps");
  if (given.size() != 2) throw_usage("--whole-steps '" + whole_steps + "' is not FIRST,LAST; write e.g. 8,0");
  flags.settings.whole_first = given[0];
  flags.settings.whole_last = given[1];
  // Before the first patched step there must be those to go on from.
  const int needed = steps_before(flags.carry_on) + 1;
  if (flags.settings.whole_first < 1)
    throw_usage("--whole-steps: the first step must be whole; write e.g. " + std::to_string(needed) + ",0");
  if (flags.settings.whole_first < needed)
    throw_usage("--whole-steps: --extrapolate " + carried_on() + " goes on from " + std::to_string(needed) +
                " whole steps; write e.g. " + std::to_string(needed) + ",0, or another --extrapolate");
  return flags;
}

std::uint64_t parse_bytes(const std::string& text) {
  std::uint64_t value = 0;
  const auto [rest, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string unit(rest, text.data() + text.size());
  const auto powers = std::string("KMGT");
  const auto power = unit.empty() ? std::string::npos : powers.find(unit[0]);
  const bool known = unit.empty() || (power != std::string::npos &&
                                      (unit.size() == 1 || unit.substr(1) == "iB" || unit.substr(1) == "B"));
  const auto shift = unit.empty() || !known ? 0 : 10 * (power + 1);
  if (failed != std::errc() || !known || value << shift >> shift != value)
    throw_usage("'" + text + "' is no size; write e.g. 512M or 4G");
  return value << shift;
}

std::vector<std::int64_t> parse_list(const std::string& text, std::int64_t least, const std::string& flag) {
  std::vector<std::int64_t> values;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto comma = std::min(text.find(',', begin), text.size());
    std::int64_t value = 0;
    const auto [end, failed] = std::from_chars(text.data() + begin, text.data() + comma, value);
    if (failed != std::errc() || end != text.data() + comma || value < least) {
      throw_usage(flag + " '" + text + "' is no list of numbers of at least " + std::to_string(least) +
                  "; write e.g. 2,3,4");
    }
    values.push_back(value);
    begin = comma + 1;
  }
  return values;
}

}  // namespace diffuse
