#pragma once
// Digests: SHA-256 for what is kept in files, XXH3 (64 bits) for what is compared often.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace diffuse {

// Feeds bytes in pieces; the digest is that of their concatenation.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(std::span<const std::byte> bytes);
  void update(const std::string& text) { update(std::as_bytes(std::span(text))); }
  std::array<std::uint8_t, 32> digest();  // ends the computation; call once
  std::string hex_digest();               // the same in 64 lower-case hex digits

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string sha256_hex(std::span<const std::byte> bytes);
std::uint64_t digest64(std::span<const std::byte> bytes, std::uint64_t seed = 0);
std::string to_hex(std::span<const std::uint8_t> bytes);

}  // namespace diffuse
