#include "pipeline/picture_request.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <string_view>
#include <utility>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/hash.hpp"
#include "core/overloaded.hpp"
#include "pipeline/latent_rows.hpp"
#include "sampler/torch_randn.hpp"
#include "text/prompt_clean.hpp"

namespace diffuse {
namespace {

constexpr std::array<std::string_view, 9> kPictureKeys = {
    "num_inference_steps", "guidance_scale", "height", "width", "num_frames", "num_videos_per_prompt", "seed",
    "max_sequence_length", "output_type"};

// More than any memory holds, and few enough that sizes of it do not overflow.
constexpr std::int64_t kMostTokens = std::numeric_limits<std::int32_t>::max();

std::int64_t divided(std::int64_t pixels, std::int64_t unit, const char* name) {
  if (pixels % unit != 0) {
    const auto below = std::max(pixels / unit * unit, unit);
    throw_bad_data(std::string("`") + name + "` is " + std::to_string(pixels) +
                   ", and this model makes multiples of " + std::to_string(unit) + "; " +
                   (pixels < unit ? std::to_string(unit)
                                  : std::to_string(below) + " or " + std::to_string(below + unit)) +
                   " would do");
  }
  return pixels / unit;
}

Scheduler scheduler_for(const PictureSide& side, std::int64_t steps) {
  auto scheduler = make_scheduler(side.scheduler, steps);
  // diffusers' pipelines of this kind would hand the latent on as it is, and make nonsense in silence.
  if (scheduler.start_scale() != 1 || scheduler.input_divisor(0) != 1)
    throw_refused(
        "the pipeline's scheduler wants its latents scaled by the noise level, and a stack of this kind "
        "reads "
        "them as they are; give it a flow scheduler (UniPC, DPM-Solver++, FlowMatchEuler)");
  return scheduler;
}

// A name between & and ; that HTML may know as a character and this build does not; empty where there is
// none.
std::string unknown_reference(const std::string& text) {
  for (auto at = text.find('&'); at != std::string::npos; at = text.find('&', at + 1)) {
    auto end = at + 1;
    while (end < text.size() && std::isalnum(static_cast<unsigned char>(text[end])) != 0) ++end;
    const bool letter = end > at + 1 && std::isalpha(static_cast<unsigned char>(text[at + 1])) != 0;
    if (letter && end < text.size() && text[end] == ';') return text.substr(at, end - at + 1);
  }
  return {};
}

class Preparer {
 public:
  Preparer(const PictureSide& side, const Recipe& recipe, const PatchFlags& patches, std::int64_t kv_pages)
      : side_(side), recipe_(recipe), stack_(*recipe.refinement), patches_(patches), kv_pages_(kv_pages) {}

  void prepare(PreparedPicture& out, const Request& request, const GenerateOptions& options) const {
    if (request.audio) throw_bad_data("it holds sound, and this model reads none");
    if (!request.language.empty())
      throw_bad_data("`language` says what to translate a text into, and this model makes pictures of it");
    read_size(out, options);
    out.samples = options.num_videos_per_prompt.value_or(1);
    out.output = options.output_type.value_or(MediaOutput());
    out.guidance = static_cast<float>(options.guidance_scale.value_or(stack_.defaults.guidance));
    out.text_rows = options.max_sequence_length.value_or(stack_.text_rows);
    out.texts.push_back(text_of(request, out.text_rows));
    out.prompt_tokens = static_cast<std::int64_t>(out.texts.front()->ids.size());
    if (out.guidance > 1) {
      out.texts.push_back(encoded(request.negative_prompt, "the negative prompt", out.text_rows));
    } else if (!request.negative_prompt.empty()) {
      throw_bad_data("`negative_prompt` guides nothing where `guidance_scale` is 1 or less");
    }
    const auto steps = options.num_inference_steps.value_or(stack_.defaults.steps);
    out.scheduler = std::make_shared<const Scheduler>(scheduler_for(side_, steps));
    check_latent(out, request);
    out.latent = request.latent;
    check_memory(out);
  }

 private:
  void read_size(PreparedPicture& out, const GenerateOptions& options) const {
    const auto own = own_size(stack_, side_.space_scale, side_.time_scale);
    out.height = options.height.value_or(own.height);
    out.width = options.width.value_or(own.width);
    out.frames = options.num_frames.value_or(own.frames);
    out.grid = grid_of(stack_, {.frames = out.frames, .height = out.height, .width = out.width},
                       side_.space_scale, side_.time_scale);
  }

