#include "verify/across.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>

#include "verify/json_fields.hpp"
#include "verify/pixels.hpp"

namespace diffuse {
namespace {

std::string shown(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.6g", value);
  return text.data();
}

// What one result says of one position: log-probabilities by token.
using Known = std::map<std::int32_t, double>;

Known known_at(const Sample& sample, std::size_t index) {
  Known known;
  const auto& logprobs = sample.logprobs;
  const auto top = static_cast<std::size_t>(logprobs.top);
  if (index >= logprobs.chosen.size()) return known;
  for (std::size_t i = index * top; i < (index + 1) * top; ++i)
    known[logprobs.top_ids[i]] = logprobs.top_values[i];
  known[sample.tokens[index]] = logprobs.chosen[index];
  return known;
}

// The least of the best ones that are listed: a token that is not among them is no likelier.
double least_listed(const Sample& sample, std::size_t index) {
  const auto& logprobs = sample.logprobs;
  const auto top = static_cast<std::size_t>(logprobs.top);
  if (top == 0) return std::numeric_limits<double>::infinity();
  const auto begin = logprobs.top_values.begin() + static_cast<std::ptrdiff_t>(index * top);
  return *std::min_element(begin, begin + logprobs.top);
}

class SampleAcross {
 public:
  SampleAcross(const std::string& request, std::int64_t sample, const Sample& whole, const Sample& split,
               Across& across)
      : request_(request), sample_(sample), whole_(whole), split_(split), across_(across) {}

  std::vector<Difference> run() {
    const auto common = std::min(whole_.tokens.size(), split_.tokens.size());
    Difference off{.what = What::logprobs, .count = 0};
    std::size_t at = 0;
    bool parted = false;
    for (; at < common && !parted; ++at) {
      logprobs_at(at, off);
      parted = whole_.tokens[at] != split_.tokens[at];
      if (!parted) ++across_.tokens;
    }
    if (off.count > 0) add(std::move(off));
    frames();
    latents();
    if (parted) {
      part_at(at - 1);
    } else if (whole_.tokens.size() != split_.tokens.size()) {
      token_difference(common, "");
    } else if (whole_.finish != split_.finish) {
      add({.what = What::finish,
           .whole = std::string(name_of(whole_.finish)),
           .split = std::string(name_of(split_.finish))});
    } else if (whole_.text != split_.text) {
      add({.what = What::text, .whole = shown_safely(whole_.text), .split = shown_safely(split_.text)});
    }
    return std::move(found_);
  }

 private:
  void add(Difference difference) {
    difference.request = request_;
    difference.sample = sample_;
    found_.push_back(std::move(difference));
  }

  // NaN is far from everything but NaN.
  void hold(std::int32_t token, double whole, double split, std::size_t at, Difference& off) {
    ++across_.logprobs;
    const bool same = whole == split || (std::isnan(whole) && std::isnan(split));
    const double distance = same ? 0 : std::abs(whole - split);
    if (!std::isnan(distance)) across_.largest = std::max(across_.largest, distance);
    if (distance <= across_.allowed || off.count++ > 0) return;
    off.position = static_cast<std::int64_t>(at);
    off.whole = shown(whole) + " for the token " + std::to_string(token);
    off.split = shown(split) + " (" + shown(across_.allowed) + " apart is allowed)";
  }

  void logprobs_at(std::size_t at, Difference& off) {
    const auto whole = known_at(whole_, at);
    const auto split = known_at(split_, at);
    if (whole.empty() || split.empty()) return;
    const auto missing = [&](const Known& from, const Known& in, const Sample& listed, bool in_split) {
      const double least = least_listed(listed, at);
      for (const auto& [token, value] : from) {
        // At most the least that is listed there: only a likelier one is off.
        if (in.contains(token) || value <= least) continue;
        if (in_split)
          hold(token, value, least, at, off);
        else
          hold(token, least, value, at, off);
      }
    };
    for (const auto& [token, value] : whole) {
      if (const auto found = split.find(token); found != split.end())
        hold(token, value, found->second, at, off);
    }
    missing(whole, split, split_, true);
    missing(split, whole, whole_, false);
  }

  // Pictures and videos; sounds are told by their codes.
  void frames() {
    const auto pixels = [](const Sample& sample) {
      return sample.media && sample.media->element == MediaElement::u8;
    };
    if (!pixels(whole_) && !pixels(split_)) return;
    if (!pixels(whole_) || !pixels(split_) || whole_.media->bytes.size() != split_.media->bytes.size() ||
        whole_.media->height != split_.media->height || whole_.media->width != split_.media->width) {
      const auto said = [](const Sample& sample) { return sample.media ? describe(*sample.media) : "none"; };
      add({.what = What::media, .whole = said(whole_), .split = said(split_)});
      return;
    }
    const auto error = pixel_error(whole_.media->bytes, split_.media->bytes);
    across_.largest_colour = std::max(across_.largest_colour, error.largest);
    across_.mean_colour = std::max(across_.mean_colour, error.mean);
    across_.colours += error.pixels;
    if (error.mean > across_.allowed_frame)
      add({.what = What::media,
           .whole = "the picture",
           .split = "one that is " + shown(error.mean) + "/255 from it in the mean (" +
                    shown(across_.allowed_frame) + " is allowed)"});
  }

