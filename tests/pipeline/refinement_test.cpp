// Pictures through the pipeline: against what diffusers computed, whole and split, whole and in patches.

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "arrays.hpp"
#include "pipeline/latent_rows.hpp"
#include "pipeline/pictures.hpp"
#include "pipeline/split_run.hpp"
#include "recipe/refinement_recipe.hpp"
#include "support.hpp"

namespace diffuse::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

std::filesystem::path folder_of(const std::string& name) {
  return std::filesystem::path(DIFFUSE_TEST_DATA) / "refinement" / name;
}

// A pipeline's folder, opened as the commands open it.
struct PictureModel {
  explicit PictureModel(const std::string& name)
      : checkpoint(Checkpoint::open_components(folder_of(name),
                                               std::vector<std::string>{kStackComponent, kTextComponent})),
        recipe(build_refinement({checkpoint.config(), checkpoint.component_configs()}, checkpoint.headers())),
        side(with_scales(PictureSide::open(folder_of(name)))),
        golden(folder_of(name) / "golden.safetensors"),
        call(read_json(folder_of(name) / "golden.json").at("call")) {}

  // The codec is not opened here: its scales are what both models have.
  static PictureSide with_scales(PictureSide side) {
    side.space_scale = 8;
    side.time_scale = 4;
    return side;
  }

  // The call of the golden run, from its start.
  Request request() const {
    Request request;
    request.input = Prompt{call.at("prompt")};
    request.negative_prompt = call.value("negative_prompt", "");
    for (const auto* const key :
         {"height", "width", "num_frames", "num_inference_steps", "guidance_scale", "max_sequence_length"})
      if (call.contains(key)) request.generate[key] = call.at(key);
    request.latent = golden.floats("start").values;
    return request;
  }

  Checkpoint checkpoint;
  Recipe recipe;
  PictureSide side;
  Arrays golden;
  Json call;
};

struct PictureSetting {
  std::int32_t ranks = 1;
  std::string slices = {};
  int threads = 1;
  Compute compute = Compute::f32;
  PatchFlags patches = {};
  bool trace = true;
  std::int64_t kv_pages = 100'000;
};

struct PictureHooks {
  std::map<std::uint64_t, RequestResult> kept = {};
  std::function<bool(std::int64_t steps)> stop = {};
  std::function<void(std::size_t picture, const PictureState& state)> on_step = {};
  Pictures::Resume resume = {};
};

struct Made {
  std::vector<RequestResult> requests;
  RefinementReport report;
  std::vector<std::string> errors;
  std::map<std::pair<std::size_t, std::int64_t>, std::vector<float>> latents;  // of picture and step
};

// The latent itself stands for the frames that a codec would make of it.
MediaArray as_it_is(const PreparedPicture& request, std::span<const float> latent) {
  MediaArray media;
  media.kind = MediaKind::video;
  media.element = MediaElement::f32;
  media.frames = request.grid.frames;
  media.height = request.grid.height;
  media.width = request.grid.width;
  media.channels = static_cast<std::int64_t>(latent.size()) / request.grid.tokens();
  media.rate = 16;
  const auto bytes = std::as_bytes(latent);
  media.bytes.assign(bytes.begin(), bytes.end());
  return media;
}

void make_on_rank(const PictureModel& model, const Job& job, const PictureSetting& setting,
                  const PictureHooks& hooks, Transport& transport, Made& made) {
  const auto backend = make_cpu_backend({.threads = setting.threads, .compute = setting.compute, .simd = {}});
  const auto plan = make_plan(model.recipe, model.checkpoint.headers(), setting.ranks, setting.slices);
  Log log({}, true);
  SplitRun split(model.recipe, model.checkpoint, plan, transport, *backend, log);
  if (transport.rank() != 0) return split.follow();
  const auto& stack = *model.recipe.refinement;
  const auto prepared = prepare_pictures(job, model.side, model.recipe, setting.patches, setting.kv_pages);
  Pictures pictures(
      prepared, stack, setting.patches, model.recipe.depth() + 1, hooks.kept, as_it_is,
      [](std::size_t, const RequestResult&) {}, hooks.resume);
  auto events = pictures.events();
  std::int64_t steps = 0;
  events.on_step = [&](std::size_t picture, const SteppedPicture& stepped) {
    ++steps;
    const auto state = stepped.state();
    made.latents[{picture, stepped.step}] =
        from_rows(state.rows, prepared[pictures.of(picture).request].grid, stack);
    if (hooks.on_step) hooks.on_step(picture, state);
  };
  if (hooks.stop) events.stop = [&] { return hooks.stop(steps); };
  made.report = split.refine(pictures.take_pictures(),
                             {.kv_pages = setting.kv_pages, .trace = setting.trace, .flip = {}}, events);
  made.requests = pictures.take();
}

