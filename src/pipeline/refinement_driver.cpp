#include "pipeline/refinement_driver.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <utility>

#include "core/error.hpp"
#include "pipeline/commander.hpp"
#include "pipeline/describe.hpp"
#include "pipeline/encoder_stage.hpp"
#include "pipeline/latent_rows.hpp"
#include "pipeline/refinement_work.hpp"

namespace diffuse {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int32_t kMostBranches = 2;

// What the schedule knows as a picture's number, a message as its request.
class RefinementDriver {
 public:
  RefinementDriver(Stage& stage, Transport& transport, const Refinement& stack, std::vector<Picture> pictures,
                   const RefinementPlan& plan, const RefinementEvents& events)
      : stage_(stage),
        transport_(transport),
        stack_(stack),
        plan_(plan),
        events_(events),
        commander_(transport, plan.layers),
        pictures_(std::move(pictures)),
        policy_({commander_.stages(), plan.kv_pages}, needs_of(pictures_)) {
    slots_.resize(static_cast<std::size_t>(std::max(policy_.slots(), 1)));
    for (auto& picture : pictures_) {
      auto& state = states_.emplace_back();
      const auto borders = picture.borders();
      for (std::size_t patch = 0; patch + 1 < borders.size(); ++patch) {
        const auto [first, count] = elements(borders[patch], borders[patch + 1]);
        state.sampler.push_back(picture.state.steps == 0 ? SamplerState()
                                                         : cut_state(picture.state, first, count));
      }
      state.stepped.assign(borders.size() - 1, picture.first_step);
      state.borders = borders;
    }
  }

  RefinementReport run() {
    const auto start = Clock::now();
    if (!policy_.unfit().empty())
      throw_internal("a picture that does not fit the key-value memory reached the pipeline");
    while (!policy_.finished()) {
      if (!report_.stopped && events_.stop && events_.stop()) {
        report_.stopped = true;
        policy_.cancel_running();
      }
      while (!flights_.empty() && flights_.front().ready()) land();
      const auto actions = policy_.next();
      for (const auto& action : actions) std::visit([this](const auto& a) { carry_out(a); }, action);
      collect(false);
      if (!actions.empty() || policy_.finished()) continue;
      if (flights_.empty()) throw_internal("the schedule waits for a pass, but none is under way");
      land();
    }
    collect(true);
    if (report_.stopped) leave_pictures();
    // A run that was stopped may leave texts that nobody reads.
    while (stage_.memories().await()) continue;
    const auto others = plan_.encoder == 0 ? std::span<const std::int32_t>() : std::span(&plan_.encoder, 1);
    report_.stages = commander_.finish(stage_, others);
    report_.wall_ns = nanoseconds_since(start);
    return std::move(report_);
  }

 private:
  struct State {
    std::vector<std::int64_t> borders;
    std::vector<SamplerState> sampler;  // of each patch
    std::vector<std::int64_t> stepped;  // of each patch: the step that its latent stands before
    std::vector<std::int64_t> issued;   // of each branch: steps that were begun
    std::int64_t lanes_left = 0;        // that are not collected yet
    std::vector<std::vector<std::uint64_t>> digests;
    bool failed = false;
  };
  struct Flight {
    Descriptor step;
    std::vector<std::byte> answer;
    std::unique_ptr<Ticket> ticket;  // none where this rank is the last stage too
    bool ready() const { return !ticket || ticket->done(); }
  };
  // Of a branch: digests on their way from the stages.
  struct Leaving {
    std::size_t picture = 0;
    GatheredDigests digests;
  };

  static std::int64_t nanoseconds_since(Clock::time_point start) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
  }

  static std::vector<RefinementNeed> needs_of(const std::vector<Picture>& pictures) {
    std::vector<RefinementNeed> needs;
    for (const auto& picture : pictures) needs.push_back(need_of(picture));
    return needs;
  }

  // Of rows: the first element, and how many.
  std::pair<std::size_t, std::size_t> elements(std::int64_t first_row, std::int64_t end_row) const {
    return {static_cast<std::size_t>(first_row * stack_.inputs()),
            static_cast<std::size_t>((end_row - first_row) * stack_.inputs())};
  }

