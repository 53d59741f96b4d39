#pragma once
// One stage of the pipeline: carries out rank 0's descriptors on its slice, takes hidden rows from the stage
// before and hands them to the next; the last one samples. Rank 0 feeds its own stage by hand, the others run
// loop().

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "pipeline/memories.hpp"
#include "pipeline/refinement_work.hpp"
#include "pipeline/text_work.hpp"
#include "schedule/step.hpp"
#include "transport/transport.hpp"

namespace diffuse {

// Sent to rank 0 at the end.
struct StageReport {
  std::int64_t busy_ns = 0;    // computing steps
  std::int64_t encode_ns = 0;  // encoding, which is not in it
  std::int64_t waited_ns = 0;  // for hidden rows and descriptors, between the first step and the last
  std::uint64_t steps = 0;
  std::uint64_t rows = 0;
  std::uint64_t bytes_sent = 0;
};

// A fault to be found: one bit of one hidden tensor flips between two ranks, for a check of the checker.
struct FlipBit {
  std::uint64_t step = 0;
  std::int64_t row = 0;
};

struct StageOptions {
  std::int32_t stages = 1;
  std::int32_t carries = 3;     // hidden tensors in flight at this stage
  std::optional<FlipBit> flip;  // on the stage that sends
};

// What differs from shape to shape.
using StageWork = std::variant<TextWork, RefinementWork>;

class BatchEncoder;
class EncoderRunner;
struct EncoderInput;

class Stage {
 public:
  // References must outlive the stage. The transport's rank is the stage's number. `encoder`: where this rank
  // encodes too.
  Stage(StageWork work, Backend& backend, Transport& transport, const Recipe& recipe,
        const StageOptions& options, EncoderRunner* encoder = nullptr);
  ~Stage();

  // Until `finish`: every descriptor in order. For ranks that are not 0.
  StageReport loop();

  // Rank 0's stage: the same commands, called. A step's input is given: ids, one a row, or rows of a
  // latent. Where this stage is also the last, run() returns the answer; else the answer comes from there.
  // `told` is the prompt with the packed rules behind it, read where the last stage reads_history().
  void admit(const Descriptor& command, std::span<const std::int32_t> told);
  std::vector<std::byte> run(const Descriptor& step, std::span<const std::byte> input);
  SlotLeft release(const Descriptor& command);
  // A batch is encoded, here or elsewhere; `inputs` are read where it is here.
  void encode(const Descriptor& batch, std::vector<std::shared_ptr<const EncoderInput>> inputs);
  bool encoding() const;  // here
  void encode_on();       // by a block, where it is
  Memories& memories() { return memories_; }
  StageReport finish();

 private:
  struct Carry {
    Buffer buffer;
    std::vector<std::byte> host;  // staging, where neither the host nor the transport can use the buffer
    std::unique_ptr<Ticket> received;
    std::unique_ptr<Ticket> sent;
  };
  struct Pending {
    Descriptor command;
    std::size_t carry = 0;
  };
  bool first() const { return rank_ == 0; }
  bool last() const { return rank_ == options_.stages - 1; }
  SampleSpec& spec_of(std::int32_t slot);
  std::size_t take_carry();
  std::span<std::byte> travelling(Carry& carry, std::int64_t rows);
  void flip_bit(Carry& carry, std::int64_t row);
  void listen();
  void take_in();
  void look_ahead();
  bool command_is_at_hand();
  bool encodes_next();
  Pending next_command();
  void carry_out(Pending& pending);
  std::vector<std::byte> compute(const Descriptor& step, std::span<const std::byte> input, Carry& carry);
  void admit_slot(const Descriptor& command);
  void send_answer(std::vector<std::byte> bytes, const std::string& purpose);
  std::string describe(const Descriptor& step) const;
  const RankSlice& slice() const;

  StageWork work_;
  Backend& backend_;
  Transport& transport_;
  const Recipe& recipe_;
  StageOptions options_;
  int rank_;
  bool staged_;  // carries go through memory of the host
  std::vector<Carry> carries_;
  std::size_t next_carry_ = 0;
  std::vector<SampleSpec> slots_;                 // for messages
  std::string last_step_ = "before any request";  // for messages
  Descriptor incoming_;
  std::unique_ptr<Ticket> incoming_ticket_;
  bool heard_all_ = false;        // `finish` too
  std::size_t before_block_ = 0;  // commands that go before the next block is encoded
  std::deque<Pending> pending_;
  Memories memories_;
  std::unique_ptr<BatchEncoder> encoder_;       // where this rank encodes
  std::deque<std::vector<std::int32_t>> told_;  // of admissions that are not carried out yet
  struct Answer {
    std::vector<std::byte> bytes;
    std::unique_ptr<Ticket> sent;
  };
  std::deque<Answer> answers_;
  StageReport report_;
};

}  // namespace diffuse