  std::shared_ptr<const EncoderInput> encoded(const std::string& text, const std::string& name,
                                              std::int64_t text_rows) const {
    if (!side_.tokenizer)
      throw_bad_data(
          "tokenizer/ holds neither tokenizer.json nor a sentencepiece model; give `tokens`, and a "
          "guidance_scale of 1");
    const auto cleaned = cleaned_prompt(text);
    if (const auto unknown = unknown_reference(cleaned); !unknown.empty())
      throw_bad_data(name + " holds '" + unknown +
                     "', which may stand for a character that this build does not know by "
                     "name; write the character itself");
    return checked(side_.tokenizer->encode(cleaned, true), name, text_rows);
  }

  std::shared_ptr<const EncoderInput> checked(std::vector<std::int32_t> ids, const std::string& name,
                                              std::int64_t text_rows) const {
    const auto count = static_cast<std::int64_t>(ids.size());
    if (count == 0) throw_bad_data(name + " is empty, and the tokenizer puts no token behind a text");
    if (count > text_rows)
      throw_bad_data(name + " has " + std::to_string(count) + " tokens, and the stack reads " +
                     std::to_string(text_rows) + " rows of text; shorten it, or raise `max_sequence_length`");
    for (const auto id : ids) {
      if (id < 0 || id >= recipe_.encoder->vocab)
        throw_bad_data(name + " holds the token id " + std::to_string(id) +
                       ", but the text encoder's vocabulary ends at " +
                       std::to_string(recipe_.encoder->vocab - 1));
    }
    auto input = std::make_shared<EncoderInput>();
    input->ids = std::move(ids);
    input->padded_rows = text_rows;
    return input;
  }

  std::shared_ptr<const EncoderInput> text_of(const Request& request, std::int64_t text_rows) const {
    using Input = std::shared_ptr<const EncoderInput>;
    return std::visit(
        Overloaded{
            [&](const Prompt& prompt) -> Input { return encoded(prompt.text, "the prompt", text_rows); },
            [&](const Tokens& tokens) -> Input { return checked(tokens.ids, "the prompt", text_rows); },
            [](const Messages&) -> Input {
              throw_bad_data("it has `messages`, and this model reads a `prompt`");
            },
            [](const NoText&) -> Input { throw_bad_data("it has no `prompt`"); },
            [](const Unusable& unusable) -> Input { throw_bad_data(unusable.why); },
        },
        request.input);
  }

  void check_latent(const PreparedPicture& out, const Request& request) const {
    const auto needed = out.latent_elements(stack_);
    if (request.latent.empty()) return;
    if (request.generate.contains("seed") && !request.generate["seed"].is_null())
      throw_bad_data(
          "`seed` draws what a picture starts from, and its latent is that; leave one of them out");
    if (static_cast<std::int64_t>(request.latent.size()) != needed)
      throw_bad_data("its latent has " + std::to_string(request.latent.size()) + " elements, and " +
                     std::to_string(out.frames) + " frames of " + std::to_string(out.height) + " x " +
                     std::to_string(out.width) + " start from " + std::to_string(needed));
    const auto& patch = stack_.patch;
    const std::vector<std::int64_t> shape = {stack_.channels, out.grid.frames * patch.frames,
                                             out.grid.height * patch.height, out.grid.width * patch.width};
    if (!request.latent_shape.empty() && request.latent_shape != shape)
      throw_bad_data("its latent has the shape " + shape_text(request.latent_shape) + ", and " +
                     std::to_string(out.frames) + " frames of " + std::to_string(out.height) + " x " +
                     std::to_string(out.width) + " start from " + shape_text(shape) +
                     " (channels, frames, height, width)");
    if (out.samples != 1)
      throw_bad_data("`num_videos_per_prompt` is more than one, and a given latent makes one");
  }

  void check_memory(const PreparedPicture& out) const {
    const auto picture = without_start(out, patches_);
    const auto needed = picture.pages(picture.keeps_history());
    if (needed > kv_pages_)
      throw_bad_data("it takes " + std::to_string(needed) + " pages of key-value memory (" +
                     std::to_string(out.grid.tokens()) + " tokens, " + std::to_string(out.texts.size()) +
                     " branches), and there is room for " + std::to_string(kv_pages_) +
                     "; raise --kv-memory or make it smaller");
  }

