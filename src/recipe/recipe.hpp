#pragma once
// The one description of a model that the pipeline knows: a front, blocks of steps, a back. Plain values made
// once from config.json and the names and shapes in the weights' headers (build_recipe); they name tensors
// and hold no weights.
//
// A block's steps work on three slots of rows [tokens, hidden]: `hidden`, the residual stream that crosses
// the block's border, and two scratch slots. A pre-norm block reads
//     Norm(hidden -> a)  Attention(a -> a)  Add(a -> hidden)  Norm(hidden -> a)  Mlp(a -> a)  Add(a ->
//     hidden)
// and one with parallel branches writes its second branch to `b`.
//
// A stack may read a second one's output at every layer: Recipe::encoder is that second stack, and what its
// last norm leaves is the memory [memory rows, encoder hidden] that CrossAttention steps look at. It runs
// once a request and is never cut.
//
// A stack that refines runs again and again over a latent picture instead of reading ids and giving logits:
// Recipe::refinement stands in the place of front and back. Its blocks start with a Modulate step, from which
// norms take a scale and a shift and additions a gate, by the time of the pass.
//
// A stack may walk several codebooks at once, as those of sound do: a row takes an id of each, whose
// embeddings are summed, and gives logits for each, one head behind the other. What the ids stand for,
// Recipe::codec says.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "backend/backend.hpp"
#include "checkpoint/tensor_header.hpp"
#include "core/dtype.hpp"
#include "recipe/sound_codec.hpp"
#include "recipe/video_codec.hpp"

namespace diffuse {

enum class Slot : std::uint8_t { hidden, a, b };

// A run of matrix rows inside a tensor: row r (0 <= r < count) starts at element `first + r * row_stride`.
struct RowRun {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t row_stride = 0;
  bool operator==(const RowRun&) const = default;
};

// A matrix [rows = outputs, cols = inputs] as it lies in a tensor of the checkpoint: cut out of a fused
// tensor, transposed, or interleaved a head. Loading lays it out contiguously; the steps never see how it was
// stored.
struct MatrixRef {
  std::string tensor;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t col_stride = 1;  // elements between neighbours in a row; not 1 for a transposed tensor
  std::vector<RowRun> runs;     // in the order of the rows; their counts add up to `rows`
};

// `count` elements of a tensor, widened to f32: a bias or a norm's weight. `runs` as above with row length 1.
struct VectorRef {
  std::string tensor;
  std::int64_t count = 0;
  std::vector<RowRun> runs;
};

struct NormSpec {
  NormKind kind = NormKind::rms;
  std::optional<VectorRef> weight;  // absent: ones
  std::optional<VectorRef> bias;
  float weight_offset = 0;  // 1 where the stored weight is a difference from one
  float eps = 0;
};

// Axes of a grid of tokens: frame, row, column.
inline constexpr std::size_t kAxes = 3;

// Rotary embedding: the angle of pair i at position p is p * frequencies[i], computed in f32 as the reference
// does; its cosine and sine are multiplied by `attention_factor`.
//
// Where tokens stand in a grid, each axis has pairs of its own, those of the first axis first: their angles
// are the token's place on that axis times axes[axis][i], in f64.
struct RopeSpec {
  std::vector<float> frequencies;  // [pairs], scaled already (linear, llama3, yarn, …)
  RopeStyle style = RopeStyle::half;
  float attention_factor = 1;
  std::array<std::vector<double>, kAxes> axes = {};  // in the place of `frequencies`

