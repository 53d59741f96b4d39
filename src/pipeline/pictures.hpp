#pragma once
// What rank 0 makes of the latents that come back: frames, and finished requests in the form of a result.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "job/result.hpp"
#include "pipeline/picture_request.hpp"

namespace diffuse {

// Collects the samples of a job of pictures. `on_request` is called once for each request when all its
// samples are done, and for bad ones at construction.
class Pictures {
 public:
  using OnRequest = std::function<void(std::size_t index, const RequestResult& request)>;
  // A finished latent [channels, frames, height, width] -> what the result holds. Throws bad data where it
  // cannot be shown.
  using Decode = std::function<MediaArray(const PreparedPicture& request, std::span<const float> latent)>;
  // A picture that an earlier run has left between two steps.
  struct Kept {
    std::int64_t step = 0;
    std::vector<float> rows;
    SamplerState state;
  };
  using Resume = std::function<std::optional<Kept>(std::size_t request, std::int64_t sample)>;

  // `kept` holds requests of an earlier run by index; they are taken over and not run again. References must
  // outlive it.
  Pictures(const std::vector<PreparedPicture>& prepared, const Refinement& stack, const PatchFlags& patches,
           std::int64_t trace_layers, std::map<std::uint64_t, RequestResult> kept, Decode decode,
           OnRequest on_request, const Resume& resume = {});

  // What is to be run: one a sample. The index in this list is the `picture` of the events.
  std::vector<Picture> take_pictures() { return std::move(pictures_); }
  // Which sample of which request a picture is.
  struct Of {
    std::size_t request = 0;
    std::int64_t sample = 0;
  };
  Of of(std::size_t picture) const { return owners_[picture]; }

  // What the driver tells; on_step, stop and progress are left to the caller.
  RefinementEvents events();

  // All requests in job order; those that did not end are Status::unfinished and hold no samples.
  std::vector<RequestResult> take();

 private:
  void on_latent(std::size_t picture, std::vector<float> rows, const std::string& problem);
  void on_done(std::size_t picture, std::vector<std::uint64_t> digests, std::int64_t positions);

  const std::vector<PreparedPicture>& prepared_;
  const Refinement& stack_;
  std::int64_t trace_layers_;
  Decode decode_;
  OnRequest on_request_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::vector<Picture> pictures_;
  std::vector<Of> owners_;
  std::vector<bool> finished_;  // of each picture: its latent is here
  std::vector<RequestResult> results_;
  std::vector<std::int64_t> open_samples_;
};

}  // namespace diffuse