  const PictureSide& side_;
  const Recipe& recipe_;
  const Refinement& stack_;
  const PatchFlags& patches_;
  std::int64_t kv_pages_;
};

// A seed that draws nothing for any of them.
void check_seed_of_all(const Job& job, const std::vector<PreparedPicture>& prepared) {
  std::size_t given = 0;
  for (const auto& request : prepared) given += request.problem.empty() && !request.latent.empty() ? 1 : 0;
  const auto seed = job.generate.find("seed");
  if (seed != job.generate.end() && !seed->is_null() && given > 0 && given == prepared.size())
    throw_bad_data(
        "the job's generate: `seed` draws what pictures start from, and all requests have a latent");
}

}  // namespace

PictureSize largest_size(const Refinement& stack, std::int64_t space_scale, std::int64_t time_scale) {
  const auto& room = stack.most_patches;
  return {.frames = (room[0] * stack.patch.frames - 1) * time_scale + 1,
          .height = room[1] * stack.patch.height * space_scale,
          .width = room[2] * stack.patch.width * space_scale};
}

PictureSize own_size(const Refinement& stack, std::int64_t space_scale, std::int64_t time_scale) {
  const auto largest = largest_size(stack, space_scale, time_scale);
  return {.frames = std::min(stack.defaults.frames, largest.frames),
          .height = std::min(stack.defaults.height, largest.height),
          .width = std::min(stack.defaults.width, largest.width)};
}

TokenGrid grid_of(const Refinement& stack, const PictureSize& size, std::int64_t space_scale,
                  std::int64_t time_scale) {
  const auto& patch = stack.patch;
  TokenGrid grid;
  grid.height = divided(size.height, space_scale * patch.height, "height");
  grid.width = divided(size.width, space_scale * patch.width, "width");
  if ((size.frames - 1) % time_scale != 0) {
    const auto below = (size.frames - 1) / time_scale * time_scale + 1;
    throw_bad_data("`num_frames` is " + std::to_string(size.frames) +
                   ", and this model makes one and multiples of " + std::to_string(time_scale) + " more; " +
                   std::to_string(below) + " or " + std::to_string(below + time_scale) + " would do");
  }
  const auto latent_frames = (size.frames - 1) / time_scale + 1;
  if (latent_frames % patch.frames != 0)
    throw_bad_data("`num_frames` is " + std::to_string(size.frames) + ", which is " +
                   std::to_string(latent_frames) + " frames of the latent, and the stack takes " +
                   std::to_string(patch.frames) + " at once");
  grid.frames = latent_frames / patch.frames;
  const auto largest = largest_size(stack, space_scale, time_scale);
  const auto within = [](std::int64_t given, std::int64_t most, const char* name) {
    if (given > most)
      throw_bad_data(std::string("`") + name + "` is " + std::to_string(given) +
                     ", and the stack has room for " + std::to_string(most));
  };
  within(size.frames, largest.frames, "num_frames");
  within(size.height, largest.height, "height");
  within(size.width, largest.width, "width");
  if (grid.frames * grid.height > kMostTokens / grid.width)
    throw_bad_data("height, width and num_frames together come to more than " + std::to_string(kMostTokens) +
                   " tokens");
  return grid;
}

PictureSide PictureSide::open(const std::filesystem::path& folder) {
  const auto doing = "opening the pipeline '" + folder.string() + "': ";
  const auto scheduler = folder / "scheduler" / "scheduler_config.json";
  if (!std::filesystem::exists(scheduler)) throw_missing(doing + "it has no scheduler/scheduler_config.json");
  PictureSide side;
  side.scheduler = read_json(scheduler);
  // diffusers makes what model_index.json says, whatever the component's own config says.
  const auto index = read_json(folder / "model_index.json");
  const auto listed = index.find("scheduler");
  const bool named = listed != index.end() && listed->is_array() && listed->size() == 2;
  const auto own = side.scheduler.is_object() ? side.scheduler.value("_class_name", Json()) : Json();
  if (!named || listed->at(1) != own)
    throw_refused(doing + "model_index.json says that its scheduler is " +
                  (named ? listed->at(1).dump() : "none") + ", and scheduler_config.json that it is " +
                  own.dump());
  if (Tokenizer::present(folder / "tokenizer")) {
    side.tokenizer = Tokenizer::load(folder / "tokenizer");
    const auto config = folder / "tokenizer" / "tokenizer_config.json";
    if (std::filesystem::exists(config) && read_json(config).value("padding_side", "right") != "right")
      throw_refused(doing + "its tokenizer pads on the left, and texts of pictures are padded on the right");
  }
  return side;
}

PictureSide PictureSide::open(const std::filesystem::path& folder, const VideoCodec& codec) {
  auto side = open(folder);
  side.space_scale = codec.space_scale();
  side.time_scale = codec.time_scale();
  return side;
}

void PictureSide::check(const Recipe& recipe) const {
  static_cast<void>(scheduler_for(*this, recipe.refinement->defaults.steps));
}

void check_picture_keys(const Json& generate, const std::string& what) {
  for (const auto& [key, value] : generate.items()) {
    if (!value.is_null() && std::ranges::find(kPictureKeys, key) == kPictureKeys.end())
      throw_bad_data(what + ": '" + key + "' has no meaning for a picture; leave it out");
  }
}

std::vector<PreparedPicture> prepare_pictures(const Job& job, const PictureSide& side, const Recipe& recipe,
                                              const PatchFlags& patches, std::int64_t kv_pages) {
  const auto defaults = parse_generate(job.generate, "the job's generate");
  check_picture_keys(job.generate, "the job's generate");
  const Preparer preparer(side, recipe, patches, kv_pages);
  std::vector<PreparedPicture> prepared;
  for (std::size_t index = 0; index < job.requests.size(); ++index) {
    const auto& request = job.requests[index];
    auto& out = prepared.emplace_back();
    out.id = request.id;
    try {
      check_picture_keys(request.generate, "generate");
      const auto options = parse_generate(request.generate, "generate", defaults);
      out.seed = options.seed.value_or(digest64(std::as_bytes(std::span(job.sha256)), index));
      preparer.prepare(out, request, options);
    } catch (const Error& problem) {
      if (problem.code() == ExitCode::internal) throw;
      out.problem = problem.what();
    }
  }
  check_seed_of_all(job, prepared);
  return prepared;
}

// A fifth of the steps and one leave four stages about three times as fast as one.
std::int64_t usual_whole_steps(std::int64_t steps) {
  return steps / 5 + 1;
}

// The first steps decide what the picture is. The last ones move it furthest, and no step follows that would
// see what they are off by. Where few steps are whole, the first of them cannot be spared: docs/refinement.md
// has what was measured.
PatchSettings place_whole_steps(std::int32_t patches, std::int64_t whole, std::int64_t steps,
                                CarryOn carry_on) {
  const bool few = steps < 40 || whole < usual_whole_steps(steps);
  const auto last = few ? 0 : (whole + 1) / 5;
  const std::int64_t least = steps_before(carry_on) + 1;
  return {.patches = patches, .whole_first = std::max(whole - last, least), .whole_last = last};
}

PatchSettings PatchFlags::settings_of(std::int64_t steps) const {
  if (whole_share) {
    auto of = place_whole_steps(settings.patches, usual_whole_steps(steps), steps, carry_on);
    // Many patches fill the stages sooner and are off by more: they get one more at the end for what they
    // save.
    if (of.whole_last > 0 && of.patches > 5) ++of.whole_last;
    return of;
  }
  if (of_steps == 0) return settings;
  const auto part = [&](std::int64_t whole) { return (whole * steps + of_steps - 1) / of_steps; };
  return {.patches = settings.patches,
          .whole_first = std::max<std::int64_t>(part(settings.whole_first), steps_before(carry_on) + 1),
          .whole_last = part(settings.whole_last)};
}

Picture without_start(const PreparedPicture& request, const PatchFlags& patches) {
  Picture picture;
  picture.grid = request.grid;
  picture.texts = request.texts;
  picture.text_rows = request.text_rows;
  picture.guidance = request.guidance;
  picture.patches = patches.settings_of(static_cast<std::int64_t>(request.scheduler->steps()));
  picture.carry_on = patches.carry_on;
  picture.scheduler = request.scheduler;
  return picture;
}

std::int64_t most_patches(std::span<const PreparedPicture> requests, const PatchFlags& patches) {
  std::int64_t most = 1;
  for (const auto& request : requests) {
    if (!request.problem.empty()) continue;
    const auto picture = without_start(request, patches);
    const auto& [count, first, last] = picture.patches;
    if (first + last < static_cast<std::int64_t>(picture.scheduler->steps()))
      most = std::max(most, static_cast<std::int64_t>(picture.borders().size()) - 1);
  }
  return most;
}

Picture make_picture(const PreparedPicture& request, std::size_t index, std::int64_t sample,
                     std::span<const float> starts, const PatchFlags& patches, const Refinement& stack) {
  auto picture = without_start(request, patches);
  picture.request = static_cast<std::int64_t>(index);
  const auto elements = static_cast<std::size_t>(request.latent_elements(stack));
  picture.rows =
      to_rows(starts.subspan(elements * static_cast<std::size_t>(sample), elements), request.grid, stack);
  return picture;
}

std::vector<float> start_latents(const PreparedPicture& request, const Refinement& stack) {
  if (!request.latent.empty()) return request.latent;
  const auto elements = static_cast<std::size_t>(request.latent_elements(stack));
  return torch_randn(request.seed, elements * static_cast<std::size_t>(request.samples));
}

}  // namespace diffuse