Made make(const PictureModel& model, const Job& job, const PictureSetting& setting,
          const PictureHooks& hooks = {}) {
  Made made;
  made.errors.resize(static_cast<std::size_t>(setting.ranks));
  LoopbackNetwork network(setting.ranks, {.timeout = std::chrono::seconds(20), .fate = {}});
  std::vector<std::thread> threads;
  for (int rank = 0; rank < setting.ranks; ++rank) {
    threads.emplace_back([&, rank, transport = std::shared_ptr<Transport>(network.endpoint(rank))]() mutable {
      try {
        make_on_rank(model, job, setting, hooks, *transport, made);
      } catch (const std::exception& problem) {
        made.errors[static_cast<std::size_t>(rank)] = problem.what();
      }
      transport.reset();
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& error : made.errors) EXPECT_EQ(error, "");
  return made;
}

std::string difference_of_made(const Made& whole, const Made& split) {
  Result a;
  Result b;
  a.requests = whole.requests;
  b.requests = split.requests;
  return test::difference(a, b);
}

double error_of(const std::vector<float>& found, const std::vector<float>& expected) {
  double largest = 0;
  double off = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
    off = std::max(off, std::abs(static_cast<double>(found[i]) - static_cast<double>(expected[i])));
  }
  return found.size() == expected.size() ? off / largest : 1;
}

class Refinement_ : public testing::TestWithParam<const char*> {
 protected:
  const PictureModel model_ = PictureModel(GetParam());
};

TEST_P(Refinement_, LatentsAreThoseOfTheReference) {
  const auto made = make(model_, job_of({model_.request()}), {});
  ASSERT_EQ(made.requests.size(), 1U);
  EXPECT_EQ(made.requests[0].status, Status::done) << made.requests[0].message;
  const auto steps = model_.call.at("num_inference_steps").get<std::int64_t>();
  for (std::int64_t step = 1; step <= steps; ++step) {
    const auto name = "latents." + std::to_string(step);
    if (!model_.golden.has(name)) continue;
    EXPECT_LT(error_of(made.latents.at({0, step}), model_.golden.floats(name).values), 1e-4) << name;
  }
}

TEST_P(Refinement_, SplitIsWholeInEveryBit) {
  auto job = job_of({model_.request(), model_.request(), model_.request()});
  for (auto& request : job.requests) request.generate["num_inference_steps"] = 3;
  job.requests[1].latent.clear();
  job.requests[1].generate["seed"] = 11;
  job.requests[2].latent.clear();
  job.requests[2].negative_prompt.clear();
  job.requests[2].generate["guidance_scale"] = 1;
  job.requests[2].generate["num_videos_per_prompt"] = 2;
  const auto whole = make(model_, job, {});
  for (const auto& request : whole.requests) ASSERT_EQ(request.status, Status::done) << request.message;
  for (std::int32_t ranks = 2; ranks <= 4; ++ranks)
    EXPECT_EQ(difference_of_made(whole, make(model_, job, {.ranks = ranks, .threads = 1 + ranks % 2})), "")
        << ranks << " ranks";
  // More ranks than layers: one of the others encodes the texts.
  EXPECT_EQ(difference_of_made(whole, make(model_, job, {.ranks = 8})), "");
  // As few pages as one picture takes: one at a time.
  EXPECT_EQ(difference_of_made(whole, make(model_, job, {.ranks = 2, .kv_pages = 40})), "");
}

TEST_P(Refinement_, PatchesDoNotDependOnTheRanks) {
  auto job = job_of({model_.request()});
  const PatchFlags three = {{.patches = 3, .whole_first = 3, .whole_last = 1}, CarryOn::balanced};
  const auto whole = make(model_, job, {});
  const auto one = make(model_, job, {.patches = {{.patches = 1, .whole_first = 2}, CarryOn::linear}});
  EXPECT_EQ(difference_of_made(whole, one), "");
  const auto patched = make(model_, job, {.patches = three});
  EXPECT_NE(difference_of_made(whole, patched), "");
  const auto last = model_.call.at("num_inference_steps").get<std::int64_t>();
  // The other model's weights are random and large: it amplifies what is a little off, step after step.
  const double bound = std::string(GetParam()) == "wan-quiet" ? 0.01 : 1;
  EXPECT_LT(error_of(patched.latents.at({0, last}), whole.latents.at({0, last})), bound);
  for (std::int32_t ranks = 2; ranks <= 4; ++ranks)
    EXPECT_EQ(difference_of_made(patched, make(model_, job, {.ranks = ranks, .patches = three})), "")
        << ranks << " ranks";
}

// Stopped behind every step, and gone on from there: the same as without a stop.
TEST_P(Refinement_, AStoppedRunGoesOnFromItsLastStep) {
  const auto job = job_of({model_.request()});
  for (const auto& patches : {PatchFlags{}, PatchFlags{{.patches = 2, .whole_first = 3}, CarryOn::linear},
                              PatchFlags{{.patches = 2, .whole_first = 4}, CarryOn::balanced}}) {
    const auto whole = make(model_, job, {.patches = patches, .trace = false});
    std::optional<Pictures::Kept> kept;
    PictureHooks hooks;
    hooks.on_step = [&](std::size_t, const PictureState& state) {
      kept = {state.step, {state.rows.begin(), state.rows.end()}, state.state};
    };
    hooks.stop = [](std::int64_t steps) { return steps >= 1; };
    hooks.resume = [&](std::size_t, std::int64_t) { return kept; };
    int runs = 0;
    Made last;
    std::optional<Pictures::Kept> usable;
    do {
      last = make(model_, job, {.ranks = 2, .patches = patches, .trace = false}, hooks);
      ++runs;
      // Where a patched stream cannot start, what was kept before it is.
      if (patches.settings.patches > 1 && kept->step > 1) hooks.stop = {};
    } while (last.requests[0].status == Status::unfinished && runs < 20);
    EXPECT_EQ(difference_of_made(whole, last), "")
        << patches.settings.patches << " patches, " << runs << " runs";
    EXPECT_GT(runs, 1);
  }
}

// Its last whole steps read nothing of the patched ones before them but the latent.
TEST_P(Refinement_, APatchedRunGoesOnFromItsLastWholeSteps) {
  const auto job = job_of({model_.request()});
  const PatchFlags patches = {{.patches = 2, .whole_first = 2, .whole_last = 2}, CarryOn::balanced};
  std::map<std::int64_t, Pictures::Kept> kept;
  PictureHooks watching;
  watching.on_step = [&](std::size_t, const PictureState& state) {
    kept[state.step] = {state.step, {state.rows.begin(), state.rows.end()}, state.state};
  };
  const auto straight = make(model_, job, {.patches = patches, .trace = false}, watching);
  const auto steps = model_.call.at("num_inference_steps").get<std::int64_t>();
  for (auto step = steps - 3; step < steps; ++step) {
    PictureHooks hooks;
    hooks.resume = [&](std::size_t, std::int64_t) { return kept.at(step); };
    const auto made = make(model_, job, {.ranks = 2, .patches = patches, .trace = false}, hooks);
    EXPECT_EQ(difference_of_made(straight, made), "") << step;
    // Among patched steps it starts anew.
    EXPECT_EQ(static_cast<std::int64_t>(made.report.steps), step < steps - 2 ? steps : steps - step);
  }
}

// The rank that encodes is a picture ahead, and what it makes for nobody is taken all the same.
TEST_P(Refinement_, AStoppedRunLeavesNoTextsOnTheirWay) {
  const auto job = job_of({model_.request(), model_.request(), model_.request()});
  PictureHooks hooks;
  hooks.stop = [](std::int64_t steps) { return steps >= 1; };
  const auto made = make(model_, job, {.ranks = 8, .kv_pages = 40}, hooks);
  EXPECT_TRUE(made.report.stopped);
  EXPECT_EQ(made.requests[2].status, Status::unfinished);
}

INSTANTIATE_TEST_SUITE_P(Models, Refinement_, testing::Values("wan", "wan-quiet"),
                         [](const auto& each) { return each.param == std::string("wan") ? "wan" : "quiet"; });

class BadPicture : public testing::Test {
 protected:
  std::string problem(const std::function<void(Request&)>& spoil) const {
    auto request = model_.request();
    spoil(request);
    const auto job = job_of({request});
    return prepare_pictures(job, model_.side, model_.recipe, {}, 100'000).front().problem;
  }
  const PictureModel model_ = PictureModel("wan");
};

TEST_F(BadPicture, EachHasItsLine) {
  const auto with = [](const char* key, const Json& value) {
    return [=](Request& request) { request.generate[key] = value; };
  };
  EXPECT_EQ(problem([](Request&) {}), "");
  EXPECT_THAT(problem(with("height", 70)), HasSubstr("64 or 80 would do"));
  EXPECT_THAT(problem(with("width", 9)), HasSubstr("16 would do"));
  EXPECT_THAT(problem(with("num_frames", 8)), HasSubstr("5 or 9 would do"));
  EXPECT_THAT(problem(with("height", 64 * 1024)), HasSubstr("the stack has room for"));
  EXPECT_THAT(problem(with("num_inference_steps", 0)), HasSubstr("num_inference_steps"));
  EXPECT_THAT(problem(with("max_sequence_length", 3)), HasSubstr("the stack reads 3 rows of text"));
  EXPECT_THAT(problem(with("temperature", 0.5)), HasSubstr("'temperature' has no meaning for a picture"));
  EXPECT_THAT(problem(with("guidance_scale", 1)), HasSubstr("guides nothing"));
  EXPECT_THAT(problem(with("num_videos_per_prompt", 2)), HasSubstr("a given latent makes one"));
  EXPECT_THAT(problem([](Request& request) { request.input = Prompt{"a red &eacute; circle"}; }),
              HasSubstr("'&eacute;'"));
  EXPECT_THAT(problem(with("seed", 3)), HasSubstr("`seed` draws"));
  EXPECT_THAT(problem([](Request& request) { request.latent.pop_back(); }), HasSubstr("start from 3072"));
  const std::vector<std::int64_t> start = {16, 3, 8, 8};  // channels, frames, height, width
  // As many elements in another order are another picture.
  const auto shaped = [](std::vector<std::int64_t> shape) {
    return [=](Request& request) { request.latent_shape = shape; };
  };
  EXPECT_EQ(problem(shaped(start)), "");
  EXPECT_THAT(problem(shaped({start[1], start[0], start[2], start[3]})),
              HasSubstr("start from [16, 3, 8, 8]"));
  EXPECT_THAT(problem([](Request& request) { request.input = Messages{Json::array()}; }),
              HasSubstr("`messages`"));
  EXPECT_THAT(problem([](Request& request) { request.input = NoText{}; }), HasSubstr("no `prompt`"));
  EXPECT_THAT(problem([](Request& request) { request.input = Tokens{{1, 100'000}}; }), HasSubstr("100000"));
}

TEST_F(BadPicture, ASchedulerThatScalesIsRefusedByName) {
  auto side = model_.side;
  side.scheduler = {{"_class_name", "EulerDiscreteScheduler"}};
  const auto prepared = prepare_pictures(job_of({model_.request()}), side, model_.recipe, {}, 100'000);
  EXPECT_THAT(prepared.front().problem, HasSubstr("give it a flow scheduler"));
}

TEST_F(BadPicture, OneFrameRuns) {
  auto request = model_.request();
  request.latent.clear();
  request.generate["num_frames"] = 1;
  request.generate["num_inference_steps"] = 1;
  const auto made = make(model_, job_of({request}), {.ranks = 2});
  EXPECT_EQ(made.requests[0].status, Status::done) << made.requests[0].message;
}

TEST_F(BadPicture, AnInfinityAtAStepIsSaid) {
  auto bad = model_.request();
  for (auto& value : bad.latent) value = 3e38F;
  const auto made = make(model_, job_of({bad, model_.request()}), {.ranks = 2});
  EXPECT_EQ(made.requests[0].status, Status::bad);
  EXPECT_THAT(made.requests[0].message, HasSubstr("behind step"));
  EXPECT_EQ(made.requests[1].status, Status::done);
}

}  // namespace
}  // namespace diffuse::test
