#pragma once
// The `decoder` of a tokenizer.json: token strings -> text. It runs as a stream; a whole text is a stream
// that ended.

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/json.hpp"
#include "core/utf8.hpp"
#include "text/regex.hpp"

namespace diffuse {

class TokenDecoder {
 public:
  struct Bytes {};     // ByteLevel: letters stand for bytes, all tokens together are one text
  struct Spaced {};    // no decoder: tokens with a space between
  struct Fallback {};  // ByteFallback: <0xE2> is a byte; a run of them is a text, or a U+FFFD each
  struct Fuse {};      // all tokens are one from here on
  struct Replace {     // in each token
    TextPattern pattern;
    std::string content;
  };
  struct Strip {  // up to `start` and `stop` times the letter, at the ends of each token
    std::string letter;
    std::size_t start;
    std::size_t stop;
  };
  struct Unspace {  // Metaspace: the replacement is a space, and nothing within the first token
    std::string replacement;
    bool drop_in_first;
  };
  struct WordEnd {  // BPEDecoder: the suffix is a space, and nothing in the last token
    std::string suffix;
  };
  struct Trim {};  // no white space at the ends of the text, as Python's str.strip takes it off
  // Nested sequences are laid flat.
  using Step = std::variant<Bytes, Spaced, Fallback, Fuse, Replace, Strip, Unspace, WordEnd, Trim>;

  // `element` may be null. Throws refused for an unknown type, naming it.
  static TokenDecoder from_json(const Json& element, const std::string& where);
  // Pieces put together, `space` read as a space, nothing of it at the ends of the text.
  static TokenDecoder trimmed(const std::string& space);

  // The state of one text. Keeps a pointer to the decoder, which must outlive it and stay where it is.
  class Stream {
   public:
    explicit Stream(const TokenDecoder& decoder) : decoder_(&decoder), states_(decoder.steps_.size()) {}
    // Takes a token; returns the text that is certain by now.
    std::string push(std::string_view token);
    // The rest. Call once.
    std::string finish();

   private:
    struct State {
      Utf8Stream utf8;
      std::string held;          // what the next token may still change
      std::size_t stripped = 0;  // letters taken off the token's start
      bool at_head = false;      // only such letters have come of the token so far
      std::size_t tokens = 0;    // begun so far
    };
    // A token comes whole or in pieces; `begins` marks the first. feed() hands a piece to a step, close()
    // tells it that nothing follows; both hand on to the next step, and behind the last is the text.
    void feed(std::size_t step, std::string_view piece, bool begins);
    void close(std::size_t step);
    void feed(const Bytes&, std::size_t step, std::string_view piece, bool begins);
    void feed(const Spaced&, std::size_t step, std::string_view piece, bool begins);
    void feed(const Fallback&, std::size_t step, std::string_view piece, bool begins);
    void feed(const Fuse&, std::size_t step, std::string_view piece, bool begins);
    void feed(const Replace& kind, std::size_t step, std::string_view piece, bool begins);
    void feed(const Strip& kind, std::size_t step, std::string_view piece, bool begins);
    void feed(const Unspace& kind, std::size_t step, std::string_view piece, bool begins);
    void feed(const WordEnd& kind, std::size_t step, std::string_view piece, bool begins);
    void feed(const Trim&, std::size_t step, std::string_view piece, bool begins);
    void flush(std::size_t step);
    void end_token(const Strip& kind, std::size_t step);

    const TokenDecoder* decoder_;
    std::vector<State> states_;
    std::string out_;
  };

 private:
  void add(const Json& element, const std::string& where);
  std::vector<Step> steps_;
  bool pieces_ = false;  // a step so far hands tokens on in pieces
};

}  // namespace diffuse