  std::string about(const Descriptor& step) const { return describe_requests(step, slots_); }

  // A branch's text, by the name that its memory goes by.
  static std::int32_t text_number(std::size_t picture, std::int32_t branch) {
    return static_cast<std::int32_t>(picture) * kMostBranches + branch;
  }

  // Of a picture that is admitted. Another rank that encodes is given the next one's texts too, and goes
  // through them while this one is refined.
  void encode(std::size_t index) {
    const auto start = Clock::now();
    const auto end = std::min(index + (plan_.encoder == 0 ? 1 : 2), pictures_.size());
    for (; given_ < end; ++given_) give_texts(given_);
    while (stage_.encoding()) stage_.encode_on();
    report_.encode_ns += nanoseconds_since(start);
  }

  // The texts of all branches in one batch.
  void give_texts(std::size_t index) {
    const auto& picture = pictures_[index];
    Descriptor command;
    command.command = Command::encode;
    command.encoder = plan_.encoder;
    for (const auto& text : picture.texts) {
      auto& entry = command.entry[command.entries];
      entry.slot = text_number(index, command.entries++);
      entry.rows = static_cast<std::int32_t>(picture.text_rows);
      entry.first_position = static_cast<std::int64_t>(text->ids.size());
      entry.token = static_cast<std::int32_t>(picture.request);
    }
    const auto what = "the texts of request " + std::to_string(picture.request);
    commander_.tell(command, what);
    if (plan_.encoder != 0) {
      commander_.tell_also(plan_.encoder, what);
      commander_.send_behind(plan_.encoder, flattened(picture.texts), what);
    }
    stage_.encode(command, picture.texts);
  }

  void carry_out(const Encode&) { throw_internal("the schedule of refinement asks for an encoding"); }

  void carry_out(const Admit& admit) {
    const auto& picture = pictures_[admit.sequence];
    auto& state = states_[admit.sequence];
    if (admit.lane == 0) encode(admit.sequence);
    state.issued.push_back(0);
    ++state.lanes_left;
    Descriptor command;
    command.command = Command::admit;
    command.slot = admit.slot;
    command.reserved_tokens = picture.grid.tokens();
    command.memory_rows = picture.text_rows;
    command.sampling.request = picture.request;
    command.refining.guidance = picture.guidance;
    command.refining.branch = admit.lane;
    command.refining.grid = {static_cast<std::int32_t>(picture.grid.frames),
                             static_cast<std::int32_t>(picture.grid.height),
                             static_cast<std::int32_t>(picture.grid.width)};
    slots_[static_cast<std::size_t>(admit.slot)] = command.sampling;
    command.sequence = text_number(admit.sequence, admit.lane);
    commander_.tell(command, "request " + std::to_string(picture.request));
    stage_.admit(command, {});
  }

  void carry_out(const Run& run) {
    auto step = run.step;
    const auto pass = policy_.pass(step.number);
    const auto& picture = pictures_[pass.request];
    if (pass.patch == 0) ++states_[pass.request].issued[static_cast<std::size_t>(pass.branch)];
    const auto& entry = step.entry[0];
    const auto at = static_cast<std::size_t>(pass.step);
    step.refining.timestep = static_cast<double>(picture.scheduler->timesteps()[at]);
    step.refining.step = static_cast<std::int32_t>(pass.step);
    step.refining.branch = pass.branch;
    if (!pass.whole) {
      const auto weights = carry_weights(picture.carry_on, *picture.scheduler, at, picture.patches.patches);
      step.refining.extrapolation = weights.extrapolation;
      step.refining.balance = weights.balance;
    }
    const auto [first, count] = elements(entry.first_position, entry.first_position + entry.rows);
    std::vector<float> rows(picture.rows.begin() + static_cast<std::ptrdiff_t>(first),
                            picture.rows.begin() + static_cast<std::ptrdiff_t>(first + count));
    commander_.tell(step, about(step));
    auto& flight = flights_.emplace_back(Flight{step, {}, nullptr});
    if (commander_.stages() > 1) {
      flight.answer.resize(refinement_answer_bytes(step, stack_.outputs()));
      flight.ticket = transport_.receive(
          commander_.stages() - 1, Channel::result, flight.answer,
          {"the answer of layer " + std::to_string(commander_.last_layer()) + ", " + about(step)});
      stage_.run(step, std::as_bytes(std::span(rows)));
    } else {
      flight.answer = stage_.run(step, std::as_bytes(std::span(rows)));
    }
    ++report_.passes;
  }

