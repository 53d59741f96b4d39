#include "pipeline/pictures.hpp"

#include <utility>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "pipeline/latent_rows.hpp"

namespace diffuse {
namespace {

// Over the texts' ids and what was made of them.
std::string digest_of(const PreparedPicture& prepared, const RequestResult& result) {
  Sha256 sha;
  for (const auto& text : prepared.texts) sha.update(std::as_bytes(std::span(text->ids)));
  for (const auto& sample : result.samples) {
    if (sample.media) sha.update(sample.media->bytes);
    if (sample.latent) sha.update(std::as_bytes(std::span(sample.latent->values)));
  }
  return sha.hex_digest();
}

}  // namespace

Pictures::Pictures(const std::vector<PreparedPicture>& prepared, const Refinement& stack,
                   const PatchFlags& patches, std::int64_t trace_layers,
                   std::map<std::uint64_t, RequestResult> kept, Decode decode, OnRequest on_request,
                   const Resume& resume)
    : prepared_(prepared),
      stack_(stack),
      trace_layers_(trace_layers),
      decode_(std::move(decode)),
      on_request_(std::move(on_request)) {
  for (std::size_t index = 0; index < prepared.size(); ++index) {
    const auto& request = prepared[index];
    auto& result = results_.emplace_back();
    auto& open = open_samples_.emplace_back(0);
    if (const auto found = kept.find(index); found != kept.end()) {
      result = std::move(found->second);
      continue;
    }
    result.id = request.id;
    result.seed = request.seed;
    result.prompt_tokens = request.prompt_tokens;
    if (!request.problem.empty()) {
      result.status = Status::bad;
      result.message = request.problem;
      on_request_(index, result);
      continue;
    }
    open = request.samples;
    result.samples.resize(static_cast<std::size_t>(request.samples));
    const auto starts = start_latents(request, stack);
    for (std::int64_t sample = 0; sample < request.samples; ++sample) {
      auto& picture = pictures_.emplace_back(make_picture(request, index, sample, starts, patches, stack));
      owners_.push_back({index, sample});
      parts_.emplace_back();
      if (!resume) continue;
      auto left = resume(index, sample);
      if (!left || !picture.can_start_at(left->step)) continue;
      picture.first_step = left->step;
      picture.rows = std::move(left->rows);
      picture.state = std::move(left->state);
    }
  }
}

RefinementEvents Pictures::events() {
  RefinementEvents events;
  events.on_latent = [this](std::size_t picture, std::vector<float> rows, const std::string& problem) {
    on_latent(picture, std::move(rows), problem);
  };
  events.on_done = [this](std::size_t picture, std::vector<std::uint64_t> digests, std::int64_t positions) {
    on_done(picture, std::move(digests), positions);
  };
  return events;
}

void Pictures::on_latent(std::size_t picture, std::vector<float> rows, const std::string& problem) {
  parts_[picture].refined = true;
  previews_.erase(picture);
  if (problem.empty()) {
    take_latent(picture, latent_of(rows, prepared_[owners_[picture].request].grid, stack_));
  } else {
    fail(picture, problem);
  }
  decode(false);
}

void Pictures::take_latent(std::size_t picture, LatentArray latent) {
  const auto [request, number] = owners_[picture];
  const auto& prepared = prepared_[request];
  auto& result = results_[request];
  if (prepared.output.latent && result.status != Status::bad) {
    auto& sample = result.samples[static_cast<std::size_t>(number)];
    sample.latent = latent;
    sample.finish = Finish::length;
  }
  if (prepared.output.frames) {
    latents_.push_back({picture, std::move(latent.values)});
    return;
  }
  parts_[picture].shown = true;
  end_part(picture);
}

void Pictures::fail(std::size_t picture, const std::string& problem) {
  auto& result = results_[owners_[picture].request];
  result.status = Status::bad;
  result.message = problem;
  parts_[picture].shown = true;
  end_part(picture);
}

void Pictures::preview(std::size_t picture, std::int64_t step, std::span<const float> rows) {
  previews_[picture] = {step, latent_of(rows, prepared_[owners_[picture].request].grid, stack_)};
  decode(false);
}

// Whether one is shown just now; waits for its end where all are waited for.
bool Pictures::previewing(bool all) {
  if (!previewing_.valid()) return false;
  if (!all && previewing_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return true;
  previewing_.get();
  return false;
}

// Takes in what was decoded, and has the next latent decoded, or else shown.
void Pictures::decode(bool all) {
  if (previewing(all)) return;
  while (!latents_.empty()) {
    const auto& latent = latents_.front();
    const auto [request, number] = owners_[latent.picture];
    if (!decoding_.valid())
      decoding_ = std::async(std::launch::async, [this, &latent, request = request] {
        return decode_(prepared_[request], latent.values);
      });
    if (!all && decoding_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
    const auto picture = latent.picture;
    try {
      auto media = decoding_.get();
      latents_.pop_front();
      parts_[picture].shown = true;
      if (results_[request].status != Status::bad) {
        auto& sample = results_[request].samples[static_cast<std::size_t>(number)];
        sample.media = std::move(media);
        sample.finish = Finish::length;
      }
      end_part(picture);
    } catch (const Error& error) {
      if (error.code() != ExitCode::bad_data) throw;
      latents_.pop_front();
      fail(picture, error.what());
    }
  }
  if (all || previews_.empty()) return;
  auto next = previews_.extract(previews_.begin());
  previewing_ =
      std::async(std::launch::async, [this, picture = next.key(), preview = std::move(next.mapped())] {
        show_preview_(picture, preview.step, preview.latent);
      });
}

void Pictures::on_done(std::size_t picture, std::vector<std::uint64_t> digests, std::int64_t positions) {
  if (!parts_[picture].refined) return;  // the run was stopped before
  const auto [request, number] = owners_[picture];
  auto& result = results_[request];
  parts_[picture].left = true;
  if (result.status != Status::bad && !digests.empty())
    result.samples[static_cast<std::size_t>(number)].trace = {trace_layers_, positions, std::move(digests)};
  end_part(picture);
}

// A request is complete when all its samples are decoded and have left the stages.
void Pictures::end_part(std::size_t picture) {
  if (!parts_[picture].left || !parts_[picture].shown) return;
  const auto request = owners_[picture].request;
  auto& result = results_[request];
  if (--open_samples_[request] > 0) return;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  result.seconds = elapsed.count();
  if (result.status == Status::bad) {
    result.samples.clear();
  } else {
    result.status = Status::done;
    result.sha256 = digest_of(prepared_[request], result);
  }
  on_request_(request, result);
}

std::vector<RequestResult> Pictures::take() {
  decode(true);
  for (std::size_t request = 0; request < results_.size(); ++request)
    if (open_samples_[request] > 0) {
      results_[request].status = Status::unfinished;
      results_[request].message.clear();
      results_[request].samples.clear();
    }
  return std::move(results_);
}

}  // namespace diffuse