  bool of_grid() const { return frequencies.empty(); }
  std::int64_t pairs() const {
    return static_cast<std::int64_t>(frequencies.size() + axes[0].size() + axes[1].size() + axes[2].size());
  }
  bool operator==(const RopeSpec&) const = default;
};

// A number that a head adds to each score, by how far the key stands from the query, counted in buckets: the
// near ones one position each, those further away in steps that grow with the logarithm of the distance up to
// max_distance, beyond which there is one bucket (T5, arXiv 1910.10683).
struct PositionBias {
  MatrixRef table;  // [buckets, heads]
  std::int64_t max_distance = 0;
  bool both_sides = false;  // half of the buckets is for keys behind the query; else those are never reached
};

// Rows of the block's modulation that scale and shift what a norm gives: norm(x) * (1 + scale) + shift.
struct ModulationRows {
  std::int32_t shift = 0;
  std::int32_t scale = 1;
};

struct Norm {
  Slot in = Slot::hidden;
  Slot out = Slot::a;
  NormSpec norm;
  std::optional<ModulationRows> modulation = {};  // then the norm has no weight and no bias of its own
};

// Makes the modulation of the steps behind it: the table and what the pass's time comes to (TimeEmbedding),
// added up.
struct Modulate {
  MatrixRef table;  // [rows, hidden]
};

struct Attention {
  Slot in = Slot::a;
  Slot out = Slot::a;
  MatrixRef query, key, value, output;
  std::optional<VectorRef> query_bias, key_bias, value_bias, output_bias;
  std::optional<NormSpec> query_norm, key_norm;  // a head, before the rotation
  bool norm_whole_row = false;                   // those norms span all heads at once
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t value_dim = 0;
  float scale = 1;                   // of the scores
  std::optional<std::int32_t> rope;  // index into Recipe::ropes; absent: no rotation
  std::int64_t window = 0;           // 0: full
  float softcap = 0;
  bool causal = true;  // else each row reaches all rows of its sequence, which must come in one step
  std::optional<PositionBias> position_bias;
};

// Queries of the rows against keys and values of the memory, all of it for every row.
struct CrossAttention {
  Slot in = Slot::a;
  Slot out = Slot::a;
  MatrixRef query, key, value, output;  // key and value: [.., encoder hidden]
  std::optional<VectorRef> query_bias, key_bias, value_bias, output_bias;
  std::optional<NormSpec> query_norm, key_norm;  // over all heads at once
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t value_dim = 0;
  float scale = 1;
};

struct Mlp {
  Slot in = Slot::a;
  Slot out = Slot::a;
  std::optional<MatrixRef> gate;  // present: down(act(gate(x)) * up(x)), else down(act(up(x)))
  MatrixRef up, down;
  std::optional<VectorRef> gate_bias, up_bias, down_bias;
  std::int64_t inner = 0;
  Activation activation = Activation::silu;
};

struct Expert {
  std::optional<MatrixRef> gate;
  MatrixRef up, down;
};

struct Experts {
  Slot in = Slot::a;
  Slot out = Slot::a;
  MatrixRef router;  // [experts, hidden]
  std::vector<Expert> experts;
  std::int64_t inner = 0;
  std::int64_t top_k = 1;
  RouterScore score = RouterScore::softmax;
  bool renormalize = true;
  float scale = 1;
  Activation activation = Activation::silu;
};

struct Add {  // to += scale * from
  Slot from = Slot::a;
  Slot to = Slot::hidden;
  float scale = 1;
  std::optional<std::int32_t> gate = {};  // in the place of `scale`: a row of the block's modulation
};

using Step = std::variant<Norm, Attention, CrossAttention, Mlp, Experts, Add, Modulate>;

struct Block {
  std::vector<Step> steps;
};

// A table of positions that is computed: row p holds the sines of p * frequencies[i], then their cosines.
struct Sinusoids {
  std::int64_t count = 0;
  std::vector<double> frequencies;  // [hidden / 2]
  bool single = false;              // angles are rounded to f32, as where torch computes them
  bool cosines_first = false;
};

// Token ids -> hidden.
struct Front {
  MatrixRef embedding;             // [vocab, hidden]
  std::vector<MatrixRef> further;  // of the codebooks behind the first, whose rows are added in this order
  float scale = 1;
  std::optional<MatrixRef> positions;  // learned table [count, hidden]
  std::optional<Sinusoids> sinusoids;  // in its place
  std::int64_t position_offset = 0;    // row of position 0 in it
  std::optional<NormSpec> norm;
};

// Hidden -> logits.
struct Back {
  std::optional<NormSpec> norm;
  MatrixRef head;                  // [vocab, hidden]; the front's tensor where the two are tied
  std::vector<MatrixRef> further;  // of the codebooks behind the first: their logits stand behind its own
  std::optional<VectorRef> head_bias;
  bool tied = false;
  float scale = 1;  // of the logits
  float softcap = 0;
};

// One-dimensional convolution over frames, then an activation.
struct Convolution {
  MatrixRef weight;  // [outputs, inputs * width]: the taps of one input channel lie together
  std::optional<VectorRef> bias;
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  std::int64_t width = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;  // zeros on both sides
  Activation activation = Activation::none;