  void latents() {
    if (!whole_.latent && !split_.latent) return;
    const auto said = [](const Sample& sample) { return sample.latent ? describe(*sample.latent) : "none"; };
    if (said(whole_) != said(split_) || whole_.latent->values.size() != split_.latent->values.size()) {
      add({.what = What::latent, .whole = said(whole_), .split = said(split_)});
      return;
    }
    const auto& ours = whole_.latent->values;
    const auto& theirs = split_.latent->values;
    double largest = 0, apart = 0;
    for (std::size_t i = 0; i < ours.size(); ++i) {
      const double a = ours[i], b = theirs[i];
      if (a == b || (std::isnan(a) && std::isnan(b))) continue;
      // A NaN on one side is further than any number.
      const double distance = std::abs(a - b);
      apart = std::isnan(distance) ? std::numeric_limits<double>::infinity() : std::max(apart, distance);
    }
    for (const auto value : ours)
      if (std::isfinite(value)) largest = std::max(largest, std::abs(static_cast<double>(value)));
    across_.latents += ours.size();
    const double part = apart == 0 ? 0 : apart / largest;
    if (std::isfinite(part)) across_.largest_latent = std::max(across_.largest_latent, part);
    if (part <= across_.allowed_latent) return;
    add({.what = What::latent,
         .whole = "the latent",
         .split = "one that is " + shown(part) + " of its largest element from it (" +
                  shown(across_.allowed_latent) + " is allowed)"});
  }

  // The gap between the two chosen tokens in one result; empty where it does not list both.
  static std::optional<double> gap(const Known& known, std::int32_t a, std::int32_t b) {
    const auto first = known.find(a);
    const auto second = known.find(b);
    if (first == known.end() || second == known.end()) return std::nullopt;
    return std::abs(first->second - second->second);
  }

  void part_at(std::size_t at) {
    const auto a = whole_.tokens[at];
    const auto b = split_.tokens[at];
    const auto in_whole = gap(known_at(whole_, at), a, b);
    const auto in_split = gap(known_at(split_, at), a, b);
    if (!in_whole || !in_split) {
      token_difference(at, whole_.media ? " (nothing says how close codes of media were)"
                                        : " (how close they were is not recorded: ask for logprobs)");
      return;
    }
    const double most = 2 * across_.allowed;
    if (*in_whole <= most && *in_split <= most) {
      ++across_.close;
      return;
    }
    token_difference(at, " (they are " + shown(*in_whole) + " and " + shown(*in_split) + " apart, " +
                             shown(most) + " is a close call)");
  }

  void token_difference(std::size_t at, const std::string& why) {
    const auto shown_at = [&](const std::vector<std::int32_t>& tokens) {
      return at < tokens.size() ? std::to_string(tokens[at])
                                : "none (there are " + std::to_string(tokens.size()) + ")";
    };
    add({.what = What::tokens,
         .position = static_cast<std::int64_t>(at),
         .whole = shown_at(whole_.tokens),
         .split = shown_at(split_.tokens) + why});
  }

  const std::string& request_;
  std::int64_t sample_;
  const Sample& whole_;
  const Sample& split_;
  Across& across_;
  std::vector<Difference> found_;
};

}  // namespace

std::vector<Difference> compare_across(const std::string& request, std::int64_t sample, const Sample& whole,
                                       const Sample& split, Across& across) {
  return SampleAcross(request, sample, whole, split, across).run();
}

std::string sentence(const Across& across) {
  const auto devices = across.whole + " against " + across.split + " in " + across.compute + ": ";
  std::vector<std::string> parts;
  if (across.colours > 0)
    parts.push_back(std::to_string(across.colours) + " colours of pixels are at most " +
                    shown(across.mean_colour) + "/255 apart in the mean over a sample (" +
                    shown(across.allowed_frame) + " is allowed), and " + shown(across.largest_colour) +
                    "/255 at the most");
  if (across.latents > 0)
    parts.push_back(std::to_string(across.latents) + " elements of latents are at most " +
                    shown(across.largest_latent) + " of the largest apart (" + shown(across.allowed_latent) +
                    " is allowed)");
  if (parts.size() == 2) return devices + parts[0] + "; " + parts[1];
  if (parts.size() == 1) return devices + parts[0];
  return devices + std::to_string(across.tokens) + " tokens are the same, " + std::to_string(across.close) +
         " samples part at a close call, and " + std::to_string(across.logprobs) +
         " log-probabilities are at most " + shown(across.largest) + " apart (" + shown(across.allowed) +
         " is allowed)";
}

Json to_json(const Across& across) {
  return Json{{"whole", across.whole},
              {"split", across.split},
              {"compute", across.compute},
              {"allowed", across.allowed},
              {"largest", across.largest},
              {"logprobs", across.logprobs},
              {"tokens", across.tokens},
              {"close", across.close},
              {"allowed_frame", across.allowed_frame},
              {"mean_colour", across.mean_colour},
              {"largest_colour", across.largest_colour},
              {"colours", across.colours},
              {"allowed_latent", across.allowed_latent},
              {"largest_latent", across.largest_latent},
              {"latents", across.latents}};
}

Across across_from_json(const Json& value, const std::string& where) {
  const JsonFields fields(value, where);
  return Across{.whole = fields.text("whole"),
                .split = fields.text("split"),
                .compute = fields.text("compute"),
                .allowed = fields.number("allowed"),
                .largest = fields.number("largest"),
                .logprobs = fields.count("logprobs"),
                .tokens = fields.count("tokens"),
                .close = fields.count("close"),
                .allowed_frame = fields.number("allowed_frame"),
                .mean_colour = fields.number("mean_colour"),
                .largest_colour = fields.number("largest_colour"),
                .colours = fields.count("colours"),
                .allowed_latent = fields.number("allowed_latent"),
                .largest_latent = fields.number("largest_latent"),
                .latents = fields.count("latents")};
}

}  // namespace diffuse
