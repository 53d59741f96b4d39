#pragma once
// Stated facts: what neither config.json nor the tensors' names say, a row a family. A row is data; nothing
// else in the program knows a family's name.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "backend/backend.hpp"

namespace diffuse {

// Whether a tensor that a module may have is there.
enum class Presence : std::uint8_t {
  absent,  // never: a stored one is left over
  stored,  // where the weights have it
  always,
  keyed,  // where the config key says so
};

struct PresenceRule {
  Presence presence = Presence::absent;
  std::string_view key = {};         // for keyed
  bool where_key_is_absent = false;  // for keyed
};

// A number that the family's class reads from a key; other families refuse a config that states it.
struct NumberRule {
  bool is_read = false;
  double where_key_is_absent = 0;  // 0: none
};

// Where a block's norms stand: before each branch, also behind it on what is added to the residual, or behind
// that addition (on the residual itself). Modulated: before each branch, but without weights of their own:
// the time of the pass scales and shifts them, and gates the branch; all but the cross-attention's.
enum class NormPlace : std::uint8_t { before, around, after, modulated };

enum class WindowRule : std::uint8_t {
  none,
  every_layer,
  even_layers,             // 0, 2, 4, …
  from_max_window_layers,  // layers from max_window_layers on, and only with use_sliding_window
};

// How a half of an encoder-decoder model knows positions.
enum class PositionKind : std::uint8_t {
  learned,            // a table, read from position_offset on
  sinusoids,          // computed in f64 with frequencies 10000^(-2i / hidden); a stored table goes first
  sinusoids_single,   // computed in f32 with frequencies 10000^(-i / (hidden / 2 - 1))
  sinusoids_cosines,  // the same with the cosines first, and of the answering half alone
  relative_bias,      // layer 0's bias serves all layers of its half
  relative_bias_each  // each layer has its own
};

// What is stated of families whose decoder reads an encoder at every layer, beside Facts.
struct MemoryFacts {
  PositionKind positions = PositionKind::learned;
  std::int64_t position_offset = 0;      // row of position 0 in the decoder's and a token encoder's table
  bool embedding_norm = false;           // a norm behind the embeddings of both halves
  bool final_norm = false;               // a norm behind the last block of both halves
  bool reads_frames = false;             // the encoder starts with two convolutions over frames of features
  Presence key_bias = Presence::always;  // of all attention; Facts::qkv_bias says it of queries and values
  bool scores_unscaled = false;
  Presence logits_bias = Presence::absent;  // final_logits_bias
  bool feed_forward_proj = false;           // that key names the activation, "gated-" in front for a gate
  // Logits are scaled by hidden^-1/2 unless scale_decoder_outputs, or where that is absent
  // tie_word_embeddings, is false.
  bool scales_logits = false;
  bool always_tied = false;    // whatever tie_word_embeddings says
  bool reads_sharing = false;  // share_encoder_decoder_embeddings = false: each half has a vocabulary
  // The halves are models of their own, each with a section of the config (text_encoder, decoder); so is the
  // codec (audio_encoder) of whose codebooks the decoder walks num_codebooks at once.
  bool walks_codebooks = false;
};

struct Facts {
  std::string_view model_type = {};
  // Of the config's names that families differ in (keys::is_disputed), those that this one's class reads; a
  // config that says something else by another name is refused. Empty: all are taken for what they are.
  std::span<const std::string_view> keys = {};

  // What config.json leaves out (hub files of transformers 4 do) is as in the family's configuration class.
  std::int64_t kv_heads = 0;      // 0: as many as heads
  std::int64_t head_dim = 0;      // 0: hidden / heads
  std::int64_t inner_factor = 0;  // inner size over hidden; 0: config.json must state it
  std::int64_t max_positions = 0;
  std::string_view activation = "silu";
  double norm_eps = 1e-6;
  bool tied = false;

  std::optional<NormKind> norm = {};  // absent: layer norms have a bias, RMS norms do not
  Presence norm_bias = Presence::absent;
  float norm_weight_offset = 0;
  NormPlace norm_place = NormPlace::before;

  bool embedding_times_sqrt_hidden = false;
  bool learned_positions = false;
  bool rotary = true;
  double rope_theta = 10000;

  bool linear_stored_transposed = false;  // [inputs, outputs] (Conv1D)
  PresenceRule qkv_bias = {};
  PresenceRule attention_output_bias = {};
  PresenceRule mlp_bias = {};
  // Before the rotation; of each head, or of all heads at once where the weight is as long as all.
  Presence query_key_norm = Presence::absent;
  bool query_key_norm_is_rms = false;  // without a bias, whatever the other norms are

  NumberRule query_scalar = {};        // scores are scaled by its -1/2th power instead of head_dim's
  bool reads_scale_attention = false;  // scale_attn_weights = false: scores are not scaled
  NumberRule attention_softcap = {};
  NumberRule logits_softcap = {};
  WindowRule window_rule = WindowRule::none;
  std::int64_t window = 0;  // where sliding_window is absent; 0: none
  std::int64_t max_window_layers = 0;
  bool reads_layer_types = false;  // where layer_types is stated, it decides which layers have the window

  bool has_experts = false;         // in place of every layer's MLP
  bool renormalize_experts = true;  // the chosen experts' weights are divided by their sum

  std::optional<MemoryFacts> memory = {};  // there: its stack reads an encoder

  std::string_view obstacle = {};  // why no recipe is made of it; empty: one is
};

// Null for a family without a row.
const Facts* facts_of(std::string_view model_type);
// What an unknown family is taken for once a user vouches for it: the plainest decoder, biases as stored.
const Facts& plain_facts();

}  // namespace diffuse
