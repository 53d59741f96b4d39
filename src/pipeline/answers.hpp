#pragma once
// What rank 0 makes of the tokens that come back: text, ends, stop strings, and finished requests in the form
// of a result.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "job/result.hpp"
#include "pipeline/prepare.hpp"

namespace diffuse {

// Collects the samples of a job. `on_request` is called once for each request when all its samples are done,
// and for bad ones at construction.
class Answers {
 public:
  using OnRequest = std::function<void(std::size_t index, const RequestResult& request)>;

  // `kept` holds requests of an earlier run by index; they are taken over and not run again. References must
  // outlive it.
  Answers(const std::vector<PreparedRequest>& prepared, const TextSide& text, std::int64_t trace_layers,
          std::map<std::uint64_t, RequestResult> kept, OnRequest on_request);
  ~Answers();

  // What is to be run: one a sample. Index in this list is the `sequence` of the calls below.
  const std::vector<Sequence>& sequences() const { return sequences_; }

  bool on_token(std::size_t sequence, const SampledToken& token);
  void on_done(std::size_t sequence, std::vector<std::uint64_t> digests, std::int64_t positions);

  // All requests in job order; those that did not end are Status::unfinished and hold no samples.
  std::vector<RequestResult> take();

 private:
  struct Running;
  void end(Running& running, Finish finish);
  void complete(std::size_t request);

  const std::vector<PreparedRequest>& prepared_;
  std::int64_t trace_layers_;
  OnRequest on_request_;
  std::vector<Sequence> sequences_;
  std::vector<std::unique_ptr<Running>> running_;  // [sequence]
  std::vector<RequestResult> results_;             // [request]
  std::vector<std::int64_t> open_samples_;         // [request]
};

}  // namespace diffuse