  void carry_out(const Release& release) {
    const auto& picture = pictures_[release.sequence];
    const auto& state = states_[release.sequence];
    Descriptor command;
    command.command = Command::release;
    command.trace = plan_.trace ? 1 : 0;
    command.slot = release.slot;
    command.reserved_tokens = state.issued[static_cast<std::size_t>(release.lane)];
    const auto of_request = "request " + std::to_string(picture.request);
    commander_.tell(command, of_request);
    auto& leaving = leaving_.emplace_back();
    leaving.picture = release.sequence;
    leaving.digests.parts.push_back(stage_.release(command).digests);
    if (!plan_.trace) return;
    for (int peer = 1; peer < commander_.stages(); ++peer) {
      auto& part = leaving.digests.parts.emplace_back(
          static_cast<std::size_t>(commander_.layers_of(peer) * command.reserved_tokens));
      leaving.digests.tickets.push_back(transport_.receive(
          peer, Channel::result, std::as_writable_bytes(std::span(part)), {"digests of " + of_request}));
    }
  }

  // Takes in the oldest pass.
  void land() {
    auto flight = std::move(flights_.front());
    flights_.pop_front();
    if (flight.ticket) flight.ticket->wait();
    const auto pass = policy_.pass(flight.step.number);
    const auto prediction = read_refinement_answer(flight.answer, flight.step);
    std::uint8_t ended = 0;
    if (pass.joins) ended = make_step(pass, prediction) ? 0 : 1;
    policy_.on({flight.step.number, pass.joins ? std::span(&ended, 1) : std::span<const std::uint8_t>(),
                std::chrono::duration<double>(Clock::now().time_since_epoch()).count()});
  }

  // The scheduler's step of the patches that a pass was of. False where the picture is spoiled.
  bool make_step(const ScheduledPass& pass, std::span<const float> predicted) {
    auto& picture = pictures_[pass.request];
    auto& state = states_[pass.request];
    if (state.failed) return false;
    const auto prediction = in_order_of_rows(predicted, stack_);
    const auto first_patch = pass.whole ? std::size_t{0} : static_cast<std::size_t>(pass.patch);
    const auto end_patch = pass.whole ? state.stepped.size() : first_patch + 1;
    const auto before = elements(0, state.borders[first_patch]).second;
    for (auto patch = first_patch; patch < end_patch; ++patch) {
      const auto [first, count] = elements(state.borders[patch], state.borders[patch + 1]);
      const auto rows = std::span(picture.rows).subspan(first, count);
      picture.scheduler->step(static_cast<std::size_t>(pass.step),
                              std::span(prediction).subspan(first - before, count), rows,
                              state.sampler[patch]);
      state.stepped[patch] = pass.step + 1;
      if (std::all_of(rows.begin(), rows.end(), [](float value) { return std::isfinite(value); })) continue;
      state.failed = true;
      events_.on_latent(pass.request, {},
                        "the latent holds a NaN or an infinity behind step " + std::to_string(pass.step + 1) +
                            " of " + std::to_string(picture.scheduler->steps()));
      return false;
    }
    if (*std::min_element(state.stepped.begin(), state.stepped.end()) == pass.step + 1) step_is_done(pass);
    return true;
  }

