#pragma once
// The codec of videos, from its config.json and the headers of its weights.

#include <string>

#include "core/json.hpp"
#include "recipe/config_reader.hpp"
#include "recipe/tensor_book.hpp"
#include "recipe/video_codec.hpp"

namespace diffuse {

// Reads vae/config.json and takes the decoder's tensors; those of the encoder are passed over. `root` stands
// before the tensors' names ("vae." or nothing). Throws refused for an autoencoder of another class or form
// (Wan 2.2's residual one), bad data where config and shapes do not fit; and as TensorBook and ConfigReader
// do.
VideoCodec build_video_codec(ConfigReader& config, TensorBook& book, const std::string& root);

// The same with the whole account: also refuses tensors under `root` and config keys that are left over.
VideoCodec read_video_codec(const Json& config, const TensorHeaders& headers, const std::string& root = {});

}  // namespace diffuse