  // Frames that come of `frames`; 0 where not one window fits.
  std::int64_t frames_out(std::int64_t frames) const {
    const auto room = frames + 2 * padding - width;
    return room < 0 ? 0 : room / stride + 1;
  }
};

// Frames of features (log-mel) -> hidden.
struct FramesFront {
  std::int64_t features = 0;  // of a frame
  std::int64_t frames = 0;    // that an input has, exactly
  std::vector<Convolution> convolutions;
  MatrixRef positions;  // [rows of memory, hidden]
};

struct Projection {
  MatrixRef weight;
  std::optional<VectorRef> bias;
  Activation activation = Activation::none;  // of what it gives
};

// The stack whose output the answering stack reads.
struct Encoder {
  std::int64_t hidden = 0;         // of a row of memory
  std::int64_t width = 0;          // of a row within its blocks; another one only where there is a projection
  std::int64_t max_positions = 0;  // most rows of memory; of tokens, and of frames after the convolutions
  std::int64_t vocab = 0;          // 0: it reads frames
  std::variant<Front, FramesFront> front;
  std::vector<Block> blocks;
  std::optional<NormSpec> norm;
  std::vector<Projection> projections;  // behind the norm, one after the other: [.., width] to [hidden, ..]
};

// What the time of a pass comes to. Its sines and cosines go through two products to the embedding [hidden],
// and SiLU(embedding) through a third to the condition [rows, hidden] that blocks are modulated by.
struct TimeEmbedding {
  std::vector<float> frequencies;  // [inputs / 2]; angles are f32(time) * frequency, rounded to f32
  bool cosines_first = false;
  Projection first;      // [hidden, inputs]
  Projection second;     // [hidden, hidden]
  Projection condition;  // [rows * hidden, hidden]
  std::int64_t rows = 0;
};

// Latent elements that one token stands for.
struct PatchSize {
  std::int64_t frames = 1;
  std::int64_t height = 1;
  std::int64_t width = 1;

  std::int64_t elements() const { return frames * height * width; }
  bool operator==(const PatchSize&) const = default;
};

// What a request gets that says nothing.
struct PictureDefaults {
  std::int64_t steps = 0;
  double guidance = 1;
  std::int64_t height = 0;  // of pixels
  std::int64_t width = 0;
  std::int64_t frames = 1;
  double rate = 0;  // of its frames a second; 0: it is one picture
};

// What a stack has that refines a latent picture [channels, frames, height, width]. A token is a patch of it;
// tokens stand in the order frame, row, column, all in one sequence.
struct Refinement {
  std::int64_t channels = 0;
  std::int64_t out_channels = 0;
  PatchSize patch;
  std::array<std::int64_t, kAxes> most_patches = {};  // along each axis
  std::int64_t text_rows = 0;  // of memory, where a request says nothing: a shorter text is padded to it
  PictureDefaults defaults;
  TimeEmbedding time;
  Projection front;  // [hidden, channels * patch elements], of a patch's channels, frames, rows, columns
  NormSpec norm;     // before the last product, scaled and shifted as blocks are, by both rows of
  MatrixRef table;   // [2, hidden], shift and scale, each added to the time's embedding
  Projection back;   // [patch elements * out_channels, hidden]: a patch's frames, rows, columns, channels

  std::int64_t inputs() const { return channels * patch.elements(); }  // of a token
  std::int64_t outputs() const { return out_channels * patch.elements(); }
};

struct Recipe {
  std::string shape;       // "autoregressive", "encoder memory" or "iterative refinement"
  std::string model_type;  // config.json's, for reports only
  std::int64_t hidden = 0;
  std::int64_t vocab = 0;          // logits of a row, those of all codebooks
  std::int64_t codebooks = 1;      // ids that a row takes in, and that are chosen of its logits
  std::int64_t max_positions = 0;  // longest context: prompt and answer together
  std::vector<RopeSpec> ropes;
  std::optional<Encoder> encoder;
  Front front;
  std::vector<Block> blocks;
  Back back;
  std::optional<Refinement> refinement;  // there: it stands in the place of front and back
  std::optional<VideoCodec> video;       // what turns refined latents into pictures, on the client
  std::optional<SoundCodec> codec;       // what turns the answers' ids into sound, on the client
  std::vector<std::string> accepted;     // config keys left unread because a user accepted them: probe first
  std::vector<std::string> notes;        // what a user should know: Python ignored, keys accepted by name

  std::int64_t depth() const { return static_cast<std::int64_t>(blocks.size()); }
};

// Every tensor that a block, the front or the back refers to, each once, in order of first use.
std::vector<std::string> tensors_of(const Block& block);
std::vector<std::string> tensors_of(const Front& front);
std::vector<std::string> tensors_of(const Back& back);
std::vector<std::string> tensors_of(const Encoder& encoder);
std::vector<std::string> tensors_of(const TimeEmbedding& time);
std::vector<std::string> tensors_of(const SoundCodec& codec);
// Of the ends of a stack, whichever kind it has, and what each of its slices holds beside its layers.
std::vector<std::string> front_tensors(const Recipe& recipe);
std::vector<std::string> back_tensors(const Recipe& recipe);
std::vector<std::string> common_tensors(const Recipe& recipe);

}  // namespace diffuse