  // All patches stand behind the step.
  void step_is_done(const ScheduledPass& pass) {
    const auto& picture = pictures_[pass.request];
    const auto& state = states_[pass.request];
    ++report_.steps;
    const auto done = pass.step + 1;
    if (events_.on_step) {
      events_.on_step(
          pass.request,
          {.step = done, .can_start = picture.can_start_at(done), .rows = picture.rows, .state = [&] {
             return PictureState{done, picture.rows, join_states(state.sampler)};
           }});
    }
    if (done == static_cast<std::int64_t>(picture.scheduler->steps()))
      events_.on_latent(pass.request, picture.rows, {});
    if (events_.progress) {
      events_.progress("request " + std::to_string(picture.request) + ", step " + std::to_string(done) +
                       " of " + std::to_string(picture.scheduler->steps()));
    }
  }

  void leave_pictures() const {
    if (!events_.on_stopped) return;
    for (std::size_t index = 0; index < pictures_.size(); ++index) {
      const auto& picture = pictures_[index];
      const auto& state = states_[index];
      const auto step = state.stepped.front();
      const bool between = std::all_of(state.stepped.begin(), state.stepped.end(),
                                       [&](std::int64_t other) { return other == step; });
      const bool under_way =
          step > picture.first_step && step < static_cast<std::int64_t>(picture.scheduler->steps());
      if (between && under_way && picture.can_start_at(step) && !state.failed)
        events_.on_stopped(index, {step, picture.rows, join_states(state.sampler)});
    }
  }

  // Reports pictures whose digests are all here, in the order in which they left.
  void collect(bool all) {
    while (!leaving_.empty()) {
      auto& leaving = leaving_.front();
      if (!leaving.digests.here(all)) return;
      auto& state = states_[leaving.picture];
      state.digests.push_back(leaving.digests.joined());
      if (--state.lanes_left == 0) {
        // Of a run that was stopped, one branch may have begun a step more than the others.
        const auto steps = *std::min_element(state.issued.begin(), state.issued.end());
        const bool even = steps == *std::max_element(state.issued.begin(), state.issued.end());
        const auto positions = static_cast<std::int64_t>(state.digests.size()) * steps;
        auto digests_of_all = std::exchange(state.digests, {});
        events_.on_done(leaving.picture,
                        even ? side_by_side(std::move(digests_of_all), steps) : std::vector<std::uint64_t>(),
                        positions);
      }
      leaving_.pop_front();
    }
  }

  Stage& stage_;
  Transport& transport_;
  const Refinement& stack_;
  const RefinementPlan& plan_;
  const RefinementEvents& events_;
  Commander commander_;
  std::vector<Picture> pictures_;
  RefinementPolicy policy_;
  std::vector<State> states_;
  std::vector<SampleSpec> slots_;  // for messages
  std::deque<Flight> flights_;
  std::deque<Leaving> leaving_;
  std::size_t given_ = 0;  // pictures whose texts were given to who encodes
  RefinementReport report_;
};

}  // namespace

std::vector<std::int64_t> Picture::borders() const {
  return patch_borders(grid.frames * grid.height, grid.tokens(), patches.patches);
}

std::int64_t Picture::pages(int with_history) const {
  return branches() * refinement_pages(grid.tokens(), text_rows, with_history);
}

bool Picture::can_start_at(std::int64_t step) const {
  const auto steps = static_cast<std::int64_t>(scheduler->steps());
  if (patches.patches == 1 || step >= steps - patches.whole_last) return true;
  return step + steps_before(carry_on) + 1 <= patches.whole_first;
}

RefinementNeed need_of(const Picture& picture) {
  RefinementNeed need;
  need.steps = static_cast<std::int64_t>(picture.scheduler->steps());
  need.first_step = picture.first_step;
  need.branches = picture.branches();
  need.borders = picture.borders();
  need.settings = picture.patches;
  need.pages = picture.pages(picture.history);
  return need;
}

RefinementReport refine(Stage& stage, Transport& transport, const Refinement& stack,
                        std::vector<Picture> pictures, const RefinementPlan& plan,
                        const RefinementEvents& events) {
  return RefinementDriver(stage, transport, stack, std::move(pictures), plan, events).run();
}

}  // namespace diffuse
