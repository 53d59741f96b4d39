#pragma once
// What rank 0 makes of the latents that come back: frames, and finished requests in the form of a result.
//
// Latents are decoded beside the run, in a thread of its own, one after the other: while one is, the slices
// go on with other pictures.

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <span>
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
  // cannot be shown. One call at a time, from any thread.
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

  // Shows the latent of a picture under way, which stands before a step. Called as Decode is, and never while
  // that is; throws nothing.
  using ShowPreview = std::function<void(std::size_t picture, std::int64_t step, const LatentArray& latent)>;
  void show_previews(ShowPreview show) { show_preview_ = std::move(show); }
  // A picture is to be shown when no finished one is decoded or waits for it; of previews that wait, a
  // picture's newest is left.
  void preview(std::size_t picture, std::int64_t step, std::span<const float> rows);

  // What the driver tells; on_step, stop and progress are left to the caller.
  RefinementEvents events();

  // Takes in what was decoded meanwhile; to be called now and then while the run goes on.
  void go_on() { decode(false); }
  // Waits for what is still decoded. All requests in job order; those that did not end are Status::unfinished
  // and hold no samples.
  std::vector<RequestResult> take();

 private:
  void on_latent(std::size_t picture, std::vector<float> rows, const std::string& problem);
  void take_latent(std::size_t picture, LatentArray latent);
  void on_done(std::size_t picture, std::vector<std::uint64_t> digests, std::int64_t positions);
  void decode(bool all);
  bool previewing(bool all);
  void fail(std::size_t picture, const std::string& problem);
  void end_part(std::size_t picture);

  const std::vector<PreparedPicture>& prepared_;
  const Refinement& stack_;
  std::int64_t trace_layers_;
  Decode decode_;
  OnRequest on_request_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::vector<Picture> pictures_;
  std::vector<Of> owners_;
  struct Part {
    bool refined = false;  // its latent is here, or it went wrong
    bool left = false;     // the stages hold nothing of it
    bool shown = false;    // decoded, or it is not to be
  };
  std::vector<Part> parts_;  // of each picture
  struct Latent {
    std::size_t picture = 0;
    std::vector<float> values;
  };
  std::deque<Latent> latents_;  // to be decoded; the first of them is
  struct Preview {
    std::int64_t step = 0;
    LatentArray latent;
  };
  ShowPreview show_preview_;
  std::map<std::size_t, Preview> previews_;  // that wait
  std::vector<RequestResult> results_;
  std::vector<std::int64_t> open_samples_;
  // Destroyed first, for they use the others.
  std::future<MediaArray> decoding_;
  std::future<void> previewing_;
};

}  // namespace diffuse
